"""All of finding: from a finished run to the files that a person reviews."""

import copy
import io
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from onepair.files import locked, write_atomically, writing
from onepair.finding import search
from onepair.finding.folds import OutOfSample, read_out_of_sample, train_folds
from onepair.finding.suggestions import MOST, Finding, Suggestions, choose, summarise
from onepair.labels import POSITIVE
from onepair.runs.config import WITHOUT_IMAGES, Config
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.training.callbacks import Callback, progress_of
from onepair.training.hardware import Hardware, first_logger, leave_to_first, on_first
from onepair.words import counted, listed

if TYPE_CHECKING:
    import torch

FOLDS = 5

_log = first_logger(__name__)


def find_labels(
    run: FinishedRun,
    *,
    folds: int | None = None,
    top: int | None = None,
    min_probability: float | None = None,
    maps: bool = True,
    hardware: Hardware,
    callbacks: Sequence[Callback] = (),
) -> Finding:
    """Find the missing and the wrong labels of a run's images, and write them into finding/ of its folder.

    Looked at are training images, and validation images that have unknown labels.

    Writes suggestions.csv, summary.json and, unless `maps` is false, maps.npy, whose entry i belongs to suggestion i.

    Args:
        run: a finished run.
        folds: how many models are trained, each without one part of the rows; by default 5, fewer for fewer rows. A
            run that was solved for has its out-of-fold scores, and trains none.
        top: keep at most so many suggestions.
        min_probability: keep those that are at least so probable.
        maps: whether to compute where in its image each suggested label is.
        hardware, callbacks: as for training. Of several processes only the first returns: once models are trained, the
            others have nothing left to do, and end.
    """
    folder = run.path / "finding"
    fabric = hardware.fabric(run.config.precision)
    fabric.launch()  # before the folder is held: the processes that this starts are not to find it taken
    with ExitStack() as held:
        on_first(fabric, lambda: held.enter_context(_held(folder)))
        configs = _fold_configs(run, folds, hardware, callbacks)
        leave_to_first(fabric)
        scored = read_out_of_sample(run, configs, fabric=fabric, hardware=hardware, callbacks=callbacks)
        found = find_in(scored, top=top, min_probability=min_probability, callbacks=callbacks)
        if lost := np.setdiff1d(run.searched, found.rows).tolist():
            names = listed([run.table.files[row] for row in lost])
            _log.info(f"{counted(len(lost), 'image')} left out that can no longer be read: {names}")
        (folder / "maps.npy").unlink(missing_ok=True)  # those of other suggestions
        found.write(folder / "suggestions.csv")
        RunFolder(folder).write_json("summary.json", found.to_dict())
        if maps and run.config.model.backbone in WITHOUT_IMAGES:
            _log.info("there are no heat maps: the model sees no images, only vectors")
        elif maps:
            _write_maps(folder / "maps.npy", run, found, fabric.device, hardware, callbacks)
    return found


def _fold_configs(
    run: FinishedRun, folds: int | None, hardware: Hardware, callbacks: Sequence[Callback]
) -> list[Config]:
    """The configurations of the folds, which are trained now; none where the run has out-of-fold scores already."""
    if run.config.solves:
        if folds is not None:
            _log.info("the run has out-of-fold scores already: --folds does nothing")
        return []
    parts = folds or max(2, min(FOLDS, len(run.task.train)))
    return train_folds(run, parts, hardware=hardware, callbacks=callbacks)


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    with writing(folder):
        folder.mkdir(exist_ok=True)
        with locked(folder / ".lock"):
            yield


def find_in(
    scored: OutOfSample,
    *,
    top: int | None = None,
    min_probability: float | None = None,
    callbacks: Sequence[Callback] = (),
) -> Finding:
    """Find labels by scores at hand, without writing anything."""
    table, rows, observed = scored.run.table, scored.rows, scored.observed
    if observed.size > search.FEW_CELLS:
        _log.info(f"looking through {len(rows):,} images for the likeliest of {len(table.classes):,} classes")
    has_sample = len(scored.sample) > 0
    found = search.find_by_blocks(
        observed,
        scored.score,
        top=max(MOST, top or 0),  # so that fewer are the first of the same
        full=scored.sample if has_sample else None,
        full_scores=scored.sample_scores if has_sample else None,
        asked=None if table.asked is None else table.asked.take(rows),
        process=scored.run.config.data.process,
        on_progress=progress_of(callbacks, "looking through images"),
    )
    suggestions = _unanswered(scored, found.suggestions)
    return Finding(
        suggestions=choose(suggestions, found.total, top, min_probability),
        classes=summarise(observed, found.suggestions, found.missing, table.classes),
        missing=found.total,
        rows=rows,
        files=[table.files[row] for row in rows.tolist()],
        folds=scored.folds,
        basis=found.basis,
        correction=found.correction,
    )


def _unanswered(scored: OutOfSample, found: Suggestions) -> Suggestions:
    """Suggestions without those about labels that a person has answered: these are not contradicted."""
    table, audit, rows = scored.run.table, scored.run.audit, scored.rows[found.row]
    if table.asked is None and audit is None:
        return found
    open_ = np.ones(len(found), bool) if table.asked is None else table.asked[rows, found.label] != POSITIVE
    return found[open_ if audit is None else open_ & ~np.isin(rows, audit.rows)]


def _write_maps(
    path: Path,
    run: FinishedRun,
    found: Finding,
    device: "torch.device",
    hardware: Hardware,
    callbacks: Sequence[Callback],
) -> None:
    from onepair.inference.heat_maps import suggestion_maps

    suggestions = found.suggestions
    rows = found.rows[suggestions.row]
    _log.info(
        f"looking for {counted(len(suggestions), 'label')} in {counted(len(np.unique(rows)), 'image')}, to show where"
    )
    classifier = copy.deepcopy(run.classifier).to(device)
    on_progress = progress_of(callbacks, "looking where labels are")
    maps = suggestion_maps(
        classifier,
        run.table,
        rows,
        suggestions.label,
        workers=hardware.workers,
        cache=hardware.cache,
        on_progress=on_progress,
    )
    content = io.BytesIO()
    np.save(content, maps)
    write_atomically(path, content.getvalue())
