"""What is printed of a program that was run again: whether it sent what was logged, and where it did not.

Does not: run it (`foreign.replay`). Imports the command line's output.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from deathless.cli.output import count

if TYPE_CHECKING:
    from deathless.foreign.replay import Differing, ReplayReport


def show_replay(report: ReplayReport) -> None:
    """Print what came of it, the verdict last."""
    if report.differs is not None:
        _show_differing(report.differs)
    if report.beyond:
        print(f"note: {count(report.beyond, 'message')} behind the last one that was logged: compared with nothing")
    ran = f"{count(report.rows, 'row')} behind the checkpoint at position {report.checkpoint}"
    verdict = "equal" if report.differs is None else "differs"
    print(f"{verdict}: {ran}; {count(report.messages, 'message')} got, {count(report.outputs, 'message')} sent")


def _show_differing(found: Differing) -> None:
    to = f"to {found.target or 'itself'}"
    where = f"position {found.first}" if found.first == found.last else f"positions {found.first} to {found.last}"
    print(f"{to}, {where}: it sent {'less' if found.fewer else 'something else'} than what was logged")
    print(f"  where     row {found.row} of what it got")
    for text in found.expected or ("the log has a digest of it alone",):
        print(f"  expected  {text}")
    for text in found.got or ("no message",):
        print(f"  got       {text}")
