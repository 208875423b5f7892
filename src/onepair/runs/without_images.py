"""Runs that look at no image: which settings they have, and which they cannot."""

from collections.abc import Mapping
from typing import Any

from onepair.data.vectors import TFIDF, VECTORS

WITHOUT_IMAGES = {VECTORS: "data.features are vectors as they are", TFIDF: "backbone tfidf makes vectors of texts"}
OF_IMAGES = ("image_size", "augment", "train_from", "weights")  # settings of the model


def with_mode(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings with the backbone that given vectors stand for, and the mode that all vectors need, unless they say it.

    >>> with_mode({"data": {"features": "clip.npy"}})["model"]
    {'mode': 'linear', 'backbone': 'vectors'}
    """
    data, model = settings.get("data"), settings.get("model", {})
    given = data.get("features") if isinstance(data, Mapping) else None
    if not isinstance(model, Mapping):
        return dict(settings)
    if given not in (None, "none"):
        model = {"backbone": VECTORS, **model}
    if model.get("backbone") in WITHOUT_IMAGES:
        model = {"mode": "linear", **model}
    return {**settings, "model": dict(model)} if model else dict(settings)


def image_settings(settings: Mapping[str, Any]) -> str | None:
    """Why settings, by their full names, do not go together, where some are about images and others are not."""
    backbone, features = settings["model.backbone"], settings["data.features"]
    if (features is not None) != (backbone == VECTORS):
        if features is None:
            return "model.backbone vectors takes those that data.features names; give them with --features"
        return f"data.features are vectors, and model.backbone {backbone} would make others; leave one of them out"
    if backbone not in WITHOUT_IMAGES:
        return None
    if settings["model.mode"] != "linear":
        return (
            f"{WITHOUT_IMAGES[backbone]}: there is no network to fine-tune; choose --mode linear instead of "
            f"{settings['model.mode']}, or leave it out"
        )
    for name in OF_IMAGES:
        if settings[f"model.{name}"] not in (None, "auto"):
            return f"{WITHOUT_IMAGES[backbone]}, and model.{name} is about images; leave it out"
    return None
