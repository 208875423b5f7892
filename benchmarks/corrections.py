"""What OPML-SP does to labels while it learns: how many of its corrections are right, and where its γ stands.

    python benchmarks/corrections.py VOCdevkit OUT.csv reproduce table4 --data voc2012=VOCdevkit --methods opml-sp ...

runs the `onepair` command behind OUT.csv, and writes a line after every epoch of every run of OPML's family that is
trained by it from the single positives of VOC 2012. A missing label is a positive that was not observed. The runs are
those of the command itself: what is noted here changes nothing.
"""

import csv
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from onepair.cli.main import main
from onepair.labels import NEGATIVE, POSITIVE
from onepair.methods.opml_sp import OPMLFamily
from onepair.runs.config import DataConfig
from onepair.runs.task import prepare_task
from onepair.score_blocks import ScoreBlocks


def watch(source: str, out: Path) -> None:
    """Let every method of OPML's family write a line at the end of each epoch."""
    task = prepare_task(DataConfig(source=source, observe="single-positive", split="published"))
    truth = torch.from_numpy(task.table.labels[task.train])
    observed = torch.from_numpy(task.observed.dense()) == POSITIVE
    kinds = {"observed": observed, "missing": (truth == POSITIVE) & ~observed, "negative": truth == NEGATIVE}
    end_epoch, runs = OPMLFamily.end_epoch, 0

    def noting(self: OPMLFamily, epoch: int, scores: Tensor | ScoreBlocks | None) -> None:
        end_epoch(self, epoch, scores)
        if not isinstance(scores, Tensor) or len(scores) != len(truth):
            return
        nonlocal runs
        runs += epoch == 1
        line: dict[str, Any] = {"run": runs, "method": type(self).__name__}
        line |= {"gamma_gradient": self.gamma_gradient, "epoch": epoch, "training_ap": self.class_ap.mean().item()}
        corrected = (self.targets == POSITIVE) & ~observed if self.label_num is not None else observed & ~observed
        line |= {"corrected": int(corrected.sum()), "right": int((corrected & kinds["missing"]).sum())}
        chance = scores.double().sigmoid()
        gamma = chance * (0 if self.epsilon is None else self.class_ap.double() ** self.epsilon)
        for kind, cells in kinds.items():
            line[f"p_{kind}"] = chance[cells].mean().item()
            line[f"gamma_{kind}"] = gamma[cells].mean().item()
        new = not out.exists()
        with out.open("a", newline="") as file:
            writer = csv.DictWriter(file, list(line), lineterminator="\n")
            if new:
                writer.writeheader()
            writer.writerow({key: f"{value:.4f}" if isinstance(value, float) else value for key, value in line.items()})

    OPMLFamily.end_epoch = noting  # type: ignore[method-assign]


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    watch(sys.argv[1], Path(sys.argv[2]))
    sys.argv = ["onepair", *sys.argv[3:]]
    main()
