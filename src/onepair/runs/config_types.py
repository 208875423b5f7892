"""The kinds of values that settings have, and what is said of a wrong one."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, Strict
from pydantic_core import ErrorDetails

from onepair.data.tables.cell_values import names_in
from onepair.data.vectors.align import TFIDF, VECTORS

NOTHING = "none"  # how None is written in TOML, which has no word for it

CHECKED = ConfigDict(extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)


def _or_nothing(value: Any) -> Any:
    return None if value == NOTHING else value


def _options(value: Any) -> Any:
    return {name: _or_nothing(option) for name, option in value.items()} if isinstance(value, Mapping) else value


def _names(value: Any) -> Any:
    """A list of names, which a command line gives as one text."""
    return tuple(names_in(value) or ()) if isinstance(value, str) else value


Switch = Annotated[bool, Strict()]
Count = Annotated[int, Strict(), Field(gt=0)]
Seed = Annotated[int, Strict(), Field(ge=0, lt=2**32)]
Above = Annotated[float, Strict(), Field(gt=0)]
AtLeast = Annotated[float, Strict(), Field(ge=0)]
Share = Annotated[float, Strict(), Field(gt=0, lt=1)]
OrNothing = BeforeValidator(_or_nothing)
Options = BeforeValidator(_options)
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
Stage = Annotated[str, Field(coerce_numbers_to_str=True)]  # a stage may have a number for a name


_RULES = {
    "bool_type": "be true or false",
    "int_type": "be a whole number",
    "float_type": "be a number",
    "string_type": "be text",
    "dict_type": "be a table",
    "literal_error": "be {expected}",
    "finite_number": "be a finite number",
    "greater_than": "be above {gt:g}",
    "greater_than_equal": "be {ge:g} or more",
    "less_than": "be below {lt:.10g}",
    "less_than_equal": "be {le:g} or less",
}


def sentence(error: ErrorDetails, *, known: Sequence[str], stages: Sequence[str]) -> str:
    """One of pydantic's errors in our words.

    Args:
        error: about one setting.
        known: the full names of all settings, as "linear.optimiser.lr".
        stages: those that the mode trains, where a setting of old has its new place.
    """
    key, value, kind = ".".join(map(str, error["loc"])), error["input"], error["type"]
    if kind == "unexpected_keyword_argument":
        return _unknown(key, value, known, stages)
    if kind == "dataclass_type":
        return f"{key} is a section of settings, got {value!r}"
    if kind == "value_error":
        return str(error["ctx"]["error"])
    rule = _RULES.get(kind)
    return f"{key} must {rule.format(**error.get('ctx', {}))}, got {value!r}" if rule else f"{key}: {error['msg']}"


def _unknown(key: str, value: Any, known: Sequence[str], stages: Sequence[str]) -> str:
    if key in ("optimiser", "optimizer") and isinstance(value, Mapping) and value:
        key = f"{key}.{next(iter(value))}"
    if moved := _moved(key.replace("optimizer", "optimiser"), stages):
        return f"there is no setting {key}; each stage has its own: set {' and '.join(moved)}"
    prefix, _, name = key.rpartition(".")
    inside = [other.removeprefix(f"{prefix}.") for other in known if not prefix or other.startswith(f"{prefix}.")]
    names = list(dict.fromkeys(other.partition(".")[0] for other in inside))  # of this section
    near = [f"{prefix}.{match}".removeprefix(".") for match in get_close_matches(name, names, n=1)]
    near = near or [other for other in known if other.endswith(f".{name}")] or get_close_matches(key, known, n=1)
    advice = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}"
    return f"there is no setting {key}; {advice}"


def _moved(key: str, stages: Sequence[str]) -> list[str]:
    """Where a setting is that once was the same for all stages."""
    renamed = {
        "linear_epochs": "linear.epochs",
        "linear_lr": "linear.optimiser.lr",
        "optimiser.head_lr_multiplier": "finetune.optimiser.head_lr_multiplier",
    }
    if key in renamed:
        return [renamed[key]]
    common = key in ("epochs", "batch_size", "optimiser") or key.startswith("optimiser.")
    return [f"{stage}.{key}" for stage in stages] if common else []


WITHOUT_IMAGES = {VECTORS: "data.features are vectors as they are", TFIDF: "backbone tfidf makes vectors of texts"}
OF_IMAGES = ("image_size", "augment", "train_from", "weights")  # settings of the model


def with_mode(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the backbone that given vectors stand for, and the mode that all vectors need, unless they say it.

    >>> with_mode({"data": {"features": "clip.npy"}})["model"]
    {'mode': 'linear', 'backbone': 'vectors'}
    """
    data, model = settings.get("data"), settings.get("model", {})
    given = data.get("features") if isinstance(data, Mapping) else None
    if not isinstance(model, Mapping):
        return dict(settings)
    if given not in (None, "none"):
        model = {"backbone": VECTORS, **model}
    if model.get("backbone") in WITHOUT_IMAGES:
        model = {"mode": "linear", **model}
    return {**settings, "model": dict(model)} if model else dict(settings)


def image_settings(settings: Mapping[str, Any]) -> str | None:
    """Why settings, by their full names, do not go together, where some are about images and others are not."""
    backbone, features = settings["model.backbone"], settings["data.features"]
    if (features is not None) != (backbone == VECTORS):
        if features is None:
            return "model.backbone vectors takes those that data.features names; give them with --features"
        return f"data.features are vectors, and model.backbone {backbone} would make others; leave one of them out"
    if backbone not in WITHOUT_IMAGES:
        return None
    if settings["model.mode"] != "linear":
        return (
            f"{WITHOUT_IMAGES[backbone]}: there is no network to fine-tune; choose --mode linear instead of "
            f"{settings['model.mode']}, or leave it out"
        )
    for name in OF_IMAGES:
        if settings[f"model.{name}"] not in (None, "auto"):
            return f"{WITHOUT_IMAGES[backbone]}, and model.{name} is about images; leave it out"
    return None
