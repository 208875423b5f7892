"""`onepair features`: extract a backbone's features once, to be reused by every run."""

from pathlib import Path
from typing import Annotated

import typer


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
    workers: Annotated[
        int | None, typer.Option(help="Processes that read images; by default the cores to spare.")
    ] = None,
    flipped: Annotated[bool, typer.Option("--flipped", help="Of the mirrored images, as an augmented view.")] = False,
    format: Annotated[str, typer.Option(help="The dataset's format; auto goes by the layout.")] = "auto",
) -> None:
    """Extract the features of all images of a dataset and print the file they are in.

    What was extracted before is not extracted again; an interrupted extraction goes on where it stopped.
    """
    from onepair.cli.progress import Narration
    from onepair.data.features import cached_features
    from onepair.data.reading import read_dataset
    from onepair.files import cache_folder
    from onepair.models import create_backbone, parse_weights

    table = read_dataset(data, format=format)
    network = create_backbone(backbone, weights=parse_weights(weights), image_size=image_size)
    with Narration() as narration:
        array = cached_features(
            table,
            network,
            network.preprocessing,
            folder=(cache or cache_folder()) / "features",
            view="flipped" if flipped else "plain",
            workers=workers,
            on_progress=narration.extraction(),
        )
    typer.echo(f"{array.filename}\n{len(array):,} images × {array.shape[1]:,} features, {array.dtype}")  # type: ignore[attr-defined]
