"""A run that looks finished, without any training."""

from pathlib import Path

from onepair.errors import UserError
from onepair.runs.config import Config, to_toml
from onepair.runs.folder import Results, RunFolder
from onepair.runs.task import prepare_task


def pretend_finished(folder: Path, config: Config) -> RunFolder:
    """The folder of a run but for its model: configuration, environment and results."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text(to_toml(config))
    run = RunFolder(folder)
    try:
        data = prepare_task(config.data).table.fingerprint()
    except UserError:
        data = "of a dataset that is gone"
    run.write_environment(data=data, weights="", processes=1)
    run.write_results(Results(method=config.method.name, best_epoch=1, selected_on="nothing", validation_map=0.5))
    return run
