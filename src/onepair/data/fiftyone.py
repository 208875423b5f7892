"""FiftyOne's JSON of image classifications, written without FiftyOne."""

import json
import os

import numpy as np

from onepair.data.labeltable import LabelTable
from onepair.labels import POSITIVE


def write_fiftyone(table: LabelTable) -> bytes:
    """A table as the `labels.json` of a FiftyOneImageClassificationDataset: the positive classes of every image.

    Images are named by their whole paths, so that FiftyOne finds them wherever the file is. The format cannot tell a
    negative label from an unknown one, and has no splits: keep a table for those.
    """
    document = {
        "classes": list(table.classes),
        "labels": {
            os.path.realpath(table.path(row)): [table.classes[i] for i in np.flatnonzero(labels == POSITIVE)]
            for row, labels in enumerate(table.labels)
        },
    }
    return json.dumps(document, ensure_ascii=False, indent=1).encode()
