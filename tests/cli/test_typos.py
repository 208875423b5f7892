"""A typo is answered before anything heavy is imported: torch and what comes with it take many seconds."""

import subprocess
import sys

import pytest

TYPOS = {
    "trian digits": "No such command 'trian'",
    "train digits --mehtod opml": "No such option: --mehtod",
    "train digits --set linear.optimser.lr=3": "did you mean linear.optimiser?",
    "train digits --set linear.optimiser.lr=fast": "linear.optimiser.lr must be a number",
    "train digits --preset voc2021": "did you mean voc2012?",
    "train digits --config nosuch.toml": "nosuch.toml: cannot be read",
    "train nosuch.csv": "nosuch.csv: there is no such file or folder",
    "train digits --format tabel": "did you mean table?",
    "tune digits --set linear.epoch=3": "did you mean linear.epochs?",
    "check digts": "digts: there is no such file or folder",
    "features digts": "digts: there is no such file or folder",
    "find nosuch": "nosuch: holds no finished run",
    "evaluate nosuch": "nosuch: holds no finished run",
    "decide nosuch": "nosuch: holds no finished run",
    "decide nosuch --rule f2": "'f2' is not one of",
    "compare nosuch neither": "nosuch: holds no finished run",
    "audit nosuch": "nosuch: holds no finished run",
    "explain nosuch 0": "nosuch: holds no finished run",
    "export nosuch": "nosuch: holds no model",
    "predict nosuch .": "nosuch: holds no model",
    "review nosuch": "nosuch: holds no run",
    "labels nosuch --out x.csv": "nosuch: holds no run",
    "start nosuch.csv --backbone small-cnn": "nosuch.csv: there is no such file or folder",
}
CODE = """
import sys
from onepair.cli.main import main
heavy = {"torch", "torchvision", "timm", "lightning_fabric", "matplotlib"}
for typo in sys.argv[1:]:
    before = heavy & sys.modules.keys()
    sys.argv = ["onepair", *typo.split()]
    try:
        main()
    except SystemExit as end:
        print("\\0", file=sys.stderr, end="")
        print(end.code, *(heavy & sys.modules.keys() - before), file=sys.stderr, end="\\0")
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    folder = tmp_path_factory.mktemp("typos")
    done = subprocess.run([sys.executable, "-c", CODE, *TYPOS], capture_output=True, text=True, check=True, cwd=folder)
    parts = done.stderr.split("\0")
    return dict(zip(TYPOS, zip(parts[::2], parts[1::2], strict=False), strict=True))


@pytest.mark.parametrize("typo", TYPOS)
def test_a_typo_is_answered_without_torch(answers, typo):
    sentence, (code, *heavy) = answers[typo][0], answers[typo][1].split()
    assert TYPOS[typo] in " ".join(sentence.replace("│", " ").split())
    assert (code, heavy) == ("2", [])
