"""The network of a run that names none."""

from dataclasses import replace

from onepair.data.formats.read import read_dataset, recognise
from onepair.data.vectors.align import TFIDF
from onepair.errors import ConfigError
from onepair.models import packages
from onepair.remote import as_path
from onepair.runs.config import AUTO, Config, DataConfig, flatten
from onepair.runs.config_types import image_settings


def with_network(config: Config) -> Config:
    """The configuration with a backbone in place of "auto": the best that is on this machine, or tfidf for texts."""
    if config.model.backbone != AUTO:
        return config
    if config.model.weights != AUTO:
        raise ConfigError(f"model.weights {config.model.weights}: are those of which network? Name it with --backbone")
    backbone = TFIDF if _holds_texts(config.data) else packages.best_at_hand()
    chosen = replace(config, model=replace(config.model, backbone=backbone))
    if refusal := image_settings(flatten(chosen)):
        raise ConfigError(refusal)
    return chosen


def _holds_texts(data: DataConfig) -> bool:
    """Whether the rows of a table are texts, and no files of theirs are there."""
    if recognise(as_path(data.source), data.format).name != "table":
        return False
    table = read_dataset(
        data.source,
        format="table",
        images=data.images,
        label_columns=data.label_columns or None,
        report=lambda _: None,
    )
    return table.ids
