"""Tables of files and labels: read, understood, written."""
