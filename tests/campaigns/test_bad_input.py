"""The campaign of bad input, in short: other cases than the long one has, a few hundred of them."""

import json
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


def test_a_tally_counts_the_last_attempt_of_each_case_and_no_line_that_was_cut(tmp_path):
    from tests.campaigns.bad_input import Counted, _counted_before

    wrong, mended, other = (
        Counted(1, 7, "runs", code, 0.5, 9, said) for code, said in ((1, "fails"), (2, None), (0, None))
    )
    lines = [json.dumps(each) for each in (wrong, other._replace(seed=2), mended, other._replace(number=8))]
    (tmp_path / "tally").write_text("\n".join(["", *lines, lines[0][:-4]]))
    assert _counted_before(tmp_path / "tally", 1) == {7: mended, 8: other._replace(number=8)}
    assert _counted_before(tmp_path / "none", 1) == {}
