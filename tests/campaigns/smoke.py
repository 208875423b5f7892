"""A short look at an installation: every module, the losses, the metrics, and every command on a small dataset.

    python -m tests.campaigns.smoke

It needs onepair with its extras and nothing else, so that it runs wherever that is installed; see `installs.py`.
"""

import contextlib
import importlib
import io
import os
import pkgutil
import platform
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import torch
from sklearn.metrics import average_precision_score

import onepair
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from tests.campaigns.forked import onepair as command
from tests.campaigns.sample import write_sample
from tests.review.processes import serving
from tests.training.tiny import SETTINGS


def import_everything() -> None:
    """Every module there is, those of the extras included."""
    for module in pkgutil.walk_packages(onepair.__path__, "onepair."):
        if module.name != "onepair.__main__":
            importlib.import_module(module.name)


def check_losses() -> None:
    """Their gradients are those of their values."""
    logits = torch.linspace(-3, 3, 12, dtype=torch.float64).reshape(3, 4).requires_grad_()
    labels = torch.tensor(
        [[POSITIVE, UNKNOWN, NEGATIVE, UNKNOWN], [UNKNOWN] * 4, [POSITIVE, POSITIVE, UNKNOWN, UNKNOWN]]
    )
    for loss in (onepair.OPMLLoss(alpha=0.6, beta=0.4), onepair.ZLPRLoss()):
        assert torch.autograd.gradcheck(lambda scores, loss=loss: loss(scores, labels), (logits,))


def check_metrics() -> None:
    """They are scikit-learn's."""
    random = np.random.default_rng(0)
    labels, scores = random.integers(0, 2, (50, 6)), random.integers(0, 9, (50, 6)) / 8
    expected = average_precision_score(labels, scores, average="macro")
    np.testing.assert_allclose(onepair.mean_average_precision(scores, labels).value, expected, rtol=1e-6)


def run_commands() -> None:
    """Train, find, audit and export for the sample; then what one does with it, and the page."""
    with tempfile.TemporaryDirectory(prefix="onepair-smoke-") as name:
        place = Path(name)
        os.environ["XDG_CACHE_HOME"] = str(place / "caches")
        write_sample(place, _succeed)
        run, source, photo = place / "run", place / "images" / "labels.csv", place / "images" / "00.png"
        tiny = [part for setting in SETTINGS for part in ("--set", setting)]
        _succeed("check", source, "--decode")
        _succeed("train", source, *tiny, "--out", place / "curves", "--workers", "0", "--tensorboard")
        _succeed("tune", source, *tiny, "--trials", "2", "--out", place / "tuned", "--workers", "0")
        _succeed("evaluate", run, "--threads", "0")
        _succeed("decide", run, "--rule", "f1")
        _succeed("compare", run, place / "other", "--resamples", "100", "--out", place / "report.html")
        _succeed("explain", run, photo, "--out", place / "out.png")
        _succeed("predict", run, place / "images", "--out", place / "out.csv")
        _succeed("predict", place / "model.onnx", photo)
        _succeed("labels", run, "--out", place / "completed.csv")
        with serving(run) as server, urlopen(server.url) as answer:  # noqa: S310 (our own address)
            assert b"Does this image show" in answer.read()


def _succeed(*arguments: object) -> int:
    with _what_was_said() as said:
        code = command(*arguments)
    assert code == 0, f"onepair {' '.join(map(str, arguments))}\n{said.getvalue()}"
    return code


@contextlib.contextmanager
def _what_was_said() -> Iterator[io.StringIO]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        yield said


def main() -> None:
    for step in (import_everything, check_losses, check_metrics, run_commands):
        step()
    print(f"Python {platform.python_version()}, torch {version('torch')}, numpy {version('numpy')}: all works")


if __name__ == "__main__":
    main()
