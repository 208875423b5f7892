"""Methods in Lightning."""

from typing import Any

from torch import Tensor

from onepair.errors import MissingExtraError, UserError
from onepair.loops import RowDataset, loss_of_all, require_begun, require_optimised, require_rows, training_scores
from onepair.methods import Method

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    raise MissingExtraError("onepair.lightning needs Lightning; install with: pip install lightning") from None


class MethodCallback(Callback):
    """Lets a method learn in a Lightning `Trainer`, in one process or several by DDP.

    It ends the method's epochs, gives it the scores of the training set if it asks for them, by the module's
    `predict_step`, and keeps its state in checkpoints. Methods that ask for class priors, for example OPML+, keep those
    that they start with, unless you call `method.take_priors`.

    Args:
        method: has begun with the labels of the training set, one row per sample.

    Examples:
        callback = op.lightning.MethodCallback(op.create_method("opml-sp", labels=labels))
        loader = DataLoader(callback.rows(dataset), shuffle=True)   # each item with its row at its end
        loss = callback.loss(logits, rows)                          # in training_step
        Trainer(callbacks=[callback]).fit(module, loader)
    """

    def __init__(self, method: Method) -> None:
        require_begun(method)
        self.method = method

    def rows(self, dataset: Any) -> RowDataset:
        """Return the training dataset with the row at the end of every item, or under "rows" of a dictionary.

        Raises:
            UserError: it has more or fewer samples than the method has rows of labels.
        """
        require_rows(self.method, dataset)
        return RowDataset(dataset, _with_row)

    def loss(self, logits: Tensor, rows: Tensor) -> Tensor:
        """Return the method's loss of a batch: logits (B, L) of the rows (B,)."""
        return loss_of_all(self.method, logits, rows)

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.method.to(pl_module.device)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        require_optimised(self.method, trainer.optimizers)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        scores = None
        if self.method.needs_scores:

            def compute(batch: Any) -> Tensor:
                moved = pl_module.transfer_batch_to_device(batch, pl_module.device, 0)
                logits = pl_module.predict_step(moved, 0)
                if not isinstance(logits, Tensor):
                    raise UserError("the module's predict_step must return the logits (B, L) of a training batch")
                return logits

            loader: Any = trainer.train_dataloader
            require_rows(self.method, loader.dataset)
            scores = training_scores(pl_module, loader, compute, device=pl_module.device)
        self.method.end_epoch(trainer.current_epoch + 1, scores)

    def state_dict(self) -> dict[str, Any]:
        return {"method": self.method.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.method.load_state_dict(state_dict["method"])


def _with_row(item: Any, row: int) -> Any:
    if isinstance(item, dict):
        return {**item, "rows": row}
    return (*item, row) if isinstance(item, tuple | list) else (item, row)
