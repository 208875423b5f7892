"""Training: one loop for every method, and runs that resume where they stopped."""
