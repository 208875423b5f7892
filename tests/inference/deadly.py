"""A file that kills whatever process looks at it, as an image does at which a decoder crashes."""

import os
import signal
from pathlib import Path
from typing import Any


class Deadly(type(Path())):  # type: ignore[misc]
    def stat(self, **_: Any) -> os.stat_result:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError
