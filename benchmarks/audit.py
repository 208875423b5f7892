"""What an audit buys: finding the hidden labels of VOC 2012 where validation images show one positive each as well.

    python benchmarks/audit.py VOCdevkit [--draws 5] [--audited 100] [--limits] [--runs DIR] [--out FILE]

A linear classifier on EfficientNet-Lite0 features is trained and selected on single positives alone. Then 0, 50, 100,
200 and all validation images are audited, with the truth as the person's answers, each number with several draws. The
scores are the same throughout; what changes is what `onepair find` may calibrate on. The truth is what VOC says of the
unknown cells of the training rows. With --limits, what no audit can pass is measured instead: the average precision if
the truth about all images told how the classes, or how all pairs of a shown and a hidden class, are to be calibrated.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from real_sets import write_csv, write_training_images
from scipy.special import logit

from onepair.data.label_table import LabelTable
from onepair.finding.folds import OutOfSample, read_out_of_sample
from onepair.labels import POSITIVE, UNKNOWN, Labels
from onepair.metrics import average_precision
from onepair.probability.calibration import Platt, correct_lines
from onepair.probability.cell_posterior import judge
from onepair.probability.infer import infer
from onepair.runs.audit import audit_folder, draw, write_audit
from onepair.runs.config import Config, build_config
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.training.callbacks import ProgressCallback
from onepair.training.hardware import Hardware
from onepair.training.run import train

AUDITED = (0, 50, 100, 200, 10**9)
TOP = 500


def configuration(source: Path) -> Config:
    return build_config(
        {
            "data": {"source": str(source)},
            "model": {"backbone": "tf_efficientnet_lite0", "mode": "linear"},
            "method": {"name": "opml-plus"},
        }
    )


def audit(run: FinishedRun, truth: LabelTable, images: int, seed: int) -> int:
    """Draw images and answer for them; how many there were."""
    shutil.rmtree(audit_folder(run), ignore_errors=True)
    if images == 0:
        return 0
    sample = draw(run, "validation", images, seed)
    row_of = {file: row for row, file in enumerate(truth.files)}
    write_audit(run, sample, {file: truth.labels[row_of[file]] for file in sample.files})
    return len(sample.files)


def measure(scored: OutOfSample, truth: Labels) -> dict[str, Any]:
    sample, sample_scores = (scored.sample, scored.sample_scores) if len(scored.sample) else (None, None)
    found = judge(scored.observed, scored.scores, sample=sample, sample_scores=sample_scores)
    unknown = scored.observed == UNKNOWN
    ranking, positive = found.probabilities[unknown], truth[unknown] == POSITIVE
    value, low, high = map(float, found.total)
    return {
        "average_precision": average_precision(ranking[:, None], positive[:, None])[0],
        f"precision@{TOP}": positive[np.argsort(-ranking, kind="stable")[:TOP]].mean(),
        "missing": value,
        "low": low,
        "high": high,
        "truth": int(positive.sum()),
    }


def limits(scored: OutOfSample, truth: Labels) -> dict[str, float]:
    """Average precision of what is inferred before labels say anything of each other, and with lines by the truth."""
    observed, rows = scored.observed.dense(), len(scored.observed)
    number = np.arange(len(scored.sample))
    by_turns = scored.sample_scores[number % len(scored.sample_scores), number]
    known = np.concatenate([observed, scored.sample])
    inference = infer(np.concatenate([scored.scores, by_turns]), known, counted=rows)
    unknown, positive = observed == UNKNOWN, (truth == POSITIVE).astype(float)
    own = logit(np.clip(inference.probabilities[:rows], 1e-4, 1 - 1e-4))
    unmoved = Platt(np.ones(own.shape[1]), np.zeros(own.shape[1]))
    by_class = correct_lines(unmoved, own, positive, unknown.astype(float)).logits(own)
    by_pair = by_class.copy()
    for shown in (observed == POSITIVE).T:
        cells = unknown[shown].astype(float)
        by_pair[shown] = correct_lines(unmoved, by_class[shown], positive[shown], cells).logits(by_class[shown])
    return {
        name: float(average_precision(ranking[unknown][:, None], truth[unknown][:, None] == POSITIVE)[0])
        for name, ranking in {"inferred": own, "classes by the truth": by_class, "pairs too": by_pair}.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data")
    parser.add_argument("--draws", type=int, default=5)
    parser.add_argument("--audited", type=int, nargs="+", default=AUDITED)
    parser.add_argument("--limits", action="store_true")
    parser.add_argument("--runs", type=Path, default=Path("runs/audit_voc2012"))
    parser.add_argument("--out", type=Path, default=Path("results/audit_voc2012.csv"))
    arguments = parser.parse_args()
    truth = write_training_images(arguments.data, arguments.runs / "single_positives.csv", single_positives=True)
    hardware, rows = Hardware(accelerator="cpu", devices=1), []
    with ProgressCallback(quiet=True) as progress:
        folder = RunFolder(arguments.runs / "opml-plus")
        train(configuration(arguments.runs / "single_positives.csv"), folder, hardware=hardware, callbacks=[progress])
        run = FinishedRun(folder.path, shared=hardware.shared)
        shutil.rmtree(audit_folder(run), ignore_errors=True)
        everything = int((truth.split == "validation").sum())
        for images in arguments.audited:
            for seed in range(arguments.draws if 0 < images < everything else 1):
                audited = audit(run, truth, images, seed)
                after = FinishedRun(folder.path, shared=hardware.shared)
                fabric = hardware.fabric(after.config.precision)
                scored = read_out_of_sample(after, (), fabric=fabric, hardware=hardware, callbacks=[progress])
                if arguments.limits:
                    print(audited, seed, limits(scored, truth.labels[scored.rows]), flush=True)
                    continue
                rows.append({"audited": audited, "draw": seed, **measure(scored, truth.labels[scored.rows])})
                rows.sort(key=lambda row: (row["audited"], row["draw"]))
                write_csv(arguments.out, rows, form=".4f")
    if rows:
        show(rows)


def show(rows: list[dict[str, Any]]) -> None:
    columns = ("audited images", "average precision", f"first {TOP} right", "missing", "interval", "off", "inside")
    print("\n".join(["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]))
    for images in sorted({row["audited"] for row in rows}):
        drawn = [row for row in rows if row["audited"] == images]
        mean = {name: np.mean([row[name] for row in drawn]) for name in drawn[0]}
        off = max(abs(row["missing"] / row["truth"] - 1) for row in drawn)
        inside = sum(row["low"] <= row["truth"] <= row["high"] for row in drawn)
        values = (
            f"{images:,}",
            f"{mean['average_precision']:.3f}",
            f"{100 * mean[f'precision@{TOP}']:.1f} %",
            f"{mean['missing']:,.0f}",
            f"{mean['low']:,.0f} to {mean['high']:,.0f}",
            f"{100 * off:.0f} % at most",
            f"{inside} of {len(drawn)}",
        )
        print("| " + " | ".join(values) + " |")
    print(f"\nof {rows[0]['truth']:,} labels that are missing with {rows[0]['audited']} audited; means over the draws")


if __name__ == "__main__":
    main()
