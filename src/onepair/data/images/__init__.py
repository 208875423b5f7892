"""Image files: found, decoded, batched."""
