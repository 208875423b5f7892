"""Inference: one scorer over images or features, the engines under it, predictions and exported models."""
