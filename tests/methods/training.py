"""A tiny problem, labels of every kind for it, and two loops to train on it: with a method, with a slow reference."""

import numpy as np
import torch
from torch import nn

from onepair.methods import METHODS, create_method

ROWS, CLASSES, WIDTH, EPOCHS, RATE = 11, 5, 3, 4, 0.4

OBSERVED = {
    "single positives": [[1 if label == row % 4 else -1 for label in range(CLASSES)] for row in range(ROWS)],
    "mixed": [
        [1, -1, -1, 0, -1],
        [-1, -1, -1, -1, -1],
        [0, 1, 1, -1, -1],
        [-1, 0, -1, -1, -1],
        [0, 0, 0, 0, 0],
        [1, -1, 1, -1, -1],
        [-1, -1, -1, 1, 0],
        [-1, 1, 0, -1, -1],
        [1, 1, 1, 1, -1],
        [-1, -1, 0, 0, -1],
        [-1, 1, -1, -1, 0],
    ],
    "full": [[int((row * 7 + label * 3) % 5 < 2) for label in range(CLASSES)] for row in range(ROWS)],
    "all unknown": [[-1] * CLASSES for _ in range(ROWS)],
}

# Options with which every part of a method acts within a few epochs of a few rows.
LIVELY = {
    "ll-r": {"delta": 0.1},
    "ll-r-boostlu": {"delta": 0.1},
    "ll-ct": {"delta": 0.1},
    "ll-cp": {"delta": 0.06},
    "gr": {"epochs": EPOCHS, "last_slope": 10.0, "last_shift": -8.0},
    "splc": {"threshold": 0.4},
    "mime": {"warmup": 1, "threshold": 0.6},
    "p-asl": {"left_out": 0.5},
    "bce-pw": {"propensity": 0.7},
    "bce-pw-bound": {"propensity": 0.5},
    "entmax-apl": {"epochs": EPOCHS, "warmup": 1, "weight": 0.4},
    "opml-hr": {"high_rank_weight": 0.05},
    "opml-correct": {"label_num": 3.0, "correction_start": 2},
    "opml-sp": {"label_num": 2.0, "high_rank_weight": 0.05},
}


def lively(name):
    return create_method(name, **LIVELY.get(name, {}))


def labels_of(kind):
    return torch.tensor(OBSERVED[kind], dtype=torch.int8)


def features():
    return torch.randn(ROWS, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def batches(epoch):
    return torch.randperm(ROWS, generator=torch.Generator().manual_seed(epoch)).split(4)


def linear():
    classifier = nn.Linear(WIDTH, CLASSES).double()
    generator = torch.Generator().manual_seed(2)
    for parameter in classifier.parameters():
        nn.init.normal_(parameter, generator=generator)
    return classifier


class Loop:
    """The training loop as the contract has it, in double precision."""

    def __init__(self, method, observed):
        self.method, self.classifier, self.features = method, linear(), features()
        method.begin(observed)
        method.double()
        groups = [
            {"params": list(self.classifier.parameters())},
            {"params": list(method.parameters()), "lr": RATE * method.lr_multiplier},
        ]
        self.optimizer = torch.optim.SGD([group for group in groups if group["params"]], lr=RATE)

    def step(self, rows):
        loss = self.method(self.classifier(self.features[rows]), rows)
        penalty = self.method.penalty(self.classifier)
        total = loss if penalty is None else loss + penalty
        self.optimizer.zero_grad()
        total.backward()
        self.optimizer.step()
        return total.item()

    def end_epoch(self, epoch):
        with torch.no_grad():
            scores = self.classifier(self.features)
        self.method.end_epoch(epoch, scores if self.method.needs_scores else None)

    def epoch(self, epoch):
        losses = [self.step(rows) for rows in batches(epoch)]
        self.end_epoch(epoch)
        return losses

    def state(self):
        parts = {"method": self.method, "classifier": self.classifier}
        return {
            f"{part}.{key}": value.clone()
            for part, module in parts.items()
            for key, value in module.state_dict().items()
        }


class SlowMethod:
    """A reference: the loss label by label in plain Python; its gradient will be taken by finite differences."""

    def __init__(self, observed, **options):
        self.observed = observed
        self.parameters = []
        self.begin(**options)

    def begin(self):
        """Make the state."""

    def before_step(self, scores, rows):
        """See the scores once before the loss, for whatever the gradient does not flow through."""

    def loss(self, scores, rows):
        raise NotImplementedError

    def penalty(self, weights):
        return 0.0

    def end_epoch(self, epoch, scores):
        """Change the state."""

    def state(self):
        """What the method's state must equal after an epoch."""
        return {"observed": self.observed}


class SlowLoop:
    """The same training of the same linear model, without autograd."""

    def __init__(self, slow):
        self.slow, self.features = slow, features().numpy()
        self.weights, self.bias = (parameter.detach().numpy().copy() for parameter in linear().parameters())

    def step(self, rows):
        rows = rows.tolist()
        scores = self.features[rows] @ self.weights.T + self.bias
        self.slow.before_step(scores.copy(), rows)
        loss = self.slow.loss(scores, rows) + self.slow.penalty(self.weights)
        along_scores = numeric_gradient(lambda: self.slow.loss(scores, rows), scores)
        along_own = [numeric_gradient(lambda: self.slow.loss(scores, rows), own) for own in self.slow.parameters]
        along_weights = numeric_gradient(lambda: self.slow.penalty(self.weights), self.weights)
        self.weights -= RATE * (along_scores.T @ self.features[rows] + along_weights)
        self.bias -= RATE * along_scores.sum(0)
        for own, gradient in zip(self.slow.parameters, along_own, strict=True):
            own -= RATE * 10 * gradient
        return loss

    def epoch(self, epoch):
        losses = [self.step(rows) for rows in batches(epoch)]
        self.slow.end_epoch(epoch, (self.features @ self.weights.T + self.bias).tolist())
        return losses


def numeric_gradient(function, values, width=1e-5):
    """Central differences; `values` are moved in place and put back."""
    gradient = np.zeros_like(values)
    for cell in np.ndindex(values.shape):
        here = values[cell]
        values[cell] = here + width
        above = function()
        values[cell] = here - width
        gradient[cell] = (above - function()) / (2 * width)
        values[cell] = here
    return gradient


def assert_follows(name, slow_class, kind, **options):
    """Train both ways: the same loss of every batch, the same state after every epoch."""
    loop = Loop(create_method(name, **options), labels_of(kind))
    slow = slow_class(OBSERVED[kind], **{**METHODS[name].defaults, **options})
    slow_loop = SlowLoop(slow)
    for epoch in range(1, EPOCHS + 1):
        np.testing.assert_allclose(loop.epoch(epoch), slow_loop.epoch(epoch), rtol=1e-6, atol=1e-8)
        state = {**loop.method.state_dict(), "observed": loop.method.observed}
        for key, expected in slow.state().items():
            np.testing.assert_allclose(state[key].numpy(), np.array(expected), rtol=1e-6, atol=1e-8, err_msg=key)
    return loop.method
