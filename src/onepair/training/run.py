"""A run, from its configuration to its results."""

import copy
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray

from onepair.data.feature_store import Features
from onepair.data.features import OnProgress, extract_features
from onepair.data.loading import image_batches
from onepair.data.problems import Problem, Report, refuse
from onepair.inference.choice import Engines
from onepair.inference.inputs import FeatureSource, ImageSource
from onepair.inference.model_files import save_model
from onepair.inference.scoring import score
from onepair.labels import POSITIVE, Indices
from onepair.methods import METHODS, Method, create_method
from onepair.models import Backbone, Classifier, create_backbone, parse_weights
from onepair.probability.decisions import Decisions, fit_decisions
from onepair.probability.evaluation import evaluate
from onepair.probability.observation import Process, recognise
from onepair.runs.config import Config, ConfigError
from onepair.runs.folder import Results, RunFolder
from onepair.runs.shared import Shared
from onepair.runs.task import Task, task_of
from onepair.training.loop import EpochRecord, Stage, Trainer
from onepair.training.machine import Machine, Narrator, Silence
from onepair.training.optimisation import Group
from onepair.training.processes import gathered, on_first, patiently
from onepair.training.sharding import cpu_state, load_whole
from onepair.training.stopping import Requests

IMAGES_TO_SCORE = 64
FEATURES_TO_SCORE = 4096
MOST_NAMED = 5  # images or classes in a sentence
COPY = "holds the same as another image that cannot be read"


def train(config: Config, folder: RunFolder, *, machine: Machine, watch: Narrator, test: bool = True) -> Results:
    """Do a run in `folder`, or go on with it where it stopped; returns its results.

    The folder then holds config.toml, environment.json, metrics.jsonl (a line per epoch), of each stage the last
    checkpoint and the best weights, the model (model.safetensors and model.json), the scores of validation and test
    images (.npy) and results.json.

    Args:
        config: all that decides the result.
        folder: where everything is kept.
        machine: what it is computed on.
        watch: is told how far it is.
        test: whether test images are looked at, in the end; a search for settings must not.
    """
    method = method_of(config)
    if method.boost != 1 and config.model.mode == "linear":
        raise ConfigError(
            f"method {config.method.name} looks at every place of an image, which fixed features do not have; choose "
            "--mode finetune or linear-init"
        )
    fabric = machine.fabric(config.precision)
    for name, stage in config.stages.items():
        if machine.strategy == "fsdp" and stage.optimiser.ema is not None:
            raise ConfigError(
                f"{name}.optimiser.ema averages whole weights, which strategy fsdp spreads; leave one of them out"
            )
    folder.require_usable(config)
    if folder.finished:
        watch.say(f"{folder.path} holds this run already; delete the folder to do it again")
        return folder.results()
    task = task_of(config.data, machine.shared, with_all_negatives=knows_negatives(config))
    if not test:
        task = replace(task, test=task.test[:0])
    classifier = _create_classifier(config, task, machine.shared, boost=method.boost)
    # All that a user may have got wrong has been looked at: by one process, and before anything is written.
    fabric.launch()
    with ExitStack() as held:
        on_first(fabric, lambda: held.enter_context(folder.opened(config)))
        watch = watch if fabric.is_global_zero else Silence()
        requests = held.enter_context(Requests())
        results = _Run(fabric, config, folder, machine, task, method, classifier, watch, requests, test).run()
        fabric.barrier()
    return results


def knows_negatives(config: Config) -> bool:
    """Whether the method is the oracle that is shown all negatives, also where labels are hidden."""
    return METHODS[config.method.name].observes == "single positive and all negatives"


def method_of(config: Config) -> Method:
    """The method that a run with this configuration learns by."""
    options = dict(config.method.options)
    info = METHODS.get(config.method.name)
    if info is not None and info.needs_epochs:
        options.setdefault("epochs", sum(stage.epochs for stage in config.stages.values()))
    try:
        return create_method(config.method.name, **options)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"method: {error}") from None


def _create_classifier(config: Config, task: Task, shared: Shared, *, boost: float) -> Classifier:
    wanted = config.model

    def make() -> tuple[Backbone, torch.Tensor]:
        torch.manual_seed(config.seed)
        backbone = create_backbone(wanted.backbone, weights=parse_weights(wanted.weights), image_size=wanted.image_size)
        backbone.preprocessing = replace(backbone.preprocessing, flip=wanted.flip)
        return backbone, torch.get_rng_state()

    fixed = wanted.mode == "linear"  # elsewhere the backbone learns, and each run needs its own
    backbone, random = shared.once(("backbone", wanted, config.seed), make) if fixed else make()
    torch.set_rng_state(random)  # the head's weights are drawn after the backbone's, whoever made that
    return Classifier(backbone, task.table.classes, boost=boost)


class _Run:
    """The stages of a run, and what is done with the best weights."""

    def __init__(
        self,
        fabric: Fabric,
        config: Config,
        folder: RunFolder,
        machine: Machine,
        task: Task,
        method: Method,
        classifier: Classifier,
        watch: Narrator,
        requests: Requests,
        test: bool,
    ) -> None:
        self.test = test
        self.fabric, self.config, self.folder, self.machine = fabric, config, folder, machine
        self.task, self.method, self.watch, self.requests = task, method, watch, requests
        self.classifier, self.backbone = classifier, classifier.backbone
        self.records: list[EpochRecord] = []
        self.skipped: list[tuple[str, str]] = []  # file and reason

    def run(self) -> Results:
        """Train the stages that the mode asks for, the later from the best weights of the earlier."""
        self._leave_out(self._unreadable())
        data, weights = self.task.table.fingerprint(), self.backbone.weights_id()
        on_first(
            self.fabric,
            lambda: self.folder.write_environment(
                data=data,
                weights=weights,
                processes=self.fabric.world_size,
                with_all_negatives=knows_negatives(self.config),
            ),
        )
        self.watch.say(
            f"{len(self.task.train):,} images to train on, {len(self.task.validation):,} to select the best epoch by "
            f"({self.task.selected_on}), {len(self.task.test):,} to test on"
        )
        self._tell_of_labels()
        self.method.begin(torch.from_numpy(self.task.observed))
        make_stage = {"linear": self._linear, "finetune": self._finetune}
        for name in self.config.stages:
            trainer = Trainer(
                self.fabric,
                make_stage[name](),
                self.method,
                self.task,
                self.config,
                folder=self.folder,
                watch=self.watch,
                earlier=self.records,
                requests=self.requests,
            )
            trainer.run()
            load_whole(trainer.stage.model, trainer.best)
            if trainer.stage.name == "linear":
                self.classifier.head.load_state_dict(trainer.best)
            self.records += trainer.progress.records
        return self._finish(trainer)

    def _linear(self) -> Stage:
        head = copy.deepcopy(self.classifier.head)  # a strategy may change what it trains
        return Stage(
            name="linear",
            model=head,
            classifier=head,
            source=FeatureSource(self._fixed_features().by_row),
            groups=[Group(head)],
            config=self.config.linear,
            scoring_batch=FEATURES_TO_SCORE,
        )

    def _finetune(self) -> Stage:
        config, head = self.config.finetune, self.classifier.to(self.fabric.device).head
        return Stage(
            name="finetune",
            model=self.classifier,
            classifier=head,
            source=ImageSource(
                self.task.table,
                self.backbone.preprocessing,
                self.fabric.device,
                workers=self.machine.workers,
            ),
            groups=[Group(self.backbone), Group(head, config.optimiser.head_lr_multiplier)],
            config=config,
            scoring_batch=IMAGES_TO_SCORE,
        )

    def _unreadable(self) -> list[Problem]:
        """What is wrong with images, found before anything is learned: a method needs to know their number."""
        if self.task.table.pixels is not None:
            return []
        if "linear" in self.config.stages:
            return self._fixed_features().unreadable
        problems: list[Problem] = []
        with patiently(self.fabric):
            for _ in image_batches(
                self.task.table,
                self._share(self.task.images),
                self.backbone.preprocessing,
                batch_size=IMAGES_TO_SCORE,
                training=True,
                workers=self.machine.workers,
                report=self._report(problems),
            ):
                self.requests.obey(kept="nothing was begun")
        return gathered(self.fabric, problems)

    def _report(self, problems: list[Problem]) -> Report:
        return problems.append if self.config.data.on_error == "skip" else refuse

    def _leave_out(self, problems: list[Problem]) -> None:
        """Go on without the images that cannot be read, and say which."""
        table = self.task.table
        name_of = {str(table.path(row)): table.files[row] for row in self.task.images.tolist()}
        self.skipped = sorted({(name_of[each.where], each.what) for each in problems if each.where in name_of})
        if not self.skipped:
            return
        names = listed([f"{file} ({reason})" for file, reason in self.skipped])
        self.watch.say(f"left out, as they cannot be read: {names}; all of them are in skipped.csv")
        self.task = self.task.without({file for file, _ in self.skipped})
        on_first(self.fabric, lambda: self.folder.write_skipped(self.skipped))

    def _tell_of_labels(self) -> None:
        """What is made of the labels that are known, and of classes that cannot be learned."""
        task, data = self.task, self.config.data
        asked = None if task.table.asked is None else task.table.asked[task.train]
        self.watch.say(f"labels: {recognise(task.observed, asked, process=data.process).sentence}")
        positives = (task.observed == POSITIVE).sum(0)
        nothing = [name for name, number in zip(task.table.classes, positives, strict=True) if number == 0]
        if nothing:
            self.watch.say(f"without a positive to learn from: {listed(nothing)}")

    def _share(self, rows: Indices) -> Indices:
        """The rows that this process sees to, where each may take its time."""
        return rows[self.fabric.global_rank :: self.fabric.world_size]

    def _fixed_features(self) -> "FixedFeatures":
        """The features of all images; they are the same whichever labels are observed."""
        images = self.config.data.images_alone
        key = ("features", images, self.test, self.backbone.preprocessing, self.backbone.weights_id())
        return self.machine.shared.once(key, self._extract_all)

    def _extract_all(self) -> "FixedFeatures":
        """Every process extracts its share; then all read everything."""
        # A fold has no use for the test images, but with them it finds the features of the other folds.
        task = self.task
        tested = task.table.rows("test") if self.test else task.test
        used = np.union1d(task.images, tested)
        told = self.watch.extraction()

        def on_progress(done: int, rows: int) -> None:
            if told is not None:
                told(done, rows)
            self.requests.obey(kept="the features extracted so far are kept")

        problems: list[Problem] = []
        if self.fabric.world_size > 1:
            with patiently(self.fabric):
                self._extract(self._share(used), on_progress, self._report([]))
        features = self._extract(used, on_progress, self._report(problems))
        by_row = np.zeros((len(task.table), features.shape[1]), features.dtype)
        by_row[used] = features
        reasons = {problem.where: problem.what for problem in problems}
        unreadable = [str(task.table.path(row)) for row in used[np.isnan(features).any(1)].tolist()]
        return FixedFeatures(
            torch.from_numpy(by_row).to(self.fabric.device),
            [Problem("unreadable image", path, reasons.get(path, COPY)) for path in unreadable],
        )

    def _extract(self, rows: Indices, on_progress: OnProgress, report: Report) -> Features:
        if len(rows) == 0:  # fewer images than processes
            return np.empty((0, self.backbone.feature_dim), np.float16)
        return extract_features(
            self.task.table,
            self.backbone,
            self.backbone.preprocessing,
            Engines(self.backbone, devices=[self.fabric.device], cache=self.machine.cache),
            folder=self.machine.cache / "features",
            rows=rows,
            workers=self.machine.workers,
            report=report,
            on_progress=on_progress,
        ).features

    def _finish(self, trainer: Trainer) -> Results:
        """Score with the best weights, the test images for the first and only time, and write everything down."""
        task = self.task
        scores = {"validation": self._score(trainer.stage, task.validation)}
        if len(task.test):
            scores["test"] = self._score(trainer.stage, task.test)
        weights, process = cpu_state(self.classifier), self.config.data.process
        decisions = fit_decisions(
            scores["validation"], task.validation_labels, process=process, asked=task.asked_validation
        )
        if decisions.pooled.any():
            pooled = [name for name, few in zip(task.table.classes, decisions.pooled, strict=True) if few]
            self.watch.say(
                f"too few known positives among the validation images for a threshold of their own: {listed(pooled)}; "
                "they share one with the other classes"
            )
        results = Results(
            method=self.config.method.name,
            best_epoch=trainer.progress.best_epoch,
            selected_on=task.selected_on,
            validation_map=trainer.progress.best_map,
            skipped_images=[file for file, _ in self.skipped],
            **(tested(scores["test"], task, decisions, process) if len(task.test) else {}),
        )
        if self.fabric.is_global_zero:
            save_model(self.folder.path, self.classifier, decisions, weights=weights, precision=self.config.precision)
            for split, matrix in scores.items():
                self.folder.write_scores(split, matrix)
            self.folder.write_results(results)
        return results

    def _score(self, stage: Stage, rows: Indices) -> NDArray[np.float32]:
        scores = score(self.fabric, stage.model, stage.source, rows, batch_size=stage.scoring_batch)
        return scores.numpy()


class FixedFeatures(NamedTuple):
    """The features of a frozen backbone."""

    by_row: torch.Tensor  # (N, D), of all rows of the table; of those that are not used, zeros
    unreadable: list[Problem]


def tested(scores: NDArray[np.float32], task: Task, decisions: Decisions, process: Process) -> dict[str, Any]:
    """The figures of `Results` that the test images tell."""
    labels, asked = task.table.labels[task.test], task.table.asked
    if not (labels == POSITIVE).any():
        return {"test_note": "no test image has a positive label"}
    found = evaluate(
        scores,
        labels,
        decisions,
        task.table.classes,
        process=process,
        asked=None if asked is None else asked[task.test],
    )
    figures: dict[str, Any] = {
        "test_class_ap": {name: None if np.isnan(each.ap) else each.ap for name, each in found.classes.items()}
    }
    if not np.isnan(found.map):
        figures |= {"test_map": found.map, "test_classes": found.averaged_classes}
    if found.estimated is not None:
        figures |= {"test_estimate": tuple(found.estimated.map), "test_note": found.estimated.assumption}
    return figures


def listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are.

    >>> listed(["cat", "dog"])
    'cat, dog'
    """
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"
