"""Methods on tabular sets from one positive per row: do the same options of OPML+ fit 6 labels and 374?

    python benchmarks/methods_on_tables.py DATA_FOLDER [--sets emotions yeast] [--out results/methods_on_tables.csv]

The sets, their splits and their scaling are those of tabular.py. Every method trains one linear layer with Adam on four
fifths of the training rows. The other fifth, with all their labels, choose the learning rate and, where a method is
"tuned", its options, both with the first draw of the one positive; and, in each draw, the best epoch. Test mAP is the
mean over three draws. The gap is that between BCE from single positives and BCE from all labels.
"""

import argparse
import itertools
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from scipy.sparse import issparse
from tabular import SEEDS, SETS, Data, read, write
from torch import Tensor, nn

from onepair import mean_average_precision, observe_positives, split_validation
from onepair.labels import Labels
from onepair.methods import create_method

DENSE_RATES = (1e-3, 5e-3, 2.5e-2)
SPARSE_RATES = (5e-3, 2.5e-2, 1.25e-1)  # rows of length 1 need larger weights than standardised ones
BATCH = 32
EPOCHS, PATIENCE = 30, 6  # at most, and without a better validation mAP
LEAST_GAP = 1.0  # points; a share of less says nothing


class Contestant(NamedTuple):
    """A method and what to choose its options from; without a choice, they are its defaults."""

    method: str
    grid: Mapping[str, Sequence[Any]] = {}
    all_labels: bool = False

    def candidates(self, rates: Sequence[float]) -> Iterator[tuple[dict[str, Any], float]]:
        for *values, lr in itertools.product(*self.grid.values(), rates):
            yield dict(zip(self.grid, values, strict=True)), lr


CEILING, BASELINE = "bce, all labels", "bce"
CONTESTANTS = {
    CEILING: Contestant("bce", all_labels=True),
    BASELINE: Contestant("bce"),
    "entmax": Contestant("entmax"),
    "entmax, tuned": Contestant("entmax", {"entropy_weight": (0.03, 0.1, 0.2, 0.4)}),
    "opml": Contestant("opml"),
    "opml-sp": Contestant("opml-sp"),
    "opml-sp, tuned": Contestant("opml-sp", {"gamma_gradient": (True, False), "label_num": (0.8, 1.6)}),
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


def split(data: Data) -> Parts:
    features, test_features = (
        torch.from_numpy(each.toarray() if issparse(each) else each).float()
        for each in (data.features, data.test_features)
    )
    train, validation = split_validation(len(data.labels))
    return Parts(
        Part(features[train], data.labels[train]),
        Part(features[validation], data.labels[validation]),
        Part(test_features, data.test_labels),
        SPARSE_RATES if issparse(data.features) else DENSE_RATES,
    )


def run(contestant: Contestant, options: dict[str, Any], lr: float, parts: Parts, seed: int) -> Outcome:
    """Train with one draw of the one positive; the test mAP at the best epoch on validation."""
    features, labels = parts.train
    observed = labels if contestant.all_labels else observe_positives(labels, seed=seed)
    torch.manual_seed(seed)
    layer = nn.Linear(features.shape[1], labels.shape[1])
    method = create_method(contestant.method, **options)
    method.begin(torch.from_numpy(observed))
    optimiser = torch.optim.Adam(layer.parameters(), lr=lr, fused=True)
    best = Outcome(-1.0, -1.0, 0)
    for epoch in range(1, EPOCHS + 1):
        for rows in torch.split(torch.randperm(len(features)), BATCH):
            optimiser.zero_grad()
            method(layer(features[rows]), rows).backward()
            optimiser.step()
        with torch.no_grad():
            method.end_epoch(epoch, layer(features) if method.needs_scores else None)
            validation_map = mean_ap(layer, parts.validation)
            if validation_map > best.validation_map:
                best = Outcome(validation_map, mean_ap(layer, parts.test), epoch)
        if epoch - best.epoch >= PATIENCE:
            break
    return best


def mean_ap(layer: nn.Linear, part: Part) -> float:
    return 100 * mean_average_precision(layer(part.features), part.labels).value


def measure(name: str, parts: Parts, contestants: Mapping[str, Contestant]) -> list[dict[str, Any]]:
    """A record of every contestant on a set."""
    records = []
    for title, contestant in contestants.items():
        tried = [
            (run(contestant, options, lr, parts, SEEDS[0]), options, lr)
            for options, lr in contestant.candidates(parts.rates)
        ]
        first, options, lr = max(tried, key=lambda each: each[0].validation_map)
        outcomes = [first, *(run(contestant, options, lr, parts, seed) for seed in SEEDS[1:])]
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
                "lr": lr,
                "options": " ".join(f"{key}={value}" for key, value in options.items()),
                "epochs": " ".join(str(outcome.epoch) for outcome in outcomes),
            }
        )
    return records


def table(records: list[dict[str, Any]]) -> str:
    """Markdown: test mAP of each contestant, the best from single positives bold, and its share of the gap."""
    titles = list(dict.fromkeys(record["method"] for record in records))
    lines = [f"| set | labels | per row | {' | '.join(titles)} |", "|---" * (3 + len(titles)) + "|"]
    for name in dict.fromkeys(record["set"] for record in records):
        rows = [record for record in records if record["set"] == name]
        maps = {record["method"]: float(record["test_map"]) for record in rows}
        best = max(value for title, value in maps.items() if title != CEILING)
        gap = maps[CEILING] - maps[BASELINE]
        cells = []
        for record in rows:
            title, value = record["method"], maps[record["method"]]
            cell = f"{value:.2f} ({record['std']})"
            cell = f"**{cell}**" if value == best and title != CEILING else cell
            shares = gap >= LEAST_GAP and title not in (CEILING, BASELINE)
            cells.append(f"{cell}, {100 * (value - maps[BASELINE]) / gap:.0f} %" if shares else cell)
        lines.append(f"| {name} | {rows[0]['classes']} | {rows[0]['positives_per_row']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--out", type=Path, default=Path("results/methods_on_tables.csv"))
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    records: list[dict[str, Any]] = []
    for name in arguments.sets:
        records += measure(name, split(read(arguments.data / f"{name}.npz")), CONTESTANTS)
        write(arguments.out, records)
        print(f"{name} done", flush=True)
    print("\n" + table(records))


if __name__ == "__main__":
    main()
