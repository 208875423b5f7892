"""One table of all methods from single positives, from the tables that `onepair reproduce` wrote.

    python benchmarks/all_methods.py results/voc2012

Best first; the published numbers stand beside ours, and methods without a row in any table are named at the end.
"""

import argparse
import csv
from pathlib import Path

from onepair.methods import METHODS

TABLES = ("table2", "table3", "table4", "table-newer")
SINGLE = "1 P"


def read_rows(folder: Path) -> dict[str, dict[str, str]]:
    """The row of each method; where several tables have one, that of the first."""
    rows: dict[str, dict[str, str]] = {}
    for table in TABLES:
        with (folder / f"{table}.csv").open(newline="", encoding="utf-8") as file:
            for record in csv.DictReader(file):
                if record["labels"] == SINGLE or record["method"] != "bce":
                    rows.setdefault(record["method"], record)
    return rows


def with_std(mean: str, std: str) -> str:
    return (f"{mean} ({std})" if std else mean) or "–"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    rows = {method: row for method, row in read_rows(parser.parse_args().folder).items() if row["test_map"]}
    print("| | method | test mAP | published | of |\n| ---: | --- | ---: | ---: | --- |")
    ranked = sorted(rows, key=lambda method: -float(rows[method]["test_map"]))
    for place, method in enumerate(ranked, start=1):
        row, info = rows[method], METHODS[method]
        ours, theirs = with_std(row["test_map"], row["std"]), with_std(row["paper_map"], row["paper_std"])
        print(f"| {place} | {info.title} | {ours} | {theirs} | {info.paper} |")
    print("\nwithout a row: " + ", ".join(info.title for name, info in METHODS.items() if name not in rows))


if __name__ == "__main__":
    main()
