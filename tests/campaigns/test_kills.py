"""The campaign of kills and failing disks, in short: other moments than the long one has, and some file operations."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

OPTIONS = ("--times=3", "--every=31", "--seed=2", "--quick")


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the campaign watches its processes as Linux has it")
def test_whatever_ends_a_command_it_goes_on_to_the_same_bytes():
    command = [sys.executable, "-W", "ignore", "-m", "tests.campaigns.kills", *OPTIONS]
    place = Path(__file__).parents[2]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=place, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "signals at random moments: 3 SIGKILL, 3 SIGTERM, 3 SIGINT" in done.stdout
    assert "wrong: 0" in done.stdout
