"""`onepair export`: a run's model as an ONNX file."""

from pathlib import Path
from typing import Annotated

import typer

from onepair.cli.interruption import NOTHING, on_interrupt
from onepair.errors import require_extra
from onepair.words import command


@on_interrupt(NOTHING)
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    out: Annotated[Path | None, typer.Option(help="The .onnx file; by default model.onnx in the run's folder.")] = None,
    float_input: Annotated[
        bool, typer.Option("--float-input", help="Take normalised float32 images instead of uint8 pixels.")
    ] = False,
) -> None:
    """Write a run's model as an ONNX file, to be used without torch.

    Scaled images go in; logits, calibrated probabilities and labels come out. The file is compared with torch before it
    is written.
    """
    require_extra("onnx")
    from onepair.inference.model_files import read_description

    described = read_description(run)  # or a sentence that there is no model, before torch is imported

    from onepair.inference.export import export_onnx

    file = out or run / "model.onnx"
    exported = export_onnx(run, file, float_input=float_input)
    typer.echo(f"{file}: {exported.size / 1e6:,.1f} MB")
    for title, tensors in (("in", exported.inputs), ("out", exported.outputs)):
        for tensor in tensors:
            typer.echo(f"  {title:<3}  {tensor}")
    typer.echo(f"its logits differ from torch's by at most {exported.difference:.1g}")
    inputs = "images/" if described.width is None else "vectors.npy"
    typer.echo(f"use it: {command('predict', file, inputs)}")
