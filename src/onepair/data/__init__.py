"""Datasets: readers of the common formats, all to one `LabelTable`, and writers."""

from onepair.data.formats import READERS, Reader, register_reader
from onepair.data.formats.read import read_dataset
from onepair.data.formats.write import write_labels, write_table
from onepair.data.label_table import LabelTable, Problem
from onepair.errors import DataError

__all__ = [
    "READERS",
    "DataError",
    "LabelTable",
    "Problem",
    "Reader",
    "read_dataset",
    "register_reader",
    "write_labels",
    "write_table",
]
