"""OPML in a plain torch loop: one line changes.

    python examples/torch_loop.py

Scenes of handwritten digits; each training scene tells one of the digits in it, and nothing about the others.
"""

import torch
from torch import nn

from onepair import OPMLLoss, mean_average_precision, observe_positives, read_dataset


def train(criterion: nn.Module, *, epochs: int = 8) -> float:
    """Train a small network with a loss of (logits, labels); the test mAP it reaches."""
    table = read_dataset("digits")
    assert table.pixels is not None
    images = torch.from_numpy(table.pixels).permute(0, 3, 1, 2).float() / 255
    train_rows, test_rows = table.rows("train"), table.rows("test")
    observed = torch.from_numpy(observe_positives(table.labels[train_rows]))  # 1 where it is told, -1 elsewhere

    torch.manual_seed(0)
    layers = [
        layer
        for before, after in ((3, 32), (32, 64), (64, 128))
        for layer in (nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(), nn.MaxPool2d(2))
    ]
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, len(table.classes)))
    optimiser = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(train_rows)).split(64):
            loss = criterion(model(images[train_rows[rows]]), observed[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    model.eval()
    with torch.no_grad():
        logits = model(images[test_rows])
    return mean_average_precision(logits, table.labels[test_rows]).value


if __name__ == "__main__":
    print(f"test mAP {100 * train(OPMLLoss(alpha=0.6, beta=0.4)):.1f}")
