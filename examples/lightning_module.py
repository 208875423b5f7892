"""OPML in Lightning: the loss and the metric in a LightningModule.

pip install lightning
python examples/lightning_module.py
"""

import lightning
import torch
from method_in_your_loop import make_data
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from onepair import OPMLLoss, mean_average_precision, observe_positives


class Tagger(lightning.LightningModule):
    """A linear model that learns from labels with holes."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Linear(64, 12)
        self.loss = OPMLLoss(alpha=0.6, beta=0.4)
        self.scored: list[tuple[Tensor, Tensor]] = []

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        features, observed = batch
        loss: Tensor = self.loss(self.model(features), observed)
        self.log("loss", loss)
        return loss

    def test_step(self, batch: list[Tensor], index: int) -> None:
        features, labels = batch
        self.scored.append((self.model(features), labels))

    def on_test_epoch_end(self) -> None:
        logits, labels = (torch.cat(parts) for parts in zip(*self.scored, strict=True))
        self.log("mAP", mean_average_precision(logits, labels).value)  # of all batches at once, never a mean of means

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def main() -> float:
    lightning.seed_everything(0, verbose=False)
    (features, labels), (test_features, test_labels) = make_data(2000, seed=0), make_data(1000, seed=1)
    observed = torch.from_numpy(observe_positives(labels))
    trainer = lightning.Trainer(
        max_epochs=10, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu", devices=1
    )
    tagger = Tagger()
    trainer.fit(tagger, DataLoader(TensorDataset(features, observed), batch_size=64, shuffle=True))
    test = DataLoader(TensorDataset(test_features, torch.from_numpy(test_labels)), batch_size=64)
    return trainer.test(tagger, test, verbose=False)[0]["mAP"]


if __name__ == "__main__":
    print(f"test mAP {100 * main():.1f}")
