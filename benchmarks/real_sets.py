"""Real sets with full labels, scores of models that learned from what is left of them, and tables of results."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hiding import Process, Random
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn.decomposition import PCA
from sklearn.preprocessing import Normalizer, StandardScaler

from onepair import OPMLClassifier
from onepair.data.formats.read import read_dataset
from onepair.data.formats.research import read_voc
from onepair.data.formats.write import write_table
from onepair.data.label_table import LabelTable
from onepair.files import write_atomically
from onepair.label_matrix import LabelMatrix
from onepair.labels import Indices, Labels, observe_positives, split_validation
from onepair.metrics import Floats

SETS = (
    "emotions",
    "voc2012",
    "scene",
    "yeast",
    "mirflickr7",
    "medical",
    "enron",
    "arts",
    "science",
    "coco80",
    "bibtex",
    "corel5k",
)
TABLES = ("emotions", "scene", "yeast", "mirflickr7", "medical", "enron", "arts", "science", "corel5k", "bibtex")
SEEDS = (1200, 1201, 1202)
SPARSE = 0.2  # share of entries that are not 0, below which features are sparse
COMPONENTS = 128  # of features of networks: enough to rank by, and fast


class Features(NamedTuple):
    """Features (N, D), dense or sparse, and full labels (N, L)."""

    features: Any
    labels: Labels


class Data(NamedTuple):
    """Features and full labels, to train and to test."""

    features: Any
    labels: Labels
    test_features: Any
    test_labels: Labels


def write_csv(path: Path, rows: Sequence[Mapping[str, Any]], *, form: str = "") -> None:
    """Write rows of the same columns, numbers that are not whole in a format, for example ".4f"."""
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), restval="", lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({key: format(value, form) if isinstance(value, float) else value for key, value in row.items()})
    write_atomically(path, text.getvalue().encode())


def write_training_images(source: str, path: Path, *, single_positives: bool = False) -> LabelTable:
    """Write the training images of a dataset as a table, a fifth of them as validation images; returns the truth."""
    table = read_dataset(source)
    rows = table.rows("train")
    kept, _ = split_validation(len(rows))
    split = np.full(len(rows), "validation")
    split[kept] = "train"
    files = tuple(str(table.path(row).resolve()) for row in rows.tolist())
    truth = LabelTable(files, table.classes, table.labels.take(rows), split, table.root)
    shown = LabelMatrix.of(observe_positives(truth.labels.dense())) if single_positives else truth.labels
    path.parent.mkdir(parents=True, exist_ok=True)
    write_table(replace(truth, labels=shown), path)
    return truth


def read_scaled(path: Path) -> Data:
    """A table by its file, split and scaled."""
    features, labels = _table(path.parent, path.stem)
    with np.load(path, allow_pickle=False) as file:
        split = file.get("split")
    if split is None:
        order = np.random.RandomState(0).permutation(len(features))
        train, test = np.split(order, [round(0.7 * len(order))])
    else:
        train, test = np.flatnonzero(split == "train"), np.flatnonzero(split == "test")
    is_sparse = (features != 0).mean() < SPARSE
    given = csr_array(features) if is_sparse else features
    scaler = (Normalizer() if is_sparse else StandardScaler()).fit(given[train])
    return Data(scaler.transform(given[train]), labels[train], scaler.transform(given[test]), labels[test])


def read_features(folder: Path, name: str) -> Features:
    """A set by its name; classes without positives are left out."""
    features, labels = _voc(folder / name) if name == "voc2012" else _table(folder, name)
    present = labels.sum(0) >= 2
    labels = np.ascontiguousarray(labels[:, present])
    if (features != 0).mean() < SPARSE:
        return Features(Normalizer().fit_transform(csr_array(features)), labels)
    scaled = StandardScaler().fit_transform(features.astype(np.float32))
    if scaled.shape[1] > 8 * COMPONENTS:
        scaled = PCA(COMPONENTS, svd_solver="covariance_eigh").fit_transform(scaled)
    return Features(scaled, labels)


def _table(folder: Path, name: str) -> tuple[NDArray[Any], Labels]:
    path = next((path for path in (folder / f"{name}.npz", folder / "tabular" / f"{name}.npz") if path.exists()), None)
    if path is None:
        raise SystemExit(f"{folder}: holds no {name}.npz, nor does its folder tabular")
    with np.load(path, allow_pickle=False) as file:
        features, labels = file["X"], file["Y"].astype(np.int8)
    classes = labels.shape[1]
    if features.shape[1] > classes and np.array_equal(features[:, -classes:], labels):
        features = features[:, :-classes]  # these are the labels themselves
    return features, labels


def _voc(folder: Path) -> tuple[NDArray[Any], Labels]:
    features, labels, _ = read_voc_rows(folder)
    return features, labels


def read_voc_rows(folder: Path) -> tuple[NDArray[Any], Labels, NDArray[Any]]:
    """Features, labels and splits; rows of the features are in the order of all file names."""
    table = read_voc(folder / "VOCdevkit")
    order = np.argsort([Path(file).name for file in table.files])
    return np.load(next(folder.glob("features_*.npy"))), table.labels[order], table.split[order]


def train_scores(
    data: Features,
    train: Indices,
    rest: Indices,
    process: Process,
    setting: float,
    random: Random,
    cached: Path | None,
) -> Floats:
    """Scores (len(rest), L) of OPML, fitted to training rows whose labels are hidden by the process.

    Where the process looks at scores, those are of a model from single positives.
    """
    if cached is not None and cached.exists():
        return np.asarray(np.load(cached), np.float64)
    features, labels = data
    observed = observe_positives(labels[train])
    first = _fit(features[train], observed, gives_negatives=False)
    seen = np.asarray(first.decision_function(features[train]), np.float64)
    hidden = process.hide(labels[train], seen, setting, random).observed
    model = _fit(features[train], hidden, gives_negatives=process.gives_negatives)
    scores: Floats = np.asarray(model.decision_function(features[rest]), np.float64)
    if cached is not None:
        cached.parent.mkdir(parents=True, exist_ok=True)
        np.save(cached, scores)
    return scores


def _fit(features: Any, observed: Labels, *, gives_negatives: bool) -> OPMLClassifier:
    return OPMLClassifier(method="bce-known" if gives_negatives else "opml-ls", tol=1e-2).fit(features, observed)
