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
from onepair.probability.selection_score import estimated_map
from onepair.runs.checkpoint import load_state, save_state
from onepair.runs.config import Config
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

    def batch(self, *, phase: str, epoch: int, epochs: int, done: int, rows: int, loss: float) -> None: ...
    def epoch(self, record: EpochRecord) -> None: ...


@dataclass(frozen=True, eq=False)
class Phase:
    """One stretch of training: a model, the inputs it learns from, and for how long."""

    name: str  # "linear" or "finetune"
    model: nn.Module
    classifier: nn.Module  # the part of the model whose weights a method may penalise
    source: Source
    groups: list[Group]
    epochs: int
    lr: float
    scoring_batch: int


@dataclass
class Progress:
    """What happened so far: the loop's only state besides that of model, optimiser and method."""

    epoch: int = 0
    best_epoch: int = 0
    best_map: float = -math.inf
    records: list[EpochRecord] = field(default_factory=list)


class Trainer:
    """Trains one phase and keeps its best weights by validation mAP.

    All randomness comes from (seed, epoch), so a run that was killed and goes on ends in the same weights, bit for bit
    on a CPU, as one that was not.
    """

    def __init__(
        self,
        fabric: Fabric,
        phase: Phase,
        method: Method,
        task: Task,
        config: Config,
        *,
        folder: RunFolder,
        watch: Watcher,
        earlier: list[EpochRecord],
    ) -> None:
        self.fabric, self.phase, self.method, self.task, self.config = (
            fabric,
            phase,
            method.to(fabric.device),
            task,
            config,
        )
        self.folder, self.watch, self.earlier = folder, watch, earlier  # earlier: the epochs of phases before this one
        groups = [*phase.groups, (method, method.lr_multiplier)]
        # `model` is what trains, wrapped for its device and processes; `phase.model` is the plain module inside.
        self.model: nn.Module = fabric.setup_module(phase.model)
        self.optimiser: Any = fabric.setup_optimizers(make_optimiser(config.optimiser, groups, lr=phase.lr))
        self.average = None if config.optimiser.ema is None else averaged(phase.model, config.optimiser.ema)
        self.progress = Progress()
        self.best: dict[str, Tensor] = {}
        self.last_file, self.best_file = (folder.path / f"{phase.name}-{kind}.safetensors" for kind in ("last", "best"))
        # The method counts training rows from 0; in the table, other rows lie between them.
        self.position = torch.full((len(task.table),), -1, device=fabric.device)
        self.position[torch.from_numpy(task.train)] = torch.arange(len(task.train), device=fabric.device)

    @property
    def judged(self) -> nn.Module:
        """The model that is evaluated: the averaged one if there is one."""
        return self.phase.model if self.average is None else self.average.module

    def run(self) -> None:
        """Train to the last epoch, from the last checkpoint if there is one."""
        if self.last_file.exists():
            self._resume()
        if self.fabric.is_global_zero:
            self.folder.start_metrics([*self.earlier, *self.progress.records])
        saved = time.monotonic()
        while self.progress.epoch < self.phase.epochs:
            self._run_epoch(self.progress.epoch + 1)
            due = self.progress.epoch == self.phase.epochs or time.monotonic() - saved > SECONDS_BETWEEN_CHECKPOINTS
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
        self.method.end_epoch(len(self.earlier) + epoch, scores)  # to a method, all phases are one training
        scores = self._score(self.task.validation, epoch)
        validation_map = estimated_map(scores, self.task.validation_labels)
        progress = self.progress
        progress.epoch = epoch
        if validation_map > progress.best_map:
            progress.best_map, progress.best_epoch = validation_map, epoch
            self.best = {name: tensor.clone() for name, tensor in cpu_state(self.judged).items()}
        record = {
            "phase": self.phase.name,
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
        config, phase, rows = self.config, self.phase, len(self.task.train)
        torch.manual_seed(config.seed * 1_000_003 + epoch)  # for dropout and the like
        moving_lr = config.optimiser.schedule != "constant" or config.optimiser.warmup_epochs > 0
        self.model.train()
        self.method.train()
        done, total, number = 0, 0.0, 0
        for number, part in enumerate(self._training_batches(epoch), start=1):
            if moving_lr:
                set_lr(self.optimiser, lr_factor(config.optimiser, epoch - 1 + done / rows, phase.epochs))
            loss, seen = self._loss(part)
            value = loss.item()
            if not math.isfinite(value):
                raise self._diverged(f"the loss of batch {number} in epoch {epoch} is {value}")
            self.optimiser.zero_grad()
            self.fabric.backward(loss)
            self.optimiser.step()
            if self.average is not None:
                self.average.update_parameters(phase.model)
            done += seen
            total += value
            self.watch.batch(
                phase=phase.name, epoch=epoch, epochs=phase.epochs, done=done, rows=rows, loss=total / number
            )
        return total / number

    def _training_batches(self, epoch: int) -> Any:
        return self.phase.source.batches(
            self.task.train,
            batch_size=self.config.batch_size,
            shard=shard_of(self.fabric),
            training=True,
            seed=self.config.seed,
            epoch=epoch,
        )

    def _loss(self, part: Inputs) -> tuple[Tensor, int]:
        """The loss of the whole batch that `part` is this process's part of, and the batch's size."""
        logits, rows = gather(self.fabric, self.model(part.inputs), part.rows, batch_size=self.config.batch_size)
        if not math.isfinite(logits.detach().sum(dtype=torch.float32)):  # before a loss refuses them, less helpfully
            return logits.sum(), len(rows)
        loss: Tensor = self.method(logits, self.position[rows])
        penalty = self.method.penalty(self.phase.classifier)
        return loss if penalty is None else loss + whole(penalty), len(rows)

    def _score(self, rows: Indices, epoch: int) -> Tensor:
        scores = score(self.fabric, self.judged, self.phase.source, rows, batch_size=self.phase.scoring_batch)
        if not scores.isfinite().all():
            raise self._diverged(f"the scores after epoch {epoch} are not finite")
        return scores

    def _diverged(self, what: str) -> TrainingError:
        kept = f"{self.last_file} keeps the last good state; " if self.last_file.exists() else ""
        return TrainingError(f"{what}; {kept}try a smaller optimiser.lr, in another folder")

    def _save(self) -> None:
        state = {
            "progress": vars(self.progress),
            "model": cpu_state(self.phase.model),
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
        load_whole(self.phase.model, state["model"])
        restore(self.optimiser, state["optimiser"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        self.method.load_state_dict(state["method"])
        if self.average is not None:
            self.average.load_state_dict(state["average"])
