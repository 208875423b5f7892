"""The formats of datasets that are read and written."""
