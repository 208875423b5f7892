"""Vectors that were computed elsewhere, in place of images."""
