"""The run of epochs: stages of training, each from the best weights of the one before."""

import copy

from onepair.data.images.batches import image_batches
from onepair.data.label_table import Problem
from onepair.labels import Indices
from onepair.methods import Method
from onepair.methods.method import as_observed
from onepair.models import IdentityBackbone
from onepair.models.frozen_prefix import FrozenPrefix, TrainableSuffix
from onepair.runs.folder import Results
from onepair.runs.task import Split
from onepair.training.callbacks import EpochRecord
from onepair.training.context import RunContext, Scores, eval_scores, finish, prepare
from onepair.training.hardware import gathered, holds_norms, on_first, patiently, share_norms
from onepair.training.loop import Group, Stage, Trainer
from onepair.training.solved import FEATURES_TO_SCORE, feature_source, solve_head, unreadable_features
from onepair.training.sources import ActivationSource, FrozenSource, ImageSource, Source, score

IMAGES_TO_SCORE = 64
CELLS_TO_SCORE = 2**22  # at most, where there are many classes: memory of up to 32 MB is used again and again


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
