"""`onepair reproduce` and `onepair compare`: the paper's tables and figures, and runs side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from onepair.cli.console import NOTHING, make_table, on_interrupt
from onepair.cli.options import MODES, FinishedRunFolder, Workers, open_run
from onepair.errors import require_extra
from onepair.words import counted

if TYPE_CHECKING:
    from onepair.experiments.study import Step
    from onepair.experiments.tables import ResultTable
    from onepair.report.compared_runs import ComparedRuns, Pair


@on_interrupt("the runs that are done are kept; the same command goes on")
def reproduce(
    what: Annotated[
        str,
        typer.Argument(
            help="table2 (single positives), table3 (common losses), table4 (ablation), table5 (full labels), "
            "table-newer (methods since the paper), fig-confidence, fig-epochs, fig-learning, fig-alpha-beta, "
            "fig-lambda, fig-known, fig-gradients, fig-gradcam, or all."
        ),
    ],
    data: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATH",
            help="voc2012, coco2014, nuswide or cub and its path; digits; or the path of any dataset. May be repeated.",
        ),
    ] = None,
    mode: Annotated[
        Literal["linear", "finetune", "linear-init"],
        typer.Option(metavar="MODE", help=MODES),
    ] = "finetune",
    backbone: Annotated[
        str | None, typer.Option(help="A network of timm; by default that of the dataset's preset.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Rows of these methods, for example bce,opml-sp; by default all."),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Runs of each row, for mean and standard deviation.")] = 3,
    search: Annotated[
        Literal["none", "grid"],
        typer.Option(help="Use the preset's settings, or a grid search by validation mAP."),
    ] = "none",
    epochs: Annotated[
        int | None, typer.Option(min=1, help="Epochs of each run; by default those of the preset or the figure.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any setting, for all runs.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder for runs, tables, figures and the report.")] = Path(
        "runs/reproduce"
    ),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what there is to do and how long it takes.")
    ] = False,
    workers: Workers = None,
) -> None:
    """Reproduce a table or figure of the paper, beside the published numbers.

    Finished runs are kept, and shared by all tables and figures in the same folder. Run the same command again to
    resume. Several processes, also on machines with a common folder, may run the command at once and share the work;
    with several GPUs, give each process one by CUDA_VISIBLE_DEVICES.
    """
    require_extra("report")
    from onepair.training.callbacks import ProgressCallback
    from onepair.training.hardware import Hardware
    from onepair.workflow import reproduce as reproduced

    with ProgressCallback(short_epochs=False) as progress:
        found = reproduced(
            what,
            data or (),
            out=out,
            mode=mode,
            backbone=backbone,
            methods=methods.split(",") if methods else (),
            seeds=seeds,
            search=search == "grid",
            epochs=epochs,
            settings=settings or (),
            dry_run=dry_run,
            hardware=Hardware(devices=1, workers=workers),
            callbacks=[progress],
            progress=False,
        )
    if dry_run:
        _print_plan(found.plan)
    _print_tables(found.tables)


def _print_tables(tables: "Sequence[ResultTable]") -> None:
    from rich.console import Console

    from onepair.experiments.tables import signed

    for results in tables:
        table = make_table("labels", "method", ">test mAP", ">paper", ">difference", title=results.dataset.title)
        for result in results.results:
            table.add_row(
                result.row.shown_labels,
                result.row.title,
                str(result.ours or "failed"),
                str(result.paper or "–"),
                "–" if result.difference is None else signed(result.difference),
                style={1: "bold", 2: "underline"}.get(results.place(result) or 0),
            )
        Console(highlight=False).print(table)


def _print_plan(plan: "Sequence[Step]") -> None:
    from rich.console import Console

    from onepair.words import duration

    console = Console(highlight=False)
    table = make_table("for", "dataset", "method", "labels", ">search", ">runs", ">to do", ">time")
    for step in plan:
        dataset, row = step.line
        table.add_row(
            step.experiment.name,
            dataset.title,
            row.title,
            row.shown_labels,
            f"{step.search_done}/{step.search}",
            f"{step.runs_done}/{step.runs}",
            str(step.left),
            duration(step.seconds) if step.left else "",
        )
    console.print(table)
    left, seconds = sum(step.left for step in plan), sum(step.seconds for step in plan)
    basis = "a guess for two cores" if any(step.guessed for step in plan) else "as the finished runs took"
    console.print(
        f"{counted(left, 'run')} to do, about {duration(seconds)} ({basis})" if left else "nothing left to do"
    )


@on_interrupt(NOTHING)
def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN RUN ...", help="The folders of finished runs.")],
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples of the test images.")] = 1000,
    seed: Annotated[int, typer.Option(min=0, help="The random seed of the bootstrap.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write a report with charts to this HTML file.")] = None,
) -> None:
    """Compare runs, and say whether each difference in test mAP is real or could be noise.

    A paired bootstrap over the test images gives a confidence interval of 95 %; a difference whose interval excludes
    zero is called real. It accounts for the choice of test images, not for the seed of training.
    """
    if out is not None:
        require_extra("report")
    from onepair.runs.finished import protect_inputs
    from onepair.workflow import compare as compared

    for run in runs:
        protect_inputs(out, run=run)
    found = compared(runs, resamples=resamples, seed=seed)
    _print_runs(found)
    _print_pairs(found.pairs)
    if found.sampled:
        typer.echo(f"mAP and differences are by {found.sampled}")
    if out is not None:
        found.write(out)
        typer.echo(f"The report is {out}")


@on_interrupt(NOTHING)
def report(
    run: FinishedRunFolder,
    out: Annotated[Path, typer.Option(help="The HTML file to write.")] = Path("report.html"),
) -> None:
    """Write a report on a run: one page with its figures, charts, and test images with their predictions.

    The run must have been tested. To put several runs side by side: onepair compare --out.
    """
    require_extra("report")
    open_run(run).report(out)
    typer.echo(f"The report is {out}")


def _print_runs(found: "ComparedRuns") -> None:
    """The runs by name, their results, and what differs in their settings."""
    from rich.console import Console
    from rich.markup import escape

    from onepair.runs.config import value_text
    from onepair.words import points

    table = make_table("run", "method", ">best epoch", ">validation", ">test mAP", ">F1")
    for run in found.runs:
        table.add_row(
            escape(run.name),
            run.run.title,
            "–" if run.run.results.best_epoch is None else str(run.run.results.best_epoch),
            points(run.run.results.validation_map),
            points(run.test_map),
            points(run.summary().f1),
        )
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    differing = {key: values for key, values in found.settings.items() if key != "method.name"}
    for key, values in differing.items():
        each = (f"{value_text(value)} in {run.name}" for run, value in zip(found.runs, values, strict=True))
        console.print(f"{key}: {', '.join(each)}", markup=False)


def _print_pairs(pairs: "Sequence[Pair]") -> None:
    from rich.console import Console

    table = make_table("", ">difference", ">95 % interval", "verdict")
    for pair in pairs:
        table.add_row(*pair.cells)
    Console(highlight=False).print(table)
