"""Which message is being run, where a supervisor can read it after a death (I11).

The worker that dies in a handler can't say which message killed it. So before each handler it writes the message's
identity into a page that another process has mapped too. Three u64 cells, in the machine's byte order:

    0  session, NOBODY while nothing is run
    1  seq of the run's first message
    2  index of the message in the run: its seq is cell 1 + cell 2

A message may cause turns of others: of handlers whose promises it completes, of messages that had waited for a key it
frees. Those are not held against it: `Blame` names each by the message that it came with, if that is in the frame being
run, and by (session 0, its id) if that is in the log. The next primary sets aside that one alone.

Guarantees: while a handler runs, the cells name its message; they still do after the process died in it. Does not:
create, map or sync the page; whoever owns it passes a buffer in. Imports base.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple, Protocol

from deathless.base.ids import SYSTEM_SESSION

CELLS: Final = 3
PAGE_BYTES: Final = 8 * CELLS
NOBODY: Final = 2**64 - 1


class Column(Protocol):
    """Numbers that can be set by index."""

    def __setitem__(self, index: int, value: int, /) -> None:
        """Set one."""
        ...


class RunningPage(Protocol):
    """Where the executor writes down whom it serves."""

    @property
    def cells(self) -> Column:
        """The cells above; the executor writes cell 2 before each message (a call for each would cost more)."""
        ...

    def enter(self, session: int, first_seq: int) -> None:
        """A run of `session` begins, its first message has `first_seq`."""
        ...

    def leave(self) -> None:
        """The run has ended. Not called when it did not: what stands then is the culprit."""
        ...


class Running(NamedTuple):
    """Identity of a message that was being run."""

    session: int
    seq: int


class Blame:
    """Who is named for turns that a message causes and that are not its own.

    Args:
        page: where it stands.
    """

    __slots__ = ("_firsts", "_page", "_runs")

    def __init__(self, page: RunningPage) -> None:
        self._page = page
        self._firsts: list[int] = []  # first lsn of each run of the frame so far, ascending
        self._runs: list[tuple[int, int, int]] = []  # of each: session, first seq, count

    def begin(self) -> None:
        """A frame begins."""
        self._firsts.clear()
        self._runs.clear()

    def enter(self, session: int, first_seq: int, first_lsn: int, count: int) -> None:
        """A run of the frame begins."""
        self._firsts.append(first_lsn)
        self._runs.append((session, first_seq, count))
        self._page.enter(session, first_seq)

    def turn_of(self, invocation: int) -> None:
        """A turn of this invocation begins, caused by the message that is named."""
        session, seq = self._name_of(invocation)
        self._page.leave()
        self._page.enter(session, seq)

    def back(self, lsn: int) -> None:
        """It has ended; the message that caused it stands at `lsn`, in the run that is being run."""
        session, first_seq, _ = self._runs[-1]
        self._page.leave()
        self._page.enter(session, first_seq)
        self._page.cells[2] = lsn - self._firsts[-1]

    def _name_of(self, invocation: int) -> tuple[int, int]:
        at = bisect_right(self._firsts, invocation) - 1
        if at >= 0:
            session, first_seq, count = self._runs[at]
            if (index := invocation - self._firsts[at]) < count:
                return session, first_seq + index
        return SYSTEM_SESSION, invocation


class Cells:
    """A RunningPage over a writable buffer of at least `PAGE_BYTES`, for instance a mapped file."""

    __slots__ = ("cells",)

    def __init__(self, buffer: bytearray | memoryview) -> None:
        self.cells = memoryview(buffer)[:PAGE_BYTES].cast("Q")
        self.leave()

    def enter(self, session: int, first_seq: int) -> None:
        """As RunningPage says. The session comes last: the cells are never read as another session's seq."""
        cells = self.cells
        cells[2] = 0
        cells[1] = first_seq
        cells[0] = session

    def leave(self) -> None:
        """As RunningPage says."""
        self.cells[0] = NOBODY


def read_running(page: bytes | bytearray | memoryview) -> Running | None:
    """Give the message a page names; None: nothing was being run."""
    session, first_seq, index = memoryview(page)[:PAGE_BYTES].cast("Q")
    return None if session == NOBODY else Running(session, first_seq + index)
