"""A run, from its configuration to its results: stages of epochs, or on fixed features a classifier solved for."""

import copy
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from onepair.data.images.batches import image_batches
from onepair.data.label_table import TFIDF, Problem
from onepair.errors import ConfigError
from onepair.inference.heat_maps import averages_places
from onepair.labels import Indices
from onepair.linear.fit import LinearFit, Trial, ValidationRows, fit_kernel, fit_linear
from onepair.methods import METHODS, Method
from onepair.methods.method import as_observed
from onepair.metrics import one_block
from onepair.models import Backbone, Classifier, IdentityBackbone, TextBackbone, create_backbone, parse_weights
from onepair.models.backbone import FrozenPrefix, KernelHead, TrainableSuffix, split_at
from onepair.probability.evaluation import estimated_map_by_blocks
from onepair.runs.config import AUTO, WITHOUT_IMAGES, Config
from onepair.runs.finished import FinishedRun, FoldModels
from onepair.runs.folder import Results, RunFolder
from onepair.runs.task import RunCache, Split, Task, choose_backbone, knows_negatives, make_method, task_of
from onepair.training.callbacks import Callback, EpochRecord
from onepair.training.checkpoint import StopRequests
from onepair.training.context import RunContext, Scores, eval_scores, finish, log_table, prepare
from onepair.training.hardware import (
    Hardware,
    first_logger,
    gathered,
    holds_norms,
    on_first,
    own_random_state,
    patiently,
    share_norms,
    without_driver_lookups,
)
from onepair.training.loop import Group, Stage, Trainer
from onepair.training.sources import ActivationSource, FeatureSource, FrozenSource, ImageSource, Source, score

_log = first_logger(__name__)
IMAGES_TO_SCORE = 64
CELLS_TO_SCORE = 2**22  # at most, where there are many classes: memory of up to 32 MB is used again and again
FEATURES_TO_SCORE = 4096
MUCH_WORK = 2e12  # products of a pass over all features and classes, which takes a minute


@own_random_state()
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
    train_from = config.model.train_from
    prefix = None if train_from is None else split_at(classifier.backbone, train_from)
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
        run = RunContext(fabric, config, folder, hardware, task, classifier, callbacks, requests, test)
        log_table(run)
        results = run_solved(run) if config.solves else run_epochs(run, method, prefix)
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


def run_epochs(run: RunContext, method: Method, prefix: FrozenPrefix | None) -> Results:
    """Train the stages that the mode asks for; a linear one may be solved for instead.

    Args:
        run: what it works with.
        method: not begun yet.
        prefix: the part of the backbone that does not learn, if fine-tuning begins within it.
    """
    run = prepare(run, _unreadable(run, prefix))
    method.begin(as_observed(run.task.observed))
    records: list[EpochRecord] = []
    for name in run.config.stages:
        if name == "linear" and run.config.linear.protocol == "solve":
            solve_head(run)
            continue
        stage = _linear_stage(run) if name == "linear" else _finetune_stage(run, prefix)
        trainer = Trainer(
            run.fabric,
            stage,
            method,
            run.task,
            run.config,
            folder=run.folder,
            callbacks=run.callbacks,
            earlier=records,
            requests=run.requests,
        )
        trainer.run()
        stage.model.load_state_dict(trainer.best)
        if name == "linear":
            run.classifier.head.load_state_dict(trainer.best)
        records += trainer.progress.records

    def score_rows(rows: Indices) -> Scores:
        return score(run.fabric, stage.model, stage.source, rows, batch_size=stage.scoring_batch).numpy()

    splits: tuple[Split, ...] = ("validation", "test") if len(run.task.test) else ("validation",)
    scores = {split: eval_scores(run, split, score_rows) for split in splits}
    progress = trainer.progress
    return finish(run, scores, validation_map=progress.best_map, best_epoch=progress.best_epoch)


def _linear_stage(run: RunContext) -> Stage:
    head = copy.deepcopy(run.classifier.head)  # a strategy may change what it trains
    return Stage(
        name="linear",
        model=head,
        classifier=head,
        source=feature_source(run),
        groups=[Group(head)],
        config=run.config.linear,
        scoring_batch=max(1, min(FEATURES_TO_SCORE, CELLS_TO_SCORE // head.out_features)),
    )


def _finetune_stage(run: RunContext, prefix: FrozenPrefix | None) -> Stage:
    config, classifier = run.config.finetune, run.classifier.to(run.fabric.device)
    share_norms(run.fabric, classifier)
    if holds_norms(run.fabric) and not config.hold_norms:
        run.log("several processes on CPUs: batch norms keep the means and variances that they have")
    return Stage(
        name="finetune",
        model=classifier if prefix is None else TrainableSuffix(classifier, prefix),
        classifier=classifier.head,
        source=_image_source(run) if prefix is None else _activation_source(run, prefix),
        groups=[Group(classifier.backbone), Group(classifier.head, config.optimiser.head_lr_multiplier)],
        config=config,
        scoring_batch=IMAGES_TO_SCORE,
        hold_norms=config.hold_norms,
    )


def _image_source(run: RunContext) -> ImageSource:
    return ImageSource(
        run.task.table,
        run.classifier.backbone.preprocessing,
        run.fabric.device,
        workers=run.hardware.workers,
        augmentation=run.config.model.augment,
    )


def _activation_source(run: RunContext, prefix: FrozenPrefix) -> Source:
    """What the first part that learns takes: computed before, or where images are augmented, each time anew."""
    if run.config.model.augment is not None:
        return FrozenSource(_image_source(run), prefix.backbone.to(run.fabric.device))
    kept = run.frozen.activations(prefix.backbone, run.task)
    return ActivationSource(kept.plain, kept.flipped, run.classifier.backbone.preprocessing.flip, run.fabric.device)


def _unreadable(run: RunContext, prefix: FrozenPrefix | None) -> list[Problem]:
    """The images that cannot be read, found before anything is learned: a method needs to know their number."""
    task, backbone = run.task, run.classifier.backbone
    if "linear" in run.config.stages:
        return unreadable_features(run)
    if task.table.pixels is not None or isinstance(backbone, IdentityBackbone):
        return []
    if prefix is not None and run.config.model.augment is None:
        return run.frozen.activations(prefix.backbone, task).unreadable
    if run.folder.begun and (known := run.folder.unreadable()) is not None:
        return known
    problems: list[Problem] = []
    with patiently(run.fabric):
        for _ in image_batches(
            task.table,
            run.frozen.share(task.images),
            backbone.preprocessing,
            batch_size=IMAGES_TO_SCORE,
            training=True,
            workers=run.hardware.workers,
            report=run.frozen.report(problems),
        ):
            run.requests.raise_if_asked(kept="nothing was begun")
    found = gathered(run.fabric, problems)
    on_first(run.fabric, lambda: run.folder.write_unreadable(found))
    return found


def run_solved(run: RunContext) -> Results:
    """Solve for the classifier; score the training images out of fold and the others with the model of all."""
    run = prepare(run, unreadable_features(run))
    found, source = solve_head(run)
    task = run.task
    index = np.full(len(task.table), -1)
    index[task.train] = np.arange(len(task.train))

    def out_of_fold(rows: Indices) -> Scores:
        return found.out_of_fold(_features_of(source, rows), index[rows])

    def by_all(rows: Indices) -> Scores:
        scores = np.empty((len(rows), len(task.table.classes)), np.float32)
        for start in range(0, len(rows), FEATURES_TO_SCORE):
            some = rows[start : start + FEATURES_TO_SCORE]
            scores[start : start + len(some)] = found.scores(_features_of(source, some))
        return scores

    scores: dict[Split, Scores] = {"train": eval_scores(run, "train", out_of_fold)}
    scores["validation"] = scores["train"] if task.out_of_fold else eval_scores(run, "validation", by_all)
    if len(task.test):
        scores["test"] = eval_scores(run, "test", by_all)
    if run.fabric.is_global_zero:
        FoldModels(found.fold_coef, found.fold_intercept, found.fold).write(run.folder.path)
    labels = task.validation_labels.take(task.eval_rows("validation"))
    validation_map = estimated_map_by_blocks(one_block(scores["validation"]), labels)
    return finish(run, scores, validation_map=validation_map, penalty=_penalty(found.C))


def unreadable_features(run: RunContext) -> list[Problem]:
    """The images that have no features, because they cannot be read."""
    backbone = run.classifier.backbone
    if run.task.table.pixels is not None or isinstance(backbone, IdentityBackbone):
        return []
    return run.frozen.features(backbone, run.task).unreadable


def feature_source(run: RunContext) -> FeatureSource:
    """The fixed features of all images, or the vectors that stand in their place."""
    backbone, table, device = run.classifier.backbone, run.task.table, run.fabric.device
    if not isinstance(backbone, IdentityBackbone):
        return FeatureSource(run.frozen.features(backbone, run.task).by_row)
    if table.vectors is not None:
        return FeatureSource(table.vectors, device)
    return FeatureSource(torch.from_numpy(backbone.vectors_of(table, np.arange(len(table)))).to(device))


def solve_head(run: RunContext) -> tuple[LinearFit, FeatureSource]:
    """Fit the classifier to the features of all training images, and put it in its place.

    The penalty is chosen by validation images where the dataset names some, else out of fold; metrics.jsonl gets a line
    for each that is tried.
    """
    config, task, head = run.config, run.task, run.classifier.head
    method, asked, penalty = METHODS[config.method.name], task.table.asked, config.linear.penalty
    source = feature_source(run)
    if len(task.train) * head.out_features * head.in_features > MUCH_WORK and config.method.name != "ridge":
        images, classes = f"{len(task.train):,} images", f"{head.out_features:,} classes"
        run.log(f"{images} of {classes} take long; --method ridge takes a minute")
    tried: list[EpochRecord] = []
    began = time.perf_counter()

    def on_trial(trial: Trial) -> None:
        nonlocal began
        run.requests.raise_if_asked(kept="nothing was saved yet")
        now = time.perf_counter()
        tried.append(
            {
                "stage": "linear",
                "trial": len(tried) + 1,
                "penalty": _penalty(trial.C),
                "validation_map": trial.estimated_map,
                "seconds": round(now - began, 3),
            }
        )
        began = now
        if run.fabric.is_global_zero:
            run.folder.start_metrics(tried)

    validation = None
    if not task.out_of_fold:
        places = task.eval_rows("validation")
        features = _features_of(source, task.validation[places])
        validation = ValidationRows(features, task.validation_labels.take(places))
    found = (fit_kernel if config.linear.head == "kernel" else fit_linear)(
        _features_of(source, task.train),
        task.observed,
        make=lambda: make_method(config),
        rounds=method.rounds,
        C="auto" if penalty == AUTO else 1 / float(penalty),
        validation=validation,
        one_unit=config.model.backbone == TFIDF,
        process=config.data.process,
        asked=None if asked is None else asked.take(task.train),
        seed=config.data.seed,
        groups=task.table.groups(task.train),
        on_trial=on_trial,
    )
    if found.kernel is not None:
        head = run.classifier.head = KernelHead(found.kernel, head.out_features)
    with torch.no_grad():
        head.weight.copy_(torch.from_numpy(found.coef))
        head.bias.copy_(torch.from_numpy(found.intercept))
    if not found.converged and method.convex:
        run.log(
            f"the solver stopped after {found.iterations} steps where scores would still change by about "
            f"{found.residual:.1g}; a stronger penalty (linear.penalty) is solved sooner"
        )
    return found, source


def _features_of(source: FeatureSource, rows: Indices) -> NDArray[np.float32]:
    """The features (n, D) of rows of the table."""
    if isinstance(source.features, torch.Tensor):
        taken = source.features[torch.from_numpy(rows).to(source.features.device)].float().cpu().numpy()
    else:
        taken = source.features.take(rows).astype(np.float32, copy=False)
    return np.ascontiguousarray(taken)


def _penalty(C: float) -> float:  # noqa: N803 (the name that users of scikit-learn know)
    return float(f"{1 / C:.4g}")
