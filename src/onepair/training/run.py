"""A run, from its configuration to its results."""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from onepair.data.images.batches import image_batches
from onepair.data.problems import Problem
from onepair.data.vectors.align import TFIDF
from onepair.errors import ConfigError
from onepair.inference.heat_maps import averages_places
from onepair.inference.model_files import save_model
from onepair.label_matrix import too_many
from onepair.labels import POSITIVE, Indices
from onepair.linear.fit import LinearFit, Trial
from onepair.methods import METHODS, Method
from onepair.methods.method import Observed, SparseObserved
from onepair.models import Backbone, Classifier, IdentityBackbone, TextBackbone, create_backbone, parse_weights
from onepair.models.frozen_prefix import FrozenPrefix, TrainableSuffix, split_at
from onepair.models.kernel import KernelHead
from onepair.probability.evaluation import evaluate
from onepair.probability.observation import Process, recognise
from onepair.probability.selection_score import estimated_map
from onepair.probability.thresholds import Thresholds, fit_decisions
from onepair.runs.config import WITHOUT_IMAGES, Config, ModelConfig
from onepair.runs.finished import FinishedRun, FoldModels
from onepair.runs.folder import Results, RunFolder
from onepair.runs.task import (
    RunCache,
    Skipped,
    Split,
    Task,
    choose_backbone,
    knows_negatives,
    make_method,
    skipped_cells,
    skipped_images,
    task_of,
)
from onepair.training.callbacks import Callback, EpochRecord
from onepair.training.checkpoint import StopRequests
from onepair.training.distributed import (
    cpu_state,
    first_logger,
    gathered,
    holds_norms,
    on_first,
    patiently,
    share_norms,
)
from onepair.training.frozen_features import FrozenFeatures, TrialRecords, features_of, solve_task
from onepair.training.hardware import Hardware, without_driver_lookups
from onepair.training.loop import Stage, Trainer
from onepair.training.optim import Group
from onepair.training.sources import ActivationSource, FeatureSource, FrozenSource, ImageSource, Source, score
from onepair.words import counted, itemised, listed

_log = first_logger(__name__)


def test_metrics(scores: NDArray[np.float32], task: Task, decisions: Thresholds, process: Process) -> dict[str, Any]:
    """The figures of `Results` that the test images tell."""
    rows, sampled = task.test[task.eval_rows("test")], task.sampled("test")
    labels, asked = task.table.labels[rows], task.table.asked
    if not (labels == POSITIVE).any():
        return {"test_note": f"no {f'image of {sampled}' if sampled else 'test image'} has a positive label"}
    found = evaluate(
        scores,
        labels,
        decisions,
        task.table.classes,
        process=process,
        asked=None if asked is None else asked[rows],
    )
    figures: dict[str, Any] = {
        "test_class_ap": {name: None if np.isnan(each.ap) else each.ap for name, each in found.classes.items()}
    }
    if not np.isnan(found.map):
        figures |= {"test_map": found.map, "test_classes": found.averaged_classes}
    if found.estimated is not None:
        figures |= {
            "test_estimate": tuple(found.estimated.map),
            "test_note": found.estimated.assumption + found.estimated.over,
        }
    if sampled:
        figures["test_note"] = "; ".join(filter(None, (f"by {sampled}", figures.get("test_note"))))
    return figures


IMAGES_TO_SCORE = 64
FEATURES_TO_SCORE = 4096
MUCH_WORK = 2e12  # products of a pass over all features and classes, which takes a minute
CELLS_TO_SCORE = 2**22  # at most, where there are many classes: memory of up to 32 MB is used again and again


def train(
    config: Config,
    folder: RunFolder,
    *,
    hardware: Hardware,
    callbacks: Sequence[Callback] = (),
    test: bool = True,
    restart: bool = False,
) -> Results:
    """Do a run in `folder`, or go on with it where it stopped; returns its results.

    The folder then holds config.toml, environment.json, metrics.jsonl (a line per epoch, or per penalty tried), of
    each stage of epochs the last checkpoint and the best weights, the model (model.safetensors and model.json), the
    models of the folds where it was solved for (folds.safetensors), scores of training images out of fold, of
    validation and of test images (.npy) and results.json.

    Args:
        config: all that decides the result.
        folder: where everything is kept.
        hardware: what it is computed on.
        callbacks: told how far it is.
        test: whether test images are looked at, in the end; a search for settings must not.
        restart: put what is in the folder aside, and begin anew.
    """
    config = choose_backbone(config, hardware.shared)
    method = make_method(config)
    if config.model.mode == "linear":
        _require_fixed(config, method)
    fabric = hardware.fabric(config.precision)
    if not restart:
        folder.require_usable(config)
    if folder.finished and not restart:
        FinishedRun(folder.path, shared=hardware.shared).require_same_data()
        _log.info(f"{folder.path} holds this run already; delete the folder to do it again")
        return folder.results()
    task = task_of(config, hardware.shared, with_all_negatives=knows_negatives(config))
    if not test:
        task = replace(task, test=task.test[:0])
    method.require_room(*task.observed.shape)
    _require_inputs(config, task)
    classifier = _create_classifier(config, task, hardware.shared, boost=method.boost)
    cut = _cut(config.model, classifier.backbone)
    # All that a user may have got wrong has been looked at: by one process, and before anything is written.
    fabric.launch()
    fabric.barrier()  # of a second run nobody is launched: no process may write before all have looked
    if restart:
        on_first(fabric, lambda: _put_aside(folder))
    with ExitStack() as held:
        on_first(fabric, lambda: held.enter_context(folder.opened(config)))
        held.enter_context(without_driver_lookups())
        callbacks = callbacks if fabric.is_global_zero else ()
        requests = held.enter_context(StopRequests())
        results = _Run(fabric, config, folder, hardware, task, method, classifier, cut, callbacks, requests, test).run()
        fabric.barrier()
    return results


def _put_aside(folder: RunFolder) -> None:
    if aside := folder.put_aside():
        _log.info(f"what was in {folder.path} is in {aside} now")


def _require_fixed(config: Config, method: Method) -> None:
    """Refuse what mode linear, which computes features once and leaves the network as it is, cannot do."""
    wanted = config.model
    if method.boost != 1:
        raise ConfigError(
            f"method {config.method.name} looks at every place of an image, which fixed features do not have; choose "
            "--mode finetune or linear-init"
        )
    if config.solves and not METHODS[config.method.name].solvable:
        raise ConfigError(
            f"method {config.method.name} needs many small steps, and fixed features are solved for in "
            "large ones; add --set linear.protocol=epochs, or choose another method"
        )
    if wanted.augment is not None:
        raise ConfigError(
            f"model.augment={wanted.augment} changes images each time they are seen, and mode linear computes their "
            "features once; choose mode finetune or linear-init, or leave it out"
        )
    if wanted.train_from is not None:
        raise ConfigError(
            f"model.train_from={wanted.train_from} is where fine-tuning begins, and mode linear does none; "
            "choose mode finetune or linear-init, or leave it out"
        )


def _require_inputs(config: Config, task: Task) -> None:
    """Refuse, before anything is begun, a dataset without what the model would look at."""
    table, backbone = task.table, config.model.backbone
    if table.vectors is not None:
        table.vectors.require_finite(table.files)
    elif backbone == TFIDF and table.texts is None:
        raise ConfigError(f"model.backbone tfidf reads texts, and {config.data.source} has no column text")
    elif backbone != TFIDF and table.ids:
        raise ConfigError(
            f"{config.data.source}: holds texts, and none of its files is there to be seen by {backbone}; "
            "choose --backbone tfidf, or name the folder of the images with --folder"
        )


def _create_classifier(config: Config, task: Task, shared: RunCache, *, boost: float) -> Classifier:
    wanted = config.model

    def make() -> tuple[Backbone, torch.Tensor]:
        torch.manual_seed(config.seed)
        if task.table.vectors is not None:
            return IdentityBackbone(task.table.vectors.width), torch.get_rng_state()
        if wanted.backbone == TFIDF:
            texts = task.table.texts or ()
            return TextBackbone.fit([texts[row] for row in task.train.tolist()]), torch.get_rng_state()
        backbone = create_backbone(wanted.backbone, weights=parse_weights(wanted.weights), image_size=wanted.image_size)
        backbone.preprocessing = replace(backbone.preprocessing, flip=wanted.flip)
        return backbone, torch.get_rng_state()

    # Elsewhere the backbone learns, and each run needs its own; that of texts has learned from a fold's own.
    fixed = wanted.mode == "linear" and wanted.backbone not in WITHOUT_IMAGES
    backbone, random = shared.get_or_make(("backbone", wanted, config.seed), make) if fixed else make()
    if boost != 1 and not averages_places(backbone):
        raise ConfigError(
            f"method {config.method.name} applies the classifier at every place of an image, and the features "
            f"of {wanted.backbone} are more than their mean; choose another --backbone, as tf_efficientnet_lite0"
        )
    torch.set_rng_state(random)  # the head's weights are drawn after the backbone's, whoever made that
    return Classifier(backbone, task.table.classes, boost=boost)


def _cut(wanted: ModelConfig, backbone: Backbone) -> FrozenPrefix | None:
    """Where the part that learns begins, if not at the images."""
    return None if wanted.train_from is None else split_at(backbone, wanted.train_from)


class _Run:
    """The stages of a run, and what is done with the best weights."""

    def __init__(
        self,
        fabric: Fabric,
        config: Config,
        folder: RunFolder,
        hardware: Hardware,
        task: Task,
        method: Method,
        classifier: Classifier,
        cut: FrozenPrefix | None,
        callbacks: Sequence[Callback],
        requests: StopRequests,
        test: bool,
    ) -> None:
        self.fabric, self.config, self.folder, self.hardware = fabric, config, folder, hardware
        self.task, self.method, self.callbacks, self.requests = task, method, callbacks, requests
        self.classifier, self.backbone, self.cut = classifier, classifier.backbone, cut
        self.fixed = FrozenFeatures(fabric, config, hardware, callbacks, requests, test)
        self.records: list[EpochRecord] = []
        self.skipped: list[str] = []  # files
        self.log = _log.debug if task.holds_out else _log.info  # of what it works on, a fold has nothing new to tell

    def run(self) -> Results:
        """Train the stages that the mode asks for, the later from the best weights of the earlier."""
        self._tell_of_table()
        self._leave_out(self._unreadable())
        data, weights = self.task.table.fingerprint(), self.backbone.weights_id()
        on_first(
            self.fabric,
            lambda: self.folder.write_environment(
                data=data,
                weights=weights,
                processes=self.fabric.world_size,
                vectors=self.task.input_fingerprint if isinstance(self.backbone, IdentityBackbone) else None,
                with_all_negatives=knows_negatives(self.config),
            ),
        )
        self._tell_of_task()
        if self.config.solves:
            return self._finish_solved(*self._solve())
        self.method.begin(self._observed())
        for name in self.config.stages:
            if name == "linear" and self.config.linear.protocol == "solve":
                self._solve()
                continue
            trainer = Trainer(
                self.fabric,
                self._linear() if name == "linear" else self._finetune(),
                self.method,
                self.task,
                self.config,
                folder=self.folder,
                callbacks=self.callbacks,
                earlier=self.records,
                requests=self.requests,
            )
            trainer.run()
            trainer.stage.model.load_state_dict(trainer.best)
            if name == "linear":
                self.classifier.head.load_state_dict(trainer.best)
            self.records += trainer.progress.records
        splits: tuple[Split, ...] = ("validation", "test") if len(self.task.test) else ("validation",)
        scores = {split: self._judged_scores(split, partial(self._score, trainer.stage)) for split in splits}
        progress = trainer.progress
        return self._finish(scores, validation_map=progress.best_map, best_epoch=progress.best_epoch)

    def _solve(self) -> tuple[LinearFit, FeatureSource]:
        """Fit the classifier to the features of all training images, and put it in its place."""
        source, tried = self._features(), TrialRecords()
        classes, width = self.classifier.head.out_features, self.classifier.head.in_features
        if len(self.task.train) * classes * width > MUCH_WORK and self.config.method.name != "ridge":
            self.log(f"{len(self.task.train):,} images of {classes:,} classes take long; --method ridge takes a minute")

        def on_trial(trial: Trial) -> None:
            self.requests.raise_if_asked(kept="nothing was saved yet")
            tried.add(trial)
            if self.fabric.is_global_zero:
                self.folder.start_metrics(tried.records)

        found = solve_task(self.config, self.task, source, on_trial=on_trial)
        if found.kernel is not None:
            self.classifier.head = KernelHead(found.kernel, classes)
        with torch.no_grad():
            self.classifier.head.weight.copy_(torch.from_numpy(found.coef))
            self.classifier.head.bias.copy_(torch.from_numpy(found.intercept))
        if not found.converged and METHODS[self.config.method.name].convex:
            self.log(
                f"the solver stopped after {found.iterations} steps where scores would still change by about "
                f"{found.residual:.1g}; a stronger penalty (linear.penalty) is solved sooner"
            )
        return found, source

    def _finish_solved(self, found: LinearFit, source: FeatureSource) -> Results:
        """Score the training images out of fold and the others with the model of all, and write everything down."""
        task, classes = self.task, len(self.task.table.classes)
        place = np.full(len(task.table), -1)
        place[task.train] = np.arange(len(task.train))

        def out_of_fold(rows: Indices) -> NDArray[np.float32]:
            return found.out_of_fold(features_of(source, rows), place[rows])

        def by_all(rows: Indices) -> NDArray[np.float32]:
            scores = np.empty((len(rows), classes), np.float32)
            for start in range(0, len(rows), FEATURES_TO_SCORE):
                some = rows[start : start + FEATURES_TO_SCORE]
                scores[start : start + len(some)] = found.scores(features_of(source, some))
            return scores

        scores: dict[Split, NDArray[np.float32]] = {"train": self._judged_scores("train", out_of_fold)}
        scores["validation"] = scores["train"] if task.out_of_fold else self._judged_scores("validation", by_all)
        if len(task.test):
            scores["test"] = self._judged_scores("test", by_all)
        if self.fabric.is_global_zero:
            FoldModels(found.fold_coef, found.fold_intercept, found.fold).write(self.folder.path)
        labels = task.validation_labels.take(task.eval_rows("validation"))
        judged = estimated_map(scores["validation"], labels.dense())
        return self._finish(scores, validation_map=judged, penalty=float(f"{1 / found.C:.4g}"))

    def _observed(self) -> Observed:
        observed = self.task.observed
        return SparseObserved(observed) if observed.is_large else torch.from_numpy(observed.dense())

    def _linear(self) -> Stage:
        head = copy.deepcopy(self.classifier.head)  # a strategy may change what it trains
        return Stage(
            name="linear",
            model=head,
            classifier=head,
            source=self._features(),
            groups=[Group(head)],
            config=self.config.linear,
            scoring_batch=max(1, min(FEATURES_TO_SCORE, CELLS_TO_SCORE // head.out_features)),
        )

    def _features(self) -> FeatureSource:
        backbone, table, device = self.backbone, self.task.table, self.fabric.device
        if not isinstance(backbone, IdentityBackbone):
            return FeatureSource(self.fixed.features(backbone, self.task).by_row)
        if table.vectors is not None:
            return FeatureSource(table.vectors, device)
        return FeatureSource(torch.from_numpy(backbone.vectors_of(table, np.arange(len(table)))).to(device))

    def _finetune(self) -> Stage:
        config, head = self.config.finetune, self.classifier.to(self.fabric.device).head
        share_norms(self.fabric, self.classifier)
        if holds_norms(self.fabric) and not config.hold_norms:
            self.log("several processes on CPUs: batch norms keep the means and variances that they have")
        images = ImageSource(
            self.task.table,
            self.backbone.preprocessing,
            self.fabric.device,
            workers=self.hardware.workers,
            augmentation=self.config.model.augment,
        )
        return Stage(
            name="finetune",
            model=self.classifier if self.cut is None else TrainableSuffix(self.classifier, self.cut),
            classifier=head,
            source=images if self.cut is None else self._source_of_stage(self.cut, images),
            groups=[Group(self.backbone), Group(head, config.optimiser.head_lr_multiplier)],
            config=config,
            scoring_batch=IMAGES_TO_SCORE,
            hold_norms=config.hold_norms,
        )

    def _source_of_stage(self, cut: FrozenPrefix, images: ImageSource) -> Source:
        """What the first stage that learns takes: computed before, or where images are augmented, each time anew."""
        if self.config.model.augment is not None:
            return FrozenSource(images, cut.backbone.to(self.fabric.device))
        kept = self.fixed.activations(cut.backbone, self.task)
        return ActivationSource(kept.plain, kept.flipped, self.backbone.preprocessing.flip, self.fabric.device)

    def _unreadable(self) -> list[Problem]:
        """What is wrong with images, found before anything is learned: a method needs to know their number."""
        if self.task.table.pixels is not None or isinstance(self.backbone, IdentityBackbone):
            return []
        if "linear" in self.config.stages:
            return self.fixed.features(self.backbone, self.task).unreadable
        if self.cut is not None and self.config.model.augment is None:
            return self.fixed.activations(self.cut.backbone, self.task).unreadable
        if self.folder.begun and (known := self.folder.unreadable()) is not None:
            return known
        problems: list[Problem] = []
        with patiently(self.fabric):
            for _ in image_batches(
                self.task.table,
                self.fixed.share(self.task.images),
                self.backbone.preprocessing,
                batch_size=IMAGES_TO_SCORE,
                training=True,
                workers=self.hardware.workers,
                report=self.fixed.report(problems),
            ):
                self.requests.raise_if_asked(kept="nothing was begun")
        found = gathered(self.fabric, problems)
        on_first(self.fabric, lambda: self.folder.write_unreadable(found))
        return found

    def _leave_out(self, problems: list[Problem]) -> None:
        """Go on without the images that cannot be read, and say which."""
        for callback in self.callbacks:
            for problem in problems:
                callback.on_problem(problem)
        cells, images = skipped_cells(self.task), skipped_images(self.task, problems)
        if cells or images:
            on_first(self.fabric, lambda: self.folder.write_skipped([*cells, *images]))
        if not images:
            return
        self._say_which(f"{counted(len(images), 'image')} left out:", images)
        self.skipped = sorted({each.file for each in images})
        self.task = self.task.without(self.skipped)

    def _say_which(self, title: str, skipped: Sequence[Skipped]) -> None:
        self.log(itemised(title, skipped, rest=f"{self.folder.path / 'skipped.csv'} has all of them"))

    def _tell_of_table(self) -> None:
        """What is remarkable about the label files, and what was wrong with them."""
        for callback in self.callbacks:
            for problem in self.task.problems:
                callback.on_problem(problem)
        remarks = [problem for problem in self.task.problems if problem.remark]
        if remarks:
            self.log(itemised("noted about the labels:", remarks, rest="onepair check has all of them"))
        if cells := skipped_cells(self.task):
            self._say_which(f"{counted(len(cells), 'problem')} in the labels:", cells)

    def _tell_of_task(self) -> None:
        """How many images there are, what is made of the labels that are known, and which classes cannot be learned."""
        task, data = self.task, self.config.data
        tested = f"{len(task.test):,} to test on"
        if task.out_of_fold:
            self.log(f"{counted(len(task.train), 'image')} to train on, {tested}; judged by {task.selected_on}")
        else:
            what = "the penalty" if self.config.solves else "the best epoch"
            self.log(
                f"{counted(len(task.train), 'image')} to train on, {len(task.validation):,} to select {what} by "
                f"({task.selected_on}), {tested}"
            )
        places = task.eval_rows("train")
        observed, asked = task.observed.take(places), task.table.asked
        asked = None if asked is None else asked[task.train[places]]
        sampled = f", by {task.sampled('train')}" if task.sampled("train") else ""
        self.log(f"labels{sampled}: {recognise(observed, asked, process=data.process).sentence}")
        positives = task.observed.count(POSITIVE)
        nothing = [name for name, number in zip(task.table.classes, positives, strict=True) if number == 0]
        if nothing:
            self.log(f"without a positive to learn from: {listed(nothing)}")

    def _finish(
        self,
        scores: Mapping[Split, NDArray[np.float32]],
        *,
        validation_map: float,
        best_epoch: int | None = None,
        penalty: float | None = None,
    ) -> Results:
        """Choose thresholds, judge by test images for the first and only time, and write everything down."""
        task = self.task
        places = task.eval_rows("validation")
        weights, process, asked = cpu_state(self.classifier), self.config.data.process, task.asked_validation
        if task.holds_out:  # a fold is asked for scores alone
            decisions = Thresholds.none(len(task.table.classes))
        else:
            decisions = fit_decisions(
                scores["validation"],
                task.validation_labels.take(places),
                process=process,
                asked=None if asked is None else asked[places],
                cache=self.folder.likelihood if self.fabric.is_global_zero else None,
            )
        if decisions.pooled.any():
            pooled = [name for name, few in zip(task.table.classes, decisions.pooled, strict=True) if few]
            which = "training" if task.out_of_fold else "validation"
            judged_by = task.sampled("validation") or f"the {which} images"
            self.log(
                f"too few known positives among {judged_by} for a threshold of their own: {listed(pooled)}; "
                "they share one with the other classes"
            )
        results = Results(
            method=self.config.method.name,
            best_epoch=best_epoch,
            penalty=penalty,
            selected_on=task.selected_on,
            validation_map=validation_map,
            skipped_images=self.skipped,
            **(test_metrics(scores["test"], task, decisions, process) if len(task.test) and not task.holds_out else {}),
        )
        if self.fabric.is_global_zero:
            save_model(self.folder.path, self.classifier, decisions, weights=weights, precision=self.config.precision)
            self.folder.write_results(results)
        return results

    def _judged_scores(self, split: Split, score_rows: Callable[[Indices], NDArray[np.float32]]) -> NDArray[np.float32]:
        """The scores of the rows that a split is judged by; those of all rows are kept, if they are not too many."""
        rows, places = self.task.rows(split), self.task.eval_rows(split)
        if too_many(len(rows), len(self.task.table.classes)):
            return score_rows(rows[places])
        scores = score_rows(rows)
        if self.fabric.is_global_zero:
            self.folder.write_scores(split, scores)
        return scores if len(places) == len(rows) else scores[places]

    def _score(self, stage: Stage, rows: Indices) -> NDArray[np.float32]:
        scores = score(self.fabric, stage.model, stage.source, rows, batch_size=stage.scoring_batch)
        return scores.numpy()
