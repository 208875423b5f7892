"""Decisions from single positives of VOC 2012, with more and more known labels: is any answer worse for knowing more?

    python benchmarks/decisions.py VOC2012 FEATURES.npy FILES.txt

VOC2012 is the folder that holds ImageSets/Main; row i of the features (float, one vector an image) belongs to line i of
the file names. A linear classifier learns from single positives of four fifths of the training images. Decisions are
fitted on the others, which show one positive each and besides: known negatives of every class, images in full, or the
answers to the most probable missing labels. All figures are of the official validation images, by all of their labels.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.labels import NEGATIVE, UNKNOWN, Labels, observe_positives, split_validation
from onepair.linear.estimator import OPMLClassifier
from onepair.metrics import precision_recall_f1
from onepair.probability import fit_decisions
from onepair.probability.calibration import expected_calibration_error
from onepair.probability.infer import infer

NEGATIVES, FULL_ROWS, ANSWERS = (0, 1, 5, 20, 100, 400), (20, 100, 400), (100, 300, 1000, 3000)
Mask = NDArray[np.bool_]


class Case(NamedTuple):
    """Labels of the validation rows, and which of them were asked for."""

    name: str
    labels: Labels
    asked: Mask | None = None


def read(
    folder: Path, features: NDArray[np.float32], row: dict[str, int], split: str
) -> tuple[NDArray[np.float32], Labels]:
    files = sorted((folder / "ImageSets" / "Main").glob(f"*_{split}.txt"))
    lists = [[line.split() for line in file.read_text().splitlines() if line.strip()] for file in files]
    rows = [row[name] for name, _ in lists[0]]
    return features[rows], np.array([[int(value) == 1 for _, value in each] for each in lists], np.int8).T


def cases(scores: NDArray[np.float64], truth: Labels, observed: Labels) -> Iterator[Case]:
    random = np.random.default_rng(0)
    for number in NEGATIVES:
        labels = observed.copy()
        for column in range(truth.shape[1]):
            negatives = np.flatnonzero(truth[:, column] == NEGATIVE)
            labels[random.choice(negatives, min(number, len(negatives)), replace=False), column] = NEGATIVE
        yield Case(f"{number} negatives of each class", labels)
    for number in FULL_ROWS:
        rows = random.choice(len(truth), number, replace=False)
        labels = observed.copy()
        labels[rows] = truth[rows]
        yield Case(f"{number} images in full", labels)
    probable = np.where(observed == UNKNOWN, infer(scores, observed).probabilities, -1)
    order = np.argsort(-probable, axis=None)
    for number in ANSWERS:
        asked = np.zeros(truth.shape, bool)
        asked.flat[order[:number]] = True
        labels = np.where(asked, truth, observed).astype(np.int8)
        yield Case(f"{number} answers, marked as asked", labels, asked)
        yield Case(f"{number} answers, not marked", labels)
    yield Case("all labels", truth)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("features", type=Path)
    parser.add_argument("files", type=Path)
    arguments = parser.parse_args()
    features = np.load(arguments.features).astype(np.float32)
    row = {Path(line).stem: number for number, line in enumerate(arguments.files.read_text().split())}
    vectors, truth = read(arguments.folder, features, row, "train")
    test_vectors, test_labels = read(arguments.folder, features, row, "val")
    observed = observe_positives(truth)
    fitted, held_out = split_validation(len(truth))
    model = OPMLClassifier().fit(vectors[fitted], observed[fitted])
    scores, test_scores = (
        model.decision_function(each).astype(np.float64) for each in (vectors[held_out], test_vectors)
    )
    print(f"share of positives {test_labels.mean():.4f}\n")
    print("| known beside one positive an image | F1 by class | F1 overall | calibration error | mean probability |")
    print("|---|---|---|---|---|")
    for case in cases(scores, truth[held_out], observed[held_out]):
        decisions = fit_decisions(scores, case.labels, asked=case.asked)
        predicted, probabilities = decisions.labels(test_scores), decisions.probabilities(test_scores)
        f1 = [precision_recall_f1(predicted, test_labels, average=average).f1 for average in ("class", "overall")]
        error = expected_calibration_error(probabilities, test_labels)
        print(f"| {case.name} | {f1[0]:.3f} | {f1[1]:.3f} | {error:.4f} | {probabilities.mean():.4f} |", flush=True)


if __name__ == "__main__":
    main()
