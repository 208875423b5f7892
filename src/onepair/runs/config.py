"""What a run is asked to do: frozen records, and one TOML file for all of them."""

import math
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from difflib import get_close_matches
from operator import attrgetter
from pathlib import Path
from types import UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

import tomli_w

from onepair.errors import UserError
from onepair.labels import PUBLISHED_SEED

Record = TypeVar("Record")


LINEAR_DEFAULTS = {"optimiser": {"name": "adam", "lr": 3e-4, "weight_decay": 0.0}}


class ConfigError(UserError, ValueError):
    """A setting that does not exist, or a value that it cannot have."""


@dataclass(frozen=True)
class DataConfig:
    """Which images and labels, and how many of the labels the learner gets to see."""

    source: str = ""  # a path, or "digits"
    format: str = "auto"
    unlisted: Literal["unknown", "negative"] = "unknown"
    images: str | None = None
    observe: Literal["given", "single-positive"] = "given"
    on_error: Literal["raise", "skip"] = "raise"  # what to do about training images that cannot be read
    seed: int = PUBLISHED_SEED  # of the observed labels and of the validation split
    validation: float = 0.2  # share of the training images, where the dataset has no validation split
    fold: str | None = None  # "2/5" holds out the second of five parts of the training images, to test on


@dataclass(frozen=True)
class ModelConfig:
    """Which network, and which part of it learns."""

    backbone: str = "resnet50.tv_in1k"
    weights: str | None = None  # a file, "pretrained", "none"; None looks into packages before downloading
    image_size: int | None = None  # None: the size the weights were trained with
    flip: float = 0.5  # how often a training image is mirrored
    mode: Literal["linear", "finetune", "linear-init"] = "finetune"


@dataclass(frozen=True)
class MethodConfig:
    """Which method, and the options that differ from its defaults."""

    name: str = "opml-sp"
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OptimiserConfig:
    """How the weights move."""

    name: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: float = 1e-4
    head_lr_multiplier: float = 10.0  # for the classifier, in finetune
    momentum: float = 0.9  # of sgd
    weight_decay: float = 1e-3
    schedule: Literal["constant", "cosine"] = "constant"
    warmup_epochs: float = 0.0
    ema: float | None = None  # decay per step of averaged weights, which are then the ones evaluated


@dataclass(frozen=True)
class Config:
    """All that decides the result of a run."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    method: MethodConfig = MethodConfig()
    optimiser: OptimiserConfig = OptimiserConfig()
    epochs: int = 10
    linear_epochs: int = 25  # of mode linear, and of the first part of linear-init
    linear_lr: float | None = None  # of the first part of linear-init; None: optimiser.lr
    batch_size: int = 16  # over all processes together
    seed: int = 0  # of the weights and of the order of batches
    precision: Literal["32-true", "16-mixed", "bf16-mixed"] = "32-true"

    def __post_init__(self) -> None:
        above_zero = ("epochs", "linear_epochs", "batch_size", "linear_lr", "model.image_size", "optimiser.lr")
        at_least_zero = ("head_lr_multiplier", "momentum", "weight_decay", "warmup_epochs")
        self._require(above_zero, lambda value: 0 < value < math.inf, "be above 0")
        self._require(
            [f"optimiser.{name}" for name in at_least_zero], lambda value: 0 <= value < math.inf, "be 0 or more"
        )
        self._require(("seed", "data.seed"), lambda value: 0 <= value < 2**32, "be 0 or more, and below 2^32")
        self._require(("data.validation", "optimiser.ema"), lambda value: 0 < value < 1, "lie between 0 and 1")
        self._require(("model.flip",), lambda value: 0 <= value <= 1, "lie between 0 and 1")
        if self.data.fold is not None:
            parse_fold(self.data.fold)

    def _require(self, keys: Iterable[str], fits: Callable[[float], bool], rule: str) -> None:
        for key in keys:
            value = attrgetter(key)(self)
            if value is not None and not fits(value):
                raise ConfigError(f"{key} must {rule}, got {value}")


def parse_fold(fold: str) -> tuple[int, int]:
    """Which part of how many a fold holds out.

    >>> parse_fold("2/5")
    (2, 5)
    """
    numbers = [int(number) for number in fold.split("/") if number.isdecimal()]
    if fold.count("/") != 1 or len(numbers) != 2 or not 1 <= numbers[0] <= numbers[1] or numbers[1] < 2:
        raise ConfigError(f"data.fold must be a part of two or more, as 2/5, got {fold!r}")
    return numbers[0], numbers[1]


def read_config(path: Path) -> dict[str, Any]:
    """The settings in a TOML file, as nested dictionaries."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: is not TOML ({error})") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from None


def parse_setting(text: str) -> dict[str, Any]:
    """A setting from the command line, as "optimiser.lr=0.01", as nested dictionaries.

    >>> parse_setting("method.options.alpha=0.7")
    {'method': {'options': {'alpha': 0.7}}}
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ConfigError(f"--set {text}: expected key=value, as optimiser.lr=0.01")
    try:
        setting: Any = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        setting = value.strip()  # a word needs no quotes here
    for part in reversed(key.strip().split(".")):
        setting = {part: setting}
    nested: dict[str, Any] = setting
    return nested


def merge(layers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Nested dictionaries laid over each other; the later one wins."""
    merged: dict[str, Any] = {}
    for layer in layers:
        for key, value in layer.items():
            nested = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
            merged[key] = merge([merged[key], value]) if nested else value
    return merged


def build_config(settings: Mapping[str, Any]) -> Config:
    """A checked configuration; an unknown key is refused with the nearest known one."""
    return _build(Config, settings, "")


def resolve_config(file: Mapping[str, Any], *others: Mapping[str, Any]) -> Config:
    """A checked configuration from a file's settings and others that win over it.

    A file's section `linear` holds settings for mode linear alone, where a small model on fixed features wants another
    optimiser than a network. A backbone from elsewhere does not take over the file's image size and weights.
    """
    common = {key: value for key, value in file.items() if key != "linear"}
    chosen = merge(others)
    if "backbone" in chosen.get("model", {}):
        model = common.get("model", {})
        common["model"] = {key: value for key, value in model.items() if key not in ("image_size", "weights")}
    settings = merge([common, chosen])
    if settings.get("model", {}).get("mode") == "linear":
        settings = merge([LINEAR_DEFAULTS, common, file.get("linear", {}), chosen])
    return build_config(settings)


def to_toml(config: Config) -> str:
    """The configuration as TOML, complete but for settings that are None."""
    return tomli_w.dumps(_without_none(asdict(config)))


def flatten(config: Config) -> dict[str, Any]:
    """Every setting by its full name, as "method.options.alpha"."""
    return _flatten(asdict(config), "")


def differences(old: Config, new: Config) -> list[str]:
    """The keys in which two configurations differ, with both values."""
    before, after = flatten(old), flatten(new)
    keys = sorted(before.keys() | after.keys())
    return [f"{key} is {after.get(key)}, was {before.get(key)}" for key in keys if before.get(key) != after.get(key)]


def _build(record: type[Record], settings: Mapping[str, Any], prefix: str) -> Record:
    hints = get_type_hints(record)
    names = [each.name for each in fields(record)]  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in settings.items():
        if key not in names:
            near = get_close_matches(key, names, n=1)
            advice = f"did you mean {prefix}{near[0]}?" if near else f"there are {', '.join(names)}"
            raise ConfigError(f"there is no setting {prefix}{key}; {advice}")
        hint = hints[key]
        if is_dataclass(hint):
            if not isinstance(value, Mapping):
                raise ConfigError(f"{prefix}{key} is a section of settings, got {value!r}")
            values[key] = _build(hint, value, f"{prefix}{key}.")  # type: ignore[arg-type]
        else:
            values[key] = _convert(value, hint, f"{prefix}{key}")
    return record(**values)


def _convert(value: Any, hint: Any, key: str) -> Any:
    """`value` as the type of a field, if it is one."""
    choices = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    for choice in choices:
        if get_origin(choice) is Literal and value in get_args(choice):
            return value
        if choice is float and isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
        if choice is type(None) and value in (None, "none"):
            return None
        kind = get_origin(choice) or choice
        if kind not in (Literal, float) and isinstance(value, kind) and isinstance(value, bool) == (kind is bool):
            return dict(value) if isinstance(value, Mapping) else value
    expected = " or ".join(
        ", ".join(map(repr, get_args(choice)))
        if get_origin(choice) is Literal
        else _KINDS[get_origin(choice) or choice]
        for choice in choices
        if choice is not type(None)
    )
    raise ConfigError(f"{key} must be {expected}, got {value!r}")


_KINDS = {str: "text", int: "a whole number", float: "a number", Mapping: "a table"}


def _without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: _without_none(value) if isinstance(value, Mapping) else value
        for key, value in settings.items()
        if value is not None
    }


def _flatten(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flatten(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat
