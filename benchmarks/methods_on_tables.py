"""Methods on sets of 6 to 374 labels from one positive per row: does one set of options fit them all?

    python benchmarks/methods_on_tables.py DATA_FOLDER [--sets emotions yeast] [--methods opml-plus]
        [--out results/methods_on_tables.csv]

DATA_FOLDER holds the folder `tabular`, with splits and scaling of real_sets.py, and two sets of images,
voc2012 and coco80.npz, as features of EfficientNet-Lite0. Every method trains one linear layer with Adam on four fifths
of the training rows. The other fifth, with all their labels, choose the learning rate, with the first draw of the one
positive, and in each draw the best epoch; from their labels come the class priors, too, for methods that use them.
Options are the defaults. Test mAP is the mean over three draws. The gap is that between BCE from single positives and
BCE from all labels. What is in the file and not measured anew is kept.

Beside the methods, what BCE reaches that is told more than they can know: all labels; of every row one positive and all
that are negative; and all labels of so few rows that they have no more positives than a method is shown.
"""

import argparse
import csv
import statistics
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from real_sets import SEEDS, TABLES, Data, read_scaled, write_csv
from scipy.sparse import issparse
from torch import Tensor, nn

from onepair import mean_average_precision, observe_positives, split_validation
from onepair.data.formats.research import read_voc
from onepair.labels import NEGATIVE, POSITIVE, Labels
from onepair.methods import METHODS, Method, create_method

IMAGES = ("voc2012", "coco80")
SETS = (*IMAGES, *TABLES)

DENSE_RATES = (1e-3, 5e-3, 2.5e-2)
SPARSE_RATES = (5e-3, 2.5e-2, 1.25e-1)  # rows of length 1 need larger weights than standardised ones
IMAGE_RATES = (1e-4, 3e-4, 1e-3)  # features as the network gives them
BATCH = 32
EPOCHS, PATIENCE = 30, 6  # at most, and without a better validation mAP
LEAST_GAP = 1.0  # points; a share of less says nothing


class Contestant(NamedTuple):
    method: str
    known: Literal["one positive", "and all negatives", "all"] = "one positive"
    fewer_rows: bool = False  # so few that they have as many positives as all rows have of which one is known


CEILING, BASELINE = "bce, all labels", "bce"
LIMITS = {  # who is told more than a method can know
    CEILING: Contestant("bce", "all"),
    "bce, one positive and all negatives": Contestant("bce-known", "and all negatives"),
    "bce, all labels of fewer rows": Contestant("bce", "all", fewer_rows=True),
}
CONTESTANTS = {
    **LIMITS,
    BASELINE: Contestant("bce"),
    "entmax": Contestant("entmax"),
    "ll-r": Contestant("ll-r"),
    "gr": Contestant("gr"),
    "crisp": Contestant("crisp"),
    "opml-sp": Contestant("opml-sp"),
    "opml-plus": Contestant("opml-plus"),
}


class Part(NamedTuple):
    """Features and full labels of some rows."""

    features: Tensor
    labels: Labels


class Parts(NamedTuple):
    train: Part
    validation: Part
    test: Part
    rates: Sequence[float]  # to choose from


class Outcome(NamedTuple):
    validation_map: float
    test_map: float
    epoch: int


def read_parts(folder: Path, name: str) -> Parts:
    data = read_images(folder, name) if name in IMAGES else read_scaled(folder / "tabular" / f"{name}.npz")
    features, test_features = (
        torch.from_numpy(each.toarray() if issparse(each) else each).float()
        for each in (data.features, data.test_features)
    )
    train, validation = split_validation(len(data.labels))
    rates = SPARSE_RATES if issparse(data.features) else DENSE_RATES
    return Parts(
        Part(features[train], data.labels[train]),
        Part(features[validation], data.labels[validation]),
        Part(test_features, data.test_labels),
        IMAGE_RATES if name in IMAGES else rates,
    )


def read_images(folder: Path, name: str) -> Data:
    if name == "coco80":
        with np.load(folder / "coco80.npz", allow_pickle=False) as file:
            features, labels, split = file["X"], file["Y"].astype(np.int8), file["split"]
    else:
        table = read_voc(folder / name / "VOCdevkit")
        order = np.argsort([Path(file).name for file in table.files])  # the features are in the order of all names
        features, labels = np.load(next((folder / name).glob("features_*.npy"))), table.labels[order]
        split = np.asarray(table.split)[order]
    train, test = split == "train", split == "test"
    return Data(features[train], labels[train], features[test], labels[test])


def run(contestant: Contestant, rate: float, parts: Parts, seed: int) -> Outcome:
    """Train with one draw of the one positive; the test mAP at the best epoch on validation."""
    features, observed = shown(contestant, parts.train, seed)
    torch.manual_seed(seed)
    layer = nn.Linear(features.shape[1], observed.shape[1])
    scheduled = METHODS[contestant.method].run_options(epochs=EPOCHS)
    method = create_method(contestant.method, **scheduled)
    method.begin(torch.from_numpy(observed))
    optimiser = torch.optim.Adam(layer.parameters(), lr=rate, fused=True)
    priors = torch.from_numpy(parts.validation.labels.mean(0))
    best = Outcome(-1.0, -1.0, 0)
    for epoch in range(1, EPOCHS + 1):
        learn(layer, method, optimiser, features)
        with torch.no_grad():
            if method.needs_priors:
                method.take_priors(priors)
            method.end_epoch(epoch, layer(features) if method.needs_scores else None)
            validation_map = mean_ap(layer, parts.validation)
            if validation_map > best.validation_map:
                best = Outcome(validation_map, mean_ap(layer, parts.test), epoch)
        if epoch - best.epoch >= PATIENCE:
            break
    return best


def learn(layer: nn.Linear, method: Method, optimiser: torch.optim.Optimizer, features: Tensor) -> None:
    """An epoch."""
    for rows in torch.split(torch.randperm(len(features)), BATCH):
        optimiser.zero_grad()
        method(layer(features[rows]), rows).backward()
        optimiser.step()


def shown(contestant: Contestant, part: Part, seed: int) -> Part:
    """What a contestant learns from."""
    features, labels = part
    if contestant.known != "all":
        observed = observe_positives(labels, seed=seed)
        told = contestant.known == "and all negatives"
        return Part(features, np.where(labels == NEGATIVE, NEGATIVE, observed).astype(np.int8) if told else observed)
    if not contestant.fewer_rows:
        return part
    wanted = (labels == POSITIVE).any(1).sum()  # positives
    order = np.random.default_rng(seed).permutation(len(labels))
    few = order[: 1 + np.searchsorted((labels[order] == POSITIVE).sum(1).cumsum(), wanted)]
    return Part(features[few], labels[few])


def mean_ap(layer: nn.Linear, part: Part) -> float:
    return 100 * mean_average_precision(layer(part.features), part.labels).value


def measure(name: str, parts: Parts, contestants: Mapping[str, Contestant]) -> list[dict[str, Any]]:
    """A record of every contestant on a set."""
    records = []
    for title, contestant in contestants.items():
        tried = {rate: run(contestant, rate, parts, SEEDS[0]) for rate in parts.rates}
        rate = max(tried, key=lambda each: tried[each].validation_map)
        outcomes = [tried[rate], *(run(contestant, rate, parts, seed) for seed in SEEDS[1:])]
        maps = [outcome.test_map for outcome in outcomes]
        records.append(
            {
                "set": name,
                "rows": len(parts.train.labels),
                "classes": parts.train.labels.shape[1],
                "positives_per_row": f"{parts.train.labels.sum(1).mean():.2f}",
                "method": title,
                "test_map": f"{statistics.mean(maps):.2f}",
                "std": f"{statistics.stdev(maps):.2f}",
                "validation_map": f"{statistics.mean(outcome.validation_map for outcome in outcomes):.2f}",
                "lr": rate,
                "epochs": " ".join(str(outcome.epoch) for outcome in outcomes),
            }
        )
    return records


def table(records: list[dict[str, Any]]) -> str:
    """Markdown: test mAP of each contestant, the best from single positives bold, and its share of the gap."""
    titles = list(dict.fromkeys(record["method"] for record in records))
    lines = [f"| set | labels | per row | {' | '.join(titles)} |", "|---" * (3 + len(titles)) + "|"]
    for name in dict.fromkeys(record["set"] for record in records):
        rows = {record["method"]: record for record in records if record["set"] == name}
        maps = {title: float(record["test_map"]) for title, record in rows.items()}
        best = max(value for title, value in maps.items() if title not in LIMITS)
        gap = maps[CEILING] - maps[BASELINE]
        cells = []
        for title in titles:
            cell = f"{maps[title]:.2f} ({rows[title]['std']})" if title in rows else "–"
            cell = f"**{cell}**" if maps.get(title) == best and title not in LIMITS else cell
            shares = gap >= LEAST_GAP and title in rows and title not in (CEILING, BASELINE)
            cells.append(f"{cell}, {100 * (maps[title] - maps[BASELINE]) / gap:.0f} %" if shares else cell)
        about = rows[CEILING]
        lines.append(f"| {name} | {about['classes']} | {about['positives_per_row']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def read_records(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What was measured before, by set and method."""
    if not path.exists():
        return {}
    with path.open(newline="", encoding="utf-8") as file:
        return {(record["set"], record["method"]): record for record in csv.DictReader(file)}


def in_order(records: Mapping[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    return [records[key] for key in product(SETS, CONTESTANTS) if key in records]


def standing(records: Sequence[dict[str, Any]]) -> str:
    """On how many sets each contestant is first from single positives, or behind by no more than its own spread."""
    rivals = [record for record in records if record["method"] not in LIMITS]
    first: dict[str, float] = {}
    for record in rivals:
        first[record["set"]] = max(first.get(record["set"], 0.0), float(record["test_map"]))
    lines = []
    for title in dict.fromkeys(record["method"] for record in rivals):
        own = [record for record in rivals if record["method"] == title]
        gaps = [first[record["set"]] - float(record["test_map"]) for record in own]
        within = sum(gap <= float(record["std"]) for gap, record in zip(gaps, own, strict=True))
        lines.append(
            f"{title}: first on {gaps.count(0)}, first or within its spread on {within} of {len(own)} sets, "
            f"behind the first by {statistics.mean(gaps):.2f} on average, {max(gaps):.2f} at most"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--methods", nargs="*", default=list(CONTESTANTS), choices=CONTESTANTS)
    parser.add_argument("--out", type=Path, default=Path("results/methods_on_tables.csv"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    contestants = {title: CONTESTANTS[title] for title in arguments.methods}
    records = read_records(arguments.out)
    for name in arguments.sets:
        for record in measure(name, read_parts(arguments.data, name), contestants):
            records[name, record["method"]] = record
        write_csv(arguments.out, in_order(records))
        print(f"{name} done", flush=True)
    print("\n" + table(in_order(records)) + "\n\n" + standing(in_order(records)))


if __name__ == "__main__":
    main()
