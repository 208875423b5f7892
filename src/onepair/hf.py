"""Methods in the Trainer of Hugging Face."""

from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from onepair.errors import MissingExtraError, UserError
from onepair.loops import RowDataset, loss_of_all, require_begun, require_optimised, require_rows, training_scores
from onepair.losses import bce_loss
from onepair.methods import Method

try:
    from transformers import TrainerCallback
except ImportError:
    raise MissingExtraError(
        "onepair.hf needs transformers; install with: pip install transformers accelerate"
    ) from None

_STATE = "onepair_method.safetensors"  # in the folder of a checkpoint


class MethodCallback(TrainerCallback):
    """Lets a method learn in a `transformers.Trainer`, in one process or several by DDP.

    It names the row of every sample to the method, ends its epochs, gives it the scores of the training set if it asks
    for them, and keeps its state beside checkpoints. Methods that ask for class priors, for example OPML+, keep those
    that they start with, unless you call `method.take_priors`.

    Args:
        method: has begun with the labels of the training set, one row per sample.

    Examples:
        callback = op.hf.MethodCallback(op.create_method("opml-sp", labels=labels))
        trainer = Trainer(model, arguments, train_dataset=callback.rows(dataset), compute_loss_func=callback.loss,
                          callbacks=[callback])
    """

    def __init__(self, method: Method) -> None:
        require_begun(method)
        self.method = method

    def rows(self, dataset: Any) -> RowDataset:
        """Return the training dataset with row numbers in the place of its labels.

        Args:
            dataset: of dictionaries, as a `datasets.Dataset` has them; its own labels, if any, are not used.

        Raises:
            UserError: it has more or fewer samples than the method has rows of labels.
        """
        require_rows(self.method, dataset)
        return RowDataset(dataset, _with_row)

    def loss(self, outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        """Return the method's loss of a batch of `rows`, for `compute_loss_func`.

        Of an evaluation set, whose labels are (B, L), it is the binary cross entropy of the known ones.

        Raises:
            UserError: the Trainer left the labels out.
        """
        if labels is None:
            raise UserError(
                "the batch has no labels; use the default data collator, and for an evaluation set "
                'TrainingArguments(label_names=["labels"])'
            )
        logits = outputs["logits"] if isinstance(outputs, dict) else outputs[0]
        if labels.ndim == 1:
            loss = loss_of_all(self.method, logits, labels)
        else:
            loss = bce_loss(logits, labels, unknown="ignore")
        # The Trainer adds up the losses of accumulated batches, and of processes, by their share of all items.
        return loss if num_items_in_batch is None else loss * labels.numel() / num_items_in_batch

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        require_rows(self.method, kwargs["train_dataloader"].dataset)
        self.method.to(args.device)
        require_optimised(self.method, [kwargs["optimizer"]])
        if state.global_step:
            file = _folder(args, state) / _STATE
            if not file.exists():
                raise UserError(f"{file}: the checkpoint has no state of the method; train from the beginning")
            self.method.load_state_dict(load_file(file))

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model, scores = kwargs["model"], None
        if self.method.needs_scores:

            def compute(batch: dict[str, Any]) -> Tensor:
                inputs = {name: value.to(args.device) for name, value in batch.items() if name != "labels"}
                logits: Tensor = model(**inputs)["logits"]
                return logits

            scores = training_scores(model, kwargs["train_dataloader"], compute, device=args.device)
        self.method.end_epoch(round(state.epoch), scores)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            stored = {name: value.contiguous() for name, value in self.method.state_dict().items()}
            save_file(stored, _folder(args, state) / _STATE)


def _with_row(item: dict[str, Any], row: int) -> dict[str, Any]:
    others = {name: value for name, value in item.items() if name not in ("label", "labels", "label_ids")}
    # The Trainer keeps label_ids for every network, and collates them as labels.
    return {**others, "label_ids": torch.tensor(row)}


def _folder(args: Any, state: Any) -> Path:
    return Path(args.output_dir) / f"checkpoint-{state.global_step}"
