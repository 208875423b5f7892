"""Installs onepair as others would, each time into an environment of its own, and runs `smoke.py` there.

    python -m tests.campaigns.installs lowest      # the lowest versions that pyproject.toml allows
    python -m tests.campaigns.installs pythons     # the pinned versions, under every Python that is found
    python -m tests.campaigns.installs pythons --only 3.12

Nothing but packages is downloaded, so a Python that is not on this machine is left out, and named. An environment
takes up to 6 GB; it is removed afterwards.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
LOWEST = "3.11"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def find_python(number: str) -> str | None:
    """The path of such an interpreter, if one is installed that works: on the path, or among those of pyenv."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    names = [shutil.which(f"python{number}"), *map(str, sorted(pyenv.glob(f"{number}.*/bin/python{number}")))]
    for name in filter(None, names):
        if subprocess.run([name, "-c", ""], capture_output=True, check=False).returncode == 0:
            return name
    return None


def try_installation(python: str, *options: str) -> bool:
    """Whether onepair with all extras, installed under this interpreter by these options of uv, works."""
    with tempfile.TemporaryDirectory(prefix="onepair-install-") as place:
        environment, inside = Path(place) / "venv", Path(place) / "venv" / "bin" / "python"
        steps: list[list[object]] = [
            [sys.executable, "-m", "uv", "venv", "--quiet", "--python", python, environment],
            [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--python", inside, *options, f"{ROOT}[all]"],
            [inside, "-W", "ignore", "-m", "tests.campaigns.smoke"],
        ]
        variables = {**os.environ, "OMP_NUM_THREADS": "1"}
        return all(
            subprocess.run(list(map(str, step)), cwd=ROOT, env=variables, check=False).returncode == 0 for step in steps
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", choices=["lowest", "pythons"])
    parser.add_argument("--only", choices=PYTHONS, help="this Python alone")
    asked = parser.parse_args()
    lowest = asked.which == "lowest"
    options = ["--resolution", "lowest-direct"] if lowest else ["--constraint", str(ROOT / "constraints.txt")]
    failed = []
    for number in [asked.only] if asked.only else [LOWEST] if lowest else PYTHONS:
        python = find_python(number)
        if python is None:
            print(f"Python {number}: left out, for there is no working python{number} on this machine", flush=True)
        elif not try_installation(python, *options):
            print(f"Python {number}: fails", flush=True)
            failed.append(number)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
