"""Reading what `onepair find` wrote, and the orders to go through it."""

import numpy as np
import pytest

from onepair.errors import ReviewError, RunError
from onepair.labels import NEGATIVE, POSITIVE
from onepair.review.queue import Queue, estimated_missing, open_run, read_queue
from tests.review.runs import small_run, write_suggestions


@pytest.fixture
def run(tmp_path):
    return small_run(tmp_path, most=6)


def read(run):
    return read_queue(open_run(run))


def test_each_line_becomes_a_label_that_should_be_another(run):
    opened, found = open_run(run), read(run)
    lines = [line.split(",") for line in (run / "finding" / "suggestions.csv").read_text().split()[1:]]
    assert [opened.task.table.files[row] for row in found.rows] == [line[0] for line in lines]
    assert [opened.task.table.classes[column] for column in found.columns] == [line[1] for line in lines]
    assert found.probability.tolist() == [float(line[2]) for line in lines]
    assert found.suggested.tolist() == [POSITIVE] * 5 + [NEGATIVE]  # the last one is a positive label that is wrong
    assert found.maps.shape == (6, 4, 4)


def test_a_known_negative_that_is_wrong_should_be_positive(tmp_path):
    run = small_run(tmp_path, observe="given")
    task = open_run(run).task
    place, column = np.argwhere(task.observed == NEGATIVE)[0]
    write_suggestions(run, [(task.table.files[task.train[place]], task.table.classes[column], 0.7, "wrong")])
    assert read(run).suggested.tolist() == [POSITIVE]


def test_without_maps(run):
    (run / "finding" / "maps.npy").unlink()
    assert read(run).maps is None


def test_the_three_orders_against_plain_sorting():
    random = np.random.default_rng(3)
    cells = random.permutation(60)[:40]
    found = Queue(cells // 6, cells % 6, np.ones(40, np.int8), np.linspace(1, 0, 40), None)
    assert found.ordered("probability").tolist() == list(range(40))
    likely = found.probability >= 0.5
    assert 0 < likely.sum() < 40
    by_class = sorted(range(40), key=lambda i: (not likely[i], found.columns[i], i))
    assert found.ordered("class").tolist() == by_class
    first = {row: i for i, row in reversed(list(enumerate(found.rows.tolist())))}
    by_image = sorted(range(40), key=lambda i: (not likely[i], first[found.rows[i]], i))
    assert found.ordered("image").tolist() == by_image


def test_the_order_by_worth_against_taking_turns_slowly():
    random = np.random.default_rng(4)
    cells = random.permutation(200)[:120]
    found = Queue(cells // 8, cells % 8, np.ones(120, np.int8), np.sort(random.uniform(0.5, 1, 120))[::-1], None)
    asked, worth = {}, []
    for row, share in zip(found.rows.tolist(), found.probability.tolist(), strict=True):
        asked[row] = asked.get(row, 0) + 1
        worth.append(share / asked[row])
    classes = {each: [i for i in range(120) if found.columns[i] == each] for each in set(found.columns.tolist())}
    total = {each: sum(worth[i] for i in members) for each, members in classes.items()}
    turns = {}
    for each, members in classes.items():
        for place, i in enumerate(sorted(members, key=lambda i: -worth[i]), start=1):
            turns[i] = place / total[each]
    assert found.ordered("worth").tolist() == sorted(range(120), key=lambda i: (turns[i], i))


def test_the_order_by_worth_does_not_ask_the_same_fifty_times():
    rows = np.r_[np.arange(50), np.arange(50, 60)]
    columns = np.r_[np.zeros(50, int), np.ones(10, int)]
    found = Queue(rows, columns, np.ones(60, np.int8), np.r_[np.full(50, 0.99), np.full(10, 0.9)], None)
    first = found.ordered("worth")[:12]
    assert 1 <= (found.columns[first] == 1).sum() <= 4
    one_image = Queue(np.r_[np.zeros(5, int), np.arange(1, 6)], np.zeros(10, int), np.ones(10, np.int8),
                      np.linspace(0.95, 0.9, 10), None)  # fmt: skip
    assert len(set(one_image.rows[one_image.ordered("worth")[:6]].tolist())) == 6


@pytest.mark.parametrize("content", [None, "{", "[]", '{"missing": null}', '{"missing": "many"}'])
def test_without_an_estimate_there_is_none(run, content):
    if content is not None:
        (run / "finding" / "summary.json").write_text(content)
    assert estimated_missing(open_run(run)) is None
    (run / "finding" / "summary.json").write_text('{"missing": 12.5, "missing_low": 3, "missing_high": 40}')
    assert estimated_missing(open_run(run)) == (12.5, 3, 40)


def test_of_a_folder_of_runs_the_one_with_suggestions_is_opened(run, tmp_path):
    (tmp_path / "another").mkdir()
    assert open_run(tmp_path).path == run
    assert open_run(run).path == run


def test_a_folder_of_several_runs_with_suggestions_needs_a_choice(run, tmp_path):
    (tmp_path / "second").symlink_to(run)
    with pytest.raises(ReviewError, match=r"holds several runs with suggestions; name one of them, as .*/run"):
        open_run(tmp_path)


def test_a_folder_without_any_run(tmp_path):
    with pytest.raises(ReviewError, match="holds no run with suggestions"):
        open_run(tmp_path)


def test_a_run_without_suggestions(run):
    (run / "finding" / "suggestions.csv").unlink()
    with pytest.raises(ReviewError, match=f"nothing is suggested yet; run onepair find {run} first"):
        read(run)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (("gone.png", "bar", 0.5, "missing"), "line 2: does not fit the run's dataset"),
        (("43.png", "bar", 0.5, "missing"), "line 2: does not fit the run's dataset"),  # a test image
        (("{file}", "star", 0.5, "missing"), "line 2: does not fit the run's dataset"),
        (("{file}", "bar", "much", "missing"), "line 2: does not fit the run's dataset"),
        (("{file}", "bar", 0.5, "odd"), "line 2: does not fit the run's dataset"),
    ],
)
def test_lines_that_do_not_fit(run, line, sentence):
    opened = open_run(run)
    file = opened.task.table.files[opened.task.train[np.flatnonzero(opened.task.observed[:, 0] != POSITIVE)[0]]]
    write_suggestions(run, [(line[0].format(file=file), *line[1:])])
    with pytest.raises(RunError, match=sentence):
        read(run)


def test_a_missing_label_that_is_known_by_now(run):
    """The labels were completed after `onepair find`."""
    config = (run / "config.toml").read_text().replace("single-positive", "given")
    (run / "config.toml").write_text(config)
    with pytest.raises(RunError, match=r"suggestions.csv, line 2: does not fit .*; run onepair find again"):
        read(run)


def test_a_label_that_is_suggested_twice(run):
    source = run / "finding" / "suggestions.csv"
    header, first, *_ = source.read_text().splitlines()
    source.write_text("\n".join([header, first, first]))
    with pytest.raises(RunError, match="suggests a label of an image twice"):
        read(run)


def test_files_that_are_not_suggestions(run):
    source = run / "finding" / "suggestions.csv"
    source.write_text("file,label,probability,rank,kind\n")
    with pytest.raises(RunError, match="suggests nothing"):
        read(run)
    for text in ("", "a,b\n1,2\n"):
        source.write_text(text)
        with pytest.raises(RunError, match="its columns are not file, label, probability, rank, kind"):
            read(run)
    source.write_bytes("file,label,probability,rank,kind\nfür.png,red,0.5,1,missing\n".encode("latin-1"))
    with pytest.raises(RunError, match=r"suggestions\.csv: is not a CSV file in UTF-8 .*; run onepair find again"):
        read(run)


@pytest.mark.parametrize("maps", [np.zeros((5, 4, 4), np.uint8), np.zeros((6, 4, 4)), np.array([{}])])
def test_maps_that_do_not_fit(run, maps):
    np.save(run / "finding" / "maps.npy", maps)
    with pytest.raises(ReviewError, match=r"maps\.npy: .*run onepair find again"):
        read(run)
