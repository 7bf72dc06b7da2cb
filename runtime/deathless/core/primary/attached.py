"""Who waits for the result of an invocation: a primary's answers to ATTACH.

    ATTACH -> its result is confirmed -> RESULTS at once: recorded data, the same for everybody who asks (I5)
           -> it runs, or its end is not confirmed -> waits for the frame that carries the result -> RESULTS
           -> nobody knows it -> waits for a proof begun from now on, a successor may (I1) -> InvocationUnknown

A connection that asks for the same again, after a doubt or a reconnect, waits once. Who waits is not logged: a client
asks the next primary again.

Guarantees: at most `waiting_results_max` wait; one more is dropped, its client asks again. Does not: prove, keep
results (core.tables.results does). Imports core, codec and base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from deathless.base.errors import InvocationUnknown
from deathless.base.limits import Limits
from deathless.codec.wire import encode_results, error_reply
from deathless.core.effects import Effect, Send
from deathless.core.events import Conn
from deathless.core.tables.results import Results


class Unknown(NamedTuple):
    """An answer that is held for a proof: that nobody knows an invocation, or a result whose frame may lack one."""

    conn: Conn
    id: int
    invocation: int
    saw_lsn: int
    reply: bytes | None = None  # None: nobody knows it


class Attached:
    """Those who wait at one primary.

    Args:
        results: the shard's; read here, changed only where frames run.
        holds: has this invocation begun and not ended?
    """

    def __init__(self, *, results: Results, holds: Callable[[int], bool], limits: Limits) -> None:
        self._results = results
        self._holds = holds
        self._max = limits.waiting_results_max
        self._waiting: dict[int, dict[tuple[Conn, int], None]] = {}  # invocation -> (connection, its id)
        self._of: dict[Conn, dict[tuple[int, int], None]] = {}  # the same by connection: (its id, invocation)
        self._unknown: list[Unknown] = []
        self._count = 0  # Invariant: of those that wait, and of the held ones, with a proof under way or not
        self._unconfirmed: dict[int, None] = {}  # invocations whose end no proof covers yet

    def received(
        self, conn: Conn, ids: Sequence[int], invocations: Sequence[int], synced_lsn: int, *, writing: bool = False
    ) -> list[Effect]:
        """Answer what is known, remember who asks for the rest.

        Args:
            conn: of who asks.
            ids: its own number for each.
            invocations: as many.
            synced_lsn: everything up to here is durable.
            writing: a frame is on its way to the log; the tables may hold already what it gave.
        """
        saw_lsn = synced_lsn + writing
        done: list[int] = []
        replies: list[bytes] = []
        for number, invocation in zip(ids, invocations, strict=True):
            reply = self._results.get(invocation) if invocation not in self._unconfirmed else None
            if reply is not None and not writing:
                done.append(number)
                replies.append(reply)
            elif self._count >= self._max:
                continue
            elif reply is None and (invocation in self._unconfirmed or self._holds(invocation)):
                waiting = self._waiting.setdefault(invocation, {})
                if (conn, number) not in waiting:
                    self._count += 1
                    waiting[conn, number] = None
                    self._of.setdefault(conn, {})[number, invocation] = None
            else:
                self._count += 1
                self._unknown.append(Unknown(conn, number, invocation, saw_lsn, reply))
        return [Send(conn, encode_results(done, replies))] if done else []

    def frame_synced(self, finished: Sequence[tuple[int, bytes]]) -> None:
        """A frame ran in which these ended."""
        self._unconfirmed.update((invocation, None) for invocation, _ in finished)

    def frame_confirmed(self, finished: Sequence[tuple[int, bytes]], out: dict[Conn, list[bytes]]) -> None:
        """Add to `out` what a confirmed frame's ends give those who wait."""
        answers: dict[Conn, tuple[list[int], list[bytes]]] = {}
        for invocation, reply in finished:
            self._unconfirmed.pop(invocation, None)
            for conn, number in self._waiting.pop(invocation, ()):
                self._count -= 1
                of_conn = self._of[conn]
                del of_conn[number, invocation]
                if not of_conn:
                    del self._of[conn]
                ids, replies = answers.setdefault(conn, ([], []))
                ids.append(number)
                replies.append(reply)
        for conn, (ids, replies) in answers.items():
            out.setdefault(conn, []).append(encode_results(ids, replies))

    @property
    def owed(self) -> bool:
        """Does an answer wait for a proof?"""
        return bool(self._unknown)

    def take(self, synced_lsn: int) -> list[Unknown]:
        """Give those that a proof which begins now covers."""
        if not self._unknown:
            return []
        taken = [each for each in self._unknown if each.saw_lsn <= synced_lsn]
        if taken:
            self._unknown = [each for each in self._unknown if each.saw_lsn > synced_lsn]
        return taken

    def release(self, proved: Sequence[Unknown], out: dict[Conn, list[bytes]]) -> None:
        """Add to `out` what these are answered."""
        for conn, number, invocation, _, reply in proved:
            self._count -= 1
            told = _unknown(invocation) if reply is None else reply
            out.setdefault(conn, []).append(encode_results([number], [told]))

    def connection_lost(self, conn: Conn) -> None:
        """Forget who is gone."""
        for number, invocation in self._of.pop(conn, ()):
            waiting = self._waiting[invocation]
            del waiting[conn, number]
            self._count -= 1
            if not waiting:
                del self._waiting[invocation]

    def check_invariants(self) -> None:
        """Raise AssertionError when the count can't be right."""
        waiting = sum(map(len, self._waiting.values()))
        assert all(self._waiting.values())
        assert all(self._of.values())
        by_conn = {(conn, number, one) for conn, of_conn in self._of.items() for number, one in of_conn}
        assert by_conn == {(conn, number, one) for one, keys in self._waiting.items() for conn, number in keys}
        assert waiting + len(self._unknown) <= self._count <= self._max


def _unknown(invocation: int) -> bytes:
    text = f"invocation {invocation} is not running, and no result of it is kept"
    return error_reply(InvocationUnknown.code, InvocationUnknown.__name__, text)
