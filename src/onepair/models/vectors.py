"""The place of a network where inputs are vectors already, or texts that vectors are made of."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from onepair.data.label_table import LabelTable
from onepair.data.vectors.align import TFIDF, VECTORS
from onepair.errors import DataError
from onepair.labels import Indices
from onepair.models.backbone import Backbone

WIDTH = 512  # of the vectors that texts become, at most
TERMS = 30_000  # words and pairs of words that count, at most


class IdentityBackbone(Backbone):
    """No network at all: what it gives is what it is given. It has no preprocessing, as it sees no image."""

    def __init__(self, width: int, name: str = VECTORS) -> None:
        nn.Module.__init__(self)
        self.name, self.network, self.feature_dim = name, nn.Identity(), width

    def vectors_of(self, table: LabelTable, rows: Indices) -> NDArray[Any]:
        """The vectors (n, D) of rows of a table."""
        if table.vectors is None:
            raise DataError(f"{table.root}: the model takes vectors; name those of the table with --features")
        if table.vectors.width != self.feature_dim:
            raise DataError(
                f"{table.vectors.source}: has vectors of {table.vectors.width:,} values, and the model was trained on "
                f"{self.feature_dim:,}; compute them as those were"
            )
        return table.vectors.take(rows)


class TextBackbone(IdentityBackbone):
    """Texts as vectors: their words and pairs of words, weighted by TF-IDF and brought to fewer dimensions by an SVD.

    What it has learned from texts are tensors, saved as those of any network, and the list of terms.

    Args:
        vocabulary: the V terms that count, in their order.
        width: D, of the vectors.
    """

    def __init__(self, vocabulary: Sequence[str], width: int) -> None:
        super().__init__(width, TFIDF)
        self.vocabulary = tuple(vocabulary)
        self.network.register_buffer("idf", torch.zeros(len(self.vocabulary), dtype=torch.float64))
        self.network.register_buffer("components", torch.zeros(width, len(self.vocabulary)))

    @classmethod
    def fit(cls, texts: Sequence[str]) -> "TextBackbone":
        """What texts teach: which terms there are, how rare each is, and which of them go together."""
        from sklearn.decomposition import TruncatedSVD

        vectorizer = _vectorizer(max_features=TERMS, min_df=2 if len(texts) >= 100 else 1)
        try:
            weights = vectorizer.fit_transform(texts)
        except ValueError:  # scikit-learn's own sentence speaks of its arguments
            raise DataError("the texts of the training rows hold no words, so that nothing can be learned") from None
        width = min(WIDTH, min(weights.shape) - 1)
        if width < 1:
            raise DataError("the texts of the training rows hold one word only, so that nothing can be learned")
        found = TruncatedSVD(width, random_state=0).fit(weights)
        backbone = cls(vectorizer.get_feature_names_out().tolist(), width)
        backbone.network.load_state_dict(
            {"idf": torch.from_numpy(vectorizer.idf_), "components": torch.from_numpy(found.components_)}
        )
        return backbone.eval()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors (n, D) of texts, with values as large as a network's; zeros for one without a known term."""
        if len(texts) == 0:
            return np.empty((0, self.feature_dim), np.float32)
        vectorizer = _vectorizer(vocabulary={term: place for place, term in enumerate(self.vocabulary)})
        idf, components = (tensor.cpu().numpy() for tensor in (self._buffer("idf"), self._buffer("components")))
        vectorizer.idf_ = idf
        reduced = np.asarray(vectorizer.transform(texts) @ components.T, np.float32)
        length = np.linalg.norm(reduced, axis=1, keepdims=True)
        return np.asarray(reduced / np.where(length > 0, length, 1) * self.feature_dim**0.5, np.float32)

    def _buffer(self, name: str) -> Tensor:
        return self.network.get_buffer(name)

    def vectors_of(self, table: LabelTable, rows: Indices) -> NDArray[Any]:
        if table.texts is None:
            raise DataError(f"{table.root}: the model reads texts, and the table has no column text")
        return self.encode([table.texts[row] for row in rows.tolist()])


def _vectorizer(**options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, **options)
