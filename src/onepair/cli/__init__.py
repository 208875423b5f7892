"""The command line: words, progress bars and exit codes around the library."""
