"""Runs: what one is asked to do, its folder, its task, its checkpoints, and how a finished one is opened."""
