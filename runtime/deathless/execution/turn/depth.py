"""All turns run at the same stack depth, so a handler that recurses too deep does so everywhere or nowhere.

The executor is called from different places (serving, catching up, recovery), each at another depth of the stack.
With one limit for the whole process a handler would have more room here than there, and one that catches
RecursionError would act differently. So the limit is set anew for each batch: depth now + TURN_DEPTH. Every handler
is called straight from the executor's loop, so each has exactly the same room.

The depth the interpreter counts includes calls into C, which no walk over frames sees; but it tells it when it is
asked for a limit that is too low. Where that text is another one, frames are counted.

Guarantees: `TURN_DEPTH` calls are left to a turn, wherever the executor was called from. Does not: hide the frames
above from who looks for them (`sys._getframe`, `inspect`, `traceback`: `deathless check` names those), and from
CPython 3.12 on not count recursion inside C code. Imports nothing of ours.
"""

from __future__ import annotations

import re
import sys
from typing import Final

TURN_DEPTH: Final = 1000
_set_limit: Final = sys.setrecursionlimit  # what a turn gets to see of it may be guarded
_DEPTH: Final = re.compile(r"recursion depth (\d+)")


def count_frames() -> int:
    """Give the number of Python frames below the caller's callee, this one included."""
    frame = sys._getframe()  # noqa: SLF001  the depth of the stack has no public name
    count = 1
    while frame.f_back is not None:
        frame = frame.f_back
        count += 1
    return count


def depth_in(text: str) -> int:
    """Read the depth out of the interpreter's refusal of a limit; count frames where it says nothing."""
    found = _DEPTH.search(text)
    return int(found[1]) if found else count_frames()


def enter() -> int:
    """Set the limit for turns called by the caller; give the one that stood, for `leave`."""
    before = sys.getrecursionlimit()
    try:
        _set_limit(1)  # never taken: this call itself is deeper
    except RecursionError as error:
        _set_limit(depth_in(str(error)) + TURN_DEPTH)
    return before


def leave(before: int) -> None:
    """Set the limit back that `enter` gave."""
    _set_limit(before)
