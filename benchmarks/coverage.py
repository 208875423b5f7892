"""Do probabilities and intervals hold? Simulated and real labels, hidden in nine ways, and judged by the truth.

    python benchmarks/coverage.py [--data FOLDER] [--cache FOLDER] [--quick] [--out results]

FOLDER may hold sets of features (X, Y) as .npz, in itself or in a folder `tabular`, and VOC 2012 as `voc2012`; without
it, only the simulated cases run. Half of the rows of a real set train a linear model from labels hidden in the same
way; a quarter has its labels hidden and is what `fit_decisions` and `judge` are given with the model's scores; the rest
is what the probabilities and decisions are judged by. A simulated set has scores that a model could have given.

Aims: 90 % of all intervals hold the truth, and in no kind of case fewer than 75 %. A kind of case is a way of hiding,
simulated or real. The last way breaks the assumptions on purpose, and is reported apart.
"""

import argparse
import inspect
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from hiding import BROKEN, PROCESSES, PROCESSES_AND_BROKEN, Hidden, has_both, known_share, missing
from real_sets import SETS, Features, read_features, train_scores, write_csv
from scipy.special import expit
from threadpoolctl import threadpool_limits

from onepair.errors import UserError
from onepair.experiments.figures import HEIGHT, SERIES, WIDTH, Drawing, draw
from onepair.files import write_atomically
from onepair.labels import Labels
from onepair.metrics import Floats, precision_recall_f1
from onepair.probability import fit_decisions
from onepair.probability.calibration import expected_calibration_error
from onepair.probability.cell_posterior import judge

OVER_ALL, EACH_KIND = 0.90, 0.75  # aims for the share of intervals that hold
CLASSES = (5, 20, 80, 300)
POSITIVES = (1.3, 3.0, 8.0)  # a row, expected
CELLS, FEWEST_ROWS, MOST_ROWS = 12_000, 200, 1_500  # of a case
MANY_CLASSES = 150  # take long: fewer cases of them
_FLATTER = 1.63  # the logit of a share, against that of a mean logit that scatters as `simulate` has it

Row = dict[str, Any]


class Case(NamedTuple):
    """A set, a way of hiding its labels, and everything that is drawn by chance."""

    kind: str  # "simulated" or "real"
    data: str
    process: str
    setting: float
    classes: int
    positives: float  # a row, on average
    seed: int


class Material(NamedTuple):
    """Scores and full labels of rows whose labels are hidden, of other rows to judge by, and what is left to see."""

    scores: Floats
    truth: Labels
    held_out_scores: Floats
    held_out: Labels
    hidden: Hidden


def rows_of(classes: int) -> int:
    return int(np.clip(CELLS // classes, FEWEST_ROWS, MOST_ROWS))


def simulate(case: Case) -> Material:
    """Labels that depend on each other, and scores that know of them what a model could, in units of their own."""
    random = np.random.default_rng(case.seed)
    rows, classes = 2 * rows_of(case.classes), case.classes
    drawn = 3 * rows  # of which some are left out
    prevalence = np.clip(case.positives / classes * np.exp(random.normal(0, 0.5, classes)), 0.003, 0.6)
    offset = _FLATTER * np.log(prevalence / (1 - prevalence))
    known, common = random.normal(0, 2, (drawn, classes)), random.normal(0, 0.5, (drawn, 1))
    truth = (random.random(known.shape) < expit(known + common + offset)).astype(np.int8)
    scores = (known + random.normal(0, 0.7, known.shape)) * random.uniform(0.6, 1.6, classes) + offset
    if case.process.startswith("single positive"):  # as in most sets, no row is without a label
        kept = truth.any(1)
        truth, scores = truth[kept], scores[kept]
    truth, scores = truth[:rows], scores[:rows]
    process = PROCESSES_AND_BROKEN[case.process]
    half = len(truth) // 2
    hidden = process.hide(truth[:half], scores[:half], case.setting, random)
    return Material(scores[:half], truth[:half], scores[half:], truth[half:], hidden)


def real(case: Case, features: Features, cache: Path | None) -> Material:
    """Scores of a linear model from labels that are hidden in the same way, on rows that it was not fitted to."""
    random = np.random.default_rng(case.seed)
    order = random.permutation(len(features.labels))
    train, rest = np.split(order, [len(order) // 2])
    rest = rest[: 2 * rows_of(features.labels.shape[1])]
    process = PROCESSES_AND_BROKEN[case.process]
    name = f"{case.data}-{case.process}-{case.setting:g}-{case.seed}".replace(" ", "_").replace(",", "")
    scores = train_scores(features, train, rest, process, case.setting, random, cache and cache / f"{name}.npy")
    half, truth = len(rest) // 2, features.labels[rest]
    hidden = process.hide(truth[:half], scores[:half], case.setting, np.random.default_rng(case.seed + 1))
    return Material(scores[:half], truth[:half], scores[half:], truth[half:], hidden)


def measure(case: Case, material: Material) -> Row:
    """One row of the result."""
    process, (scores, truth, held_out_scores, held_out, hidden) = PROCESSES_AND_BROKEN[case.process], material
    start = time.process_time()
    if process.sample:
        rows = round(process.sample * len(held_out))  # beside those that are judged
        sample, sample_scores = held_out[:rows], held_out_scores[:rows]
        held_out, held_out_scores = held_out[rows:], held_out_scores[rows:]
        decisions = fit_decisions(sample_scores, sample)
        judgement = judge(hidden.observed, scores, sample=sample, sample_scores=sample_scores)
    else:
        decisions = _call(fit_decisions, scores, hidden.observed, asked=hidden.asked)
        judgement = _call(judge, hidden.observed, scores, asked=hidden.asked)
    seconds = time.process_time() - start
    by_all = fit_decisions(scores, truth)
    holes, true = (hidden.observed < 0).any(0), missing(truth, hidden.observed)
    low, high = (np.round(np.asarray(end)) for end in (judgement.missing.low, judgement.missing.high))
    holds = ((low <= true) & (true <= high))[holes]
    total, ends = int(true.sum()), [float(np.round(end)) for end in (judgement.total.low, judgement.total.high)]
    positives = int(truth.sum())  # what the bias and the width of an interval are relative to
    f1, full_f1 = (
        precision_recall_f1(each.labels(held_out_scores), held_out, average="class").f1 for each in (decisions, by_all)
    )
    return {
        "kind": case.kind,
        "data": case.data,
        "process": case.process,
        "setting": case.setting,
        "seed": case.seed,
        "rows": len(truth),
        "classes": truth.shape[1],
        "prevalence": float(truth.mean()),
        "observed": known_share(truth, hidden.observed),
        "calibration_error": expected_calibration_error(decisions.probabilities(held_out_scores), held_out),
        "calibration_error_full": expected_calibration_error(by_all.probabilities(held_out_scores), held_out),
        "missing": total,
        "estimated": float(judgement.total.value),
        "low": ends[0],
        "high": ends[1],
        "bias": float((judgement.total.value - total) / positives),
        "total_holds": int(ends[0] <= total <= ends[1]),
        "classes_with_holes": int(holes.sum()),
        "classes_hold": int(holds.sum()),
        "width": float((ends[1] - ends[0]) / positives),
        "f1": f1,
        "f1_full": full_f1,
        "seconds": seconds,
    }


def _call(function: Callable[..., Any], *arguments: Any, asked: Any) -> Any:
    """Call a function that may not yet have a way to say which labels were asked for."""
    knows = asked is not None and "asked" in inspect.signature(function).parameters
    return function(*arguments, **({"asked": asked} if knows else {}))


def simulated_cases(*, quick: bool) -> Iterator[Case]:
    classes, positives = (CLASSES[:2], POSITIVES[1:2]) if quick else (CLASSES, POSITIVES)
    seed = 0
    for name, process in PROCESSES_AND_BROKEN.items():
        for number in classes:
            for expected in positives:
                if expected > number / 2:
                    continue
                settings = process.settings[:1] if quick else _some(process.settings, seed, number)
                for setting in settings:
                    seed += 1
                    yield Case("simulated", f"{number} classes", name, setting, number, expected, seed)


def real_cases(sets: Mapping[str, Features], *, quick: bool) -> Iterator[Case]:
    seed = 1000
    for data, features in sets.items():
        rows, classes = features.labels.shape
        for name, process in PROCESSES_AND_BROKEN.items():
            for setting in process.settings[:1] if quick else _some(process.settings, seed, classes):
                seed += 1
                yield Case("real", data, name, setting, classes, float(features.labels.sum() / rows), seed)


def _some(settings: Sequence[float], number: int, classes: int) -> Sequence[float]:
    """One setting, or two of four; others in the next case."""
    chosen = settings[number % 2 :: 2] if len(settings) > 1 else settings
    return chosen[:1] if classes >= MANY_CLASSES else chosen


def rates(rows: Sequence[Row]) -> tuple[float, float]:
    """The shares of intervals that hold: of classes, where every case counts the same, and of totals."""
    return (
        float(np.mean([row["classes_hold"] / max(row["classes_with_holes"], 1) for row in rows])),
        float(np.mean([row["total_holds"] for row in rows])),
    )


def table(rows: Sequence[Row]) -> str:
    """Markdown: a line for every kind of case."""
    lines = [
        "| cases | way of hiding | n | classes hold | totals hold | width | bias, median (90 % within) "
        "| calibration error (full) | F1 / F1 full |",
        "|---" * 9 + "|",
    ]
    for kind, process in dict.fromkeys((row["kind"], row["process"]) for row in rows):
        group = [row for row in rows if (row["kind"], row["process"]) == (kind, process)]
        classes, totals = rates(group)
        bias = np.array([row["bias"] for row in group])
        error, full = (
            np.mean([row[name] for row in group]) for name in ("calibration_error", "calibration_error_full")
        )
        share = np.mean([row["f1"] for row in group]) / np.mean([row["f1_full"] for row in group])
        width = np.median([row["width"] for row in group])
        lines.append(
            f"| {kind} | {process} | {len(group)} | {classes:.0%} | {totals:.0%} | {width:.2f} "
            f"| {np.median(bias):+.2f} ({np.quantile(abs(bias), 0.9):.2f}) | {error:.4f} ({full:.4f}) | {share:.2f} |"
        )
    return "\n".join(lines)


def verdict(rows: Sequence[Row]) -> str:
    """Whether the aims are met by intervals of classes and of totals."""
    fair = [row for row in rows if row["process"] in PROCESSES]
    groups = {
        kind: [row for row in fair if (row["kind"], row["process"]) == kind]
        for kind in dict.fromkeys((row["kind"], row["process"]) for row in fair)
    }
    lines = []
    for which, what in enumerate(("classes", "totals")):
        over_all, by_kind = rates(fair)[which], {kind: rates(group)[which] for kind, group in groups.items()}
        worst = min(by_kind, key=by_kind.__getitem__)
        below = sum(rate < EACH_KIND for rate in by_kind.values())
        met = "met" if over_all >= OVER_ALL and not below else "missed"
        lines.append(
            f"Intervals of {what}: {over_all:.1%} hold over all {len(fair)} cases (aim {OVER_ALL:.0%}); "
            f"{below} of {len(by_kind)} kinds are below {EACH_KIND:.0%}, the lowest is {', '.join(worst)} "
            f"with {by_kind[worst]:.0%}: {met}."
        )
    return "\n".join(lines)


def run(cases: Sequence[Case], sets: Mapping[str, Features], cache: Path | None) -> list[Row]:
    """The results of all cases that are not refused."""
    rows = []
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, case in enumerate(cases, start=1):
            print(f"{number} of {len(cases)}: {' · '.join(map(str, case))}", file=sys.stderr, flush=True)
            try:
                made = simulate(case) if case.kind == "simulated" else real(case, sets[case.data], cache)
                if has_both(made.truth):
                    rows.append(measure(case, made))
            except (UserError, ValueError) as error:
                print(f"refused: {' · '.join(map(str, case))}: {error}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--out", type=Path, default=Path("results"))
    arguments = parser.parse_args()
    names = SETS[:1] if arguments.quick else SETS
    sets = {name: read_features(arguments.data, name) for name in names} if arguments.data else {}
    start = time.process_time()
    cases = [*simulated_cases(quick=arguments.quick), *real_cases(sets, quick=arguments.quick)]
    rows = run(cases, sets, arguments.cache)
    fair, broken = ([row for row in rows if (row["process"] == BROKEN) == wanted] for wanted in (False, True))
    print(table(fair), f"\nThe assumption broken on purpose:\n\n{table(broken)}", verdict(rows), sep="\n")
    print(f"{len(rows)} cases in {time.process_time() - start:.0f} s of one processor")
    write(rows, arguments.out)


def write(rows: Sequence[Row], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    write_csv(folder / "coverage.csv", rows, form=".6g")
    _, files = draw(lambda: chart(rows, aims=(OVER_ALL, EACH_KIND), broken=BROKEN))
    write_atomically(folder / "coverage.png", files.png)
    write_atomically(folder / "coverage.svg", files.svg)


def chart(rows: Sequence[Row], *, aims: tuple[float, float], broken: str) -> Drawing:
    """Bars of classes whose interval holds by kind of case, and estimates of the total against the truth."""
    processes = list(dict.fromkeys(row["process"] for row in rows))
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(2.9 * WIDTH, 1.35 * HEIGHT), width_ratios=(1.25, 1), layout="constrained"
    )
    at, height = np.arange(len(processes), dtype=float), 0.8 / len(kinds)
    for number, kind in enumerate(kinds):
        shares = [_share([row for row in rows if (row["kind"], row["process"]) == (kind, each)]) for each in processes]
        offset = (number - (len(kinds) - 1) / 2) * height
        left.barh(at + offset, shares, 0.9 * height, color=SERIES[number]["color"], label=kind)
    for aim, dashes, words in zip(aims, ("--", ":"), ("aim, all cases", "aim, each kind"), strict=True):
        left.axvline(100 * aim, color=SERIES[2]["color"], linestyle=dashes, linewidth=1, label=words)
    left.set_yticks(at, [f"{each}\n(assumption broken)" if each == broken else each for each in processes])
    left.invert_yaxis()
    left.grid(axis="y", visible=False)
    left.grid(axis="x", visible=True)
    left.set(xlim=(0, 100), xlabel="classes whose interval of 95 % holds the count (%)")
    left.legend(loc="upper center", bbox_to_anchor=(0.4, 1.12), ncols=4, columnspacing=1.2)
    for number, (title, wanted) in enumerate((("assumptions hold", False), ("assumption broken", True))):
        group = [row for row in rows if (row["process"] == broken) == wanted]
        style = SERIES[(1, 2)[number]]
        right.plot(
            [max(row["missing"], 0.5) for row in group],
            [max(row["estimated"], 0.5) for row in group],
            **{
                "color": style["color"],
                "marker": style["marker"],
                "linestyle": "none",
                "markersize": 2.5,
                "alpha": 0.7,
            },
            label=title,
        )
    ends = [0.5, max(max(row["missing"], row["estimated"]) for row in rows)]
    right.plot(ends, ends, color=SERIES[0]["color"], linewidth=0.8)
    right.set(xscale="log", yscale="log", xlabel="labels that are missing", ylabel="estimated")
    right.legend(loc="upper left")
    return Drawing(figure, [dict(row) for row in rows], [])


def _share(group: Sequence[Row]) -> float:
    return 100 * float(np.mean([row["classes_hold"] / max(row["classes_with_holes"], 1) for row in group] or [np.nan]))


if __name__ == "__main__":
    main()
