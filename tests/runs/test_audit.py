"""Audits: fair draws, plain files, and what becomes of the labels."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from onepair import label_matrix
from onepair.data.tables import read_table as tables
from onepair.errors import RunError
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.probability.intervals import more_to_halve
from onepair.runs import task as tasks
from onepair.runs.audit import (
    draw,
    read_answers,
    read_audit,
    read_sample,
    summarise_audit,
    systematic,
    write_audit,
    write_sheet,
)
from onepair.runs.finished import FinishedRun
from tests.review.audits import audit_run, truth_of


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    return audit_run(tmp_path_factory.mktemp("audited") / "small")


@pytest.fixture
def run(original, tmp_path):
    return FinishedRun(shutil.copytree(original, tmp_path / "run"))


def answers(run, sample):
    """The truth about some files."""
    truth = truth_of(len(run.table))
    return {file: truth[run.table.files.index(file)] for file in sample.files}


@pytest.mark.parametrize(("places", "wanted"), [(7, 3), (12, 5), (10, 10), (9, 1)])
def test_every_image_has_the_same_chance_to_be_among_the_first_so_many(places, wanted):
    values, drawn = np.random.default_rng(1).random(places), []
    for seed in range(6000):
        drawn.append(systematic(values, wanted, np.random.default_rng(seed)))
        assert len(set(drawn[-1].tolist())) == wanted
    for first in range(1, wanted + 1):
        counts = np.bincount(np.array(drawn)[:, :first].ravel(), minlength=places)
        chance = first / places
        assert np.abs(counts / len(drawn) - chance).max() < 4.5 * np.sqrt(chance * (1 - chance) / len(drawn)) + 1e-9


def test_draws_and_all_their_beginnings_are_spread_along_the_values():
    values = np.arange(1000.0)
    for seed in range(20):
        drawn = systematic(values, 64, np.random.default_rng(seed))
        for first in (8, 16, 32, 64):
            gaps = np.diff(np.sort(drawn[:first]))
            assert gaps.max() <= 1000 / first + 1


def test_the_spread_makes_means_more_exact_than_a_plain_draw():
    values = np.random.default_rng(0).gamma(2.0, size=500)
    spread = [values[systematic(values, 25, np.random.default_rng(seed))].mean() for seed in range(300)]
    plain = [np.random.default_rng(seed).choice(values, 25, replace=False).mean() for seed in range(300)]
    assert np.var(spread) < np.var(plain) / 4


def test_a_second_draw_extends_the_first_and_keeps_the_chances_equal(run):
    population, counts = len(run.rows("validation")), dict.fromkeys(run.table.files, 0)
    for seed in range(300):
        shutil.rmtree(run.path / "audit", ignore_errors=True)
        first = draw(run, "validation", 5, seed)
        second = draw(run, "validation", 8, seed + 1000)
        assert second.files[:5] == first.files
        assert len(set(second.files)) == 8
        for file in second.files:
            counts[file] += 1
    drawn = [counts[run.table.files[row]] / 300 for row in run.rows("validation").tolist()]
    chance = 8 / population
    assert sum(drawn) == pytest.approx(8)
    assert np.abs(np.array(drawn) - chance).max() < 4 * np.sqrt(chance * (1 - chance) / 300)


def test_fewer_than_before_is_what_was_before_and_too_many_are_all(run):
    first = draw(run, "validation", 7, 0)
    assert draw(run, "validation", 3, 5) == first == read_sample(run)
    assert len(draw(run, "validation", 10**6, 0).files) == first.population == len(run.rows("validation"))


def test_an_audit_is_of_one_split(run):
    draw(run, "validation", 3, 0)
    with pytest.raises(RunError, match="audits validation images; go on with --split validation"):
        draw(run, "test", 3, 0)


def test_audited_labels_are_known_labels_and_may_deny_the_dataset(run):
    before = run.labels("validation").copy()
    assert run.audit is None
    assert run.eval_mask("validation").all()
    sample = draw(run, "validation", 6, 0)
    said = answers(run, sample)
    denied = said[sample.files[0]] = 1 - said[sample.files[0]]
    write_audit(run, sample, said)
    after, audit = run.labels("validation"), run.audit
    assert len(audit) == 6
    assert audit.population == len(before)
    full = run.eval_mask("validation")
    assert full.sum() == 6
    assert (after[full] != UNKNOWN).all()
    np.testing.assert_array_equal(after[~full], before[~full])
    place = np.flatnonzero(run.rows("validation") == run.table.files.index(sample.files[0]))[0]
    np.testing.assert_array_equal(after[place], denied)
    assert (after[place][before[place] == POSITIVE] == NEGATIVE).all()
    np.testing.assert_array_equal(run.labels("train"), run.table.labels[run.rows("train")])


def test_audited_csv_is_read_once_until_it_is_written_again(run, monkeypatch):
    drawn = draw(run, "validation", 4, 0)
    labels = {file: np.zeros(len(run.table.classes), np.int8) for file in drawn.files}
    write_audit(run, drawn, labels)
    reads, read = [], tables.read
    monkeypatch.setattr(tables, "read", lambda *args, **options: reads.append(args) or read(*args, **options))
    for _ in range(3):
        assert len(run.audit) == 4
        run.labels("validation")
    assert len(reads) == 1
    write_audit(run, drawn, {})
    assert run.audit is None


def test_audited_csv_is_a_plain_table_in_the_order_of_the_draw(run):
    sample = draw(run, "validation", 5, 0)
    said = answers(run, sample)
    write_audit(run, sample, {file: said[file] for file in sample.files[:3]})
    table = tables.read(run.path / "audit" / "audited.csv")
    assert table.files == sample.files[:3]
    assert set(table.split.tolist()) == {"validation"}
    stored = json.loads((run.path / "audit" / "sample.json").read_text())
    assert stored == {"split": "validation", "seed": 0, "population": 20, "files": list(sample.files)}
    write_audit(run, sample, {})
    assert read_audit(run) is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda text: text.replace("square", "cube"), "its columns are not the classes of the run, as cube"),
        (lambda text: text + "none.png,validation,1,1,1,1\n", "names none.png, which is not an image of the split"),
        (lambda text: text.replace(",0\r\n", ",\r\n").replace(",1\r\n", ",\r\n"), "has no answer for square"),
    ],
)
def test_a_file_that_does_not_fit_is_a_sentence(run, change, sentence):
    sample = draw(run, "validation", 5, 0)
    write_audit(run, sample, answers(run, sample))
    path = run.path / "audit" / "audited.csv"
    path.write_bytes(change(path.read_bytes().decode()).encode())
    with pytest.raises(RunError, match=r"audited\.csv: ") as caught:
        _ = run.audit
    assert sentence in str(caught.value)


@pytest.mark.parametrize("content", ["{", '{"split": "train"}', "[]"])
def test_a_damaged_sample_is_a_sentence(run, content):
    (run.path / "audit").mkdir()
    (run.path / "audit" / "sample.json").write_text(content)
    with pytest.raises(RunError, match=r"sample\.json: is (damaged|not JSON).*; bring it back from a copy"):
        read_sample(run)


def test_a_sheet_has_what_is_known_and_blanks(run, tmp_path):
    sample = draw(run, "validation", 5, 0)
    write_audit(run, sample, {sample.files[0]: answers(run, sample)[sample.files[0]]})
    write_sheet(run, sample, tmp_path / "sheet.csv")
    sheet = tables.read(tmp_path / "sheet.csv")
    assert sheet.files == sample.files
    assert (sheet.labels[0] != UNKNOWN).all()
    assert ((sheet.labels[1:] == POSITIVE).sum(1) == 1).all()
    assert (sheet.labels[1:] == UNKNOWN).any(1).all()


def test_a_sheet_above_the_images_is_read_by_the_names_that_it_was_written_with(run):
    sheet = run.table.root.parent / "sheet.csv"
    sample = draw(run, "validation", 5, 0)
    write_sheet(run, sample, sheet)
    assert read_answers(run, "validation", sheet).files == sample.files


def test_the_summary_counts_what_is_audited_and_estimates_the_rest(run):
    with pytest.raises(RunError, match="not one image is audited yet"):
        summarise_audit(run)
    truth = truth_of(len(run.table))[run.rows("validation")]
    missing = ((truth == POSITIVE) & (run.table.labels[run.rows("validation")] == UNKNOWN)).sum(0)
    sample = draw(run, "validation", 10, 0)
    write_audit(run, sample, answers(run, sample))
    half = summarise_audit(run)
    assert (half.images, half.population, half.denied) == (10, 20, 0)
    assert half.missing.low <= missing.sum() <= half.missing.high
    assert half.found <= half.missing.low
    for name, number in zip(run.table.classes, missing.tolist(), strict=True):
        assert half.classes[name].low - 1e-9 <= number <= half.classes[name].high + 1e-9
    assert half.figures.map.low <= half.figures.map.value <= half.figures.map.high
    assert half.more == more_to_halve(10, 20) == 6
    sample = draw(run, "validation", 20, 0)
    write_audit(run, sample, answers(run, sample))
    whole = summarise_audit(run)
    assert whole.missing == (missing.sum(),) * 3
    assert [each.value for each in whole.classes.values()] == missing.tolist()
    assert whole.more == 0


def test_a_sample_that_is_audited_in_full_stands_for_the_images_beside_it(run, monkeypatch):
    monkeypatch.setattr(label_matrix, "MOST_CELLS", 10)
    monkeypatch.setattr(tasks, "MAX_EVAL_CELLS", 10 * len(run.table.classes))
    kept = run.path / "scores_validation.npy"
    np.save(kept, np.load(kept)[run.task.eval_rows("validation")])
    sample = draw(run, "validation", 10**6, 0)
    assert (len(sample.files), sample.population) == (10, 20)
    write_audit(run, sample, answers(run, sample))
    told = summarise_audit(run)
    assert told.found > 0
    assert told.missing.value == pytest.approx(2 * told.found)
    assert told.missing.low < 2 * told.found < told.missing.high


def test_the_model_is_judged_by_what_was_drawn_and_not_by_what_happens_to_be_complete(run):
    rows = run.rows("validation")
    sample = draw(run, "validation", 5, 0)
    write_audit(run, sample, answers(run, sample))
    others = np.setdiff1d(rows, run.audit.rows)
    complete = LabelMatrix.of(truth_of(len(run.table))[others[:1]])
    table = replace(run.table, labels=run.table.labels.with_rows(others[:1], complete))
    run.task = replace(run.task, table=table)
    assert not (run.labels("validation")[rows == others[0]] == UNKNOWN).any()
    np.testing.assert_array_equal(rows[run.eval_mask("validation")], run.audit.rows)
