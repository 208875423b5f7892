"""`onepair find`: the labels that are probably missing, and those that are probably wrong."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onepair.cli.figures import class_table
from onepair.cli.interruption import on_interrupt
from onepair.cli.settings import Address, Cache, Engine, Workers, computed
from onepair.words import command, counted

if TYPE_CHECKING:
    from onepair.finding.summary import Finding

SHOWN = 40  # classes in the table, those that miss most; the json has them all


@on_interrupt("the models that are trained are kept; the same command goes on")
def find(
    run: Annotated[Path, typer.Argument(help="The folder of a finished run.")],
    folds: Annotated[
        int | None,
        typer.Option(
            min=2,
            help="Parts of the training images, each judged by a model of the others; of a fine-tuned network alone.",
            show_default="5",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="A .csv or .parquet file for the suggestions, besides the one in the run's folder."),
    ] = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="Keep at most this many, the most probable; by default 100,000.")
    ] = None,
    min_probability: Annotated[
        float | None, typer.Option(min=0, max=1, help="Keep suggestions this probable or more.", show_default="0.05")
    ] = None,
    maps: Annotated[bool, typer.Option("--maps/--no-maps", help="Compute where in the image each label is.")] = True,
    devices: Annotated[str, typer.Option(help="How many processes or GPUs on this machine.")] = "auto",
    accelerator: Annotated[str, typer.Option(help="cpu, cuda, mps, or auto.")] = "auto",
    workers: Workers = None,
    cache: Cache = None,
    engine: Engine = "auto",
    address: Address = None,
) -> int:
    """Find labels that are probably missing, and observed ones that are probably wrong.

    No image is judged by a model that was fitted to it. On fixed features a run has such out-of-fold scores already;
    a fine-tuned network is trained once more for each fold. The same command again goes on where it stopped.
    """
    from onepair.finding.suggestions import require_writable
    from onepair.runs.finished import FinishedRun
    from onepair.runs.task import Shared

    if out is not None:
        require_writable(out)
    place = computed(engine, address)
    shared = Shared()
    opened = FinishedRun(run, shared=shared)

    from onepair.cli.progress import Narration
    from onepair.cli.train import number_or_auto
    from onepair.files import cache_folder
    from onepair.finding.find import find_labels
    from onepair.training.hardware import Machine

    with Narration(short_epochs=False) as narration, place as over:
        machine = Machine(
            accelerator=accelerator,
            devices=number_or_auto(devices),
            workers=workers,
            cache=cache or cache_folder(),
            over=over,
            shared=shared,
        )
        found = find_labels(
            opened,
            folds=folds,
            top=top,
            min_probability=min_probability,
            maps=maps,
            machine=machine,
            watch=narration,
        )
    if out is not None:
        found.write(out)
    print_finding(found)
    if len(found.suggestions):
        file = out or run / "finding" / "suggestions.csv"
        typer.echo(f"they are in {file}; to confirm them: {command('review', run)}")
    return len(found.suggestions)


def print_finding(found: "Finding") -> None:
    """What was found, class by class."""
    from rich.console import Console
    from rich.markup import escape

    from onepair.finding.suggestions import LIKELY

    console = Console(highlight=False)
    table = class_table("observed", "missing", "between", "share", "threshold", "reach it")
    classes = sorted(found.classes, key=lambda each: -each.missing)
    for each in classes[:SHOWN]:
        table.add_row(
            escape(each.name),
            f"{each.observed:,}",
            f"{each.missing:,.0f}",
            f"{each.missing_low:,.0f} to {each.missing_high:,.0f}",
            f"{100 * each.prior:.1f} %",
            f"{each.threshold:.2f}" if each.suggested else "–",
            f"{each.suggested:,}",
        )
    console.print(table)
    if len(classes) > SHOWN:
        console.print(f"… and {len(classes) - SHOWN:,} more, in summary.json")
    value, low, high = found.missing
    observed, kinds = sum(each.observed for each in classes), found.suggestions.kind
    beside = f"{counted(observed, 'observed positive')} in {counted(len(found.files), 'image')}"
    if any(each.unknown for each in classes):
        are = "is" if f"{value:.0f}" == "1" else "are"
        count = f"about {value:,.0f} {are} missing ({low:,.0f} to {high:,.0f}), by {found.basis}"
    else:
        count = "none can be missing: all labels are known"
    console.print(f"beside {beside}, {count}", soft_wrap=True)
    missing, wrong = (int((kinds == kind).sum()) for kind in ("missing", "wrong"))
    others = f", {wrong:,} of wrong ones" if found.suspects else "; of so many labels, wrong ones are not looked for"
    likely = int((found.suggestions.probability >= LIKELY).sum())
    first = f"; more likely right than not, and first, {'is' if likely == 1 else 'are'} {likely:,}" if likely else ""
    console.print(f"{counted(missing, 'suggestion')} of missing labels{others}{first}", soft_wrap=True)
    if found.in_the_dark:
        console.print(
            "the labels do not tell how many are missing: suggested are the most probable, and answers will tell",
            soft_wrap=True,
        )
