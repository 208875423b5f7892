"""The paper's tables and figures by their names: their runs, their files, and what is left to do."""

import logging
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from onepair.errors import UserError
from onepair.experiments.records import EXPERIMENTS, Experiment, find_experiment
from onepair.experiments.study import Step, Study, make_plan
from onepair.experiments.tables import ResultTable, make_tables, write_output
from onepair.files import writing
from onepair.words import counted

_log = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Reproduced:
    """Tables and figures of the paper, made anew.

    Args:
        tables: the results beside the published ones, a table for each dataset.
        files: all that was written.
        plan: of a dry run, what there is to do.
    """

    tables: Sequence[ResultTable] = ()
    files: Sequence[Path] = ()
    plan: Sequence[Step] = ()

    def __repr__(self) -> str:
        return f"Reproduced({counted(len(self.tables), 'table')}, {counted(len(self.files), 'file')})"


def reproduce(what: str, study: Study, *, settings: Sequence[str] = (), dry_run: bool = False) -> Reproduced:
    """Do the runs of a table or figure, or of all, and write what comes of them into the folder of the study.

    Args:
        what: a name of `EXPERIMENTS`, or "all".
        study: does the runs.
        settings: its settings for all runs, as they are typed.
        dry_run: only plan them.
    """
    experiments = _possible(list(EXPERIMENTS.values()) if what == "all" else [find_experiment(what)], study)
    if dry_run:
        return Reproduced(plan=make_plan(study, experiments))
    tables: list[ResultTable] = []
    files: list[Path] = []
    for experiment in experiments:
        _log.info(f"{experiment.name}: {experiment.title}")
        outcomes = study.run(experiment)
        with writing(study.out):
            study.out.mkdir(parents=True, exist_ok=True)
            written = write_output(study.out, experiment, outcomes, command=_command(experiment, study, settings))
        _log.info(f"wrote {', '.join(map(str, written))}")
        files += written
        if experiment.picture == "table":
            tables += make_tables(outcomes)
    return Reproduced(tables, list(dict.fromkeys(files)))


def _possible(asked: Sequence[Experiment], study: Study) -> list[Experiment]:
    """The tables and figures that have a row to show, or need none."""
    if not study.datasets and any(experiment.rows for experiment in asked):
        raise UserError("name a dataset, as --data voc2012=PATH or --data digits")
    possible = [experiment for experiment in asked if not experiment.rows or study.lines(experiment)]
    if not possible:
        has = ", ".join(row.method for row in asked[0].known_rows())
        raise UserError(f"{asked[0].name} has no row of {', '.join(study.methods)}; its methods are {has}")
    return possible


def _command(experiment: Experiment, study: Study, settings: Sequence[str]) -> str:
    """The command that makes a table or figure, but for where the data are kept."""
    overrides = study.overrides
    parts = ["onepair", "reproduce", experiment.name]
    if experiment.rows:
        parts += [part for dataset in study.datasets for part in ("--data", dataset.argument)]
        parts += ["--mode", overrides.mode]
        parts += ["--backbone", overrides.backbone] if overrides.backbone else []
        parts += ["--methods", ",".join(study.methods)] if study.methods else []
        parts += ["--seeds", str(study.seeds), "--search", "grid" if study.search else "none"]
        parts += ["--epochs", str(overrides.epochs)] if overrides.epochs else []
        parts += [part for setting in settings for part in ("--set", setting)]
    return shlex.join(parts)
