"""`train` and `Run`: everything the command line does, as objects."""

import contextlib
import multiprocessing
import shutil
import tempfile
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from onepair.data.formats.xmp import Written
from onepair.data.images.blocks import pixels_of
from onepair.data.label_table import SPLITS, LabelTable
from onepair.dataset import MEMORY, Dataset
from onepair.errors import (
    DataError,
    OnepairError,
    ReviewError,
    UserError,
    import_pandas,
    require_extra,
    require_number,
    require_path,
)
from onepair.finding.suggestions import Finding
from onepair.inference.prediction import SHOWN, Model, as_figure, as_figures, load
from onepair.labels import NEGATIVE, POSITIVE
from onepair.probability.evaluation import Evaluation
from onepair.probability.thresholds import Rule
from onepair.report.compared_runs import ComparedRuns, compare_runs
from onepair.review.answers import Answer, Entry, Reply, Store, login_name
from onepair.review.completion import (
    Completion,
    completed_table,
    keeps_form,
    write_completed,
    write_photo_keywords,
)
from onepair.review.image_answers import (
    ImageAnswers,
    Merged,
    export_answers,
    has_answers,
    import_answers,
    open_answers,
)
from onepair.review.queue import answers_file, read_queue
from onepair.runs.audit import AuditedSplit, AuditSummary, summarise_audit
from onepair.runs.config import Config, all_settings, flatten, nested, parse_setting, resolve_config, with_preset
from onepair.runs.finished import Chosen, FinishedRun, choose_thresholds, evaluate_run, protect_inputs
from onepair.runs.folder import Results, RunFolder
from onepair.runs.project import run_in
from onepair.runs.task import RunCache, Split
from onepair.training.callbacks import Callback, ProgressCallback
from onepair.words import command, counted

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure

    from onepair.experiments.reproduce import Reproduced
    from onepair.experiments.tuning import Tuned
    from onepair.report.explain_images import Explained
    from onepair.review.audit_session import AuditSession
    from onepair.review.server import Page
    from onepair.training.hardware import Hardware

TABLE, VECTORS = "dataset.parquet", "vectors.npy"  # a dataset that was in memory, in the folder of its run
_READING = {"format", "unlisted", "zeros", "spellings", "same", "images", "features", "label_columns", "on_error"}


def train(
    data: Dataset | Config | str | Path,
    *,
    out: str | Path | None = None,
    method: str | None = None,
    backbone: str | None = None,
    mode: Literal["linear", "finetune", "linear-init"] | None = None,
    preset: str | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    restart: bool = False,
    hardware: "Hardware | None" = None,
    **settings: Any,
) -> "Run":
    """Train a classifier, or go on with a run that was stopped.

    Args:
        data: a `Dataset`, what `Dataset.read` takes, or a `Config` that says everything.
        out: the run's folder. A dataset in memory is written there too, so that the command line can go on with the
            run. By default a temporary folder, which lives as long as the `Run`.
        method: see `onepair methods`; by default "opml-plus".
        backbone: a network by its name; by default the best one on this machine.
        mode: a classifier on fixed features ("linear", the default), the whole network, or one after the other.
        preset: settings of a published protocol.
        callbacks: told how far it is.
        progress: whether to show messages and a bar; by default in notebooks.
        restart: move an existing run aside, and begin anew.
        hardware: devices, workers and cache.
        settings: any other setting by its own name, or by that of its section: `seed=1`, `penalty=0.3`, or
            `linear={"penalty": 0.3}`.

    Returns:
        The finished run.

    Raises:
        UserError: one sentence that says what is wrong, and what to do.

    Examples:
        >>> X = np.random.default_rng(0).normal(size=(40, 3))
        >>> run = train(Dataset.from_arrays(X, np.where(X > 0, 1, -1), classes=["a", "b", "c"]))
        >>> run.find().to_frame().columns.tolist()
        ['file', 'label', 'probability', 'kind']
    """
    from onepair.training.run import train as train_run

    folder = Path(tempfile.mkdtemp(prefix="onepair-")) if out is None else require_path(out, "out")
    dataset = data if isinstance(data, Dataset) else None
    with _folder_of(dataset, folder, temporary=out is None):
        config, hardware = _configured(data, folder, hardware, method, backbone, mode, preset, settings)
        with _shown(progress, callbacks) as active, _guarded():
            train_run(config, RunFolder(folder), hardware=hardware, callbacks=active, restart=restart)
        if dataset is not None and out is not None and not dataset.settings:
            _write_beside(dataset, folder)
        run = Run(folder, data=dataset, hardware=hardware)
    if out is None:
        weakref.finalize(run, shutil.rmtree, folder, ignore_errors=True)
    return run


def tune(
    data: Dataset | Config | str | Path,
    *,
    out: str | Path | None = None,
    trials: int = 40,
    method: str | None = None,
    backbone: str | None = None,
    mode: Literal["linear", "finetune", "linear-init"] | None = None,
    preset: str | None = None,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    hardware: "Hardware | None" = None,
    **settings: Any,
) -> "Tuned":
    """Search for the options of a method, and in fine-tuning the learning rate, with the best validation mAP.

    The first trial uses the settings as they are; test images are never used. The same call goes on with a search that
    was stopped, or goes further with more trials.

    Args:
        data: as for `train`.
        out: the folder of the search; by default a temporary one, which lives as long as what is returned.
        trials: runs in all, those of an earlier call included.
        method, backbone, mode, preset, callbacks, progress, hardware, settings: as for `train`.

    Returns:
        All trials. `train(data, **tuned.settings)` trains with the best values.

    Examples:
        >>> tune("labels.csv", method="opml-sp", trials=20).settings  # doctest: +SKIP
    """
    require_extra("tune")
    from onepair.experiments.tuning import tune as search

    require_number("trials", trials, 1, whole=True)
    folder = Path(tempfile.mkdtemp(prefix="onepair-")) if out is None else require_path(out, "out")
    with _folder_of(data if isinstance(data, Dataset) else None, folder, temporary=out is None):
        config, hardware = _configured(data, folder, hardware, method, backbone, mode, preset, settings)
        with _shown(progress, callbacks) as active, _guarded():
            tuned = search(folder, config, trials=trials, hardware=hardware, callbacks=active)
    if out is None:
        weakref.finalize(tuned, shutil.rmtree, folder, ignore_errors=True)
    return tuned


class Run:
    """A finished run: its results, its model, and what it finds.

    Args:
        path: the folder of the run, or of a project, whose newest run it is.
        data: its dataset, where that was in memory and no file has it.
        hardware: what it computes on.

    Raises:
        RunError: there is no finished run in the folder, or its dataset has changed.

    Examples:
        >>> run = Run("runs/a")  # doctest: +SKIP
        >>> run.find().above(0.95).to_frame()  # doctest: +SKIP
    """

    def __init__(self, path: str | Path, *, data: Dataset | None = None, hardware: "Hardware | None" = None) -> None:
        self._hardware, self._shared = hardware, RunCache() if hardware is None else hardware.shared
        self._opened = FinishedRun(run_in(require_path(path, "a run")), shared=self._shared)
        if data is not None:
            _keep(self._shared, data, self.config)

    @property
    def hardware(self) -> "Hardware":
        """What it computes on."""
        if self._hardware is None:
            from onepair.training.hardware import Hardware  # and torch

            self._hardware = Hardware(shared=self._shared)
        return self._hardware

    @property
    def path(self) -> Path:
        """Its folder."""
        return self._opened.path

    @property
    def config(self) -> Config:
        """All that decided its result."""
        return self._opened.config

    @property
    def results(self) -> Results:
        """The figures that training ended with."""
        return self._opened.results

    @property
    def classes(self) -> tuple[str, ...]:
        return self._opened.classes

    @property
    def audited(self) -> Split | None:
        """The split of which a person completed the labels of some images, if there is one."""
        return None if self._opened.audit is None else self._opened.audit.split

    def sampled(self, split: Split | None = None) -> str:
        """Of a split too large to be looked at as a whole, how many images stand for it, in a few words."""
        return self._opened.sampled(split or self._opened.judged_by)

    @property
    def data(self) -> Dataset:
        """The dataset that it was trained on, with the labels that it saw."""
        return Dataset(completed_table(self._opened, [])[0])

    @cached_property
    def model(self) -> Model:
        """The trained model, as `onepair.load` gives it."""
        return load(self.path)

    def find(
        self,
        *,
        top: int | None = None,
        min_probability: float | None = None,
        folds: int | None = None,
        maps: bool = False,
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
    ) -> "Found":
        """Find labels that are probably missing, and observed ones that are probably wrong.

        Args:
            top: keep at most so many suggestions.
            min_probability: keep those that are at least so probable.
            folds: how many models a fine-tuned run trains for out-of-fold scores.
            maps: also compute heat maps, for the review page.
            callbacks, progress: as for `train`.

        Returns:
            The suggestions, the most probable first, and how many labels of each class are missing.

        Examples:
            >>> found = run.find(top=100)  # doctest: +SKIP
            >>> found.above(0.95).to_frame(), found.missing  # doctest: +SKIP
        """
        from onepair.finding.find import find_labels

        for name, given, least, most in (("min_probability", min_probability, 0, 1), ("top", top, 1, None)):
            if given is not None:
                require_number(name, given, least, most, whole=name == "top")
        with _shown(progress, callbacks) as active:
            found = find_labels(
                self._opened,
                folds=folds,
                top=top,
                min_probability=min_probability,
                maps=maps,
                hardware=self.hardware,
                callbacks=active,
            )
        return Found(found, self._opened.table)

    def evaluate(
        self,
        split: Split | None = None,
        *,
        data: Dataset | None = None,
        metrics: Sequence[str] = (),
        threads: int | None = None,
        strict: bool = False,
    ) -> Evaluation:
        """Evaluate the model on a split of its dataset, or of another one.

        Args:
            split: "train", "validation" or "test"; by default "test", or "validation" where the run has no test images.
                On fixed features the scores of "validation" are out of fold, where the dataset names no validation
                split.
            data: another dataset, of which the shared classes are evaluated.
            metrics: further ones, by their registered names.
            threads: that read images; by default one per core.
            strict: raise an error at an image that cannot be read, instead of leaving it out.

        Returns:
            The figures, with estimates and their intervals where labels are unknown; `to_frame` has those of classes.
            Its `sentence` says how many labels are right, its `precision_recall` has recall by precision.

        Raises:
            UserError: there are no such images, or none of them has a label.

        Examples:
            >>> found = run.evaluate()  # doctest: +SKIP
            >>> found.sentence  # doctest: +SKIP
            'by 400 images: of 10 labels it gives, about 8 are right (5 to 10), and it finds 4 in 10 of all'
            >>> found.precision_recall.to_frame()  # doctest: +SKIP
        """
        if split not in (None, *SPLITS):
            raise DataError(f"split is one of {', '.join(SPLITS)}, not {split!r}")
        if data is not None and not isinstance(data, Dataset):
            raise DataError(f"data is a Dataset, not {type(data).__name__}; make one by Dataset.from_frame or others")
        metrics = [metrics] if isinstance(metrics, str) else metrics
        table = None if data is None else data.table
        source = "the dataset" if data is None else str(data.settings.get("source", "the dataset"))
        return evaluate_run(
            self._opened, split, table=table, source=source, metrics=metrics, workers=threads, strict=strict
        )

    def thresholds(
        self,
        *,
        precision: float | None = None,
        rule: Rule | None = None,
        calibration: Literal["auto", "platt", "isotonic"] = "auto",
    ) -> Chosen:
        """Choose the thresholds of the model again, and store them with it.

        Args:
            precision: that is kept in every class.
            rule: labels at least as likely right as wrong ("likely", the default), the best F1, a precision, or the
                right number of labels.
            calibration: what makes probabilities of scores.

        Returns:
            The thresholds, and what they achieve; `to_frame` has a row for each class.

        Raises:
            ConfigError: there is no such rule or calibration, or the precision is none.
        """
        if precision is not None and rule not in (None, "precision"):
            raise UserError(f"precision belongs to rule='precision', and this is rule={rule!r}; leave one of them out")
        if precision is not None:
            require_number("precision", precision, 0, 1)
        rule = rule or ("likely" if precision is None else "precision")
        chosen = choose_thresholds(self._opened, rule=rule, precision=precision or 0.9, calibration=calibration)
        self.__dict__.pop("model", None)
        return chosen

    # Answers

    def review(
        self, *, port: int = 0, host: str = "127.0.0.1", name: str | None = None, follow_links: bool = False
    ) -> "Page":
        """Serve the page on which people answer suggestions, until `stop` is called or the program ends.

        Args:
            port: 0 takes any that is free.
            host: beyond this machine, the address has a token in it.
            name: of who answers; by default the login name, and beyond this machine everybody is asked.
            follow_links: also show images that are links to outside of the dataset.

        Returns:
            The page, with its `url`, which a notebook shows as a link, and `stop`.

        Raises:
            ReviewError: nobody has called `find` yet.

        Examples:
            >>> with run.review() as page:  # doctest: +SKIP
            ...     print(page.url)
        """
        require_extra("review")
        require_number("port", port, 0, 65535, whole=True)
        from onepair.review.session import ReviewSession

        session = ReviewSession(self._opened, read_queue(self._opened), open_answers(self._opened))
        return session.serve(port=port, host=host, name=name, follow_links=follow_links)

    def audit(self, images: int = 100, *, split: AuditedSplit = "validation", seed: int = 0) -> "AuditSession":
        """Draw images with equal chances, to have all of their labels completed by a person.

        `serve` shows them on a page; `write_sheet` and `take_sheet` do without. What is complete is kept in the run,
        and counts from then on.

        Args:
            images: how many; more than before extends the sample.
            split: which images to draw from.
            seed: of the draw.

        Returns:
            The sample, to be answered on its page or in a sheet.

        Raises:
            RunError: an audit of the other split is under way.
        """
        from onepair.review.audit_session import open_audit

        require_number("images", images, 1, whole=True)
        return open_audit(self._opened, images, split=split, seed=seed)

    def audit_summary(self) -> AuditSummary:
        """Return what audited images tell: how many labels are missing, and how good the model is.

        Raises:
            RunError: not one image is complete.
        """
        return summarise_audit(self._opened)

    def answer(self, file: str, label: str, value: bool | None, *, who: str | None = None) -> None:
        """Store an answer: whether an image has a label; None says that nobody can tell.

        Args:
            file: the image, by its name in the dataset.
            label: the class.
            value: the answer.
            who: by default the login name.

        Raises:
            DataError: the dataset has no such image or class, or the value is no answer.
        """
        if value not in (True, False, None):
            raise DataError(f"an answer is True, False, or None where nobody can tell, not {value!r}")
        if label not in self.classes:
            raise DataError(f"there is no class {label!r}; there are {', '.join(self.classes[:20])}")
        if file not in self._files:
            raise DataError(f"there is no image {file!r} in the dataset")
        reply: Reply = "skip" if value is None else "yes" if value else "no"
        store = self._store()
        seen = max((each.id for each in store.entries() if (each.file, each.label) == (file, label)), default=0)
        store.record([Answer(file, label, reply, seen)], who=who or login_name())

    @property
    def answers(self) -> "Answers":
        """What people have answered: of each cell the last answer that stands."""
        return Answers(self._entries())

    @cached_property
    def _files(self) -> frozenset[str]:
        return frozenset(self._opened.table.files)

    def _store(self) -> Store:
        answers_file(self._opened).parent.mkdir(exist_ok=True)
        return open_answers(self._opened)

    def _stored(self) -> Store | None:
        return open_answers(self._opened, read_only=True) if has_answers(self._opened) else None

    def _entries(self) -> list[Entry]:
        store = self._stored()
        last = {(each.file, each.label): each for each in (store.entries() if store else [])}
        return [each for each in last.values() if each.answer is not None]

    def labels(self) -> Dataset:
        """Return the dataset with what people answered: yes is 1, no is 0; audited images have all of their labels."""
        store = self._stored()
        return Dataset(completed_table(self._opened, self._entries(), added=store.classes() if store else [])[1])

    def write_labels(self, path: str | Path, *, form: str = "auto") -> Completion:
        """Write the labels with what people answered, and beside them who answered what and when.

        Args:
            path: the file to write.
            form: "same" is that of the table that the run was trained on; the others are those of `Dataset.write`;
                "auto" is the same if the file ends as the table does, else goes by the suffix.

        Returns:
            What became of the labels.

        Raises:
            ReviewError: nobody has answered anything.
        """
        out, store = require_path(path, "what labels are written to"), self._stored()
        protect_inputs(out, run=self.path)
        if store is None and self._opened.audit is None:
            raise ReviewError(f"{self.path}: nobody has reviewed it yet; run {command('review', self.path)} first")
        entries, added = (store.entries(), store.classes()) if store else ([], [])
        chosen = "same" if form == "auto" and keeps_form(self._opened, out) else form
        return write_completed(self._opened, entries, out, added=added, format=chosen)

    def write_keywords(self, folder: str | Path, *, form: Literal["xmp", "jpeg", "in-place"] = "xmp") -> Written:
        """Write the labels with what people answered as keywords of the photos.

        Args:
            folder: where to, by the names of the photos: for example a.jpg.xmp.
            form: "xmp" writes .xmp files, for which the folder may be that of the photos; "jpeg" copies of JPEGs with
                keywords in them; "in-place" keywords into the JPEGs themselves, and what those were into the folder.

        Returns:
            How many photos got others, and what was left out.
        """
        store = self._stored()
        entries, added = (store.entries(), store.classes()) if store else ([], [])
        target = require_path(folder, "what keywords are written to")
        return write_photo_keywords(self._opened, entries, target, added=added, form=form)

    def write_answers(self, path: str | Path) -> int:
        """Write all answers of the run's project as a .csv table, for another machine, and return how many there are.

        Args:
            path: the file; it has file, label, answer, who, when, and what the image is known by.

        Raises:
            ReviewError: the run belongs to no project, as `onepair start` makes them.
        """
        out = require_path(path, "what answers are written to")
        if out.suffix.lower() != ".csv":
            raise UserError(f"{out}: answers are written as .csv; name it so")
        protect_inputs(out, run=self.path)
        return export_answers(self._shared_answers(), out)

    def take_answers(self, path: str | Path, *, who: str | None = None) -> Merged:
        """Take the answers of a .csv or .xlsx table into the run's project; where two differ, the later one counts.

        Args:
            path: the file, with file, label and answer.
            who: whose answers they are where it does not say; by default the login name.

        Returns:
            What was taken in, what differs, and what has no image here.

        Raises:
            ReviewError: the table has no answers to images of the project, or the run belongs to no project.
        """
        return import_answers(self._shared_answers(), require_path(path, "a table of answers"), who=who or login_name())

    def _shared_answers(self) -> ImageAnswers:
        store = self._store()
        if not isinstance(store, ImageAnswers):
            raise ReviewError(f"{self.path}: is in no project; run.answers.to_frame() has its answers as a table")
        return store

    def retrain(
        self,
        *,
        out: str | Path | None = None,
        callbacks: Sequence[Callback] = (),
        progress: bool | None = None,
    ) -> "Run":
        """Train again on what people answered, with all settings of this run.

        Args:
            out, callbacks, progress: as for `train`.

        Returns:
            The new run, whose `find` finds what is still missing.

        Raises:
            ReviewError: nobody has answered yes or no yet.

        Examples:
            >>> run.answer("a.jpg", "dog", True)  # doctest: +SKIP
            >>> run.retrain(out="runs/b").find().to_frame()  # doctest: +SKIP
        """
        if not self._answered:
            raise ReviewError("nobody has answered yes or no yet, so there is nothing new to learn; answer, or review")
        kept = {
            name: value
            for name, value in flatten(self.config).items()
            if not name.startswith("data.") or name in ("data.process", "data.split", "data.seed")
        }
        return train(self.labels(), out=out, callbacks=callbacks, progress=progress, hardware=self._hardware, **kept)

    def explain(self, images: Sequence[str | Path | int], *, labels: Sequence[str] = ()) -> "Explanations":
        """Show where in images the model sees its labels.

        Args:
            images: files, or rows of the run's dataset.
            labels: the names of those to show; by default the predicted ones.

        Returns:
            The images with their labels; `write` draws them into a picture.

        Raises:
            ReportError: the model sees no images, or there is no such label.
        """
        require_extra("report")
        from onepair.report.explain_images import Explainer, is_row

        names = list(map(str, images))
        explainer = Explainer(self._opened, labels=labels, needs_dataset=any(map(is_row, names)))
        return Explanations(map(explainer.explain, names), note=explainer.missing or "")

    def report(self, path: str | Path) -> None:
        """Write one HTML page on the run: its figures, charts, and test images with their predictions.

        Args:
            path: the .html file.

        Raises:
            RunError: the run was not tested.
        """
        require_extra("report")
        from onepair.files import writing
        from onepair.report import write_report
        from onepair.report.compared_runs import RunSummary
        from onepair.report.explain_images import choose_examples

        out, run = require_path(path, "what a report is written to"), self._opened
        protect_inputs(out, run=self.path)
        with writing(out):
            write_report(
                out,
                [RunSummary.of(run, name=run.title, title=run.title, labels=run.trained_on)],
                title=str(self.path),
                introduction="\n\n".join([f"{run.title}, trained on {run.config.data.source}.", *run.worth]),
                examples=choose_examples(run),
            )

    def apply(self, found: "Found") -> Dataset:
        """Return the dataset with suggestions taken for true, on top of what people answered.

        Args:
            found: the suggestions, for example `run.find().above(0.95)`.
        """
        _require_found(found)
        table, suggestions = self.labels().table, found.finding.suggestions
        values = np.where(suggestions.kind == "missing", POSITIVE, NEGATIVE)
        rows = found.finding.rows[suggestions.row]
        open_cells = np.array(
            [
                (found.files[row], self.classes[label]) not in self._answered
                for row, label in zip(suggestions.row, suggestions.label, strict=True)
            ],
            bool,
        )
        labels = table.labels.with_entries(rows[open_cells], suggestions.label[open_cells], values[open_cells])
        return Dataset(replace(table, labels=labels))

    @property
    def _answered(self) -> set[tuple[str, str]]:
        return {(each.file, each.label) for each in self._entries() if each.answer in ("yes", "no")}

    def plot(self, found: "Found | None" = None) -> "Figure":
        """Draw the share of images that each class is in: as labelled, and as estimated, with intervals.

        Args:
            found: what `find` returned; by default it is found now.

        Returns:
            A figure of matplotlib.
        """
        require_extra("report")
        from onepair.report.page import plot_shares

        found = self.find() if found is None else found
        _require_found(found)
        return plot_shares(found.finding.classes)

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}: {self._opened.title}, {len(self.classes):,} classes)"


def compare(runs: Sequence[Run | str | Path], *, resamples: int = 1000, seed: int = 0) -> ComparedRuns:
    """Compare runs, and say whether each difference in test mAP is real or could be noise.

    A paired bootstrap over the test images gives an interval of 95 %; a difference whose interval excludes zero is
    called real. It accounts for the choice of test images, not for the seed of training.

    Args:
        runs: two or more that were tested on the same labels, or their folders.
        resamples: of the test images.
        seed: of the bootstrap.

    Returns:
        All pairs of runs; `to_frame` has a row for each, and `write` makes a page of them.

    Raises:
        RunError: a run was not tested, or on other labels.

    Examples:
        >>> compare(["runs/bce", "runs/opml-plus"]).to_frame()  # doctest: +SKIP
    """
    if isinstance(runs, str | PurePath) or not isinstance(runs, Iterable):
        raise DataError(f"runs are a list of two or more Runs or their folders, not {runs!r}")
    given = [run._opened if isinstance(run, Run) else require_path(run, "a run") for run in runs]
    return compare_runs(given, resamples=resamples, seed=seed)


def reproduce(
    what: str,
    data: str | Path | Sequence[str | Path] = (),
    *,
    out: str | Path = "runs/reproduce",
    mode: Literal["linear", "finetune", "linear-init"] = "finetune",
    backbone: str | None = None,
    methods: Sequence[str] = (),
    seeds: int = 3,
    search: bool = False,
    epochs: int | None = None,
    settings: Sequence[str] = (),
    dry_run: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool | None = None,
    hardware: "Hardware | None" = None,
) -> "Reproduced":
    """Reproduce a table or figure of the paper, beside the published numbers.

    Finished runs are kept, and shared by all tables and figures in the same folder; the same call goes on.

    Args:
        what: for example "table2" or "fig-known", see `onepair reproduce --help`; or "all".
        data: "digits", the path of a dataset, or one of the paper's as "voc2012=PATH"; or several of these.
        out: the folder for runs, tables, figures and the report.
        mode: as for `train`.
        backbone: by default that of the dataset's preset.
        methods: the rows of these alone.
        seeds: runs of each row.
        search: choose settings by a grid search on validation mAP.
        epochs: of each run; by default those of the preset or the figure.
        settings: any others, for all runs, each as "linear.penalty=0.3".
        dry_run: only plan.
        callbacks, progress, hardware: as for `train`.

    Returns:
        The tables and the files that were written, or the plan.

    Examples:
        >>> reproduce("table3", "digits", mode="linear", seeds=1).tables  # doctest: +SKIP
    """
    require_extra("report")
    from onepair.experiments.records import Overrides, parse_dataset
    from onepair.experiments.reproduce import reproduce as reproduced
    from onepair.experiments.study import Study
    from onepair.methods import find_method
    from onepair.training.hardware import Hardware

    with _shown(progress, callbacks) as active, _guarded():
        study = Study(
            Path(out),
            datasets=[parse_dataset(str(each)) for each in ([data] if isinstance(data, str | Path) else data)],
            overrides=Overrides(mode, backbone, epochs, list(map(parse_setting, settings))),
            seeds=seeds,
            search=search,
            methods=[find_method(name).name for name in methods],
            hardware=hardware or Hardware(devices=1),
            callbacks=active,
        )
        return reproduced(what, study, settings=settings, dry_run=dry_run)


@dataclass(frozen=True, eq=False)
class Found:
    """Suggestions, the most probable first, and how many labels of each class are missing."""

    finding: Finding
    table: LabelTable

    @property
    def files(self) -> Sequence[str]:
        """The names of the images that were searched."""
        return self.finding.files

    def __len__(self) -> int:
        return len(self.finding.suggestions)

    def above(self, probability: float) -> "Found":
        """Return the suggestions that are at least so probable.

        Args:
            probability: from 0 to 1.
        """
        require_number("probability", probability, 0, 1)
        found = self.finding.suggestions
        return self[found.probability >= probability]

    def __getitem__(self, chosen: Any) -> "Found":
        chosen = chosen if isinstance(chosen, slice) else np.atleast_1d(np.asarray(chosen))
        return replace(self, finding=replace(self.finding, suggestions=self.finding.suggestions[chosen]))

    def write(self, path: str | Path) -> None:
        """Write the suggestions.

        Args:
            path: a .csv or .parquet file.
        """
        self.finding.write(require_path(path, "what suggestions are written to"))

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with the columns file, label, probability and kind ("missing" or "wrong")."""
        found = self.finding.suggestions
        columns = {
            "file": [self.files[row] for row in found.row.tolist()],
            "label": [self.table.classes[label] for label in found.label.tolist()],
            "probability": found.probability,
            "kind": found.kind,
        }
        return import_pandas().DataFrame(columns)

    @property
    def missing(self) -> "pandas.DataFrame":
        """How many labels are missing: a row per class, and in all, each with an interval of 95 %."""
        total = self.finding.missing
        rows = [
            (each.name, each.observed, each.missing, each.missing_low, each.missing_high)
            for each in self.finding.classes
        ]
        observed = sum(each.observed for each in self.finding.classes)
        rows.append(("in all", observed, float(total.value), float(total.low), float(total.high)))
        return (
            import_pandas().DataFrame(rows, columns=["label", "observed", "missing", "low", "high"]).set_index("label")
        )

    def __repr__(self) -> str:
        return f"Found({counted(len(self), 'suggestion')}; {self.finding.missing.are_missing})"

    def _repr_html_(self) -> str:
        found, table = self.finding.suggestions[:SHOWN], self.table
        figures = [
            as_figure(
                lambda place=place: pixels_of(table, int(place)),  # type: ignore[misc]
                table.files[place],
                f"{table.classes[label]}: {100 * probability:.0f} % {kind}",
            )
            for place, label, probability, kind in zip(
                self.finding.rows[found.row], found.label, found.probability, found.kind, strict=True
            )
        ]
        return as_figures(repr(self), figures)


class Answers(list[Entry]):
    """What people have answered, oldest first."""

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with the columns file, label, answer, who and when."""
        rows = [(each.file, each.label, each.answer, each.who, each.at) for each in self]
        return import_pandas().DataFrame(rows, columns=["file", "label", "answer", "who", "when"])


class Explanations(list["Explained"]):
    """Images, each with its labels and where the model sees them.

    Attributes:
        note: why the dataset's own labels are not shown, if they are not.
    """

    def __init__(self, explained: Iterable["Explained"], *, note: str = "") -> None:
        super().__init__(explained)
        self.note = note

    def write(self, path: str | Path) -> None:
        """Write them as a picture, a .png file."""
        from onepair.files import write_atomically, writing
        from onepair.report.explain_images import render

        out = require_path(path, "what a picture is written to")
        with writing(out):
            write_atomically(out, render(self))


def _require_found(found: Any) -> None:
    if not isinstance(found, Found):
        raise DataError(f"these are no suggestions of run.find(), but {type(found).__name__}")


# Settings, and a dataset in memory


def _configured(
    data: Dataset | Config | str | Path,
    folder: Path,
    hardware: "Hardware | None",
    method: str | None,
    backbone: str | None,
    mode: str | None,
    preset: str | None,
    settings: Mapping[str, Any],
) -> "tuple[Config, Hardware]":
    """The configuration that the arguments of `train` say, and hardware that knows a dataset in memory."""
    from onepair.training.hardware import Hardware

    hardware = Hardware() if hardware is None else hardware
    if not isinstance(hardware, Hardware):
        raise UserError(f"hardware is a Hardware, for example Hardware(devices=1), not {hardware!r}")
    if isinstance(data, Config):
        return data, hardware
    if not isinstance(data, Dataset | str | PurePath):
        raise DataError(
            f"data is a Dataset or a path, not {type(data).__name__}; make one by Dataset.from_frame or from_arrays"
        )
    in_memory = isinstance(data, Dataset)
    if in_memory and (read := _READING & {key.rpartition(".")[2] for key in settings}):
        raise DataError(f"{min(read)} belongs to how a dataset is read; give it to Dataset.read or from_frame")
    given = {
        "data": _settings_of(data, folder.resolve()) if isinstance(data, Dataset) else {"source": str(data)},
        "model": {name: value for name, value in (("backbone", backbone), ("mode", mode)) if value is not None},
        "method": {} if method is None else {"name": method},
    }
    layers = [given, *(nested(_full_name(key, mode), value) for key, value in settings.items())]
    config = resolve_config(*with_preset(preset, *layers))
    if isinstance(data, Dataset):
        hardware = replace(hardware, shared=RunCache())
        _keep(hardware.shared, data, config)
    return config, hardware


@contextlib.contextmanager
def _folder_of(data: Dataset | None, folder: Path, *, temporary: bool) -> Iterator[None]:
    """Where something fails, leave no temporary folder, and name no file of a dataset that is in memory."""
    try:
        yield
    except BaseException as error:
        if temporary:
            shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, OnepairError) and data is not None and not data.settings:
            for name, what in ((TABLE, "the dataset"), (VECTORS, "the features")):  # of a file that is not there
                error.args = (str(error).replace(str(folder.resolve() / name), what),)
        raise


def _full_name(key: str, mode: str | None) -> str:
    """A setting as its file has it, by the last part of its name; of several, that of the stage which is trained."""
    found = [each.key for each in all_settings() if each.key.rpartition(".")[2] == key]
    section = "linear" if mode in (None, "linear") else "finetune"
    return found[0] if len(found) == 1 else next((each for each in found if each.startswith(f"{section}.")), key)


def _settings_of(data: Dataset, folder: Path) -> dict[str, Any]:
    """What a configuration says of a dataset: the files it was read from, or those that it is kept in."""
    if data.settings:
        return {name: value for name, value in data.settings.items() if value not in (None, ())}
    table = data.table
    settings: dict[str, Any] = {"source": str(folder / TABLE), "format": "table"}
    if table.vectors is not None:
        settings["features"] = _mapped_file(table) or str(folder / VECTORS)
    elif table.pixels is None and not table.ids:
        settings["images"] = str(table.root.resolve())
    return settings


def _mapped_file(table: LabelTable) -> str | None:
    """The .npy file that all vectors are mapped from, if they are."""
    if table.vectors is None or table.vectors.index is not None or len(table.vectors.parts) > 1:
        return None
    array = table.vectors.parts[0]
    file = getattr(array, "filename", None)
    if file is None or Path(file).suffix != ".npy" or not Path(file).exists():
        return None
    whole = np.load(file, mmap_mode="r", allow_pickle=False)
    return str(Path(file).resolve()) if whole.shape == array.shape and whole.dtype == array.dtype else None


def _keep(cache: RunCache, data: Dataset, config: Config) -> None:
    """Have a run find its dataset in memory."""
    table = data.table
    if table.vectors is not None and not data.settings:
        table = replace(table, vectors=replace(table.vectors, source=config.data.features or MEMORY))
    cache.get_or_make(("table", config.data.images_alone), lambda: (table, data.problems))


def _write_beside(data: Dataset, folder: Path) -> None:
    """Write a dataset that is in memory into the folder of its run; images of another library stay where they are."""
    from onepair.data.formats.write import write_table
    from onepair.files import replacing

    table = data.table
    if table.pixels is not None or (folder / TABLE).exists():
        return
    if table.vectors is not None and _mapped_file(table) is None:
        with replacing(folder / VECTORS) as file:
            shape = (len(table.vectors), table.vectors.width)
            dtype = table.vectors.take(np.arange(1)).dtype
            np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": shape})
            for _, block in table.vectors.blocks():
                file.write(np.ascontiguousarray(block).tobytes())
        table = replace(table, vectors=replace(table.vectors, index=None))
    write_table(table, folder / TABLE)


@contextlib.contextmanager
def _guarded() -> Iterator[None]:
    """A sentence where processes that read images begin by running the program that starts them."""
    advice = (
        "put the program under: if __name__ == '__main__': (or leave it, with hardware=onepair.Hardware(workers=0))"
    )
    if getattr(multiprocessing.current_process(), "_inheriting", False):  # one of these, before its own work
        raise UserError(f"a process that reads images runs the whole program again; {advice}")
    try:
        yield
    except RuntimeError as error:
        if multiprocessing.get_start_method(allow_none=True) == "spawn" and "DataLoader worker" in str(error):
            raise UserError(f"the processes that read images ended at once; {advice}") from None
        raise


# How work looks


@contextlib.contextmanager
def _shown(progress: bool | None, callbacks: Callback | Sequence[Callback]) -> Iterator[list[Callback]]:
    """The callbacks, and those that show progress, if somebody looks."""
    active = [callbacks] if isinstance(callbacks, Callback) else list(callbacks)
    if wrong := [each for each in active if not isinstance(each, Callback)]:
        raise UserError(f"callbacks are objects of onepair.Callback, not {wrong[0]!r}")
    if progress or (progress is None and _in_notebook()):
        with ProgressCallback() as shown:
            yield [shown, *([_NotebookBar()] if _in_notebook() else []), *active]
    else:
        yield active


def _in_notebook() -> bool:
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return getattr(get_ipython(), "kernel", None) is not None


class _NotebookBar(Callback):
    """A bar in a notebook's cell."""

    def __init__(self) -> None:
        self._handle: Any = None

    def _show(self, what: str, done: int, total: int) -> None:
        from IPython.display import HTML, display

        bar: Any = HTML(  # type: ignore[no-untyped-call]
            f"<progress value='{done}' max='{max(total, 1)}'></progress> {escape(what)}: {done:,} of {total:,}"
        )
        if self._handle is None:
            self._handle = display(bar, display_id=True)  # type: ignore[no-untyped-call]
        else:
            self._handle.update(bar)

    def on_progress(self, what: str, done: int, total: int) -> None:
        self._show(what, done, total)

    def on_epoch_end(self, record: Mapping[str, Any]) -> None:
        self._show(f"{record['stage']}, epochs", record["epoch"], record.get("epochs", record["epoch"]))
