"""Settings that are known to work, by the name of the dataset they were made for."""

import tomllib
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from onepair.errors import ConfigError
from onepair.runs.config import MethodConfig, merge

_UNDER = "paper"  # lies under the presets of the paper's datasets, and is none itself


def preset_titles() -> dict[str, str]:
    """The presets there are, with the datasets they were made for.

    >>> preset_titles()["cub"]
    'CUB-200-2011'
    """
    return {name: section["title"] for name, section in _sections().items() if name != _UNDER}


def preset(name: str, method: str) -> dict[str, Any]:
    """The settings of a preset for a method, as a configuration file would say them.

    >>> preset("cub", "opml")["method"]["options"]
    {'alpha': 0.9, 'beta': 0.5}
    >>> preset("voc2021", "opml")
    Traceback (most recent call last):
    onepair.errors.ConfigError: there is no preset voc2021; did you mean voc2012?
    """
    titles = preset_titles()
    if name not in titles:
        near = get_close_matches(name, titles, n=1)
        advice = f"did you mean {near[0]}?" if near else f"there are {', '.join(titles)}"
        raise ConfigError(f"there is no preset {name}; {advice}")
    sections = _sections()
    layers = [sections[name]] if name == "digits" else [sections[_UNDER], sections[name]]
    own = merge([layer.get("methods", {}).get(method, {}) for layer in layers])
    options = own.pop("options", {})
    settings = merge([*layers, own, {"method": {"name": method, "options": options}}])
    return {key: value for key, value in settings.items() if key not in ("title", "methods")}


def with_preset(name: str | None, *layers: dict[str, Any]) -> list[dict[str, Any]]:
    """Layers of settings over those of a preset, if one is named, for the method that the layers choose."""
    if name is None:
        return list(layers)
    chosen = merge(layers).get("method", {})
    method = chosen.get("name") if isinstance(chosen, dict) else None
    return [preset(name, str(method or MethodConfig().name)), *layers]


@cache
def _sections() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("presets.toml").read_text("utf-8"))
