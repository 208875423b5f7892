"""OPML-SP in a loop of your own: a method is a loss plus what happens to its targets between epochs.

    python examples/method_in_your_loop.py

Features of any kind will do; here they are made up, with three labels a sample of which one is observed.
"""

import numpy as np
import torch
from torch import nn

from onepair import mean_average_precision, observe_positives
from onepair.methods import Method, create_method


def make_data(samples: int, *, seed: int) -> tuple[torch.Tensor, np.ndarray]:
    """Features of 64 numbers, and 12 labels that depend on them."""
    directions = np.random.default_rng(0).normal(size=(64, 12))
    features = np.random.default_rng([1, seed]).normal(size=(samples, 64))
    scores = features @ directions
    labels = (scores >= np.sort(scores, axis=1)[:, -3:-2]).astype(np.int8)
    return torch.from_numpy(features).float(), labels


def train(method: Method, *, epochs: int = 20) -> float:
    """Train a linear model with a method; the test mAP it reaches."""
    features, labels = make_data(2000, seed=0)
    torch.manual_seed(0)
    model = nn.Linear(64, 12)
    method.begin(torch.from_numpy(observe_positives(labels)))  # all the labels that the method will ever see
    optimiser = torch.optim.Adam([*model.parameters(), *method.parameters()], lr=1e-2)
    for epoch in range(1, epochs + 1):
        for rows in torch.randperm(len(features)).split(64):
            loss = method(model(features[rows]), rows)  # it needs to know which samples these are
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        with torch.no_grad():
            method.end_epoch(epoch, model(features) if method.needs_scores else None)
    test_features, test_labels = make_data(1000, seed=1)
    with torch.no_grad():
        return mean_average_precision(model(test_features), test_labels).value


if __name__ == "__main__":
    for name in ("bce", "opml", "opml-sp"):
        print(f"{name:8} test mAP {100 * train(create_method(name)):.1f}")
