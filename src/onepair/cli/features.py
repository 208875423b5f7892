"""`onepair features`: extract a backbone's features once, to be reused by every run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from onepair.data.feature_store import Features


def features(
    data: Annotated[str, typer.Argument(help="A dataset's folder or file, or 'digits' for the embedded one.")],
    backbone: Annotated[str, typer.Option(help="A network of timm's, by name.")] = "resnet50.tv_in1k",
    weights: Annotated[
        str | None,
        typer.Option(
            help="A file of weights (safetensors or a torch state dict), 'pretrained' to download, or 'none'."
        ),
    ] = None,
    image_size: Annotated[
        int | None, typer.Option(help="Pixels across, if not what the weights were trained with.")
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="The folder that features are kept in; by default the user's cache.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Threads that read images; by default one per core.")] = None,
    flipped: Annotated[bool, typer.Option("--flipped", help="Of the mirrored images, as an augmented view.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="A .npy file to write them to as well, a row for each image of the dataset.")
    ] = None,
    format: Annotated[str, typer.Option(help="The dataset's format; auto goes by the layout.")] = "auto",
) -> None:
    """Extract the features of all images of a dataset, to be found by every run on them.

    An image is known by what its file holds: what was extracted before, in whichever dataset, is not extracted again.
    """
    from onepair.cli.progress import Narration
    from onepair.data.features import extract_features
    from onepair.data.reading import read_dataset
    from onepair.errors import UserError
    from onepair.files import cache_folder
    from onepair.inference.choice import Engines
    from onepair.models import create_backbone, parse_weights

    if out is not None and out.suffix != ".npy":
        raise UserError(f"{out}: features are written as .npy; name it so")
    table = read_dataset(data, format=format)
    network = create_backbone(backbone, weights=parse_weights(weights), image_size=image_size)
    folder = cache or cache_folder()
    with Narration() as narration:
        found = extract_features(
            table,
            network,
            network.preprocessing,
            Engines(network, cache=folder),
            folder=folder / "features",
            view="flipped" if flipped else "plain",
            workers=workers,
            report=lambda problem: narration.say(f"left out: {problem}"),
            on_progress=narration.extraction(),
        )
    typer.echo(f"{found.folder}: {found.new:,} images are new, {found.there:,} were there")
    if found.unreadable:
        typer.echo(f"{found.unreadable:,} could not be read", err=True)
    if out is not None:
        _write(out, found.features)
        typer.echo(f"{out}: {len(table):,} images × {network.feature_dim:,} features, {found.features.dtype}")


def _write(out: Path, features: "Features") -> None:
    """Write an array that may be larger than memory."""
    import numpy as np

    from onepair.files import writing

    with writing(out):
        part = out.with_name(f".{out.name}")
        array = np.lib.format.open_memmap(part, "w+", features.dtype, features.shape)
        for start in range(0, len(features), 4096):
            array[start : start + 4096] = features[start : start + 4096]
        array.flush()
        part.replace(out)
