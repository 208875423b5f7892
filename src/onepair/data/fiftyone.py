"""FiftyOne's JSON of image classifications, written without FiftyOne."""

import json

import numpy as np

from onepair.data.labeltable import LabelTable
from onepair.data.sources import real
from onepair.labels import POSITIVE, UNKNOWN


def write_fiftyone(table: LabelTable) -> bytes:
    """A table as the `labels.json` of a FiftyOneImageClassificationDataset: the positive classes of every image.

    Classes are named by their places in the list of all; images by their whole paths, so that FiftyOne finds them
    wherever the file is. An image of which nothing is known has null for a list. Otherwise the format cannot tell a
    negative label from an unknown one, and it has no splits: keep a table for those.
    """
    labels = {
        str(real(table.path(row))): None if (given == UNKNOWN).all() else np.flatnonzero(given == POSITIVE).tolist()
        for row, given in enumerate(table.labels)
    }
    return json.dumps({"classes": list(table.classes), "labels": labels}, ensure_ascii=False, indent=1).encode()
