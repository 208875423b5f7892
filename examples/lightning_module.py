"""OPML-SP in Lightning: a method that learns along, and a metric in the log.

pip install lightning
python examples/lightning_module.py
"""

import lightning
import torch
from method_in_your_loop import make_data
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import onepair as op


class Tagger(lightning.LightningModule):
    """A linear model that learns from labels with holes."""

    def __init__(self, method: "op.lightning.MethodCallback") -> None:
        super().__init__()
        self.model = nn.Linear(64, 12)
        self.method = method
        self.mean_ap = op.MeanAveragePrecision()

    def training_step(self, batch: list[Tensor], index: int) -> Tensor:
        features, rows = batch
        return self.method.loss(self.model(features), rows)

    def predict_step(self, batch: list[Tensor], index: int) -> Tensor:  # by which the method is given its scores
        return self.model(batch[0])

    def test_step(self, batch: list[Tensor], index: int) -> None:
        features, labels = batch
        self.mean_ap.update(self.model(features), labels)
        self.log("mAP", self.mean_ap)  # of all batches at once, never a mean of means

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.model.parameters(), lr=1e-2)


def main() -> float:
    lightning.seed_everything(0, verbose=False)
    (features, labels), (test_features, test_labels) = make_data(2000, seed=0), make_data(1000, seed=1)
    callback = op.lightning.MethodCallback(op.create_method("opml-sp", labels=op.observe_positives(labels)))
    trainer = lightning.Trainer(
        max_epochs=10, logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu",
        devices=1, callbacks=[callback],
    )  # fmt: skip
    tagger = Tagger(callback)
    trainer.fit(tagger, DataLoader(callback.rows(TensorDataset(features)), batch_size=64, shuffle=True))
    test = DataLoader(TensorDataset(test_features, torch.from_numpy(test_labels)), batch_size=64)
    return trainer.test(tagger, test, verbose=False)[0]["mAP"]


if __name__ == "__main__":
    print(f"test mAP {100 * main():.1f}")
