"""The kinds of values that settings have."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ConfigDict, Field, Strict

from onepair.data.dialects import names_in

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
