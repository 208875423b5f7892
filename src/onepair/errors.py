"""The one kind of error that the command line shows as a sentence."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

# What each extra of the package brings, as it is imported. pyproject.toml says the same with versions.
EXTRAS = {
    "onnx": ("onnx", "onnx_ir", "onnxruntime", "onnxscript"),
    "ray": ("ray",),
    "remote": ("aiohttp", "s3fs"),
    "report": ("jinja2", "matplotlib"),
    "review": ("fastapi", "jinja2", "python_multipart", "starlette", "uvicorn"),
    "tensorboard": ("tensorboard",),
    "tune": ("matplotlib", "optuna"),
}


class UserError(Exception):
    """Something that the user can mend: the message is one sentence that says what, where, and what to do."""


class Stopped(BaseException):
    """A signal asked to stop, and everything was saved: no error, so nothing that handles errors gets it."""

    def __init__(self, sentence: str, *, code: int) -> None:
        super().__init__(sentence)
        self.code = code  # that the process should end with


class MissingExtraError(UserError, ImportError):
    """A part of the package is wanted whose dependencies are not installed."""


def require_extra(*names: str) -> None:
    """Refuse to begin what cannot be done without an extra of the package."""
    missing = {name: [module for module in EXTRAS[name] if find_spec(module) is None] for name in names}
    if wanted := [name for name, modules in missing.items() if modules]:
        modules = ", ".join(dict.fromkeys(module for name in wanted for module in missing[name]))
        raise MissingExtraError(f"this needs {modules}; install with: pip install 'onepair[{','.join(wanted)}]'")


def first_mistake(mistakes: Sequence[Any]) -> str:
    """The first of what pydantic found wrong with a file of ours: the key, and what it should be.

    >>> first_mistake([{"loc": ("classes", 0), "msg": "Input should be a valid string"}])
    'classes.0: input should be a valid string'
    """
    key = ".".join(map(str, mistakes[0]["loc"])) or "it"
    return f"{key}: {mistakes[0]['msg'].lower()}"
