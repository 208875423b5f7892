"""Write the tables of the documents from the CSV files in results/.

    python benchmarks/tables.py [--check]

A table stands in a page between `<!-- table: NAME -->` and `<!-- end -->`; NAME is a function of this file. With
--check nothing is written, and the exit code is 1 where a page and the CSV files differ. See tests/test_results.py.
"""

import argparse
import csv
import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from scipy.stats import t

from onepair.methods import METHODS

ROOT = Path(__file__).parent.parent
PLACE = re.compile(r"<!-- table: ([\w-]+) -->\n.*?<!-- end -->", re.DOTALL)
KNOWN = {"single": "one positive", "10 %": "10 %", "30 %": "30 %", "all": "all"}  # as the CSV and the pages say it
BASE = "opml-plus"
CHOSEN_ON = ("coco80", "emotions", "medical", "mirflickr7", "science", "arts")  # where the default method was chosen
LEAST_SETS = 4  # for a mean over sets
NOTHING = "–"

Record = dict[str, str]
Lines = Iterable[Sequence[str]]
TABLES: dict[str, Callable[[], str]] = {}


def table(make: Callable[[], Lines]) -> Callable[[], Lines]:
    """Register a table by the name of its function; the first line is its header."""
    TABLES[make.__name__.replace("_", "-")] = lambda: markdown(make())
    return make


def markdown(lines: Lines) -> str:
    """Lines of cells as Markdown: numbers to the right."""
    header, *rows = lines
    right = [all(re.match(r"[*<u>]*[\d–−+±]", row[column]) for row in rows) for column in range(len(header))]
    rules = ["---:" if each and column else "---" for column, each in enumerate(right)]
    return "".join(f"|{'|'.join(line)}|\n" for line in (header, rules, *rows))


@cache
def records(name: str) -> tuple[Record, ...]:
    """The rows of a CSV file in results/."""
    with (ROOT / "results" / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return tuple(csv.DictReader(file))


def value(name: str, column: str = "test_map", /, **wanted: str) -> float:
    """One number of a CSV file: the row is found by other columns."""
    (found,) = (row for row in records(name) if all(row[key] == each for key, each in wanted.items()))
    return float(found[column])


def signed(number: float, digits: int = 1) -> str:
    """A number with its sign, as a page has it."""
    text = f"{number:+.{digits}f}".replace("-", "−")
    return text[1:] if float(text[1:]) == 0 else text


def best(cells: Sequence[str], numbers: Sequence[float | None]) -> list[str]:
    """Cells with those of the highest number in bold."""
    top = max((each for each in numbers if each is not None), default=None)
    return [
        f"**{cell}**" if each is not None and each == top else cell for cell, each in zip(cells, numbers, strict=True)
    ]


def spread(row: Record) -> str:
    """Mean and standard deviation."""
    return f"{float(row['test_map']):.2f}" + (f" ({float(row['std']):.2f})" if row["std"] else "")


def percent(share: float, digits: int = 0) -> str:
    """A share as a page has it."""
    return f"{100 * share:.{digits}f} %".replace("-", "−")


# One solver, equal penalties: results/linear_methods.csv


@cache
def maps() -> dict[tuple[str, str], dict[str, dict[str, float]]]:
    """Test mAP in points by (set, known), method and draw."""
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for row in records("linear_methods"):
        found[row["set"], row["known"]][row["method"]][row["draw"]] = 100 * float(row["map"])
    return found


def ahead(name: str, known: str, method: str, other: str = BASE) -> float | None:
    """How far a method is ahead of another one, OPML+ by default: the mean over the draws that both have."""
    by_method = maps().get((name, known), {})
    shared = by_method.get(method, {}).keys() & by_method.get(other, {}).keys()
    return statistics.mean(by_method[method][each] - by_method[other][each] for each in shared) if shared else None


def means_of(name: str, known: str, methods: Sequence[str]) -> list[float | None]:
    """Test mAP of methods: the mean over the draws that all of them have, or all that have any."""
    by_method = maps().get((name, known), {})
    there = [by_method[each].keys() for each in methods if by_method.get(each)]
    shared = set.intersection(*map(set, there)) if there else set()
    return [
        statistics.mean(by_method[each][draw] for draw in shared) if shared and by_method.get(each) else None
        for each in methods
    ]


def full_sets(method: str) -> list[str]:
    """The sets on which a method and OPML+ have all four kinds of labels."""
    names = dict.fromkeys(name for name, _ in maps())
    return [name for name in names if all(ahead(name, known, method) is not None for known in KNOWN)]


class Mean(NamedTuple):
    """A mean and half of its interval of 95 %."""

    mean: float
    half: float


def over_sets(values: Sequence[float]) -> Mean:
    """Mean over sets, with the interval of Student's t."""
    half = t.ppf(0.975, len(values) - 1) * statistics.stdev(values) / len(values) ** 0.5
    return Mean(statistics.mean(values), half)


def differences() -> dict[str, list[Mean]]:
    """How far each method is ahead of OPML+ by what is known: those with most sets first, then the best."""
    methods = {method for by_method in maps().values() for method in by_method} - {BASE}
    found = {}
    for method in methods:
        sets = full_sets(method)
        if len(sets) >= LEAST_SETS:
            found[method] = [over_sets([ahead(name, known, method) or 0.0 for name in sets]) for known in KNOWN]
    return dict(sorted(found.items(), key=lambda item: (-len(full_sets(item[0])), -sum(each.mean for each in item[1]))))


@table
def summary() -> Lines:
    yield "method", "datasets", *(f"{words} known" if words.endswith("%") else words for words in KNOWN.values())
    sets = full_sets(BASE)
    base = [statistics.mean(means_of(name, known, [BASE])[0] or 0.0 for name in sets) for known in KNOWN]
    lines = [("OPML+, test mAP", str(len(sets)), *(f"{each:.1f}" for each in base))]
    for method, means in differences().items():
        cells = (f"{signed(each.mean)} ± {each.half:.1f}" for each in means)
        lines.append((METHODS[method].title, str(len(full_sets(method))), *cells))
    yield from lines


@table
def readme() -> Lines:
    """Means over the datasets that all methods of the table share."""
    shown = ("opml-plus", "ridge", "bce-known", "entmax", "opml", "bce")
    yield "method", *(f"{words} known" if words.endswith("%") else words for words in KNOWN.values())
    sets = [name for name in full_sets(BASE) if all(name in full_sets(method) for method in shown[1:])]
    columns = [
        [statistics.mean(each or 0.0 for each in own) for own in zip(*cells, strict=True)]
        for cells in ([means_of(name, known, shown) for name in sets] for known in KNOWN)
    ]
    means = {method: [column[place] for column in columns] for place, method in enumerate(shown)}
    top = [max(column) for column in zip(*means.values(), strict=True)]
    for method in sorted(shown, key=lambda each: -sum(means[each])):
        cells = [
            f"**{mean:.1f}**" if mean == most else f"{mean:.1f}" for mean, most in zip(means[method], top, strict=True)
        ]
        yield METHODS[method].title, *cells


@table
def one_solver_sets() -> Lines:
    methods = ("opml-plus", "ridge", "bce-known", "entmax", "opml", "bce")
    yield "dataset", "known", *(METHODS[each].title for each in methods)
    for name in sorted({name for name, _ in maps()}):
        for known, words in KNOWN.items():
            numbers = means_of(name, known, methods)
            if any(each is not None for each in numbers):
                cells = [NOTHING if each is None else f"{each:.2f}" for each in numbers]
                yield name, words, *best(cells, numbers)


@table
def one_solver_behind() -> Lines:
    """Points behind the best method, for the methods that ran on most sets."""
    yield "method", "datasets", *KNOWN.values()
    for method in (BASE, *differences()):
        for chosen in (True, False):
            sets = [name for name in full_sets(method) if (name in CHOSEN_ON) == chosen]
            cells = []
            for known in KNOWN:
                behind = [_behind(name, known, method) for name in sets]
                cells.append(f"{statistics.mean(behind):.2f} ({max(behind):.2f})" if behind else NOTHING)
            yield METHODS[method].title, "chosen on" if chosen else "others", *cells


def _behind(name: str, known: str, method: str) -> float:
    """By how many points the best method of a set is ahead of this one."""
    return max(0.0, *(ahead(name, known, each, method) or 0.0 for each in maps()[name, known]))


# The published protocol: results/voc2012 and results/digits


def protocol_rows(*names: str) -> list[Record]:
    """Rows from single positives, each method once, best first."""
    found: dict[str, Record] = {}
    for name in names:
        for row in records(name):
            if row["test_map"] and row["labels"] != "all P, all N":
                found.setdefault(_title(row), row)
    return sorted(found.values(), key=lambda row: -float(row["test_map"]))


def _title(row: Record) -> str:
    title = "BCE, all negatives known" if row["labels"] == "1 P, all N" else row["title"]
    return title.replace(" + ", "+")


@table
def published_protocol() -> Lines:
    tables = [f"voc2012/{name}" for name in ("table2", "table3", "table4", "table-newer")]
    low, high = value(tables[0], method="bce", labels="1 P"), value(tables[0], method="bce", labels="all P, all N")
    yield "method", "test mAP", "gap closed", "published", "chosen on validation images"
    yield "BCE, all labels", spread(records(tables[0])[0]), percent(1), "89.42 (0.27)", "lr=0.0003"
    for row in protocol_rows(*tables):
        published = (row["paper_map"] + (f" ({row['paper_std']})" if row["paper_std"] else "")) or NOTHING
        closed = (float(row["test_map"]) - low) / (high - low)
        gap = percent(closed) if closed > -1 else NOTHING
        yield _title(row), spread(row), gap, published, row["chosen"]


@table
def full_labels() -> Lines:
    yield "method", "test mAP", "published"
    for row in sorted(records("voc2012/table5"), key=lambda row: -float(row["test_map"])):
        yield row["title"], spread(row), f"{row['paper_map']} ({row['paper_std']})"


@table
def shares() -> Lines:
    places = ("0.1", "0.25", "0.5", "0.75", "1.0")
    yield "method", *(percent(float(each)) for each in places)
    found: dict[str, dict[str, float]] = defaultdict(dict)
    for row in records("voc2012/fig-known"):
        found[row["method"]][row["data.known"]] = float(row["test_map"])
    top = [max(by_place[place] for by_place in found.values()) for place in places]
    for method, by_place in sorted(found.items(), key=lambda item: -item[1]["0.1"]):
        cells = [f"{by_place[each]:.2f}" for each in places]
        yield (
            METHODS[method].title,
            *(
                f"**{cell}**" if by_place[place] == most else cell
                for cell, place, most in zip(cells, places, top, strict=True)
            ),
        )


@table
def digits() -> Lines:
    yield "method", "test mAP"
    yield "BCE, all labels", spread(records("digits/table2")[0])
    for row in protocol_rows("digits/table2", "digits/table4"):
        yield _title(row), spread(row)


@table
def fine_tuning() -> Lines:
    yield "method", "test mAP", "of each seed", "gap closed"
    for row in sorted(records("voc2012/finetune_3e-5_ten_epochs"), key=lambda row: -float(row["test_map"])):
        title = "BCE, all labels" if row["labels"] == "all P, all N" else row["title"]
        yield title, spread(row), row["test_maps"].replace(" ", ", "), percent(float(row["gap_closed"]))


@table
def fine_tuning_rows() -> Lines:
    yield "method", "test mAP", "validation: classifier alone", "best epoch", "last epoch", "gained"
    for row in records("voc2012/finetune_3e-5_rows"):
        gained = signed(float(row["best"]) - float(row["classifier_alone"]), 2)
        known = {"all P, all N": "BCE, all labels"}.get(row["labels"], row["method"])
        title = known.replace("BCE (1P, all N)", "BCE, all negatives known")
        yield (
            title,
            row["test_map"],
            row["classifier_alone"],
            f"{row['best']} ({row['best_epoch']})",
            row["last"],
            gained,
        )


@table
def fine_tuning_depth() -> Lines:
    """Test mAP by what learns."""
    yield "method", "last stage", "all, norms of the batch", "all, norms held"
    last, whole, held = (
        {row["method"]: row for row in records(f"voc2012/finetune_3e-5_{name}") if row["labels"] == "1 P"}
        for name in ("rows", "all", "all_hold_norms")
    )
    for method in held:
        yield method, *(each[method]["test_map"] if method in each else NOTHING for each in (last, whole, held))


class Claim(NamedTuple):
    """What the paper says; whether it holds, if it was tested; the evidence."""

    claim: str
    holds: bool | None
    evidence: str


def map_of(name: str) -> dict[str, float]:
    """Test mAP by method: of the rows from single positives, or of all rows where there are none."""
    rows = records(f"voc2012/{name}")
    kept = [row for row in rows if row["labels"] == "1 P"] or rows
    return {row["method"]: float(row["test_map"]) for row in kept}


def beats(claim: str, maps: dict[str, float], method: str, *leave_out: str, suffix: str = "") -> Claim:
    """A claim that a method is ahead of all others of a table."""
    second = max((each for each in maps if each not in (method, *leave_out)), key=maps.__getitem__)
    words = (f"{METHODS[each].title} {maps[each]:.2f}" for each in (method, second))
    return Claim(claim, maps[method] > maps[second], ", ".join(words) + suffix)


def helps(claim: str, maps: dict[str, float], before: str, after: str, suffix: str = "") -> Claim:
    """A claim that one row is ahead of another."""
    return Claim(
        claim, round(maps[after] - maps[before], 2) > 0, f"{maps[before]:.2f} becomes {maps[after]:.2f}{suffix}"
    )


def fall(name: str, method: str) -> tuple[float, float]:
    """The highest and the last validation mAP of a curve; the last one, if a method has several."""
    rows = [row for row in records(f"voc2012/{name}") if row["method"] == method]
    begin = max(place for place, row in enumerate(rows) if row["epoch"] == "1")
    curve = [float(row["validation_map"]) for row in rows[begin:]]
    return max(curve), curve[-1]


def claims() -> Iterable[Claim]:
    """The paper's claims, judged by the CSV files."""
    single, parts = map_of("table2"), map_of("table4")
    tuned, learned = map_of("finetune_3e-5_ten_epochs"), map_of("finetune_3e-5_rows")
    yield beats("OPML is the best common loss from single positives", map_of("table3"), "opml")
    yield beats("OPML is the best common loss from full labels", map_of("table5"), "opml")
    yield helps("OPML-SP is ahead of BCE, fixed features", single, "bce", "opml-sp")
    yield helps("OPML-SP is ahead of BCE, last stage learns", tuned, "bce", "opml-sp", ", three seeds")
    yield beats("OPML-SP is ahead of all methods before it, fixed features", single, "opml-sp", BASE)
    yield beats(
        "OPML-SP is ahead of LL-R and EntMax, last stage learns", tuned, "opml-sp", BASE, suffix=", three seeds"
    )
    for method, title, words in (
        ("opml-hr", "OPML+HR", "High-rank regularisation"),
        ("opml-soft", "OPML+smoothing", "Smoothing"),
        ("opml-correct", "OPML+correction", "Label correction"),
    ):
        yield helps(f"{words} helps OPML, fixed features", parts, "opml", method)
        yield helps(f"{words} helps OPML, last stage learns", learned, "OPML", title, ", one seed")
    yield helps("Label smoothing helps BCE, fixed features", single, "bce", "bce-ls")
    best, last = fall("finetune_3e-5_ten_epochs_curves", "bce")
    yield Claim(
        "BCE fits wrong negatives: its validation mAP falls",
        best - last > 0.1,
        f"{best:.2f} at best, {last:.2f} after ten epochs",
    )
    without, penalised = (best - last for best, last in (fall("fig-epochs", each) for each in ("opml", "opml-hr")))
    yield Claim(
        "High-rank regularisation slows the fall over 40 epochs, fixed features",
        without - penalised > 0.1,
        f"a fall of {without:.2f} without it, of {penalised:.2f} with it",
    )
    sure = {
        method: value("voc2012/fig-confidence", "share", method=method, **{"from": "0.8"}) for method in ("opml", "bce")
    }
    yield Claim(
        "OPML is surer than BCE of true positives",
        sure["opml"] > sure["bce"],
        f"confidence above 0.8 for {percent(sure['opml'])}, with BCE {percent(sure['bce'])}",
    )
    field = max(records("voc2012/fig-alpha-beta"), key=lambda row: float(row["test_map"]))
    yield Claim(
        "α̃ = 0.7 and β̃ = 0.4 are best",
        (field["alpha"], field["beta"]) == ("0.7", "0.4"),
        f"{field['alpha']} and {field['beta']} are best, at the edge of the grid",
    )
    small, large = (value("voc2012/fig-lambda", high_rank_weight=each) for each in ("0.001", "0.05"))
    yield Claim(
        "A small λ does no harm, a large one does",
        parts["opml"] - small < 0.05 < small - large,
        f"{small:.2f} at 0.001, {large:.2f} at 0.05",
    )
    yield Claim("The same order on COCO, NUS-WIDE and CUB", None, "only VOC 2012 was run")
    yield Claim("The same order with a fine-tuned ResNet-50 at 448 pixels", None, "no weights at hand")


@table
def paper() -> Lines:
    yield "claim", "here", "evidence: test mAP, or what it says"
    for each in claims():
        verdict = "not tested" if each.holds is None else "holds" if each.holds else "does not hold"
        yield each.claim, verdict, each.evidence


# Datasets of other kinds, and the kernel head


@table
def twelve_sets() -> Lines:
    told = {
        "bce, all labels": "BCE, all labels",
        "bce, one positive and all negatives": "BCE, all negatives known",
        "bce, all labels of fewer rows": "BCE, as few positives",
    }
    methods = ("bce", "entmax", "ll-r", "gr", "crisp", "opml-sp", "opml-plus")
    yield "dataset", "labels", "per row", *told.values(), *(METHODS[each].title for each in methods)
    rows = {(row["set"], row["method"]): row for row in records("methods_on_tables")}
    for name in dict.fromkeys(name for name, _ in rows):
        numbers = [float(rows[name, each]["test_map"]) for each in methods]
        cells = best([f"{rows[name, each]['test_map']} ({rows[name, each]['std']})" for each in methods], numbers)
        above = [rows[name, each]["test_map"] if (name, each) in rows else NOTHING for each in told]
        first = rows[name, "bce"]
        yield name, first["classes"], first["positives_per_row"], *above, *cells


@table
def kernel_head() -> Lines:
    """OPML+ with 2,000 landmarks, columns scaled, twice the median width, against a linear head on the same draws."""
    yield "dataset", "known", "linear", "kernel", "difference"
    found: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    rows: dict[tuple[str, str], int] = defaultdict(int)
    wanted = [row for row in records("kernel_head") if row["method"] == BASE]
    for row in wanted:
        rows[row["set"], row["known"]] = max(rows[row["set"], row["known"]], int(row["rows"]))
    for row in wanted:
        cell = row["set"], row["known"]
        head = {("linear", "0", "0"): "linear", ("columns", "2", "2000"): "kernel"}.get(
            (row["scale"], row["factor"], row["landmarks"])
        )
        if head and int(row["rows"]) == rows[cell]:
            found[cell][head][row["draw"]] = 100 * float(row["map"])
    for (name, known), heads in found.items():
        shared = heads["linear"].keys() & heads["kernel"].keys()
        if shared:
            linear, kernel = (statistics.mean(heads[each][draw] for draw in shared) for each in ("linear", "kernel"))
            yield name, KNOWN[known], f"{linear:.2f}", f"{kernel:.2f}", signed(kernel - linear, 2)


@table
def linear() -> Lines:
    """The solver beside scikit-learn's."""
    names = ("onepair, chosen", "onepair, given", "logistic", "ridge", "SGD")
    yield "dataset", "penalty chosen", "penalty given", "logistic regression", "ridge", "SGD"
    rows = {(row["set"], row["estimator"]): row for row in records("linear")}
    for name in dict.fromkeys(name for name, _ in rows):
        yield name, *(f"{rows[name, each]['ratio']} ({rows[name, each]['map']})" for each in names)


# Finding labels, and what is estimated


def groups(rows: Iterable[Record], *columns: str) -> dict[tuple[str, ...], list[Record]]:
    """Rows by the values of some columns, in the order of the file."""
    found: dict[tuple[str, ...], list[Record]] = defaultdict(list)
    for row in rows:
        found[tuple(row[each] for each in columns)].append(row)
    return found


def mean(rows: Sequence[Record], column: str) -> float:
    return statistics.mean(float(row[column]) for row in rows)


@table
def trust() -> Lines:
    """Of the first 100 suggestions: right, right by raw scores, and stated; means of rows that chose nothing."""
    yield "labels given", "cases", "right, %", "by raw scores", "stated", "off by", "at most"
    rows = [row for row in records("trust") if row["stage"] == "none" and row["half"] == "confirmed"]
    for (process,), group in groups(rows, "process").items():
        there = [row for row in group if row["find@100"] != "nan"]
        shares = (f"{mean(there, f'{each}@100'):.0f}" for each in ("find", "raw", "said"))
        off = [abs(float(row["said@100"]) - float(row["find@100"])) for row in there]
        yield process, str(len(there)), *shares, f"{statistics.median(off):.0f}", f"{max(off):.0f}"


@table
def trust_counts() -> Lines:
    """How often intervals of 95 % hold, how wide they are, and how far ranks fall below those of the raw scores."""
    yield (
        "how labels are given",
        "cases",
        "totals hold",
        "classes hold",
        "rare classes hold",
        "high / low",
        "worst rank",
    )
    rows = [row for row in records("trust") if row["stage"] == "none"]
    for process, group in [*((key[0], group) for key, group in groups(rows, "process").items()), ("all", rows)]:
        rare = [row for row in group if row["rare_hold"] != "nan"]
        wide = statistics.median(float(row["high"]) / max(float(row["low"]), 1.0) for row in group)
        off = [float(row[f"find@{top}"]) - float(row[f"raw@{top}"]) for row in group for top in (100, 500, 2000)]
        worst = min((each for each in off if each == each), default=0.0)
        held = f"{100 * mean(group, 'total_holds'):.0f} %", f"{mean(group, 'classes_hold'):.0f} %"
        yield (
            process,
            str(len(group)),
            *held,
            f"{mean(rare, 'rare_hold'):.0f} %" if rare else NOTHING,
            f"{wide:.0f}",
            f"{worst:+.0f}",
        )


@table
def trust_stages() -> Lines:
    """What the first 100 suggestions state, and what is right; of rows that chose nothing."""
    yield (
        "after",
        "cases",
        "right",
        "by raw scores",
        "at worst",
        "stated off by",
        "interval holds",
        "width",
        "counts hold",
    )
    rows = [row for row in records("trust") if row["half"] == "confirmed"]
    for (stage,), every in groups(rows, "stage").items():
        there = [row for row in every if row["find@100"] not in ("", "nan")]
        right, low, high, said = (
            [float(row[f"{each}@100"]) for row in there] for each in ("find", "low", "high", "said")
        )
        holds = statistics.mean(a - 0.5 <= b <= c + 0.5 for a, b, c in zip(low, right, high, strict=True))
        yield (
            "nothing" if stage == "none" else f"{stage} images" if "audit" in stage else f"{stage} suggestions",
            str(len(there)),
            f"{mean(there, 'find@100'):.0f} %",
            f"{mean(there, 'raw@100'):.0f} %",
            f"{min(a - float(row['raw@100']) for a, row in zip(right, there, strict=True)):+.0f}",
            f"{statistics.median(abs(a - b) for a, b in zip(said, right, strict=True)):.0f}",
            percent(holds),
            f"{statistics.mean(b - a for a, b in zip(low, high, strict=True)):.0f}",
            f"{100 * mean(every, 'total_holds'):.0f} %",
        )


@table
def wrong_labels() -> Lines:
    yield "planted", "audited images", "wrong", "expected", "suggested", "of them right", "stated", "first 50 right"
    for (share, audited), rows in groups(records("wrong_labels_voc2012"), "share", "audited").items():
        wrong, expected, suggested, right, said = (
            sum(float(row[each]) for row in rows) for each in ("wrong", "expected", "suggested", "right", "promised")
        )
        stated = percent(said / suggested) if suggested else NOTHING
        first = f"{mean(rows, 'first_50_right'):.0f}"
        cells = (f"{wrong:.0f}", f"{expected:.0f}", f"{suggested:.0f}", f"{right:.0f}", stated, first)
        yield percent(float(share)), f"{int(audited):,}", *cells


@table
def audit() -> Lines:
    yield (
        "audited images",
        "average precision",
        "first 500 right",
        "missing",
        "interval",
        "largest error",
        "interval holds",
    )
    for (audited,), rows in groups(records("audit_voc2012"), "audited").items():
        off = max(abs(float(row["missing"]) / float(row["truth"]) - 1) for row in rows)
        inside = sum(float(row["low"]) <= float(row["truth"]) <= float(row["high"]) for row in rows)
        interval = f"{mean(rows, 'low'):,.0f} to {mean(rows, 'high'):,.0f}"
        cells = (f"{mean(rows, 'missing'):,.0f}", interval, percent(off), f"{inside} of {len(rows)}")
        yield (
            f"{int(audited):,}",
            f"{mean(rows, 'average_precision'):.3f}",
            percent(mean(rows, "precision@500"), 1),
            *cells,
        )


@table
def orders() -> Lines:
    """Labels completed and test mAP by order and number of answers, mean over seeds."""
    words = {"probability": "surest first", "worth": "mixed", "random": "at random"}
    counts = ("300", "1000", "3000")
    yield "order", *(f"completed by {int(each):,}" for each in counts), *(f"mAP after {int(each):,}" for each in counts)
    found = groups((row for row in records("review_orders_voc2012") if row["method"] == BASE), "order", "answers")
    for order, title in words.items():
        completed = (f"{mean(found[order, each], 'completed'):,.0f}" for each in counts)
        maps = (f"{100 * mean(found[order, each], 'test_map'):.1f}" for each in counts)
        yield title, *completed, *maps


@table
def figures() -> Lines:
    """How many intervals of 95 % hold, and how wide they are at the median."""
    names = ("map", "precision", "recall", "f1")
    yield "labels known", "mAP", "precision", "recall", "F1"
    by_process = groups(records("figures"), "process")
    for words, rows in [*((key[0], rows) for key, rows in by_process.items()), ("all", list(records("figures")))]:
        cells = []
        for name in names:
            own = [row for row in rows if row["figure"] == name]
            width = statistics.median(float(row["high"]) - float(row["low"]) for row in own)
            cells.append(f"{percent(mean(own, 'holds'))}, ± {width / 2:.0f}")
        yield words, *cells


@table
def coverage() -> Lines:
    """How many intervals of 95 % hold, by how labels came to be known."""
    yield "labels known", "cases", "intervals of classes that hold", "intervals of totals that hold"
    for (process,), rows in groups(records("coverage"), "process").items():
        classes = statistics.mean(float(row["classes_hold"]) / max(float(row["classes_with_holes"]), 1) for row in rows)
        yield process, str(len(rows)), percent(classes), percent(mean(rows, "total_holds"))


@table
def selection() -> Lines:
    yield "criterion", "all methods", "chosen on", "others", "worst method"
    rows = records("selection")
    half = [row for row in rows if row["method"] in SELECTED_ON]
    rest = [row for row in rows if row["method"] not in SELECTED_ON]
    for column, words in (
        ("estimated_map", "estimated mAP, the default"),
        ("likelihood of what is observed", "likelihood of the observed labels"),
        ("unknown as negative", "mAP with unknown labels as negative"),
        ("last epoch", "last epoch"),
    ):
        worst = max(float(row[column]) for row in rows)
        yield words, *(f"{mean(each, column):.3f}" for each in (rows, half, rest)), f"{worst:.2f}"


SELECTED_ON = ("bce, all labels", "bce", "bce-l1", "bce-ls", "role", "ll-ct", "entmax", "opml-sp")


@table
def scale() -> Lines:
    """Seconds of processors, those of the clock in brackets, and the most memory."""
    steps = list(dict.fromkeys(row["step"] for row in records("scale")))
    yield "images", "classes", *steps, "gigabytes"
    cases = groups(records("scale"), "rows", "classes")
    for (images, classes), rows in sorted(cases.items(), key=lambda item: tuple(map(int, item[0]))):
        own = {row["step"]: row for row in rows}
        cells = (
            f"{float(own[each]['cpu_seconds']):,.0f} ({float(own[each]['seconds']):,.0f})" if each in own else NOTHING
            for each in steps
        )
        most = max(float(row["gigabytes"]) for row in rows)
        yield f"{int(images):,}", f"{int(classes):,}", *cells, f"{most:.1f}"


@table
def average_precision() -> Lines:
    """How many times as fast as others, and the memory as a multiple of that of the scores."""
    yield "processor", "test set", "scikit-learn", "torchmetrics", "memory"
    for row in records("average_precision"):
        times = (f"{float(row[each]):.1f} ×" for each in ("scikit-learn", "torchmetrics", "memory"))
        yield row["processor"], row["test_set"], *times


@table
def benchmarks() -> Lines:
    yield "script", "question", "result", "aim", "met", "processor"
    for row in records("benchmarks"):
        script = f"[{row['script']}]({row['script']}.py)"
        yield script, *(row[each] or NOTHING for each in ("question", "result", "aim", "met", "processor"))


# Pages


def pages() -> list[Path]:
    """Every page that may hold a table."""
    return [
        ROOT / "README.md",
        *sorted((ROOT / "docs").rglob("*.md")),
        ROOT / "results" / "README.md",
        ROOT / "benchmarks" / "README.md",
    ]


def written(text: str) -> str:
    """The text of a page with its tables as the CSV files have them."""

    def fill(place: re.Match[str]) -> str:
        name = place[1]
        if name not in TABLES:
            raise SystemExit(f"no table {name!r}; there are {', '.join(sorted(TABLES))}")
        return f"<!-- table: {name} -->\n\n{TABLES[name]()}\n<!-- end -->"

    return PLACE.sub(fill, text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; the exit code is 1 where pages differ")
    check = parser.parse_args().check
    stale = {page: text for page in pages() if (text := written(page.read_text("utf-8"))) != page.read_text("utf-8")}
    for page, text in stale.items():
        print(f"{'differs' if check else 'written'}: {page.relative_to(ROOT)}")
        if not check:
            page.write_text(text, "utf-8")
    raise SystemExit(1 if check and stale else 0)


if __name__ == "__main__":
    main()
