"""The tables of the documents are those of the CSV files in results/, and the findings hold there."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TABLES = runpy.run_path(str(ROOT / "benchmarks" / "tables.py"))
PAGES = {str(page.relative_to(ROOT)): page.read_text("utf-8") for page in TABLES["pages"]()}
OURS = [name for name in PAGES if name.startswith(("docs/results/", "results/", "benchmarks/"))]
CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
DECIMAL = re.compile(r"(?<![\w.])\d+\.\d+")


def tables_of(text):
    return "".join(place[0] for place in TABLES["PLACE"].finditer(text))


def prose_of(text):
    return CODE.sub("", TABLES["PLACE"].sub("", text))


@pytest.mark.parametrize("name", [name for name, text in PAGES.items() if TABLES["PLACE"].search(text)])
def test_tables_are_those_of_the_csv_files(name):
    assert TABLES["written"](PAGES[name]) == PAGES[name], "run python benchmarks/tables.py"


def test_a_number_that_is_not_in_the_csv_file_is_found():
    page = PAGES["docs/results/digits.md"]
    assert "|89.36 (1.53)|" in page
    assert TABLES["written"](page.replace("|89.36 (1.53)|", "|89.37 (1.53)|")) == page


def test_a_table_that_nobody_makes_is_refused():
    with pytest.raises(SystemExit, match="no table 'nonsense'"):
        TABLES["written"]("<!-- table: nonsense -->\n<!-- end -->")


@pytest.mark.parametrize("name", OURS)
def test_no_table_and_no_result_is_written_by_hand(name):
    prose, tables = prose_of(PAGES[name]), tables_of(PAGES[name])
    assert not re.search(r"^\|", prose, re.MULTILINE)
    assert not [each for each in DECIMAL.findall(prose) if not re.search(rf"(?<![\d.]){re.escape(each)}", tables)]


def test_every_table_stands_somewhere():
    shown = {place[1] for text in PAGES.values() for place in TABLES["PLACE"].finditer(text)}
    assert shown | {"readme"} == set(TABLES["TABLES"])


def test_every_script_stands_in_the_table_of_benchmarks():
    scripts = {
        path.stem for path in (ROOT / "benchmarks").glob("*.py") if 'if __name__ == "__main__"' in path.read_text()
    }
    assert {row["script"] for row in TABLES["records"]("benchmarks")} == scripts - {"tables", "charts"}


def test_no_method_is_clearly_ahead_of_the_default():
    for method, means in TABLES["differences"]().items():
        assert all(each.mean - each.half < 0.1 for each in means), method


def test_with_one_positive_methods_are_close_and_with_a_tenth_of_the_labels_not():
    found = {method: means for method, means in TABLES["differences"]().items() if method != "bce-known"}
    assert all(abs(one.mean) < 1.5 for one, *_ in found.values())
    assert found["bce"][1].mean < -2
    everywhere = {method: means for method, means in found.items() if len(TABLES["full_sets"](method)) >= 10}
    assert min(everywhere, key=lambda method: everywhere[method][1].mean) == "entmax"


def test_opml_plus_is_highest_at_every_share():
    rows = TABLES["records"]("voc2012/fig-known")
    for share in {row["data.known"] for row in rows}:
        here = {row["method"]: float(row["test_map"]) for row in rows if row["data.known"] == share}
        assert len(here) == 31
        assert max(here, key=here.__getitem__) == "opml-plus"
