"""Shifts the wall clock of every Python process that finds this file on its module path.

By as many microseconds as the file named by SHIFTED_CLOCK says at that moment. The monotonic clock stays as it is,
which is what a jump of the wall clock looks like to a process.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

_real = time.time_ns
_offset = Path(os.environ["SHIFTED_CLOCK"])


def _shifted() -> int:
    try:
        return _real() + 1000 * int(_offset.read_text() or 0)
    except (OSError, ValueError):
        return _real()


time.time_ns = _shifted
