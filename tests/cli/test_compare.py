"""`onepair compare`: runs side by side."""

from functools import partial

import pytest

from tests.training.tiny import train_tiny, write_images


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compared")
    images = write_images(folder)
    for name, *settings in (
        ("good",),
        ("bad", "linear.epochs=1", "linear.optimiser.lr=1e-6"),
        ("asl", "method.name=asl"),
    ):
        train_tiny(images, *settings, out=folder / name, cache=folder / "cache")
    return folder


@pytest.fixture
def command(in_process):
    return partial(in_process, "compare")


def test_a_table_and_a_verdict_for_every_pair(command, runs):
    code, output, errors = command(runs / "good", runs / "bad", runs / "asl")
    assert (code, errors) == (0, "")
    epochs = [len((runs / name / "metrics.jsonl").read_text().splitlines()) for name in ("good", "bad", "asl")]
    assert "linear.epochs: {} in good, {} in bad, {} in asl".format(*epochs) in output
    for pair in ("bad against good", "asl against good", "asl against bad"):
        line = next(line for line in output.splitlines() if pair in line)
        assert line.rstrip().endswith(("real", "could be noise"))
        assert " to " in line
    assert command(runs / "good", runs / "bad", runs / "asl")[1] == output, "the draws are seeded"


def test_a_report(command, runs, tmp_path):
    code, output, _ = command(runs / "good", runs / "asl", "--out", tmp_path / "report.html", "--resamples", 200)
    assert code == 0
    assert f"The report is {tmp_path / 'report.html'}" in output
    page = (tmp_path / "report.html").read_text()
    assert "asl against good" in page
    assert '<th scope="row">method.name</th><td>bce</td><td>asl</td>' in page
    assert str(runs / "good") in page
    assert page.count("data:image/png") == 9, "photos of the test images"
    assert page.count("<svg") >= 2


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (["good"], "name two runs or more to compare"),
        (["good", "cache"], "cache: holds no finished run; train one with onepair train"),
        (["good", "nowhere"], "nowhere: holds no finished run"),
    ],
)
def test_mistakes_end_in_a_sentence(command, runs, names, sentence):
    code, _, errors = command(*(runs / name for name in names))
    assert code == 2
    assert errors.startswith("onepair: ")
    assert sentence in errors
    assert errors.count("\n") == 1
