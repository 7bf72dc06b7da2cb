"""What a client has asked and not yet been answered: the calls of a session, and queries; pure.

A call's life: queued -> sent -> answered. Sent calls carry consecutive seqs of the session; the server takes only the
next expected one (I3), so what it did not take is sent again from there, in order ("go back N"). A call is kept,
byte for byte, until its reply is here, and the acknowledgement never passes a call without one (I5).

    base            lowest seq without a reply; everything below is acknowledged
    cursor          next seq to send on the present connection; `rewind` moves it back
    next_seq        seq that the next queued call will get

Seqs are given when a call is first sent, so a queued call can be withdrawn without a gap. Seqs are never given
twice with other content in one session: where a call is refused for good, the session is given up (`retire`).

Guarantees: replies are handed out once per call, in any order they come; memory is bounded by the window, in calls
and bytes, plus the queue, which its owner bounds. Does not: encode packets, know connections or time. Imports
nothing of ours.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, Generic, NamedTuple, TypeVar

W = TypeVar("W")
"""What stands for the one who waits; opaque here."""

COMPACT_AT: Final = 4096  # answered calls at the front of the columns before these are shortened


class Slice(NamedTuple):
    """Consecutive calls to send in one packet; `ends` are end offsets of the messages once joined."""

    first_seq: int
    messages: list[bytes]
    ends: list[int]


class CallWindow(Generic[W]):
    """Calls of one session.

    Args:
        window_max: sent calls without a reply, at most.
        window_bytes_max: their bytes, at most; a single larger call goes alone.
    """

    __slots__ = (
        "_head",
        "_messages",
        "_queued",
        "_queued_waiters",
        "_waiters",
        "answered",
        "base",
        "bytes_in_flight",
        "cursor",
        "in_flight",
        "next_seq",
        "queued_bytes",
        "window_bytes_max",
        "window_max",
    )

    def __init__(self, *, window_max: int, window_bytes_max: int) -> None:
        assert window_max > 0
        assert window_bytes_max > 0
        self.window_max = window_max
        self.window_bytes_max = window_bytes_max
        self.base = 1
        self.answered = 0  # highest seq with a reply. Invariant: below next_seq
        self.cursor = 1  # Invariant: base <= cursor <= next_seq
        self.next_seq = 1
        self.in_flight = 0  # sent calls without a reply
        self.bytes_in_flight = 0  # their bytes
        self._messages: list[bytes | None] = []  # column of sent calls; None: answered
        self._waiters: list[W | None] = []  # column beside it
        self._head = 0  # index of `base` in the columns
        self.queued_bytes = 0  # of calls that were never sent
        self._queued: list[bytes] = []
        self._queued_waiters: list[W] = []

    @property
    def acked(self) -> int:
        """Every reply up to this seq is here."""
        return self.base - 1

    @property
    def queued(self) -> int:
        """Count of calls that were never sent."""
        return len(self._queued)

    @property
    def unsent(self) -> bool:
        """Something could be sent if the window allows."""
        return self.cursor < self.next_seq or bool(self._queued)

    def submit(self, messages: Sequence[bytes], waiters: Sequence[W]) -> None:
        """Queue calls; message i is waited for by waiter i."""
        assert len(messages) == len(waiters)
        self._queued.extend(messages)
        self.queued_bytes += sum(map(len, messages))
        self._queued_waiters.extend(waiters)

    def withdraw(self, waiter: W) -> bool:
        """Take a call back that was never sent. False: it was sent, or is not known."""
        for index, queued in enumerate(self._queued_waiters):
            if queued is waiter:
                self.queued_bytes -= len(self._queued.pop(index))
                del self._queued_waiters[index]
                return True
        return False

    def withdraw_many(self, waiters: Sequence[W]) -> list[W]:
        """Take those calls back that were never sent; gives their waiters."""
        wanted = set(map(id, waiters))
        pairs = list(zip(self._queued, self._queued_waiters, strict=True))
        kept = [pair for pair in pairs if id(pair[1]) not in wanted]
        self._queued = [message for message, _ in kept]
        self.queued_bytes = sum(map(len, self._queued))
        self._queued_waiters = [waiter for _, waiter in kept]
        return [waiter for _, waiter in pairs if id(waiter) in wanted]

    def withdraw_all(self) -> list[W]:
        """Take all calls back that were never sent; gives their waiters."""
        waiters, self._queued_waiters = self._queued_waiters, []
        self._queued = []
        self.queued_bytes = 0
        return waiters

    def withdraw_longer(self, message_bytes_max: int) -> list[W]:
        """Take calls back that were never sent and are longer than the server takes; gives their waiters."""
        if not self._queued or max(map(len, self._queued)) <= message_bytes_max:
            return []
        pairs = list(zip(self._queued, self._queued_waiters, strict=True))
        kept = [pair for pair in pairs if len(pair[0]) <= message_bytes_max]
        self._queued = [message for message, _ in kept]
        self.queued_bytes = sum(map(len, self._queued))
        self._queued_waiters = [waiter for _, waiter in kept]
        return [waiter for message, waiter in pairs if len(message) > message_bytes_max]

    def take(self, *, count_max: int, bytes_max: int, only_again: bool = False) -> Slice | None:
        """Give the next calls to send: first those to be sent again, then queued ones as the window allows.

        Args:
            count_max: calls in one packet, at most.
            bytes_max: their bytes, at most; a single larger one goes alone.
            only_again: nothing that was never sent.

        Returns: a slice, and moves the cursor behind it; None: nothing to send now.
        """
        if self.cursor < self.next_seq:
            again = self._take_again(count_max, bytes_max)
            if again is not None:
                return again
        if not self._queued or only_again:
            return None
        room = self.window_max - (self.next_seq - self.base)
        budget = min(bytes_max, self.window_bytes_max - self.bytes_in_flight)
        if room <= 0 or (budget <= 0 and self.in_flight):
            return None
        messages = self._queued[: min(count_max, room)]
        ends = list(accumulate(map(len, messages)))
        count = len(messages)
        if ends[-1] > budget:
            count = bisect_right(ends, budget)
            if count == 0:
                if self.in_flight and ends[0] > self.window_bytes_max - self.bytes_in_flight:
                    return None
                count = 1
            messages = messages[:count]
            ends = ends[:count]
        self._messages.extend(messages)
        self._waiters.extend(self._queued_waiters[:count])
        del self._queued[:count]
        del self._queued_waiters[:count]
        first = self.next_seq
        self.next_seq = self.cursor = first + count
        self.in_flight += count
        self.bytes_in_flight += ends[-1]
        self.queued_bytes -= ends[-1]
        return Slice(first, messages, ends)

    @property
    def idle(self) -> bool:
        """Is nothing sent without a reply, and nothing queued?"""
        return not self.in_flight and not self._queued and self.cursor == self.next_seq

    def send_alone(self, message: bytes, waiter: W) -> int:
        """Take a call that is sent at once while nothing else is there; gives its seq."""
        assert self.idle
        seq = self.next_seq
        self._messages.append(message)
        self._waiters.append(waiter)
        self.next_seq = self.cursor = seq + 1
        self.in_flight = 1
        self.bytes_in_flight = len(message)
        return seq

    def answer_alone(self) -> W:
        """Take the reply to the only call in flight, which is the oldest there is; gives who waits for it."""
        assert self.in_flight == 1 and self.base == self.next_seq - 1
        (waiter,) = self._waiters[self._head :]
        assert waiter is not None
        self._messages.clear()
        self._waiters.clear()
        self._head = self.in_flight = self.bytes_in_flight = 0
        self.answered = self.base
        self.base = self.cursor = self.next_seq
        return waiter

    def _take_again(self, count_max: int, bytes_max: int) -> Slice | None:
        """Give the next stretch of sent calls without a reply at or behind the cursor."""
        column = self._messages
        at = self._head + max(self.cursor, self.base) - self.base
        end = len(column)
        while at < end and column[at] is None:
            at += 1
        messages: list[bytes] = []
        ends: list[int] = []
        size = 0
        first = self.base + at - self._head
        while at < end and len(messages) < count_max:
            message = column[at]
            if message is None or (messages and size + len(message) > bytes_max):
                break
            size += len(message)
            messages.append(message)
            ends.append(size)
            at += 1
        self.cursor = self.base + at - self._head
        return Slice(first, messages, ends) if messages else None

    def accept(self, seqs: Sequence[int], replies: list[bytes]) -> tuple[list[W], list[bytes]]:
        """Take replies in, reply i for seq i, in any order; those that were here before are dropped.

        Returns: (waiters, replies) of the calls answered now, column beside column.
        """
        count = len(seqs)
        if not count or len(replies) != count:
            return [], []
        first = seqs[0]
        low = self._head + first - self.base
        high = low + count
        columns = self._messages
        if (
            first < self.base
            or high > len(columns)
            or seqs[-1] - first + 1 != count
            or tuple(seqs) != tuple(range(first, first + count))
        ):
            return self._accept_singly(seqs, replies)
        answered = columns[low:high]
        if None in answered:
            return self._accept_singly(seqs, replies)
        waiters: list[W] = self._waiters[low:high]  # type: ignore[assignment]  # unanswered calls have waiters
        nothing = [None] * count
        columns[low:high] = nothing
        self._waiters[low:high] = nothing
        self.in_flight -= count
        self.answered = max(self.answered, seqs[-1])
        self.bytes_in_flight -= sum(map(len, answered))  # type: ignore[arg-type]  # no None in it
        if low == self._head:
            self._advance(high)
        return waiters, replies

    def _accept_singly(self, seqs: Sequence[int], replies: list[bytes]) -> tuple[list[W], list[bytes]]:
        """The slow way of `accept`: duplicates, gaps, any order."""
        waiters: list[W] = []
        fresh: list[bytes] = []
        for seq, reply in zip(seqs, replies, strict=True):
            index = self._head + seq - self.base
            if seq < self.base or index >= len(self._messages):
                continue
            message = self._messages[index]
            if message is None:
                continue
            waiter = self._waiters[index]
            assert waiter is not None
            waiters.append(waiter)
            fresh.append(reply)
            self._messages[index] = None
            self._waiters[index] = None
            self.answered = max(self.answered, seq)
            self.in_flight -= 1
            self.bytes_in_flight -= len(message)
        self._advance(self._head)
        return waiters, fresh

    def _advance(self, to: int) -> None:
        """Move the head to index `to` and over the answered calls behind it."""
        column = self._messages
        end = len(column)
        while to < end and column[to] is None:
            to += 1
        self.base += to - self._head
        self.cursor = max(self.cursor, self.base)
        self._head = to
        if to == end:
            column.clear()
            self._waiters.clear()
            self._head = 0
        elif to >= COMPACT_AT and 2 * to >= end:
            del column[:to]
            del self._waiters[:to]
            self._head = 0

    def rewind(self, seq: int) -> None:
        """Send again everything without a reply from `seq` on."""
        self.cursor = min(self.cursor, max(seq, self.base))

    def waiting_from(self, seq: int) -> list[W]:
        """Waiters of sent calls at or behind `seq` without a reply."""
        low = self._head + max(seq - self.base, 0)
        return [waiter for waiter in self._waiters[low:] if waiter is not None]

    def waiting_unsent(self) -> list[W]:
        """Waiters of calls that were never sent."""
        return list(self._queued_waiters)

    def retire(self, seq: int) -> list[W]:
        """The server will never take the call at `seq`: give it up and queue again what was sent behind it.

        No call at or behind `seq` is in the log, so these are sent in another session, once this one's earlier
        calls are answered. Returns: the waiter of the refused call; empty when it was answered.
        """
        low = self._head + max(seq - self.base, 0)
        messages, waiters = self._messages[low:], self._waiters[low:]
        del self._messages[low:]
        del self._waiters[low:]
        back = [(m, w) for m, w in zip(messages, waiters, strict=True) if m is not None and w is not None]
        self.in_flight -= len(back)
        self.bytes_in_flight -= sum(len(message) for message, _ in back)
        self.next_seq = self.base + len(self._messages) - self._head
        self.cursor = min(self.cursor, self.next_seq)
        self.answered = min(self.answered, self.next_seq - 1)
        refused = back[:1] if messages and messages[0] is not None else []
        kept = back[len(refused) :]
        self._queued[:0] = [message for message, _ in kept]
        self.queued_bytes += sum(len(message) for message, _ in kept)
        self._queued_waiters[:0] = [waiter for _, waiter in kept]
        return [waiter for _, waiter in refused]

    def restart(self) -> list[W]:
        """Begin a new session: seqs start at 1. Returns: waiters of calls that were sent and have no reply."""
        lost = [waiter for waiter in self._waiters if waiter is not None]
        self._messages.clear()
        self._waiters.clear()
        self._head = self.in_flight = self.bytes_in_flight = 0
        self.base = self.cursor = self.next_seq = 1
        self.answered = 0
        return lost

    def check_invariants(self) -> None:
        """Assert every `Invariant:` above; linear in the window."""
        live = self._messages[self._head :]
        assert len(self._messages) == len(self._waiters)
        assert len(self._queued) == len(self._queued_waiters)
        assert self.queued_bytes == sum(map(len, self._queued))
        assert self.next_seq == self.base + len(live)
        assert self.base <= self.cursor <= self.next_seq
        assert self.base - 1 <= self.answered < self.next_seq
        assert self.in_flight == sum(message is not None for message in live)
        assert self.bytes_in_flight == sum(len(message) for message in live if message is not None)
        assert all((m is None) == (w is None) for m, w in zip(self._messages, self._waiters, strict=True))
        assert not live or live[0] is not None


class QueryWindow(Generic[W]):
    """Queries without an answer; they change nothing, so they are sent again whenever in doubt.

    Args:
        in_flight_max: sent queries without an answer, at most.
    """

    __slots__ = ("_id_of", "_in_flight_max", "_next_id", "_unsent", "_waiting")

    def __init__(self, in_flight_max: int) -> None:
        self._in_flight_max = in_flight_max
        self._next_id = 1
        self._waiting: dict[int, tuple[bytes, W, bool]] = {}  # id -> (message, waiter, stale)
        self._unsent: dict[bool, dict[int, None]] = {False: {}, True: {}}  # ids per lane, in order
        self._id_of: dict[int, int] = {}  # identity of a waiter -> its id

    def __len__(self) -> int:
        """Count of queries without an answer."""
        return len(self._waiting)

    @property
    def in_flight(self) -> int:
        """Count of sent queries without an answer."""
        return len(self._waiting) - len(self._unsent[False]) - len(self._unsent[True])

    def unsent(self, stale: bool) -> bool:
        """Are there queries of this lane to send?"""
        return bool(self._unsent[stale])

    def submit(self, messages: Sequence[bytes], waiters: Sequence[W], *, stale: bool) -> None:
        """Queue queries."""
        for message, waiter in zip(messages, waiters, strict=True):
            self._waiting[self._next_id] = (message, waiter, stale)
            self._unsent[stale][self._next_id] = None
            self._id_of[id(waiter)] = self._next_id
            self._next_id += 1

    def withdraw(self, waiter: W) -> bool:
        """Forget a query. False: not known."""
        key = self._id_of.pop(id(waiter), 0)
        entry = self._waiting.pop(key, None)
        if entry is None:
            return False
        self._unsent[entry[2]].pop(key, None)
        return True

    def take(self, stale: bool, *, count_max: int, bytes_max: int) -> tuple[list[int], list[bytes]] | None:
        """Give (ids, messages) of the next packet; None: nothing to send now."""
        lane = self._unsent[stale]
        room = min(count_max, self._in_flight_max - self.in_flight)
        ids: list[int] = []
        messages: list[bytes] = []
        size = 0
        for key in lane:
            message = self._waiting[key][0]
            size += len(message)
            if len(ids) >= room or (ids and size > bytes_max):
                break
            ids.append(key)
            messages.append(message)
        for key in ids:
            del lane[key]
        return (ids, messages) if ids else None

    def accept(self, ids: Sequence[int], answers: Sequence[bytes]) -> tuple[list[W], list[bytes]]:
        """Take answers in. Returns: (waiters, answers) of those that were waited for."""
        waiters: list[W] = []
        fresh: list[bytes] = []
        for key, answer in zip(ids, answers, strict=True):
            entry = self._waiting.pop(key, None)
            if entry is not None:
                self._unsent[entry[2]].pop(key, None)
                self._id_of.pop(id(entry[1]), None)
                waiters.append(entry[1])
                fresh.append(answer)
        return waiters, fresh

    def rewind(self, first_id: int = 0) -> None:
        """Send again every query from `first_id` on that has no answer."""
        for stale in (False, True):
            self._unsent[stale] = {
                k: None
                for k, e in self._waiting.items()
                if e[2] is stale and (k >= first_id or k in self._unsent[stale])
            }

    def clear(self) -> list[W]:
        """Forget everything; gives the waiters."""
        waiters = [entry[1] for entry in self._waiting.values()]
        self._waiting.clear()
        self._unsent = {False: {}, True: {}}
        self._id_of.clear()
        return waiters
