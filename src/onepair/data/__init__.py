"""Datasets: readers of the common formats, all to one `LabelTable`, and writers."""

from onepair.data.formats.read import FORMATS, read_dataset
from onepair.data.formats.write import write_labels
from onepair.data.label_table import LabelTable
from onepair.data.problems import DataError, Problem
from onepair.data.tables.write_table import write_table

__all__ = ["FORMATS", "DataError", "LabelTable", "Problem", "read_dataset", "write_labels", "write_table"]
