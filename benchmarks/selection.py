"""Which epoch is the best, where validation images have one positive label each: criteria against full labels.

    python benchmarks/selection.py VOCDEVKIT FEATURES.npy [--cache FOLDER] [--out results/selection.csv]

Every method of table 2 trains a linear model on the features, with its settings for VOC 2012, 25 epochs and three
seeds; rows of the features are all images in the order of their names. The validation scores of every epoch are kept in
the cache. Then each criterion selects an epoch by single positives of the validation images, in three draws. What is
lost is the test mAP of the epoch that full validation labels select, less that of the epoch selected: points, mean over
seeds and draws. The criterion was chosen on the first half of the methods; the second confirms it.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import mean
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from real_sets import write_csv
from scipy.special import log_softmax
from torch import nn

from onepair.data.formats.research import read_voc
from onepair.labels import NEGATIVE, POSITIVE, Indices, Labels, observe_positives, split_validation
from onepair.methods import METHODS, create_method
from onepair.metrics import Floats, mean_average_precision
from onepair.probability.calibration import fit_lines
from onepair.probability.evaluation import estimated_map
from onepair.probability.observation import Rates, recognise
from onepair.runs.config import preset, resolve_config
from onepair.training.loop import Group, make_optimiser

FULL = "bce, all labels"
CHOSEN_ON = (FULL, "bce", "bce-l1", "bce-ls", "role", "ll-ct", "entmax", "opml-sp")
CONFIRMED_ON = ("bce-1p-alln", "bce-dw", "bce-l2", "bce-nls", "ll-r", "ll-cp", "entmax-apl", "opml-plus")
SEEDS, DRAWS = (0, 1, 2), (1200, 1201, 1202)
EPOCHS, SHARE = 25, 0.66  # share: of VOC's positives that are observed, about


class Data(NamedTuple):
    """Features and full labels of the official training images, which of them train and validate, and of the test."""

    features: torch.Tensor
    labels: Labels
    train: Indices
    validation: Indices
    test_features: torch.Tensor
    test_labels: Labels


class Seen(NamedTuple):
    """What a criterion may look at: (N, L) each."""

    scores: Floats
    observed: Labels
    to_be_observed: Floats  # probability to be observed as positive, by a line for every class


Criterion = Callable[[Seen], float]


class Run(NamedTuple):
    """Validation scores (epochs, N, L) and test mAP (epochs,)."""

    scores: NDArray[np.float32]
    test_map: Floats


def load(voc: Path, features: Path) -> Data:
    table = read_voc(voc)
    place = np.argsort(np.argsort([Path(file).name for file in table.files]))
    matrix = torch.from_numpy(np.load(features)[place]).float()
    official, test = table.rows("train"), table.rows("test")
    train, validation = split_validation(len(official))
    return Data(matrix[official], table.labels[official], train, validation, matrix[test], table.labels[test])


def train(name: str, seed: int, data: Data) -> Run:
    """A linear model, scored after every epoch."""
    method_name = "bce" if name == FULL else name
    info = METHODS[method_name]
    config = resolve_config(preset("voc2012", method_name), {"model": {"mode": "linear"}})
    observed = data.labels if name == FULL else observe_positives(data.labels)
    if info.observes == "single positive and all negatives":
        observed = np.where(data.labels == NEGATIVE, np.int8(NEGATIVE), observed)
    torch.manual_seed(seed)
    layer = nn.Linear(data.features.shape[1], data.labels.shape[1])
    method = create_method(method_name, **config.method.options, **info.run_options(epochs=EPOCHS))
    method.begin(torch.from_numpy(observed[data.train]))
    groups = [Group(layer), Group(method, method.lr_multiplier, decays=False)]
    optimiser = make_optimiser(config.linear.optimiser, groups)
    features, validation = data.features[data.train], data.features[data.validation]
    scores, test_map = [], []
    for epoch in range(1, EPOCHS + 1):
        for rows in torch.split(torch.randperm(len(features)), config.linear.batch_size):
            optimiser.zero_grad()
            loss, penalty = method(layer(features[rows]), rows), method.penalty(layer)
            (loss if penalty is None else loss + penalty).backward()
            optimiser.step()
        with torch.no_grad():
            method.end_epoch(epoch, layer(features) if method.needs_scores else None)
            scores.append(layer(validation).numpy())
            test_map.append(100 * mean_average_precision(layer(data.test_features), data.test_labels).value)
    return Run(np.stack(scores), np.array(test_map))


def cached(name: str, seed: int, data: Data, cache: Path) -> Run:
    path = cache / f"{name}-{seed}.npz".replace(", ", "-").replace(" ", "-")
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        run = train(name, seed, data)
        np.savez(path, scores=run.scores, test_map=run.test_map)
        print(f"{name}, seed {seed}: test mAP up to {run.test_map.max():.2f}", flush=True)
    with np.load(path, allow_pickle=False) as file:
        return Run(file["scores"], file["test_map"])


def look(scores: Floats, observed: Labels) -> Seen:
    lines = fit_lines(scores, (observed == POSITIVE).astype(np.float64), np.ones(observed.shape, bool))
    return Seen(scores, observed, lines(scores))


def unknown_as_negative(seen: Seen) -> float:
    return mean_average_precision(seen.scores, np.maximum(seen.observed, NEGATIVE)).value


def known_share(share: float) -> Criterion:
    """Average precision where each observed positive but the one at hand stands for 1 / share, of positives alone."""

    def score(seen: Seen) -> float:
        class_ap = []
        for column, labels in zip(seen.scores.T, seen.observed.T, strict=True):
            positives, ranked = np.sort(column[labels == POSITIVE]), np.sort(column)
            found = len(positives) - np.searchsorted(positives, positives)
            retrieved = len(ranked) - np.searchsorted(ranked, positives)
            class_ap.append(np.minimum((1 + (found - 1) / share) / retrieved, 1).mean())
        return float(np.mean(class_ap))

    return score


def by_posterior(seen: Seen) -> float:
    """Average precision where unknown cells are positive by their posterior, with the epoch's own calibration."""
    none = np.zeros(seen.observed.shape[1])
    posterior = recognise(seen.observed, process="single-positive").posterior(
        seen.to_be_observed, seen.observed, Rates(none, none, np.ones(1))
    )
    order = np.argsort(-seen.scores, axis=0, kind="stable")
    ranked = np.take_along_axis(posterior, order, 0)
    precision = (np.cumsum(ranked, 0) - ranked + 1) / np.arange(1, len(ranked) + 1)[:, None]
    return float(((ranked * precision).sum(0) / ranked.sum(0)).mean())


def likelihood(seen: Seen) -> float:
    """Mean log likelihood of what is observed as positive and what is not, after a line for every class."""
    probabilities = np.clip(seen.to_be_observed, 1e-12, 1 - 1e-12)
    return float(np.log(np.where(seen.observed == POSITIVE, probabilities, 1 - probabilities)).mean())


def softmax(seen: Seen) -> float:
    """Mean log probability of the observed label among those of its row."""
    return float(log_softmax(seen.scores, axis=1)[seen.observed == POSITIVE].mean())


def rank_in_row(seen: Seen) -> float:
    """How few labels of its row score higher than the observed one."""
    shown = np.where(seen.observed == POSITIVE, seen.scores, -np.inf).max(1, keepdims=True)
    return -float((seen.scores > shown).sum(1).mean())


def recall_at_count(seen: Seen) -> float:
    """The share of observed positives among as many cells of each class as positives are expected."""
    shares = []
    for column, labels in zip(seen.scores.T, seen.observed.T, strict=True):
        positives = (labels == POSITIVE).sum()
        shares.append((labels[np.argsort(-column)[: round(positives / SHARE)]] == POSITIVE).sum() / positives)
    return float(np.mean(shares))


CRITERIA: dict[str, Criterion] = {
    "estimated_map": lambda seen: estimated_map(seen.scores, seen.observed),
    f"AP, share {SHARE} given": known_share(SHARE),
    "AP, share 0.9 given": known_share(0.9),
    "AP, share 0.34 given": known_share(0.34),
    "AP by posterior": by_posterior,
    "likelihood of what is observed": likelihood,
    "softmax of the observed label": softmax,
    "rank of the observed label": rank_in_row,
    "recall of observed positives": recall_at_count,
    "unknown as negative": unknown_as_negative,
}


def losses(name: str, data: Data, cache: Path) -> Iterator[dict[str, float]]:
    """What each criterion loses, for every seed and draw."""
    for seed in SEEDS:
        run = cached(name, seed, data, cache)
        full = data.labels[data.validation]
        best = run.test_map[np.argmax([mean_average_precision(each, full).value for each in run.scores])]
        for draw in DRAWS:
            observed = observe_positives(data.labels, seed=draw)[data.validation]
            epochs = [look(each.astype(np.float64), observed) for each in run.scores]
            lost = {
                criterion: best - run.test_map[int(np.argmax([score(epoch) for epoch in epochs]))]
                for criterion, score in CRITERIA.items()
            }
            yield {**lost, "last epoch": best - run.test_map[-1], "best on test": best - run.test_map.max()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("voc", type=Path)
    parser.add_argument("features", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("runs/selection"))
    parser.add_argument("--out", type=Path, default=Path("results/selection.csv"))
    arguments = parser.parse_args()
    data = load(arguments.voc, arguments.features)
    by_method = {name: list(losses(name, data, arguments.cache)) for name in (*CHOSEN_ON, *CONFIRMED_ON)}
    means = {
        name: {criterion: mean(row[criterion] for row in rows) for criterion in rows[0]}
        for name, rows in by_method.items()
    }
    criteria = list(means[FULL])
    print("| criterion | lost, all methods | methods chosen on | methods confirmed on | worst method | worst run |")
    print("|---|---|---|---|---|---|")
    for criterion in sorted(criteria, key=lambda each: mean(row[each] for row in means.values())):
        every, chosen, confirmed = (
            mean(means[name][criterion] for name in names) for names in (means, CHOSEN_ON, CONFIRMED_ON)
        )
        worst = max(means[name][criterion] for name in means)
        worst_run = max(row[criterion] for rows in by_method.values() for row in rows)
        print(f"| {criterion} | {every:.3f} | {chosen:.3f} | {confirmed:.3f} | {worst:.2f} | {worst_run:.2f} |")
    write_csv(arguments.out, [{"method": name, **row} for name, row in means.items()], form=".3f")


if __name__ == "__main__":
    main()
