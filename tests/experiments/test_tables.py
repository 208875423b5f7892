"""Tables: places, differences, and the order of rows."""

import csv
import io
import re
from dataclasses import replace

import pytest

from onepair.experiments.records import EXPERIMENTS, Dataset, Row, Spread, published
from onepair.experiments.study import Line, Outcome
from onepair.experiments.tables import (
    Result,
    ResultTable,
    make_tables,
    order_sentences,
    swaps,
    to_csv,
    to_markdown,
    write_output,
)
from tests.experiments import small

VOC = Dataset("voc2012", "x")
FULL, ORACLE = Row("BCE", "bce", labels="full"), Row("BCE", "bce-1p-alln")


def result(row, mean, std=0.1, paper=None, **others):
    row = row if isinstance(row, Row) else Row(row.upper(), row)
    paper = published(row.labels, row.published, "voc2012") if paper is None else Spread(*paper)
    return Result(row, None if mean is None else Spread(mean, std), paper, **others)


TABLE = ResultTable(
    VOC,
    [
        result(FULL, 82.0),
        result(ORACLE, 81.0),
        result("bce", 78.0),
        result("entmax", 81.5),
        result("opml-sp", 81.0, values={"alpha": 0.4, "lr": 3e-4}),
        result("ll-r", None, failure="it diverged"),
    ],
)


def test_best_and_second_are_of_the_single_positive_rows():
    lines = to_markdown(TABLE).splitlines()
    assert lines[2] == "| all P, all N | BCE | 82.00 (0.10) | 89.42 (0.27) | −7.42 | 100 % |  |"
    assert lines[3].startswith("| 1 P, all N | BCE | 81.00 (0.10) |")
    assert "| ENTMAX | **81.50 (0.10)** | 89.09 (0.17) | −7.59 | 88 % |" in lines[5]
    assert "| OPML-SP | <u>81.00 (0.10)</u> | 89.20 (0.03) | −8.20 | 75 % | alpha=0.4 lr=0.0003 |" in lines[6]
    assert "| LL-R | failed: it diverged | 88.79 (0.03) | – | – |" in lines[7]
    assert "".join(lines).count("**") == 2
    assert "".join(lines).count("<u>") == 1


def test_without_single_positive_rows_all_compete():
    table = ResultTable(VOC, [result(Row(name, name, labels="full"), mean) for name, mean in (("bce", 1), ("asl", 2))])
    assert [table.place(each) for each in table.results] == [2, 1]
    assert not table.has_gap
    assert "gap closed" not in to_markdown(table)
    assert "chosen" not in to_markdown(table)


def test_a_single_row_is_not_called_the_best():
    table = ResultTable(VOC, [result("bce", 78.0)])
    assert table.place(table.results[0]) is None


def test_pairs_in_another_order():
    rows = [
        result("bce", 3.0, paper=(1.0, 0.1)),
        result("asl", 2.0, paper=(3.0, 0.1)),
        result("zlpr", 1.0, paper=(2.0, 0.1)),
    ]
    found, pairs = swaps(rows)
    assert pairs == 3
    assert [(swap.above.row.method, swap.below.row.method) for swap in found] == [("bce", "asl"), ("bce", "zlpr")]
    assert all(swap.clear for swap in found)
    assert str(found[0]) == "BCE above ASL (+1.00 here, −2.00 in the paper)"


@pytest.mark.parametrize(("here", "there"), [(0.6, 0.1), (0.1, 2.5), (0.6, 2.5)])
def test_a_swap_within_the_noise_of_either_side_is_not_clear(here, there):
    rows = [result("bce", 3.0, here, paper=(1.0, there)), result("asl", 2.0, here, paper=(3.0, there))]
    ((swap,), _) = swaps(rows)
    assert not swap.clear


def test_rows_without_a_number_on_either_side_are_not_compared():
    rows = [result("bce", 3.0, paper=(1.0, 0.1)), result("opml-plus", 9.0), result("ll-r", None)]
    assert swaps(rows) == ([], 0)
    assert order_sentences(rows) == []


def test_the_order_in_words():
    same = [result(name, mean, paper=(mean, 0.1)) for name, mean in (("bce", 3.0), ("asl", 2.0), ("zlpr", 1.0))]
    assert order_sentences(same) == ["All 3 pairs of rows stand in the paper's order."]
    other = [same[0], result("focal", 5.0, paper=(2.5, 0.1)), result("role", 3.05, paper=(2.0, 0.1))]
    assert order_sentences(other) == [
        "2 of 3 pairs of rows stand in another order than in the paper.",
        "Beyond the standard deviations: FOCAL above BCE (+2.00 here, −0.50 in the paper).",
        "Within the standard deviations, here or in the paper: ROLE above BCE (+0.05 here, −1.00 in the paper).",
    ]


def test_rows_of_one_name_are_told_apart_by_their_labels():
    assert [each.row.label for each in TABLE.results[:3]] == ["BCE (all P, all N)", "BCE (1 P, all N)", "BCE"]


def test_csv_has_all_numbers():
    rows = list(csv.DictReader(io.StringIO(to_csv([TABLE]))))
    assert len(rows) == len(TABLE.results)
    assert (
        rows[3]
        | {
            "dataset": "voc2012",
            "labels": "1 P",
            "method": "entmax",
            "test_map": "81.50",
            "std": "0.10",
            "paper_map": "89.09",
            "paper_std": "0.17",
            "difference": "-7.59",
            "gap_closed": "0.875",
        }
        == rows[3]
    )
    assert (rows[4]["chosen"], rows[5]["failure"], rows[5]["test_map"]) == ("alpha=0.4 lr=0.0003", "it diverged", "")


def test_a_table_from_runs(searched):
    _, outcomes = searched
    (table,) = make_tables(outcomes)
    assert [each.row.method for each in table.results] == ["bce", "opml"]
    for each, outcome in zip(table.results, outcomes, strict=True):
        assert each.ours == outcome.spread
        assert each.values == outcome.chosen
        assert each.paper is None, "the paper knows nothing of this dataset"


COMMAND = "onepair reproduce table3 --data voc2012=PATH"


@pytest.fixture(scope="module")
def out(searched, tmp_path_factory):
    """A folder with a table and two figures, one after another."""
    folder, (_, outcomes) = tmp_path_factory.mktemp("out"), searched
    for name in ("fig-epochs", "table3", "fig-gradients"):
        shown = [] if name == "fig-gradients" else outcomes
        write_output(folder, EXPERIMENTS[name], shown, command=COMMAND.replace("table3", name))
    return folder


def test_files(out):
    assert {path.name for path in out.iterdir()} == {
        *("table3.md", "table3.csv", "report.html", ".report"),
        *(f"{name}.{suffix}" for name in ("fig-epochs", "fig-gradients") for suffix in ("md", "csv", "png", "svg")),
    }


def test_markdown_begins_with_the_command(out, searched):
    text = (out / "table3.md").read_text()
    assert text.startswith(f"# Common losses on single positives\n\n    {COMMAND}\n\n")
    assert "The paper's numbers are from Li, Wang, Chen" in text
    for outcome in searched[1]:
        assert f"{outcome.spread}" in text
    assert "![Epoch after epoch](fig-epochs.svg)" in (out / "fig-epochs.md").read_text()


def test_one_report_holds_what_all_commands_made(out):
    page = (out / "report.html").read_text()
    titles = re.findall(r'<h2 id="([^"]+)">', page)
    assert titles == ["table3", "fig-epochs", "fig-gradients"], "in the order of the paper"
    for name in titles:
        assert f"onepair reproduce {name} --data voc2012=PATH" in page
    assert page.count("<svg") == 2
    assert 'class="first"' in page
    assert 'class="second"' in page


def test_the_report_needs_no_other_file_and_no_network(out):
    page = (out / "report.html").read_text()
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", page)
    assert "url(http" not in page
    assert "<script" not in page


def test_no_two_elements_of_the_report_have_one_id(out):
    ids = re.findall(r' id="([^"]+)"', (out / "report.html").read_text())
    assert len(ids) > 50
    assert len(set(ids)) == len(ids)


def test_what_refers_to_an_element_finds_it(out):
    page = (out / "report.html").read_text()
    ids = set(re.findall(r' id="([^"]+)"', page))
    referred = set(re.findall(r'(?:href="#|url\(#)([^")]+)', page))
    assert referred
    assert referred <= ids


def test_the_same_again_replaces_only_its_own_section(out, searched):
    before = (out / "report.html").read_text()
    write_output(out, EXPERIMENTS["table3"], searched[1][:1], command="another command")
    after = (out / "report.html").read_text()
    assert "another command" in after
    assert re.findall(r'<h2 id="([^"]+)">', after) == re.findall(r'<h2 id="([^"]+)">', before)
    write_output(out, EXPERIMENTS["table3"], searched[1], command=COMMAND)
    assert (out / "report.html").read_text() == before


def test_several_datasets_each_have_a_table(tmp_path, searched):
    known = [replace(each, line=Line(replace(each.line.dataset, name="cub"), each.line.row)) for each in searched[1]]
    write_output(tmp_path, EXPERIMENTS["table3"], [*searched[1], *known], command=COMMAND)
    text = (tmp_path / "table3.md").read_text()
    assert re.findall("^## (.+)$", text, re.MULTILINE) == ["labels", "CUB-200-2011"]
    assert text.count("18.31 (0.47)") == 1, "the paper's BCE on CUB, and on nothing else"
    assert re.search(r"^CUB-200-2011\. (The order is|1 of 1 pairs)", text, re.MULTILINE)
    assert (tmp_path / "report.html").read_text().count("<table") == 2


def test_a_row_that_failed_is_shown_as_such(tmp_path, searched):
    lost = Outcome(Line(searched[1][0].line.dataset, Row("<b>ASL</b>", "asl")), {}, {}, ())
    write_output(tmp_path, replace(small.TABLE, name="table3"), [*searched[1], lost], command=COMMAND)
    text = (tmp_path / "table3.md").read_text()
    assert "failed: not one candidate of the search could be trained" in text
    page = (tmp_path / "report.html").read_text()
    assert "&lt;b&gt;ASL&lt;/b&gt;" in page
    assert "<td>failed</td>" in page


def test_a_figure_of_rows_that_all_failed_is_not_drawn(tmp_path, searched):
    lost = Outcome(searched[1][0].line, {}, {}, ())
    write_output(tmp_path, EXPERIMENTS["fig-epochs"], [lost], command=COMMAND)
    assert "could be trained" in (tmp_path / "fig-epochs.md").read_text()
