"""Vectors of texts: what they are by hand, that only training texts count, and that a file gives them back."""

import itertools
import math

import numpy as np
import pytest

from onepair.data import DataError
from onepair.inference.model_files import load_model, save_model
from onepair.models import Classifier, TextBackbone
from tests.decisions import plain

TEXTS = ["red fox", "red red dog", "fox and dog", "dog"]


def by_hand(text, texts):
    """TF-IDF of words and pairs of words, as its textbook has it, by term."""

    def terms(text):
        words = [word for word in text.lower().split() if len(word) > 1]
        return words + [f"{one} {other}" for one, other in itertools.pairwise(words)]

    weights = {}
    for term in set(terms(text)):
        inside = sum(term in terms(each) for each in texts)
        idf = math.log((1 + len(texts)) / (1 + inside)) + 1
        weights[term] = (1 + math.log(terms(text).count(term))) * idf
    length = math.sqrt(sum(weight**2 for weight in weights.values()))
    return {term: weight / length for term, weight in weights.items()}


def test_vectors_keep_the_angles_of_tf_idf():
    """Of four texts, an SVD to three dimensions loses next to nothing; what is left is scaled to one length."""
    backbone = TextBackbone.fit(TEXTS)
    terms = backbone.vocabulary
    weights = np.array([[by_hand(text, TEXTS).get(term, 0.0) for term in terms] for text in TEXTS])
    _, _, axes = np.linalg.svd(weights, full_matrices=False)
    reduced = weights @ axes[: backbone.feature_dim].T
    reduced /= np.linalg.norm(reduced, axis=1, keepdims=True)
    found = backbone.encode(TEXTS) / math.sqrt(backbone.feature_dim)
    np.testing.assert_allclose(found @ found.T, reduced @ reduced.T, atol=1e-5)


def test_only_what_it_was_fitted_to_counts():
    backbone = TextBackbone.fit(TEXTS)
    assert "cat" not in backbone.vocabulary
    np.testing.assert_array_equal(backbone.encode(["cat", ""]), 0)
    np.testing.assert_array_equal(backbone.encode(["red fox cat"]), backbone.encode(["red fox"]))
    assert backbone.encode([]).shape == (0, backbone.feature_dim)


def test_it_is_the_same_each_time_and_in_a_file(tmp_path):
    texts = [" ".join(np.random.default_rng(i).choice(["one", "two", "three", "four", "five"], 6)) for i in range(120)]
    backbone = TextBackbone.fit(texts)
    assert TextBackbone.fit(texts).weights_id() == backbone.weights_id()
    classifier = Classifier(backbone, ["a", "b"])
    save_model(tmp_path, classifier, plain([0.0, 0.0]))
    again, _ = load_model(tmp_path)
    np.testing.assert_array_equal(again.backbone.encode(texts), backbone.encode(texts))
    assert TextBackbone.fit(texts[:60]).weights_id() != backbone.weights_id()


@pytest.mark.parametrize("texts", [[""], ["", "!", "?"], ["a b"], ["one", "one"]])
def test_without_words_there_is_a_sentence(texts):
    with pytest.raises(DataError, match="the texts of the training rows hold"):
        TextBackbone.fit(texts)
