"""`onepair features`: extract a backbone's features once, to be reused by every run."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onepair.cli.interruption import on_interrupt
from onepair.cli.reading import UNSAID, Reading, Strict, reads_data
from onepair.cli.settings import (
    Address,
    Cache,
    Engine,
    Weights,
    computed,
)
from onepair.errors import UserError
from onepair.words import counted

if TYPE_CHECKING:
    from onepair.features.store import Features


@on_interrupt("the features extracted so far are kept; the same command goes on")
@reads_data
def features(
    data: Annotated[str, typer.Argument(help="A dataset's folder or file, or 'digits' for the embedded one.")],
    backbone: Annotated[
        str | None,
        typer.Option(
            help="A network of timm's, by name, or small-cnn; by default the best whose weights are on this machine."
        ),
    ] = None,
    weights: Weights = None,
    image_size: Annotated[
        int | None, typer.Option(min=1, help="Pixels across; by default those that the weights were trained with.")
    ] = None,
    cache: Cache = None,
    engine: Engine = "auto",
    address: Address = None,
    workers: Annotated[
        int | None, typer.Option(min=0, help="Threads that read images; by default one per core.")
    ] = None,
    flipped: Annotated[bool, typer.Option("--flipped", help="Of the mirrored images, as an augmented view.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="A .npy file to write them to as well, a row for each image of the dataset.")
    ] = None,
    reading: Reading = UNSAID,
    strict: Strict = False,
) -> None:
    """Extract the features of all images of a dataset, to be found by every run on them.

    An image is known by what its file holds: what was extracted before, in whichever dataset, is not extracted again.
    """
    if out is not None and out.suffix != ".npy":
        raise UserError(f"{out}: features are written as .npy; name it so")
    place = computed(engine, address)
    table = reading.noted_table(data, strict=strict)

    from onepair.cli.progress import Narration
    from onepair.data.problems import naming
    from onepair.features.extract import extract_features
    from onepair.files import cache_folder
    from onepair.inference.torch_engine import Engines
    from onepair.models import create_backbone, parse_weights
    from onepair.models.packages import best_at_hand

    network = create_backbone(backbone or best_at_hand(), weights=parse_weights(weights), image_size=image_size)
    kept_in = cache or cache_folder()
    with Narration() as narration, place as over:
        found = extract_features(
            table,
            network,
            network.preprocessing,
            over(Engines(network, cache=kept_in)),
            folder=kept_in / "features",
            view="flipped" if flipped else "plain",
            workers=workers,
            report=naming(narration.say, strict=strict),
            on_progress=narration.extraction(),
        )
    typer.echo(f"{found.folder}: {counted(found.new, 'image')} new, {found.there:,} there before")
    if found.unreadable:
        typer.echo(f"{counted(found.unreadable, 'image')} could not be read", err=True)
    if out is not None:
        _write(out, found.features)
        typer.echo(f"{out}: {counted(len(table), 'image')} × {network.feature_dim:,} features, {found.features.dtype}")


def _write(out: Path, features: "Features") -> None:
    """Write an array that may be larger than memory."""
    import numpy as np

    from onepair.files import replacing

    # By writing, since a disk that is full ends the process where a mapped file has no room.
    with replacing(out) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(features))
        for start in range(0, len(features), 4096):
            file.write(features[start : start + 4096].tobytes())
