"""The training loop and its optimisers: the same for every method, every kind of input and any number of processes."""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning_fabric import Fabric
from numpy.typing import NDArray
from pydantic import TypeAdapter
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from onepair.errors import Stopped, TrainingError
from onepair.labels import POSITIVE, Indices
from onepair.methods import Method
from onepair.metrics import ScoreBlocks, one_block
from onepair.probability.evaluation import estimated_map_by_blocks
from onepair.probability.infer import class_priors
from onepair.runs.config import Config, OptimiserConfig, StageConfig
from onepair.runs.folder import RunFolder
from onepair.runs.task import Task
from onepair.training.callbacks import Callback, EpochRecord
from onepair.training.checkpoint import Agreement, StageCheckpoint, StopRequests, Weights, stopped, unfit
from onepair.training.hardware import cpu_state, hold_norms, holds_norms
from onepair.training.sources import BatchPlan, Inputs, ScoredBlocks, Source, gather, score, shard_of
from onepair.words import counted


class Group(NamedTuple):
    """What learns alike."""

    module: nn.Module
    lr_factor: float = 1.0  # on the learning rate
    decays: bool = True  # whether weight decay pulls it towards 0

    def members(self) -> list[nn.Parameter]:
        """The parameters that learn, as the module has them now: a strategy may have put others in their place."""
        return [each for each in self.module.parameters() if each.requires_grad]


def make_optimiser(config: OptimiserConfig, groups: Iterable[Group]) -> Optimizer:
    """An optimiser that remembers each group's own learning rate as `base_lr`."""
    parameters: list[dict[str, Any]] = [
        {
            "params": members,
            "lr": config.lr * group.lr_factor,
            "base_lr": config.lr * group.lr_factor,
            "weight_decay": config.weight_decay if group.decays else 0.0,
        }
        for group in groups
        if (members := group.members())
    ]
    if config.name == "sgd":
        return SGD(parameters, momentum=config.momentum, fused=True)
    kind = Adam if config.name == "adam" else AdamW
    return kind(parameters, fused=True)


def restore(optimiser: Optimizer, state: Mapping[str, Any]) -> None:
    """Load a state whose tensors lie in memory in any order. A fused step takes theirs for that of the parameters.

    Rates and the like are the optimiser's own: the state has what was gathered on the way.
    """
    groups = optimiser.state_dict()["param_groups"]
    optimiser.load_state_dict({"state": state["state"], "param_groups": groups})
    names = {"momentum_buffer"} if "momentum" in groups[0] else {"step", "exp_avg", "exp_avg_sq"}
    for parameter, values in optimiser.state.items():
        shapes = {name: () if name == "step" else parameter.shape for name in names}
        if values and shapes != {name: getattr(value, "shape", None) for name, value in values.items()}:
            raise ValueError("the state of the optimiser is that of another one")
        for name in values.keys() - {"step"}:
            own = torch.empty_like(parameter, dtype=values[name].dtype)
            values[name] = own.copy_(values[name])


def lr_factor(config: OptimiserConfig, progress: float, epochs: int) -> float:
    """The factor on every learning rate after `progress` epochs of `epochs`: a linear warm-up, then the schedule.

    >>> lr_factor(OptimiserConfig(schedule="cosine"), 5.0, 10)
    0.5
    """
    warm_up = min(1.0, progress / config.warmup_epochs) if config.warmup_epochs else 1.0
    if config.schedule == "constant":
        return warm_up
    return warm_up * 0.5 * (1 + math.cos(math.pi * progress / epochs))


def set_lr(optimiser: Optimizer, factor: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = group["base_lr"] * factor


def averaged(model: nn.Module, decay: float) -> AveragedModel:
    """An exponential moving average of a model's weights; buffers, as those of batch norms, are averaged too."""
    rule = get_ema_multi_avg_fn(decay)  # type: ignore[no-untyped-call]
    average_of = AveragedModel(model, multi_avg_fn=rule, use_buffers=True)
    return average_of.requires_grad_(False).to(next(model.parameters(), torch.empty(0)).device)


@dataclass(frozen=True, eq=False)
class Stage:
    """One stage of training: a model, the inputs it learns from, and how."""

    name: str  # "linear" or "finetune"
    model: nn.Module
    classifier: nn.Module  # the part of the model whose weights a method may penalise
    source: Source
    groups: list[Group]
    config: StageConfig
    scoring_batch: int
    hold_norms: bool = False


@dataclass
class Progress:
    """What happened so far: the loop's only state besides that of model, optimiser and method."""

    epoch: int = 0  # the last one that is finished
    batches: int = 0  # of the next one that are done
    losses: float = 0.0  # their sum
    seconds: float = 0.0  # that they took
    best_epoch: int = 0
    best_map: float = -math.inf
    records: list[EpochRecord] = field(default_factory=list)


class Trainer:
    """Trains one stage and keeps its best weights by validation mAP.

    All randomness comes from (seed, epoch, batch), so a run that was killed and goes on ends in the same weights, bit
    for bit on a CPU, as one that was not.
    """

    def __init__(
        self,
        fabric: Fabric,
        stage: Stage,
        method: Method,
        task: Task,
        config: Config,
        *,
        folder: RunFolder,
        callbacks: Sequence[Callback],
        earlier: list[EpochRecord],
        requests: StopRequests,
    ) -> None:
        self.fabric, self.stage, self.method = fabric, stage, method.to(fabric.device)
        self.task, self.config, self.folder, self.callbacks = task, config, folder, callbacks
        self.earlier = earlier  # the epochs of stages before this one
        groups = [*stage.groups, Group(method, method.lr_multiplier, decays=False)]
        # `model` is what trains, wrapped for its device and processes; `stage.model` is the plain module inside.
        self.model: nn.Module = fabric.setup_module(stage.model)
        self.optimiser: Any = fabric.setup_optimizers(make_optimiser(stage.config.optimiser, groups))
        ema = stage.config.optimiser.ema
        self.average = None if ema is None else averaged(stage.model, ema)
        self.agreement = Agreement(fabric, requests)
        self.progress = Progress()
        self.best: Weights = {}
        self.saved = StageCheckpoint(folder.path, stage.name)
        # The method counts training rows from 0; in the table, other rows lie between them.
        self.position = torch.full((len(task.table),), -1, device=fabric.device)
        train = torch.from_numpy(task.train).to(fabric.device)
        self.position[train] = torch.arange(len(task.train), device=fabric.device)

    @property
    def eval_model(self) -> nn.Module:
        """The model that is evaluated: the averaged one if there is one."""
        return self.stage.model if self.average is None else self.average.module

    def run(self) -> None:
        """Train to the last epoch, from the last checkpoint if there is one."""
        for callback in self.callbacks:
            callback.on_stage_start(self.stage.name)
        if self.saved.last.exists():
            self._resume()
        if self.fabric.is_global_zero:
            self.folder.start_metrics([*self.earlier, *self.progress.records])
        try:
            while self.progress.epoch < self.stage.config.epochs:
                self._run_epoch(self.progress.epoch + 1)
                if self._time_to_save(surely=True) or self.progress.epoch == self.stage.config.epochs:
                    self._save()
        except Stopped:
            self._save()
            raise
        self.fabric.barrier()
        for callback in self.callbacks:
            callback.on_stage_end(self.stage.name)

    def _run_epoch(self, epoch: int) -> None:
        loss = self.train_epoch(epoch)
        trained = time.perf_counter()
        # A run may stop between the batches that are scored: nothing changes before all are.
        scores = self._training_scores(epoch) if self.method.needs_scores else None
        in_all = len(self.earlier) + epoch  # to a method, all stages are one training
        wants_priors = self.method.needs_priors and in_all.bit_count() == 1  # 1, 2, 4, 8, …: they settle, and take time
        validation_map, priors = self._validate(epoch, priors=wants_priors)
        if priors is not None:
            self.method.take_priors(priors)
        self.method.end_epoch(in_all, scores)
        progress = self.progress
        if validation_map >= progress.best_map:  # of equals the later, which has learned more
            progress.best_map, progress.best_epoch = validation_map, epoch
            self.best = {name: tensor.clone() for name, tensor in cpu_state(self.eval_model).items()}
        record = {
            "stage": self.stage.name,
            "epoch": epoch,
            "loss": loss,
            "validation_map": validation_map,
            "best_epoch": progress.best_epoch,
            "images_per_second": round(len(self.task.train) / progress.seconds, 1),
            "seconds": round(progress.seconds + time.perf_counter() - trained, 3),
        }
        progress.records.append(record)
        progress.epoch, progress.batches, progress.losses, progress.seconds = epoch, 0, 0.0, 0.0
        if self.fabric.is_global_zero:
            self.folder.add_metrics(record)
        for callback in self.callbacks:
            callback.on_epoch_end(record)

    def _training_scores(self, epoch: int) -> Tensor | ScoreBlocks:
        task = self.task
        if task.observed.is_large:
            return self._blocks(task.train, epoch)
        return self._score(task.train, epoch).to(self.fabric.device)

    def _validate(self, epoch: int, *, priors: bool) -> tuple[float, Tensor | None]:
        """The mAP of the validation rows, and if asked for the class priors by them."""
        rows, labels = self.task.validation, self.task.validation_labels
        if labels.is_large:
            found = estimated_map_by_blocks(self._blocks(rows, epoch), labels)
            rows = rows[self.task.eval_rows("validation")]
            return found, self._priors(self._score(rows, epoch).numpy()) if priors else None
        scores = self._score(rows, epoch).numpy()
        return estimated_map_by_blocks(one_block(scores), labels), self._priors(scores) if priors else None

    def _priors(self, scores: NDArray[np.float32]) -> Tensor | None:
        """By the scores of the validation rows, or where they are too many of the sample that others are judged by.

        None where the sample has no positive, and so nothing to tell.
        """
        task, places = self.task, self.task.eval_rows("validation")
        labels, asked = task.validation_labels.take(places), task.asked_validation
        if not labels.has(POSITIVE):
            return None
        asked = None if asked is None else asked[places]
        some = scores if len(scores) == len(places) else scores[places]
        priors = class_priors(some, labels, process=self.config.data.process, asked=asked).value
        if len(places) < len(task.validation):  # known positives are known of all rows
            shown = [each.count(POSITIVE) / len(each) for each in (labels, task.validation_labels)]
            priors = priors - shown[0] + shown[1]
        return torch.from_numpy(priors).float().to(self.fabric.device)

    def train_epoch(self, epoch: int) -> float:
        """One pass over the training rows, or what is left of it; the mean loss of all its batches."""
        stage, progress, rows = self.stage, self.progress, len(self.task.train)
        config, optimiser = stage.config, stage.config.optimiser
        moving_lr = optimiser.schedule != "constant" or optimiser.warmup_epochs > 0
        self.model.train()
        if stage.hold_norms or holds_norms(self.fabric):
            hold_norms(self.model)
        self.method.train()
        last = time.perf_counter()
        for part in self._training_batches(epoch):
            done = progress.batches * config.batch_size
            if moving_lr:
                set_lr(self.optimiser, lr_factor(optimiser, epoch - 1 + done / rows, config.epochs))
            self._draw_from(epoch, progress.batches)
            if len(part.rows) == 1:  # of which a batch norm knows no variance
                hold_norms(self.model)
            loss, proof = self._loss(part)
            self.optimiser.zero_grad()
            self.fabric.backward(loss)
            self.optimiser.step()
            if self.average is not None:
                self.average.update_parameters(stage.model)
            value = proof.item()  # the one moment in a step at which a GPU is waited for
            progress.batches += 1
            if not math.isfinite(value):
                raise self._diverged(f"the loss of batch {progress.batches} in epoch {epoch} is {value}")
            progress.losses += value
            now = time.perf_counter()
            progress.seconds, last = progress.seconds + now - last, now
            mean = progress.losses / progress.batches
            for callback in self.callbacks:
                callback.on_batch_end(
                    stage=stage.name,
                    epoch=epoch,
                    epochs=config.epochs,
                    done=done + len(part.rows),
                    rows=rows,
                    loss=mean,
                )
            if self._time_to_save():
                self._save()
        return progress.losses / progress.batches

    def _training_batches(self, epoch: int) -> Iterator[Inputs]:
        plan = BatchPlan(
            self.task.train,
            self.stage.config.batch_size,
            shard_of(self.fabric),
            training=True,
            seed=self.config.seed,
            epoch=epoch,
            start=self.progress.batches,
        )
        return self.stage.source.batches(plan)

    def _draw_from(self, epoch: int, batch: int) -> None:
        """Let dropout and the like depend on the batch, so that a run can go on from any of them."""
        number = self.config.seed
        for part in (epoch, batch, self.fabric.global_rank):
            number = (number * 1_000_003 + part) % 2**32
        torch.default_generator.manual_seed(number)
        if self.fabric.device.type == "cuda":
            torch.cuda.manual_seed(number)

    def _loss(self, part: Inputs) -> tuple[Tensor, Tensor]:
        """The loss of the whole batch that `part` is this process's part of; and its value, if all is well.

        What is not finite shows in that value: on a GPU, any other look at a number would wait for it.
        """
        own = self.model(part.inputs)
        logits = gather(self.fabric, own, len(part.rows))
        total = logits.detach().sum(dtype=torch.float32)
        if total.device.type == "cpu" and not math.isfinite(total):  # before a loss refuses them, less helpfully
            return logits.sum(), total
        loss: Tensor = self.method(logits, self.position[part.rows])
        penalty = self.method.penalty(self.stage.classifier)
        loss = loss if penalty is None else loss + penalty
        return loss, loss.detach() + 0 * total

    def _score(self, rows: Indices, epoch: int) -> Tensor:
        scores = score(
            self.fabric,
            self.eval_model,
            self.stage.source,
            rows,
            batch_size=self.stage.scoring_batch,
            after_batch=self._time_to_save,  # which is after the epoch, but it may be time to stop
        )
        if not scores.isfinite().all():
            raise self._diverged(f"the scores after epoch {epoch} are not finite")
        return scores

    def _blocks(self, rows: Indices, epoch: int) -> ScoreBlocks:
        """The same where they are too many to be held: every pass computes them anew."""

        def finite(block: NDArray[np.float32]) -> None:
            if not np.isfinite(block.sum()) and not np.isfinite(block).all():
                raise self._diverged(f"the scores after epoch {epoch} are not finite")

        return ScoredBlocks(
            self.fabric,
            self.eval_model,
            self.stage.source,
            rows,
            self.stage.scoring_batch,
            after_batch=self._time_to_save,
            check=finite,
        )

    def _diverged(self, what: str) -> TrainingError:
        kept = f"{self.saved.last} keeps the last good state; " if self.saved.last.exists() else ""
        return TrainingError(f"{what}; {kept}try a smaller {self.stage.name}.optimiser.lr, in another folder")

    def _time_to_save(self, *, surely: bool = False) -> bool:
        """Whether all processes should save now. Where they are to stop, it raises."""
        received, due = self.agreement.look(surely=surely)
        if received:
            place = f"{self.stage.name} epoch {self.progress.epoch + 1}, {counted(self.progress.batches, 'batch')} done"
            kept = f"saved in {self.folder.path} ({place})"
            raise stopped(received, kept=kept, shown=self.fabric.is_global_zero)
        return due

    def _save(self) -> None:
        weights = cpu_state(self.stage.model)
        if not all(tensor.isfinite().all() for tensor in weights.values()):  # the last step may have made them so
            place = f"batch {self.progress.batches} of epoch {self.progress.epoch + 1}"
            raise self._diverged(f"the weights after {place} are not finite")
        state = {
            "progress": vars(self.progress),
            "model": weights,
            "average": {} if self.average is None else self.average.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "method": self.method.state_dict(),
        }
        if self.fabric.is_global_zero:
            self.saved.save(state, best=self.best, best_epoch=self.progress.best_epoch)
        self.agreement.saved()

    def _resume(self) -> None:
        state, self.best = self.saved.load()
        try:
            self.progress = TypeAdapter(Progress).validate_python(state["progress"])
            self.stage.model.load_state_dict(state["model"])
            restore(self.optimiser, state["optimiser"])
            self.fabric.strategy.precision.load_state_dict(state["precision"])
            state["method"].pop("observed", None)  # checkpoints had it once
            self.method.load_state_dict(state["method"])
            if self.average is not None:
                self.average.load_state_dict(state["average"])
            _check_alike(self.best, cpu_state(self.eval_model) if self.progress.best_epoch else {})
        # Whatever torch finds wrong.
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise unfit(self.saved.last, error) from None


def _check_alike(weights: Weights, own: Weights) -> None:
    if {name: tensor.shape for name, tensor in weights.items()} != {name: tensor.shape for name, tensor in own.items()}:
        raise ValueError("the best weights are those of another network")
