"""The `onepair` command as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path


def onepair(*arguments: object, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own, in the folder `cwd`."""
    command = [sys.executable, "-c", "from onepair.cli.main import main; main()", *map(str, arguments)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=cwd, env=variables)
