"""Labels with holes in scikit-learn: an estimator like any other, with calibrated probabilities.

    python examples/sklearn_pipeline.py

Orders of a made-up shop, each tagged with one of the things it asks for; what it was not tagged with is NaN.
"""

import random

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline

from onepair import CalibratedMultiLabel, OPMLClassifier, mean_average_precision

THINGS = ("apples", "bread", "cheese", "dates", "eggs", "figs", "grapes", "honey")
OTHER_WORDS = ("please", "send", "me", "some", "and", "two", "boxes", "of", "soon", "thanks")


def make_orders(number: int, *, seed: int) -> tuple[list[str], np.ndarray]:
    """Texts that ask for one to four things, and which ones, (orders, things) of 0 and 1."""
    chance, texts, labels = random.Random(seed), [], np.zeros((number, len(THINGS)))
    for row in labels:
        things = chance.sample(range(len(THINGS)), chance.randint(1, 4))
        row[things] = 1
        words = [*(THINGS[thing] for thing in things), *chance.sample(OTHER_WORDS, 6)]
        texts.append(" ".join(chance.sample(words, len(words))))
    return texts, labels


def keep_one(labels: np.ndarray) -> np.ndarray:
    """One of the positives of every row; all else is unknown."""
    chance, observed = np.random.default_rng(0), np.full_like(labels, np.nan)
    for row, kept in zip(labels, observed, strict=True):
        kept[chance.choice(np.flatnonzero(row))] = 1
    return observed


def main() -> float:
    texts, labels = make_orders(500, seed=0)
    # The penalty chooses itself; probabilities and thresholds are fitted to out-of-fold scores.
    model = make_pipeline(TfidfVectorizer(), CalibratedMultiLabel(OPMLClassifier(method="opml-plus")))
    model.fit(texts, keep_one(labels))
    test_texts, test_labels = make_orders(300, seed=1)
    chances = dict(zip(THINGS, model.predict_proba(["bread and honey please"])[0].round(2).tolist(), strict=True))
    print(f"C = {model[-1].estimator_.C_:.3g}; bread and honey: {chances}")
    return mean_average_precision(model.decision_function(test_texts), test_labels).value


if __name__ == "__main__":
    print(f"test mAP {100 * main():.1f}")
