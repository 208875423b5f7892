"""What is wrong with a dataset, and a dataset without it."""
