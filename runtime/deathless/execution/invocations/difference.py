"""The first difference between a handler that is run again and what was written down of it, in words.

    asks for stock.take in turn 2, had asked for stock.reserve
    ends in turn 2 with DL3014 ValueError: no stock, where it had waited
    leaves another state in turn 3

One object is for one run. It is told what the handler has asked for behind each of its turns, and raises Unfit at the
first thing that is other. Guarantees: a function of both runs. Does not: run anything. Imports base and codec.
"""

from __future__ import annotations

from typing import Final

import msgspec

from deathless.codec.map_entries import take_apart
from deathless.codec.untrusted import read_msgpack
from deathless.codec.wire import ReplyError, Status
from deathless.execution.invocations.comparison import Comparison
from deathless.execution.invocations.journal import SuspendedInvocation
from deathless.execution.invocations.misfits import (
    ACTIVITY_GONE,
    IN_FLIGHT_DIFFERS,
    RESULT_TYPE,
    STATE_DIFFERS,
    Unfit,
    UnfitInvocation,
)
from deathless.execution.maps.table import Look, Seen
from deathless.execution.turn.asked_operation import AskedRun, decode_asked, name_of, tell_apart
from deathless.execution.turn.operations import Operation
from deathless.execution.turn.turn import Asked
from deathless.execution.values.failure import FATAL, bounded

_ERROR: Final = Status.ERROR
_TEXT_MAX: Final = 300


class Recorded:
    """What an invocation has asked for so far."""

    __slots__ = ("bytes", "prints", "records")

    def __init__(self) -> None:
        self.records: list[bytes] = []  # of each thing, in order (see asked_operation)
        self.bytes = 0  # that these keep
        self.prints: list[int] = []  # checksums of the same, where it is compared by them (see Settings.prints)

    def add(self, asked: Asked) -> None:
        """Take in what a turn asked for."""
        self.records += asked.records
        self.bytes += asked.bytes
        self.prints += asked.prints


def misfit_of(record: SuspendedInvocation, code: str, what: str, turn: int = 0) -> UnfitInvocation:
    """Make the misfit of an invocation."""
    received = record.received
    return UnfitInvocation(code, received.method, record.id, received.key.decode(errors="replace"), what, turn)


class Differences:
    """Compares one run.

    Args:
        record: what was written down.
        comparison: says what is the same.
    """

    __slots__ = ("_checked", "_comparison", "_given", "_record")

    def __init__(self, record: SuspendedInvocation, comparison: Comparison) -> None:
        self._record = record
        self._comparison = comparison
        self._checked = 0  # of what it asked for, so much is the same
        self._given: list[Operation[object]] = []  # that it was given a result for

    def given(self, operation: Operation[object]) -> None:
        """It was given a result."""
        self._given.append(operation)

    def check(self, recorded: Recorded, turn: int, ended: bytes, look: Look | None) -> None:
        """Compare behind a turn.

        Args:
            recorded: all that it has asked for.
            turn: from 1.
            ended: reply that the turn ended with; empty: it waits.
            look: what it sees of its maps; None: it has none.

        Raises: Unfit.
        """
        if look is not None and look.differs is not None:
            raise self._other_look(*look.differs, turn)
        before, asked, prints = self._record.asked, recorded.records, recorded.prints
        if before is None:
            known = self._record.prints
            if prints[self._checked :] != known[self._checked : len(prints)]:
                raise self._unfit(IN_FLIGHT_DIFFERS, f"asks for something else in turn {turn} than it had", turn)
            self._checked = len(prints)
            return
        for at in range(self._checked, len(asked)):
            if at >= len(before) or not self._comparison.same_operation(before[at], asked[at]):
                raise self._other(before[at] if at < len(before) else b"", asked[at], turn, b"")
        self._checked = len(asked)
        if ended:
            raise self.elsewhere(turn, ended)

    def elsewhere(self, turn: int, ended: bytes) -> Unfit:
        """Give the misfit of one that does not wait for what it had waited for; `ended` as for `check`."""
        before = self._record.asked
        if before is not None and self._checked < len(before):
            return self._other(before[self._checked], b"", turn, ended)
        what = f"{_end_of(ended, turn)}, where it had waited" if ended else f"waits for something else in turn {turn}"
        return self._unfit(IN_FLIGHT_DIFFERS, what, turn)

    def check_end(self, turn: int, state: bytes, kept: bytes | None, hashed: bytes) -> None:
        """Compare at the end of the run.

        Args:
            turn: the last one.
            state: that it leaves.
            kept: what it left before; None: nobody knows.
            hashed: hash of `state`.

        Raises: Unfit.
        """
        record = self._record
        if record.asked is None and self._checked < len(record.prints):
            raise self._unfit(IN_FLIGHT_DIFFERS, f"asks for less in turn {turn} than it had", turn)
        if record.asked is not None and self._checked < len(record.asked):
            raise self._other(record.asked[self._checked], b"", turn, b"")
        if hashed != record.state_hash and (self._comparison.strict or not self._comparison.same_state(kept, state)):
            raise self._unfit(STATE_DIFFERS, f"leaves another state in turn {turn}", turn)

    def fewer_looks(self, turn: int) -> Unfit:
        """Give the misfit of one that looks at less of its maps."""
        return self._unfit(IN_FLIGHT_DIFFERS, f"looks at fewer items of its maps in turn {turn} than it had", turn)

    def _other_look(self, before: Seen | None, now: Seen, turn: int) -> Unfit:
        had = "at nothing more" if before is None else f"{'behind' if before.next else 'at'} {_item(before)}"
        found = f"{'behind' if now.next else 'at'} {_item(now)}"
        what = f"looks {found} in turn {turn}, had looked {had}"
        return self._unfit(IN_FLIGHT_DIFFERS, what, turn, had, found)

    def _other(self, before: bytes, now: bytes, turn: int, ended: bytes) -> Unfit:
        code, expected, found = IN_FLIGHT_DIFFERS, "nothing more", "nothing more"
        if before and now:
            expected, found = tell_apart(decode_asked(before), decode_asked(now))
        elif before:
            expected = name_of(decode_asked(before))
        else:
            found = name_of(decode_asked(now))
        if before and isinstance(gone := decode_asked(before), AskedRun):
            code = code if self._comparison.has_activity(gone.activity) else ACTIVITY_GONE
        does = _end_of(ended, turn) if ended else f"asks for {found} in turn {turn}"
        tail = ", which the service has no more" if code == ACTIVITY_GONE else ""
        return self._unfit(code, f"{does}, had asked for {expected}{tail}", turn, expected, found)

    def _unfit(self, code: str, what: str, turn: int, expected: str = "", found: str = "") -> Unfit:
        for operation in self._given:
            if (problem := _unreadable(operation)) and not self._comparison.strict and code != ACTIVITY_GONE:
                code = RESULT_TYPE
                what = f"was given by {operation.what} what does not fit its type: {problem}; it {what}"
                break
        text = bounded(what, _TEXT_MAX)
        return Unfit(msgspec.structs.replace(misfit_of(self._record, code, text, turn), expected=expected, found=found))


def _unreadable(operation: Operation[object]) -> str:
    """Say why the result of an operation can't be read; empty: it can."""
    try:
        operation.result()
    except FATAL:
        raise
    except BaseException as error:  # noqa: BLE001  decoding runs the author's `__post_init__`
        return bounded(str(error), _TEXT_MAX)
    return ""


def _end_of(ended: bytes, turn: int) -> str:
    if ended[:1] != bytes([_ERROR]):
        return f"ends in turn {turn}"
    try:
        error = read_msgpack(ended[1:], ReplyError)
    except msgspec.MsgspecError:
        return f"fails in turn {turn}"
    return f"fails in turn {turn} with {error.code} {error.type}: {bounded(error.text, _TEXT_MAX)}"


def _item(seen: Seen) -> str:
    if not seen.entry:
        return "an item"
    if seen.entry == seen.prefix:
        return "the beginning of a map"
    entry = take_apart(seen.entry)
    return f"{entry.field}[{entry.item!r}]"
