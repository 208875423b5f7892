"""All of finding: from a finished run to the files that a person reviews."""

import io
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from onepair.files import write_atomically
from onepair.finding.files import write_suggestions
from onepair.finding.folds import OutOfSample, score_out_of_sample
from onepair.finding.probability import probabilities_with_sample
from onepair.finding.rank import Suggestions, rank
from onepair.finding.summary import ClassSummary, summarise
from onepair.training.folder import RunFolder, writing
from onepair.training.run import Machine, Narrator

MIN_PROBABILITY = 0.05
MOST = 100_000  # suggestions, unless more are asked for


@dataclass(frozen=True, eq=False)
class Finding:
    """What was found in the training images of a run."""

    suggestions: Suggestions  # rows count from the first training image
    classes: list[ClassSummary]
    total: ClassSummary
    files: Sequence[str]  # of the training images
    basis: str  # a few words on what the probabilities rest on
    folds: int

    @property
    def images(self) -> int:
        return len(self.files)

    def write(self, path: Path) -> None:
        write_suggestions(path, self.suggestions, self.files, [each.name for each in self.classes])


def find_labels(
    run: RunFolder,
    *,
    folds: int = 5,
    top: int | None = None,
    min_probability: float | None = None,
    maps: bool = True,
    machine: Machine,
    watch: Narrator,
) -> Finding:
    """Find the missing and the wrong labels of a run's training images, and write them into finding/ of its folder.

    Writes suggestions.csv, summary.json and, unless `maps` is false, maps.npy, whose entry i belongs to suggestion i.

    Args:
        run: a finished run.
        folds: how many models are trained, each without one part of the rows.
        top: keep at most so many suggestions.
        min_probability: keep those that are at least so probable.
        maps: whether to compute where in its image each suggested label is.
        machine, watch: as for training.
    """
    scored = score_out_of_sample(run, folds, machine=machine, watch=watch)
    found = _find(scored, folds, top, min_probability)
    folder = run.path / "finding"
    with writing(folder):
        (folder / "maps.npy").unlink(missing_ok=True)  # those of other suggestions
        found.write(folder / "suggestions.csv")
        RunFolder(folder).write_json("summary.json", _as_json(found))
        if maps:
            _write_maps(folder / "maps.npy", run, scored, found, watch)
    return found


def _find(scored: OutOfSample, folds: int, top: int | None, min_probability: float | None) -> Finding:
    task = scored.task
    probabilities, missing = probabilities_with_sample(
        task.observed, scored.scores, scored.validation_labels, scored.validation
    )
    classes = summarise(task.observed, probabilities, missing, task.table.classes)
    return Finding(
        suggestions=_keep(rank(task.observed, probabilities), top, min_probability),
        classes=classes,
        total=_total(classes),
        files=[task.table.files[row] for row in task.train.tolist()],
        basis="full labels of the validation images",
        folds=folds,
    )


def _keep(found: Suggestions, top: int | None, min_probability: float | None) -> Suggestions:
    if min_probability is not None or top is None:
        found = found[found.probability >= (MIN_PROBABILITY if min_probability is None else min_probability)]
    return found[: MOST if top is None else top]


def _total(classes: Sequence[ClassSummary]) -> ClassSummary:
    sums = {name: sum(getattr(each, name) for each in classes) for name in ClassSummary.__dataclass_fields__ if name != "name"}
    return ClassSummary(name="all", **sums)


def _as_json(found: Finding) -> dict[str, object]:
    kinds = found.suggestions.kind
    return {
        "images": found.images,
        "folds": found.folds,
        "scores": f"out of sample, by {found.folds} models, each trained without the rows it scores",
        "probabilities": found.basis,
        "suggestions": {kind: int((kinds == kind).sum()) for kind in ("missing", "wrong")},
        "total": asdict(found.total),
        "classes": [asdict(each) for each in found.classes],
    }


def _write_maps(path: Path, run: RunFolder, scored: OutOfSample, found: Finding, watch: Narrator) -> None:
    from onepair.finding.maps import suggestion_maps
    from onepair.models import load_classifier

    classifier, _ = load_classifier(run.path)
    chosen = found.suggestions
    watch.say(f"computing where {len(chosen):,} suggested labels are")
    maps = suggestion_maps(classifier, scored.task.table, scored.task.train[chosen.row], chosen.label)
    content = io.BytesIO()
    np.save(content, maps)
    write_atomically(path, content.getvalue())
