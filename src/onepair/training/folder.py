"""The folder of a run: what is in it, and who may write there."""

import io
import json
import platform
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepair.errors import UserError
from onepair.files import locked, write_atomically
from onepair.training.config import Config, build_config, differences, read_config, to_toml

_VERSIONS = ("onepair", "torch", "torchvision", "timm", "lightning-fabric", "numpy", "pillow")


class RunError(UserError, RuntimeError):
    """A run's folder cannot be used."""


class RunFolder:
    """Where a run keeps everything; each file appears complete or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def opened(self, config: Config) -> Iterator[None]:
        """Hold the folder for a run with this configuration: a new run's, or the same one's as before."""
        self.require_usable(config)
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            with locked(self.path / ".lock"):
                self.require_usable(config)
                if not self._config_file.exists():
                    write_atomically(self._config_file, to_toml(config).encode())
                yield

    def require_usable(self, config: Config) -> None:
        """Refuse, before anything is written, a folder that a run with this configuration may not use."""
        with writing(self.path):
            if self._config_file.exists():
                self._require_same(config)
            # Hidden files are no reason: a lock, or what a run that was killed at its start left.
            elif self.path.exists() and not all(entry.name.startswith(".") for entry in self.path.iterdir()):
                raise RunError(f"{self.path}: holds files but no run; name another folder with --out")

    def _require_same(self, config: Config) -> None:
        changed = differences(self.config(), config)
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise RunError(
                f"{self.path}: holds a run of another configuration ({'; '.join(changed[:3])}{more}); "
                "go on with the old settings, or name another folder with --out"
            )

    def config(self) -> Config:
        return build_config(read_config(self._config_file))

    @property
    def _config_file(self) -> Path:
        return self.path / "config.toml"

    def write_environment(self, *, labels: str, weights: str, processes: int) -> None:
        """What the run ran on, for those who wonder later; a run does not go on with other labels or weights."""
        facts = {"labels": labels, "weights": weights}
        if (self.path / "environment.json").exists():
            before = json.loads((self.path / "environment.json").read_text("utf-8"))
            for name, fact in facts.items():
                if before.get(name) != fact:
                    raise RunError(
                        f"{self.path}: the {name} are not those that the run began with; "
                        "bring the old ones back, or name another folder with --out"
                    )
        versions = {name: version(name) for name in _VERSIONS}
        machine = {"python": platform.python_version(), "system": platform.platform()}
        self.write_json("environment.json", {**facts, "processes": processes, **machine, "versions": versions})

    def start_metrics(self, records: Iterable[dict[str, Any]]) -> None:
        """Write the epochs known so far, one to a line."""
        lines = "".join(f"{json.dumps(record)}\n" for record in records)
        write_atomically(self.path / "metrics.jsonl", lines.encode())

    def add_metrics(self, record: dict[str, Any]) -> None:
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(f"{json.dumps(record)}\n")

    def metrics(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.path / "metrics.jsonl").read_text().splitlines()]

    def write_scores(self, split: str, scores: NDArray[np.float32]) -> None:
        content = io.BytesIO()
        np.save(content, scores)
        write_atomically(self.path / f"scores_{split}.npy", content.getvalue())

    def scores(self, split: str) -> NDArray[np.float32]:
        scores: NDArray[np.float32] = np.load(self.path / f"scores_{split}.npy", allow_pickle=False)
        return scores

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        write_atomically(
            self.path / name, f"{json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)}\n".encode()
        )

    @property
    def finished(self) -> bool:
        return (self.path / "results.json").exists()

    def results(self) -> dict[str, Any]:
        """What a finished run found out."""
        try:
            results: dict[str, Any] = json.loads((self.path / "results.json").read_text("utf-8"))
        except FileNotFoundError:
            raise RunError(f"{self.path}: holds no finished run; train one with onepair train") from None
        return results


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's refusals to write, as of a full disk or a read-only folder, into a sentence."""
    try:
        yield
    except OSError as error:
        raise RunError(f"{error.filename or path}: cannot be written ({error.strerror or error})") from error
