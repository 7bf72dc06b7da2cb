"""Where a drill's pods leave their report: the termination message, and standard output for people.

Guarantees: a file that cannot be written is no reason to lose what standard output still takes. Does not: judge.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import Final

from deathless_operator.plan.drill.reports import AgentReport, RunnerReport, encode_report

TERMINATION_LOG: Final = "/dev/termination-log"


def leave(report: RunnerReport | AgentReport, file: str) -> None:
    """Leave a report in a file and on standard output."""
    encoded = encode_report(report)
    sys.stdout.write(encoded.decode() + "\n")
    sys.stdout.flush()
    with contextlib.suppress(OSError):
        Path(file).write_bytes(encoded)
