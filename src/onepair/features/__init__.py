"""Features of images: each extracted once, and stored in a folder that grows."""
