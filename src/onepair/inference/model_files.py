"""What there is to know of a model beside its weights: model.json of a run, and the metadata of an ONNX file."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, PositiveInt, ValidationError, model_validator

from onepair import __version__
from onepair.data.images.decode import Preprocessing
from onepair.errors import ModelError, first_mistake
from onepair.files import Migration, migrate, read_json, write_atomically
from onepair.probability.thresholds import StoredThresholds, Thresholds
from onepair.words import counted

if TYPE_CHECKING:
    from onepair.models import Classifier, State

OLDEST = 2  # format that can be read
MIGRATIONS: tuple[Migration, ...] = ()  # each from one format to the next
FORMAT = OLDEST + len(MIGRATIONS)
NAME, WEIGHTS, CARD = "model.json", "model.safetensors", "README.md"


class Description(NamedTuple):
    """A model, but for its weights."""

    backbone: str
    preprocessing: Preprocessing | None  # None where inputs are vectors, or texts that vectors are made of
    classes: tuple[str, ...]
    decisions: Thresholds
    precision: str = "32-true"  # that it was trained in and is scored in, as Fabric calls it
    boost: float = 1.0  # of the classifier
    width: int | None = None  # of the vectors
    vocabulary: tuple[str, ...] = ()  # of the texts

    def to_dict(self) -> dict[str, Any]:
        stored = self._asdict() | {
            "preprocessing": self.preprocessing and asdict(self.preprocessing),
            "decisions": self.decisions.to_dict(),
        }
        return {"format": FORMAT, "version": __version__, **{name: each for name, each in stored.items() if each != ()}}


class _Stored(BaseModel):
    """The form that `to_dict` has; what a file adds, as an ONNX file its kind of input, is not looked at."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    backbone: str
    preprocessing: Preprocessing | None
    classes: tuple[str, ...]
    decisions: StoredThresholds
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = "32-true"
    boost: float = 1.0
    width: PositiveInt | None = None
    vocabulary: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if (self.preprocessing is None) != (self.width is not None):
            raise ValueError("a model has the preprocessing of images, or the width of vectors")
        return self


def parse_description(stored: Any, *, where: Path) -> Description:
    """Read the description that `to_dict` made; `where` it comes from is said in errors."""
    if isinstance(stored, dict):
        if stored.get("format") not in range(OLDEST, FORMAT + 1):
            raise ModelError(
                f"{where}: was written by another version of onepair, {stored.get('version', 'an early one')}; "
                f"this is {__version__}: use that one, or train or export again"
            )
        stored = migrate(stored, MIGRATIONS, where=where, first=OLDEST, error=ModelError)
    try:
        given = _Stored.model_validate(stored)
        decisions = Thresholds.from_stored(given.decisions, classes=len(given.classes))
    except ValidationError as error:
        raise ModelError(f"{where}: is damaged, {first_mistake(error.errors())}") from None
    except ValueError as error:
        raise ModelError(f"{where}: is damaged, {error}") from None
    fields = {name: getattr(given, name) for name in Description._fields}
    return Description(**fields | {"decisions": decisions})


def write_description(folder: Path, description: Description) -> None:
    """Write model.json."""
    content = json.dumps(description.to_dict(), indent=2, ensure_ascii=False, allow_nan=False)
    write_atomically(folder / NAME, content.encode())


def read_description(folder: Path) -> Description:
    """Read model.json."""
    path = folder / NAME
    stored = read_json(path, error=ModelError)
    if stored is None:
        raise ModelError(f"{folder}: holds no model; a finished run has model.json and model.safetensors")
    return parse_description(stored, where=path)


def save_model(
    folder: Path,
    classifier: "Classifier",
    decisions: Thresholds,
    *,
    weights: "State | None" = None,
    precision: str = "32-true",
) -> Description:
    """Write model.safetensors, and model.json with all that is needed to use it, which is returned.

    Weights are the classifier's own, unless they are spread over processes and were gathered by the caller.
    """
    from onepair.models import IdentityBackbone, TextBackbone, save_weights

    backbone = classifier.backbone
    save_weights(folder / WEIGHTS, classifier.state_dict() if weights is None else weights)
    described = Description(
        backbone.name, None, classifier.classes, decisions, precision=precision, boost=classifier.boost
    )
    if not isinstance(backbone, IdentityBackbone):
        described = described._replace(preprocessing=backbone.preprocessing)
    else:
        vocabulary = backbone.vocabulary if isinstance(backbone, TextBackbone) else ()
        described = described._replace(width=backbone.feature_dim, vocabulary=vocabulary)
    write_description(folder, described)
    return described


def load_model(folder: Path) -> "tuple[Classifier, Thresholds]":
    """Load the classifier that `save_model` wrote, on the CPU and ready to predict, and what its scores mean."""
    import torch

    from onepair.models import Backbone, Classifier, IdentityBackbone, TextBackbone, create_backbone, read_state
    from onepair.models.backbone import head_for

    described = read_description(folder)
    if described.preprocessing is not None:
        size = described.preprocessing.size
        backbone: Backbone = create_backbone(described.backbone, weights="none", image_size=size)
        backbone.preprocessing = described.preprocessing
    elif described.vocabulary:
        backbone = TextBackbone(described.vocabulary, described.width or 0)
    else:
        backbone = IdentityBackbone(described.width or 0)
    classifier, state = Classifier(backbone, described.classes, boost=described.boost), read_state(folder / WEIGHTS)
    classifier.head = head_for(state, backbone.feature_dim, len(described.classes))
    try:
        classifier.load_state_dict(state)
    except RuntimeError:
        classes = counted(len(described.classes), "class")
        raise ModelError(f"{folder / WEIGHTS}: does not fit a {described.backbone} with {classes}") from None
    return classifier.to(memory_format=torch.channels_last).eval(), described.decisions
