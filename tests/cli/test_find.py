"""`onepair find`, from a finished run to the files that are reviewed; and what happens when it is killed."""

import csv
import json
import shutil
import signal

import numpy as np
import pytest

from onepair.review.queue import open_run, read_queue
from onepair.runs.folder import RunFolder
from onepair.runs.task import prepare_task
from tests.training.processes import command, exit_code
from tests.training.tiny import CLASSES, train_tiny, write_images


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a dataset and a run that has been trained and nothing else."""
    folder = tmp_path_factory.mktemp("find")
    (folder / "images").mkdir()
    source = write_images(folder / "images")
    train_tiny(source, "linear.epochs=8", out=folder / "trained", cache=folder / "cache")
    return folder


@pytest.fixture
def find(place, in_process, monkeypatch):
    """The command in the folder of the run."""
    monkeypatch.chdir(place)

    def run(*arguments):
        return in_process("find", *arguments, "--cache", "cache", "--workers", 0)

    return run


@pytest.fixture(scope="module")
def found(place):
    """A copy of the run, with the folder that `onepair find --folds 2` left in it."""
    shutil.copytree(place / "trained", place / "run")
    log = place / "log"
    arguments = ("find", place / "run", "--folds", 2, "--cache", place / "cache", "--workers", 0)
    arguments += ("--min-probability", 0.05)
    assert exit_code(command(*arguments, log=log)) == 0, log.read_text()
    return place / "run", log.read_text()


def read(path):
    with path.open(encoding="utf-8", newline="") as text:
        return list(csv.DictReader(text))


def test_suggestions_are_written_best_first(found):
    run, _ = found
    lines = read(run / "finding" / "suggestions.csv")
    probabilities = [float(line["probability"]) for line in lines]
    assert list(lines[0]) == ["file", "label", "probability", "rank", "kind"]
    assert [int(line["rank"]) for line in lines] == list(range(1, len(lines) + 1))
    assert probabilities == sorted(probabilities, reverse=True)
    assert probabilities[-1] >= 0.05
    task = prepare_task(RunFolder(run).config().data)
    observed = {
        (task.table.files[row], name): value
        for row, values in zip(task.train.tolist(), task.observed.tolist(), strict=True)
        for name, value in zip(CLASSES, values, strict=True)
    }
    assert {observed[line["file"], line["label"]] for line in lines if line["kind"] == "missing"} == {-1}
    assert {observed[line["file"], line["label"]] for line in lines if line["kind"] == "wrong"} <= {0, 1}
    assert len({(line["file"], line["label"]) for line in lines}) == len(lines)


def test_the_summary_agrees_with_the_suggestions(found):
    run, output = found
    summary = json.loads((run / "finding" / "summary.json").read_text())
    lines = read(run / "finding" / "suggestions.csv")
    assert summary["folds"] == 2
    assert summary["images"] == 30
    assert summary["suggestions"]["missing"] == sum(line["kind"] == "missing" for line in lines)
    assert [each["name"] for each in summary["classes"]] == list(CLASSES)
    for each in summary["classes"]:
        assert 0 <= each["missing_low"] <= each["missing"] <= each["missing_high"] <= each["unknown"]
        above = [
            line
            for line in lines
            if (line["label"], line["kind"]) == (each["name"], "missing")
            and float(line["probability"]) >= each["threshold"] - 1e-6
        ]
        assert len(above) == each["suggested"] == round(each["missing"])
        assert each["name"] in output
    likely = sum(float(line["probability"]) >= 0.5 for line in lines)
    assert ("more likely right than not" in output) == (likely > 0)
    assert summary["probabilities"] == "if the process is single-positive and 7 images labelled in full"
    assert f"{summary['probabilities']} (docs/explanation/numbers.md), " in output
    assert output.count("single-positive") == 1
    assert f"onepair review {run}" in output


def test_the_review_takes_what_was_found(found):
    run, _ = found
    suggestions = read_queue(open_run(run))
    assert len(suggestions) == len(read(run / "finding" / "suggestions.csv"))
    assert suggestions.maps is not None
    assert suggestions.maps.dtype == np.uint8


def test_fewer_can_be_asked_for(found, find):
    run, _ = found
    everything = read(run / "finding" / "suggestions.csv")
    result = find("run", "--folds", 2, "--no-maps", "--top", 7, "--out", "top.parquet")
    assert result.returncode == 0, result.stderr
    assert "fold 1" not in result.stderr  # the folds are there
    assert "top.parquet" in result.stdout
    assert read(run / "finding" / "suggestions.csv") == everything[:7]
    assert not (run / "finding" / "maps.npy").exists()  # they were those of other suggestions

    import pyarrow.parquet

    assert pyarrow.parquet.read_table("top.parquet").num_rows == 7

    result = find("run", "--folds", 2, "--no-maps", "--min-probability", 0.5)
    assert result.returncode == 0, result.stderr
    assert read(run / "finding" / "suggestions.csv") == [
        line for line in everything if float(line["probability"]) >= 0.5
    ]


@pytest.mark.parametrize("death", [("batch", 5), ("batch", 22), ("write", 12), ("write", 30)])
def test_a_killed_search_goes_on_and_ends_the_same(place, found, tmp_path, death):
    """22 batches and 30 writes lie in the second fold."""
    run = tmp_path / "run"
    shutil.copytree(place / "trained", run)
    arguments = ("find", run, "--folds", 2, "--no-maps", "--min-probability", 0, "--cache", place / "cache")
    log = tmp_path / "log"
    assert exit_code(command(*arguments, "--workers", 0, log=log, die_at=death)) == -signal.SIGKILL, log.read_text()
    assert not (run / "finding" / "suggestions.csv").exists()
    assert exit_code(command(*arguments, "--workers", 0, log=log)) == 0, log.read_text()
    whole = found[0]
    for part in (1, 2):
        name = f"finding/folds/{part}-of-2/scores_test.npy"
        assert (run / name).read_bytes() == (whole / name).read_bytes()
    summaries = [json.loads((each / "finding" / "summary.json").read_text()) for each in (run, whole)]
    assert summaries[0]["classes"] == summaries[1]["classes"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nowhere",), "nowhere: holds no finished run; train one with onepair train"),
        (("images",), "images: holds no finished run"),
        (("trained", "--out", "a.txt"), "a.txt: suggestions are written as .csv or .parquet"),
        (("trained", "--out", "no/a.csv"), "there is no folder no"),
        (("trained", "--folds", 99), "30 training images cannot be cut into 99 folds"),
    ],
)
def test_mistakes_end_in_a_sentence(find, place, arguments, sentence):
    result = find(*arguments)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert result.stderr.startswith("onepair: ")
    assert not (place / "nowhere").exists()


def test_an_unfinished_run_is_refused(find, place):
    shutil.copytree(place / "trained", place / "unfinished", ignore=shutil.ignore_patterns("finding"))
    (place / "unfinished" / "results.json").unlink()
    result = find("unfinished")
    assert result.returncode == 2
    assert "unfinished: holds no finished run" in result.stderr
    assert not (place / "unfinished" / "finding").exists()
