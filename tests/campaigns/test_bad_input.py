"""The campaign of bad input, in short: other cases than the long one has, a few hundred of them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

CASES = 300


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="the campaign watches its processes as Linux has it")
def test_bad_input_is_answered_with_a_sentence():
    command = [sys.executable, "-W", "ignore", "-m", "tests.campaigns.bad_input", f"--cases={CASES}", "--seed=2"]
    place = Path(__file__).parents[2]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=place, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{CASES} cases" in done.stdout
    assert "wrong: 0" in done.stdout
