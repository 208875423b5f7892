"""What an experiment leaves behind."""

import re
from dataclasses import replace

import pytest

from onepair.experiments.records import EXPERIMENTS, Row
from onepair.experiments.study import Line, Outcome
from onepair.experiments.tables import write_output
from tests.experiments.small import TABLE

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
    write_output(tmp_path, replace(TABLE, name="table3"), [*searched[1], lost], command=COMMAND)
    text = (tmp_path / "table3.md").read_text()
    assert "failed: not one candidate of the search could be trained" in text
    page = (tmp_path / "report.html").read_text()
    assert "&lt;b&gt;ASL&lt;/b&gt;" in page
    assert "<td>failed</td>" in page


def test_a_figure_of_rows_that_all_failed_is_not_drawn(tmp_path, searched):
    lost = Outcome(searched[1][0].line, {}, {}, ())
    write_output(tmp_path, EXPERIMENTS["fig-epochs"], [lost], command=COMMAND)
    assert "could be trained" in (tmp_path / "fig-epochs.md").read_text()
