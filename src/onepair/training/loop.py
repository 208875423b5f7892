"""The training loop: the same for every method, every kind of input and any number of processes."""

import math
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from lightning_fabric import Fabric
from torch import Tensor, nn

from onepair.errors import UserError
from onepair.inference.inputs import Inputs, Source
from onepair.inference.scoring import gather, score, shard_of
from onepair.labels import Indices
from onepair.methods import Method
from onepair.metrics import mean_average_precision
from onepair.runs.checkpoint import load_state, save_state
from onepair.runs.config import Config, StageConfig
from onepair.runs.folder import RunFolder
from onepair.runs.task import Task
from onepair.training.optimisation import Group, averaged, lr_factor, make_optimiser, restore, set_lr
from onepair.training.processes import share_buffers
from onepair.training.sharding import cpu_state, load_whole, whole

SECONDS_BETWEEN_CHECKPOINTS = 10.0

EpochRecord = dict[str, Any]


class TrainingError(UserError, RuntimeError):
    """Training cannot go on."""


class Watcher(Protocol):
    """Whoever wants to see how far training is."""

    def batch(self, *, stage: str, epoch: int, epochs: int, done: int, rows: int, loss: float) -> None: ...
    def epoch(self, record: EpochRecord) -> None: ...


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


@dataclass
class Progress:
    """What happened so far: the loop's only state besides that of model, optimiser and method."""

    epoch: int = 0
    best_epoch: int = 0
    best_map: float = -math.inf
    records: list[EpochRecord] = field(default_factory=list)


class Trainer:
    """Trains one stage and keeps its best weights by validation mAP.

    All randomness comes from (seed, epoch), so a run that was killed and goes on ends in the same weights, bit for bit
    on a CPU, as one that was not.
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
        watch: Watcher,
        earlier: list[EpochRecord],
    ) -> None:
        self.fabric, self.stage, self.method, self.task, self.config = (
            fabric,
            stage,
            method.to(fabric.device),
            task,
            config,
        )
        self.folder, self.watch, self.earlier = folder, watch, earlier  # earlier: the epochs of stages before this one
        groups = [*stage.groups, (method, method.lr_multiplier)]
        # `model` is what trains, wrapped for its device and processes; `stage.model` is the plain module inside.
        self.model: nn.Module = fabric.setup_module(stage.model)
        self.optimiser: Any = fabric.setup_optimizers(make_optimiser(stage.config.optimiser, groups))
        ema = stage.config.optimiser.ema
        self.average = None if ema is None else averaged(stage.model, ema)
        self.progress = Progress()
        self.best: dict[str, Tensor] = {}
        self.last_file, self.best_file = (folder.path / f"{stage.name}-{kind}.safetensors" for kind in ("last", "best"))
        # The method counts training rows from 0; in the table, other rows lie between them.
        self.position = torch.full((len(task.table),), -1, device=fabric.device)
        self.position[torch.from_numpy(task.train)] = torch.arange(len(task.train), device=fabric.device)

    @property
    def judged(self) -> nn.Module:
        """The model that is evaluated: the averaged one if there is one."""
        return self.stage.model if self.average is None else self.average.module

    def run(self) -> None:
        """Train to the last epoch, from the last checkpoint if there is one."""
        if self.last_file.exists():
            self._resume()
        if self.fabric.is_global_zero:
            self.folder.start_metrics([*self.earlier, *self.progress.records])
        saved = time.monotonic()
        while self.progress.epoch < self.stage.config.epochs:
            self._run_epoch(self.progress.epoch + 1)
            due = (
                self.progress.epoch == self.stage.config.epochs
                or time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS
            )
            if self.fabric.broadcast(due):  # clocks differ, and all processes have to save together
                self._save()
                saved = time.monotonic()
        self.fabric.barrier()

    def _run_epoch(self, epoch: int) -> None:
        start = time.perf_counter()
        loss = self.train_epoch(epoch)
        seconds = time.perf_counter() - start
        share_buffers(self.fabric, self.judged)
        scores = self._score(self.task.train, epoch).to(self.fabric.device) if self.method.needs_scores else None
        self.method.end_epoch(len(self.earlier) + epoch, scores)  # to a method, all stages are one training
        scores = self._score(self.task.validation, epoch)
        validation_map = mean_average_precision(scores, self.task.validation_labels).value
        progress = self.progress
        progress.epoch = epoch
        if validation_map > progress.best_map:
            progress.best_map, progress.best_epoch = validation_map, epoch
            self.best = {name: tensor.clone() for name, tensor in cpu_state(self.judged).items()}
        record = {
            "stage": self.stage.name,
            "epoch": epoch,
            "loss": loss,
            "validation_map": validation_map,
            "best_epoch": progress.best_epoch,
            "images_per_second": round(len(self.task.train) / seconds, 1),
            "seconds": round(time.perf_counter() - start, 3),
        }
        progress.records.append(record)
        if self.fabric.is_global_zero:
            self.folder.add_metrics(record)
        self.watch.epoch(record)

    def train_epoch(self, epoch: int) -> float:
        """One pass over the training rows; the mean loss of its batches."""
        stage, rows = self.stage, len(self.task.train)
        optimiser, epochs = stage.config.optimiser, stage.config.epochs
        torch.manual_seed(self.config.seed * 1_000_003 + epoch)  # for dropout and the like
        moving_lr = optimiser.schedule != "constant" or optimiser.warmup_epochs > 0
        self.model.train()
        self.method.train()
        done, total, number = 0, 0.0, 0
        for number, part in enumerate(self._training_batches(epoch), start=1):
            if moving_lr:
                set_lr(self.optimiser, lr_factor(optimiser, epoch - 1 + done / rows, epochs))
            loss, seen = self._loss(part)
            value = loss.item()
            if not math.isfinite(value):
                raise self._diverged(f"the loss of batch {number} in epoch {epoch} is {value}")
            self.optimiser.zero_grad()
            self.fabric.backward(loss)
            self.optimiser.step()
            if self.average is not None:
                self.average.update_parameters(stage.model)
            done += seen
            total += value
            self.watch.batch(stage=stage.name, epoch=epoch, epochs=epochs, done=done, rows=rows, loss=total / number)
        return total / number

    def _training_batches(self, epoch: int) -> Any:
        return self.stage.source.batches(
            self.task.train,
            batch_size=self.stage.config.batch_size,
            shard=shard_of(self.fabric),
            training=True,
            seed=self.config.seed,
            epoch=epoch,
        )

    def _loss(self, part: Inputs) -> tuple[Tensor, int]:
        """The loss of the whole batch that `part` is this process's part of, and the batch's size."""
        logits, rows = gather(self.fabric, self.model(part.inputs), part.rows, batch_size=self.stage.config.batch_size)
        if not math.isfinite(logits.detach().sum(dtype=torch.float32)):  # before a loss refuses them, less helpfully
            return logits.sum(), len(rows)
        loss: Tensor = self.method(logits, self.position[rows])
        penalty = self.method.penalty(self.stage.classifier)
        return loss if penalty is None else loss + whole(penalty), len(rows)

    def _score(self, rows: Indices, epoch: int) -> Tensor:
        scores = score(self.fabric, self.judged, self.stage.source, rows, batch_size=self.stage.scoring_batch)
        if not scores.isfinite().all():
            raise self._diverged(f"the scores after epoch {epoch} are not finite")
        return scores

    def _diverged(self, what: str) -> TrainingError:
        kept = f"{self.last_file} keeps the last good state; " if self.last_file.exists() else ""
        return TrainingError(f"{what}; {kept}try a smaller {self.stage.name}.optimiser.lr, in another folder")

    def _save(self) -> None:
        state = {
            "progress": vars(self.progress),
            "model": cpu_state(self.stage.model),
            "average": {} if self.average is None else self.average.state_dict(),
            "optimiser": whole(self.optimiser.state_dict()),
            "precision": self.fabric.strategy.precision.state_dict(),
            "method": self.method.state_dict(),
        }
        if self.fabric.is_global_zero:
            save_state(self.best_file, self.best)  # before the checkpoint that counts on it
            save_state(self.last_file, state)

    def _resume(self) -> None:
        state = load_state(self.last_file)
        self.progress = Progress(**state["progress"])
        self.best = load_state(self.best_file)
        load_whole(self.stage.model, state["model"])
        restore(self.optimiser, state["optimiser"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        self.method.load_state_dict(state["method"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
