"""A run, from its configuration to its results."""

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace

import torch

from onepair.data.vectors.align import TFIDF
from onepair.errors import ConfigError
from onepair.inference.heat_maps import averages_places
from onepair.methods import METHODS, Method
from onepair.models import Backbone, Classifier, IdentityBackbone, TextBackbone, create_backbone, parse_weights
from onepair.models.frozen_prefix import split_at
from onepair.runs.config import WITHOUT_IMAGES, Config
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import Results, RunFolder
from onepair.runs.task import RunCache, Task, choose_backbone, knows_negatives, make_method, task_of
from onepair.training.callbacks import Callback
from onepair.training.checkpoint import StopRequests
from onepair.training.context import RunContext, log_table
from onepair.training.epochs import run_epochs
from onepair.training.hardware import Hardware, first_logger, on_first, without_driver_lookups
from onepair.training.solved import run_solved

_log = first_logger(__name__)


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
