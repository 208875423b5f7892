"""One table of all methods from single positives, from the tables that `onepair reproduce` wrote.

    python benchmarks/all_methods.py results/voc2012/table{2,3,4,-newer}.csv

Best first; the published numbers stand beside ours, and methods without a row in any table are named at the end. Where
several tables have a row of a method, that of the first counts; the seeds are shown where they are not the same number.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

from onepair.methods import METHODS

SINGLE = "1 P"


def read_rows(tables: Sequence[Path]) -> dict[str, dict[str, str]]:
    """The row of each method that has a result."""
    rows: dict[str, dict[str, str]] = {}
    for table in tables:
        with table.open(newline="", encoding="utf-8") as file:
            for record in csv.DictReader(file):
                if record["test_map"] and (record["labels"] == SINGLE or record["method"] != "bce"):
                    rows.setdefault(record["method"], record)
    return rows


def with_std(mean: str, std: str) -> str:
    return (f"{mean} ({std})" if std else mean) or "–"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("tables", type=Path, nargs="+")
    rows = read_rows(parser.parse_args().tables)
    titles = ["", "method", "seeds", "test mAP", "published", "of"]
    lines = []
    for place, method in enumerate(sorted(rows, key=lambda each: -float(rows[each]["test_map"])), start=1):
        row, info = rows[method], METHODS[method]
        ours, theirs = with_std(row["test_map"], row["std"]), with_std(row["paper_map"], row["paper_std"])
        lines.append([str(place), info.title, row["seeds"], ours, theirs, info.paper])
    lines = [titles, ["---:", "---", "---:", "---:", "---:", "---"], *lines]
    if len({row["seeds"] for row in rows.values()}) == 1:
        lines = [[*line[:2], *line[3:]] for line in lines]
    print("\n".join(f"| {' | '.join(line)} |" for line in lines))
    print("\nwithout a row: " + ", ".join(info.title for name, info in METHODS.items() if name not in rows))


if __name__ == "__main__":
    main()
