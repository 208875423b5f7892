"""Datasets: readers of the common formats, all to one `LabelTable`, and writers."""

from onepair.data.labeltable import LabelTable
from onepair.data.problems import DataError, Problem
from onepair.data.reading import FORMATS, read_dataset
from onepair.data.table_writing import write_table
from onepair.data.writing import write_labels

__all__ = ["FORMATS", "DataError", "LabelTable", "Problem", "read_dataset", "write_labels", "write_table"]
