"""All of finding: from a finished run to the files that a person reviews."""

import copy
import io
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from onepair.files import locked, write_atomically, writing
from onepair.finding.folds import OutOfSample, read_folds, train_folds
from onepair.finding.rank import rank
from onepair.finding.suggestions import Suggestions, write_suggestions
from onepair.finding.summary import ClassSummary, summarise
from onepair.probability.counting import Estimate
from onepair.probability.judgement import judge
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.runs.without_images import WITHOUT_IMAGES
from onepair.training.machine import Machine, Narrator, Silence
from onepair.training.processes import leave_to_first, on_first
from onepair.words import counted, listed

if TYPE_CHECKING:
    import torch

MIN_PROBABILITY = 0.05
MOST = 100_000  # suggestions, unless more are asked for
FEWEST = 50  # of missing labels, where the labels do not tell how many are missing
FOLDS = 5


@dataclass(frozen=True, eq=False)
class Finding:
    """What was found in the images of a run that may miss labels."""

    suggestions: Suggestions  # rows count from the first of these images
    classes: list[ClassSummary]
    missing: Estimate  # of all classes together
    files: Sequence[str]  # of these images
    folds: int
    basis: str  # a few words on what the probabilities rest on

    @property
    def in_the_dark(self) -> bool:
        """Whether labels are suggested as missing though none is thought to be."""
        least = self.suggestions.probability[self.suggestions.kind == "missing"]
        return len(least) > 0 and float(least.max()) < MIN_PROBABILITY

    def write(self, path: Path) -> None:
        write_suggestions(path, self.suggestions, self.files, [each.name for each in self.classes])

    def to_dict(self) -> dict[str, Any]:
        value, low, high = map(float, self.missing)
        kinds = self.suggestions.kind
        return {
            "images": len(self.files),
            "folds": self.folds,
            "scores": f"by {self.folds} models, each trained without the images it scores",
            "probabilities": f"calibrated by {self.basis}",
            "suggestions": {kind: int((kinds == kind).sum()) for kind in ("missing", "wrong")},
            "observed": sum(each.observed for each in self.classes),
            "missing": value,
            "missing_low": low,
            "missing_high": high,
            "classes": [asdict(each) for each in self.classes],
        }


def find_labels(
    run: FinishedRun,
    *,
    folds: int | None = None,
    top: int | None = None,
    min_probability: float | None = None,
    maps: bool = True,
    machine: Machine,
    watch: Narrator,
) -> Finding:
    """Find the missing and the wrong labels of a run's images, and write them into finding/ of its folder.

    Looked at are training images, and validation images that have unknown labels.

    Writes suggestions.csv, summary.json and, unless `maps` is false, maps.npy, whose entry i belongs to suggestion i.

    Args:
        run: a finished run.
        folds: how many models are trained, each without one part of the rows; by default 5, fewer for fewer rows.
        top: keep at most so many suggestions.
        min_probability: keep those that are at least so probable.
        maps: whether to compute where in its image each suggested label is.
        machine, watch: as for training. Of several processes only the first returns: once the models are trained, the
            others have nothing left to do, and end.
    """
    folder = run.path / "finding"
    parts = folds or max(2, min(FOLDS, len(run.task.train)))
    fabric = machine.fabric(run.config.precision)
    fabric.launch()  # before the folder is held: the processes that this starts are not to find it taken
    with ExitStack() as held:
        on_first(fabric, lambda: held.enter_context(_held(folder)))
        configs = train_folds(run, parts, machine=machine, watch=watch if fabric.is_global_zero else Silence())
        leave_to_first(fabric)
        scored = read_folds(run, configs, shared=machine.shared)
        if lost := np.setdiff1d(run.searched, scored.rows).tolist():
            names = listed([run.table.files[row] for row in lost])
            watch.say(f"{counted(len(lost), 'image')} left out that can no longer be read: {names}")
        found = find_in(scored, top=top, min_probability=min_probability)
        (folder / "maps.npy").unlink(missing_ok=True)  # those of other suggestions
        found.write(folder / "suggestions.csv")
        RunFolder(folder).write_json("summary.json", found.to_dict())
        if maps and run.config.model.backbone in WITHOUT_IMAGES:
            watch.say("there are no heat maps: the model sees no images, only vectors")
        elif maps:
            _write_maps(folder / "maps.npy", run, scored, found.suggestions, fabric.device, machine, watch)
    return found


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    with writing(folder):
        folder.mkdir(exist_ok=True)
        with locked(folder / ".lock"):
            yield


def find_in(scored: OutOfSample, *, top: int | None = None, min_probability: float | None = None) -> Finding:
    """The same from scores at hand, without writing anything."""
    table, asked = scored.run.table, scored.run.table.asked
    has_sample = len(scored.sample) > 0
    judgement = judge(
        scored.observed,
        scored.scores,
        sample=scored.sample if has_sample else None,
        sample_scores=scored.sample_scores if has_sample else None,
        process=scored.run.config.data.process,
        asked=None if asked is None else asked[scored.rows],
    )
    found = rank(scored.observed, judgement.probabilities)
    if min_probability is not None or top is None:
        kept = found.probability >= (MIN_PROBABILITY if min_probability is None else min_probability)
        missing = found.kind == "missing"
        if min_probability is None and judgement.total.high >= 1 and not (kept & missing).any():
            # Likelihood may take all that is unknown for negative, where few negatives are known: the order holds.
            kept |= missing & (np.cumsum(missing) <= FEWEST)
        found = found[kept]
    return Finding(
        suggestions=found[: MOST if top is None else top],
        classes=summarise(scored.observed, judgement.probabilities, judgement.missing, table.classes),
        missing=judgement.total,
        files=[table.files[row] for row in scored.rows.tolist()],
        folds=len(scored.sample_scores),
        basis=judgement.basis,
    )


def _write_maps(
    path: Path,
    run: FinishedRun,
    scored: OutOfSample,
    found: Suggestions,
    device: "torch.device",
    machine: Machine,
    watch: Narrator,
) -> None:
    from onepair.inference.heat_maps import suggestion_maps

    rows = scored.rows[found.row]
    watch.say(f"looking for {counted(len(found), 'label')} in {counted(len(np.unique(rows)), 'image')}, to show where")
    classifier = copy.deepcopy(run.classifier).to(device)
    told = watch.extraction("looking where labels are")
    maps = suggestion_maps(
        classifier, run.table, rows, found.label, workers=machine.workers, cache=machine.cache, on_progress=told
    )
    content = io.BytesIO()
    np.save(content, maps)
    write_atomically(path, content.getvalue())
