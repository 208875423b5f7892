"""`onepair reproduce`: what it prints and leaves behind, and a sentence for every mistake."""

import csv
from functools import partial

import pytest

from tests.experiments.small import ARGUMENTS
from tests.training.tiny import write_images


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    return write_images(tmp_path_factory.mktemp("images"))


@pytest.fixture
def command(in_process, monkeypatch, tmp_path):
    """The command in this process, with an empty folder to work in: exit code, output, errors."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return partial(in_process, "reproduce")


def test_a_table_from_the_plan_to_the_report(command, images, tmp_path):
    asked = ("table3", "--data", images, *ARGUMENTS, "--seeds", 2, "--methods", "bce,opml", "--out", "out")
    code, output, _ = command(*asked, "--dry-run")
    assert code == 0
    assert "4 runs to do, about 0 s (a guess for two cores)" in output
    assert not (tmp_path / "out").exists()
    part_learns = ("--mode", "finetune", "--set", "model.train_from=head", "--dry-run")
    assert "4 runs to do, about" in command(*asked, *part_learns)[1]

    code, output, errors = command(*asked)
    assert code == 0, errors
    assert "[4/4] labels, OPML, seed 1: validation mAP" in errors
    assert "wrote out/table3.md, out/table3.csv, out/report.html" in errors
    text = (tmp_path / "out" / "table3.md").read_text()
    header = "onepair reproduce table3 --data PATH --mode linear --backbone small-cnn --methods bce,opml --seeds 2"
    assert f"    {header} --search none --epochs 2 --set model.image_size=16" in text
    assert str(images) not in text, "where data are kept is nobody else's business"
    with (tmp_path / "out" / "table3.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["seeds"]) for row in rows] == [("bce", "2"), ("opml", "2")]
    assert all(f"{row['test_map']} ({row['std']})" in output for row in rows)

    code, output, _ = command(*asked, "--dry-run")
    assert "nothing left to do" in output
    code, _, errors = command(*asked)
    assert code == 0
    assert "seed" not in errors, "nothing is run again"
    assert (tmp_path / "out" / "table3.md").read_text() == text


def test_a_figure_that_needs_no_data(command, tmp_path):
    code, _, errors = command("fig-gradients", "--out", "out")
    assert code == 0, errors
    assert {path.suffix for path in (tmp_path / "out").glob("fig-gradients.*")} == {".md", ".csv", ".png", ".svg"}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["tabel2", "--data", "digits"], "there is no table or figure 'tabel2'; did you mean table2"),
        (["table2"], "name a dataset, as --data voc2012=PATH or --data digits"),
        (["all"], "name a dataset"),
        (["table2", "--data", "voc2021=x"], "there is no dataset 'voc2021'; did you mean voc2012?"),
        (["table2", "--data", "voc2012=gone"], "gone: there is no such file or folder; it is a folder with VOCdevkit"),
        (["table2", "--data", "nuswide"], "where is nuswide? Give its path, as nuswide=PATH"),
        (
            ["table2", "--data", "digits", "--methods", "opml-sb"],
            "there is no method 'opml-sb'; did you mean 'opml-sp'?",
        ),
        (
            ["table3", "--data", "digits", "--methods", "role"],
            "table3 has no row of role; its methods are bce, focal, asl",
        ),
        (
            ["table3", "--data", "digits", "--set", "linear.epoch=3"],
            "there is no setting linear.epoch; did you mean linear.epochs?",
        ),
        (["table3", "--data", "digits", "--set", "epochs"], "--set epochs: expected key=value"),
        (["table3", "--data", "digits", "--backbone", "small-cnm"], "there is no backbone 'small-cnm'"),
        (["table2", "--data", "digits", "--epochs", "3"], "method: warmup must be at least 1 and below the 3 epochs"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_end_in_a_sentence(command, arguments, sentence, tmp_path):
    code, _, errors = command(*arguments, "--out", "out")
    assert code == 2
    last = errors.splitlines()[-1]
    assert last.startswith("onepair: ")
    assert sentence in last
    assert not list(tmp_path.glob("out/runs/*/config.toml"))


def test_a_folder_that_cannot_be_written(command, images):
    code, _, errors = command("table3", "--data", images, *ARGUMENTS, "--out", f"{images}/out")
    assert code == 2
    assert "cannot be written (Not a directory)" in errors


def test_numbers_that_typer_refuses(command):
    for arguments in (["table3", "--seeds", "0"], ["table3", "--search", "random"], ["table3", "--epochs", "0"]):
        code, _, errors = command(*arguments)
        assert code == 2
        assert "Traceback" not in errors
