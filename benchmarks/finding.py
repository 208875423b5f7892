"""Finding the labels that single-positive VOC 2012 hides: onepair find against plain scores and cleanlab, in one run.

    python benchmarks/finding.py VOCdevkit [--runs DIR] [--out results/finding_voc2012.csv]

Linear classifiers on EfficientNet-Lite0 features; a fifth of the training images is the validation split, and keeps all
of its labels. All rankings of a method are of the same out-of-fold scores. The truth is what VOC says of the unknown
cells of the training rows; nothing was chosen by it. Needs cleanlab.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from cleanlab.multilabel_classification.filter import find_multilabel_issues_per_class
from cleanlab.multilabel_classification.rank import get_label_quality_scores_per_class
from numpy.typing import NDArray
from real_sets import write_csv, write_training_images
from scipy.special import expit

from onepair.finding.folds import OutOfSample, read_out_of_sample
from onepair.labels import POSITIVE, UNKNOWN, Labels
from onepair.metrics import average_precision
from onepair.probability.calibration import expected_calibration_error
from onepair.probability.cell_posterior import Judgement, judge
from onepair.runs.config import Config, build_config
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.training.callbacks import ProgressCallback
from onepair.training.hardware import Hardware
from onepair.training.run import train

Floats = NDArray[np.float64]

TOPS = (100, 500, 1000)
OPTIONS: dict[str, dict[str, Any]] = {
    "bce": {},
    "opml-sp": {"alpha": 0.7, "beta": 0.7, "gamma_gradient": False, "label_num": 1.6},
    "entmax": {"entropy_weight": 0.1},
    "opml-plus": {},
}


def configuration(source: Path, method: str) -> Config:
    return build_config(
        {
            "data": {"source": str(source), "observe": "single-positive"},
            "model": {"backbone": "tf_efficientnet_lite0", "mode": "linear"},
            "method": {"name": method, "options": OPTIONS[method]},
        }
    )


def measure(name: str, ranking: Floats, observed: Labels, truth: Labels) -> dict[str, str]:
    """How well a ranking (N, L), the higher the more probable, finds the positives among the unknown cells."""
    unknown = observed == UNKNOWN
    score, positive = ranking[unknown], truth[unknown] == POSITIVE
    found = positive[np.argsort(-score, kind="stable")]
    ap = average_precision(score[:, None], positive[:, None])[0]
    return {
        "ranking": name,
        **{f"precision@{top}": f"{found[:top].mean():.3f}" for top in TOPS},
        "average_precision": f"{ap:.3f}",
    }


def calibration_facts(judgement: Judgement, observed: Labels, truth: Labels) -> dict[str, str]:
    """How true the probabilities are, and how well the number of missing labels is estimated."""
    hidden = np.where(observed == UNKNOWN, truth, UNKNOWN).astype(np.int8)
    missing = (hidden == POSITIVE).sum(0)
    estimate, covered = judgement.missing, (judgement.missing.low <= missing) & (missing <= judgement.missing.high)
    total = judgement.total
    return {
        "calibration_error": f"{expected_calibration_error(judgement.probabilities, hidden):.4f}",
        "missing": f"{total.value:.0f} ({total.low:.0f} to {total.high:.0f})",
        "classes_in_interval": f"{covered.sum()} of {len(estimate.value)}",
        "wrong_above_half": str(int(((observed == POSITIVE) & (judgement.probabilities < 0.5)).sum())),
    }


def cleanlab_rankings(observed: Labels, probabilities: Floats) -> dict[str, Floats]:
    """What cleanlab makes of labels and probabilities; it has no unknown labels, so they are given as negative."""
    listed = [np.flatnonzero(row == POSITIVE).tolist() for row in observed]
    rankings = {
        f"cleanlab {words}": 1 - get_label_quality_scores_per_class(listed, probabilities, **options)
        for words, options in {
            "self-confidence": {"method": "self_confidence"},
            "normalized margin": {"method": "normalized_margin"},
            "confidence-weighted entropy": {"method": "confidence_weighted_entropy"},
        }.items()
    }
    issues = find_multilabel_issues_per_class(listed, probabilities, n_jobs=1)
    rankings["cleanlab issues first"] = rankings["cleanlab self-confidence"] + np.asarray(issues)
    return rankings


def rows_of(method: str, scored: OutOfSample) -> list[dict[str, str]]:
    observed, scores = scored.observed.dense(), scored.scores.astype(np.float64)
    truth = scored.run.table.labels[scored.rows]
    plain = expit(scores)
    rankings = {"scores": plain, **cleanlab_rankings(observed, plain)}
    rows = [measure(name, ranking, observed, truth) for name, ranking in rankings.items()]
    samples = {"onepair find": scored.sample, "onepair find, no full labels": None}
    for name, sample in samples.items():
        judgement = judge(observed, scores, sample=sample, sample_scores=scored.sample_scores)
        facts = calibration_facts(judgement, observed, truth)
        rows.append({**measure(name, judgement.probabilities, observed, truth), **facts})
    return [{"method": method, **row} for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--runs", type=Path, default=Path("runs/finding_voc2012"))
    parser.add_argument("--out", type=Path, default=Path("results/finding_voc2012.csv"))
    arguments = parser.parse_args()
    source = arguments.runs / "labels.csv"
    write_training_images(arguments.data, source)
    hardware, rows = Hardware(accelerator="cpu", devices=1), []
    with ProgressCallback(quiet=True) as progress:
        for method in OPTIONS:
            folder = RunFolder(arguments.runs / method)
            train(configuration(source, method), folder, hardware=hardware, callbacks=[progress])
            run = FinishedRun(folder.path, shared=hardware.shared)
            fabric = hardware.fabric(run.config.precision)
            scored = read_out_of_sample(run, (), fabric=fabric, hardware=hardware, callbacks=[progress])
            rows += rows_of(method, scored)
    missing = (run.table.labels[scored.rows] == POSITIVE).sum() - (scored.observed == POSITIVE).sum()
    print(f"{missing:,} labels missing among {len(scored.rows):,} images\n")
    columns = list(rows[-1])
    print("\n".join(["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]))
    for row in rows:
        print("| " + " | ".join(row.get(column, "") for column in columns) + " |")
    write_csv(arguments.out, [{column: row.get(column, "") for column in columns} for row in rows])


if __name__ == "__main__":
    main()
