"""The paper's tables and figures: records of what to run, and one runner for all of them."""
