"""What is said of a setting that does not exist, or that has a value it cannot have."""

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from pydantic_core import ErrorDetails

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
