"""Files that an earlier version wrote are read, and brought to the newest format."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from onepair.errors import ConfigError, DataError, ModelError, ReviewError
from onepair.files import migrate
from onepair.finding.suggestions import read_suggestions, read_summary
from onepair.inference import model_files
from onepair.inference.prediction import load
from onepair.review import answers
from onepair.runs import config
from onepair.runs.finished import FinishedRun

STORED = Path(__file__).parent / "stored"  # config of format 2, model of format 2, suggestions and answers of format 1


@pytest.fixture
def stored(tmp_path, monkeypatch):
    """A copy of the stored run, beside its table."""
    shutil.copytree(STORED, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return Path("run")


def test_a_stored_run_is_read(stored):
    run = FinishedRun(stored)
    assert run.config.model.backbone == "tfidf"
    assert run.results.validation_map == pytest.approx(0.9569, abs=1e-4)
    run.require_same_data()
    assert run.scores("train").shape == (24, 3)
    assert len(run.folds()) == 5
    assert [each.name for each in read_summary(stored)] == ["bird", "cat", "dog"]
    table = run.table
    found = read_suggestions(stored / "finding" / "suggestions.csv", run.known, table.files, table.classes)
    assert len(found) == 17
    assert [entry.answer for entry in answers.Store(stored / "finding" / "review.sqlite").entries()] == ["yes", "no"]
    assert load(stored).classes == ("bird", "cat", "dog")


def test_each_step_brings_a_format_to_the_next():
    steps = [lambda content: {**content, "b": content["a"]}, lambda content: {"c": content["b"]}]
    for version, content in enumerate([{"a": 1}, {"b": 1}, {"c": 1}], start=1):
        assert migrate({"format": version, **content}, steps, where=Path("x")) == {"c": 1}
    assert migrate({"a": 1}, steps, where=Path("x")) == {"c": 1}
    for other in (0, 4, "2", None):
        with pytest.raises(DataError, match=r"x: has format .*, and this version of onepair reads 1 to 3"):
            migrate({"format": other, "c": 1}, steps, where=Path("x"))


def test_the_formats_of_a_run_have_steps(stored, monkeypatch):
    def renamed(settings):
        return {"seed": settings["number"], **{key: value for key, value in settings.items() if key != "number"}}

    text = (stored / "config.toml").read_text()
    (stored / "config.toml").write_text(text.replace("seed = 0", "number = 7", 1))
    monkeypatch.setattr(config, "MIGRATIONS", (*config.MIGRATIONS, renamed))
    monkeypatch.setattr(model_files, "MIGRATIONS", (lambda content: {**content, "boost": 2.0},))
    monkeypatch.setattr(model_files, "FORMAT", 3)
    assert FinishedRun(stored).config.seed == 7
    assert FinishedRun(stored).description.boost == 2.0


def test_a_newer_format_is_refused_by_a_sentence(stored):
    (stored / "config.toml").write_text((stored / "config.toml").read_text().replace("format = 2", "format = 3"))
    with pytest.raises(
        ConfigError, match=r"^run/config\.toml: has format 3, and this version of onepair reads 1 to 2$"
    ):
        _ = FinishedRun(stored).config
    model = json.loads((stored / "model.json").read_text())
    (stored / "model.json").write_text(json.dumps({**model, "format": 9, "version": "9.1"}))
    with pytest.raises(ModelError, match=r"was written by another version of onepair, 9\.1"):
        _ = FinishedRun(stored).description
    path = stored / "finding" / "review.sqlite"
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA user_version = 2")
    with pytest.raises(ReviewError, match="has format 2, and this version of onepair reads 1 to 1"):
        answers.Store(path)
