"""Are suggestions of wrong labels right? Wrong positives are planted in single-positive VOC 2012.

    python benchmarks/wrong_labels.py FOLDER [--draws 3] [--out results/wrong_labels_voc2012.csv]

FOLDER holds VOC 2012 as `voc2012`, with features. Of as many images as VOC trains on, a fifth is set aside for audits;
the others show one positive each, of which a share is replaced by a class that is not in the image. Linear classifiers
of OPML, one for each fifth of these images, are fitted to the other four, and `judge` is asked which labels are wrong:
without an audit, with a hundred images audited, and with all that were set aside.
"""

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from real_sets import Features, read_features, write_csv
from threadpoolctl import threadpool_limits

from onepair import OPMLClassifier
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, observe_positives
from onepair.metrics import Floats
from onepair.probability.calibration import expected_calibration_error
from onepair.probability.cell_posterior import judge

IMAGES, FOLDS = 5_717, 5
SHARES = (0.0, 0.01, 0.02, 0.05)  # of the shown positives that are wrong
AUDITED = (0, 100, 1_143)

Row = dict[str, Any]


class Planted(NamedTuple):
    """Images that show one label each, and others that may be audited."""

    truth: Labels  # (N, L)
    shown: Labels  # (N, L)
    scores: Floats  # (N, L), out of sample
    audited: Labels  # (M, L)
    audited_scores: Floats  # (FOLDS, M, L)


def plant(truth: Labels, share: float, random: np.random.Generator) -> Labels:
    """One positive of every row, a share of them moved to a class that is not there, as often as classes are."""
    shown = observe_positives(truth, seed=int(random.integers(2**31)))
    for row in random.permutation(len(truth))[: round(share * len(truth))]:
        absent = np.flatnonzero(truth[row] == NEGATIVE)
        often = truth[:, absent].mean(0)
        shown[row] = UNKNOWN
        shown[row, random.choice(absent, p=often / often.sum())] = POSITIVE
    return shown


def prepare(data: Features, share: float, seed: int) -> Planted:
    random = np.random.default_rng(seed)
    rows = random.permutation(len(data.labels))[:IMAGES]
    aside, searched = np.split(rows, [IMAGES // FOLDS])
    shown = plant(data.labels[searched], share, random)
    scores, by_model = np.empty(shown.shape), []
    part = np.arange(len(searched)) % FOLDS
    for fold in range(FOLDS):
        kept = part != fold
        model = OPMLClassifier(method="opml-ls", tol=1e-2).fit(data.features[searched[kept]], shown[kept])
        scores[~kept] = model.decision_function(data.features[searched[~kept]])
        by_model.append(model.decision_function(data.features[aside]))
    return Planted(data.labels[searched], shown, scores, data.labels[aside], np.stack(by_model))


def measure(planted: Planted, audited: int) -> Row:
    sample, scores = planted.audited[:audited], planted.audited_scores[:, :audited]
    judgement = judge(
        planted.shown, planted.scores, sample=sample if audited else None, sample_scores=scores if audited else None
    )
    cells = planted.shown == POSITIVE
    chance, wrong = 1 - judgement.probabilities[cells], planted.truth[cells] != POSITIVE
    likely = chance > 0.5
    return {
        "audited": audited,
        "wrong": int(wrong.sum()),
        "expected": float(chance.sum()),
        "suggested": int(likely.sum()),
        "right": int(wrong[likely].sum()),
        "promised": float(chance[likely].sum()),
        "calibration_error": expected_calibration_error(chance[:, None], wrong[:, None].astype(np.int8)),
        "first_50_right": int(wrong[np.argsort(-chance, kind="stable")[:50]].sum()),
    }


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Markdown, sums over the draws."""
    columns = ("planted", "audited", "wrong", "expected", "suggested above 0.5", "of them right", "promised", "ECE")
    yield "| " + " | ".join(columns) + " |"
    yield "|---" * len(columns) + "|"
    for share, audited in dict.fromkeys((row["share"], row["audited"]) for row in rows):
        group = [row for row in rows if (row["share"], row["audited"]) == (share, audited)]
        total = {name: sum(row[name] for row in group) for name in group[0]}
        right, promised = (total[name] / max(total["suggested"], 1) for name in ("right", "promised"))
        yield (
            f"| {share:.0%} | {audited:,} | {total['wrong']} | {total['expected']:.0f} | {total['suggested']} "
            f"| {right:.0%} | {promised:.0%} | {total['calibration_error'] / len(group):.4f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--draws", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/wrong_labels_voc2012.csv"))
    arguments = parser.parse_args()
    data, rows = read_features(arguments.folder, "voc2012"), []
    with threadpool_limits(1):
        for share in SHARES:
            for seed in range(arguments.draws):
                planted = prepare(data, share, seed)
                rows += [{"share": share, "seed": seed, **measure(planted, audited)} for audited in AUDITED]
    print("\n".join(table(rows)))
    write_csv(arguments.out, rows)


if __name__ == "__main__":
    main()
