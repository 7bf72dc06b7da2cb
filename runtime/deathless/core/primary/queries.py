"""A primary's queries: answered on the last completed turn's state, released when that can't vanish any more (I1).

    received -> run -> answered -> (linearizable) waits for a proof begun from now on that covers what it saw -> sent
                                   (stale allowed) waits until what it saw is confirmed                       -> sent

One proof serves all that waited when it began. A stale answer needs no proof of its own, but it is an output: what it
shows must be confirmed.

Guarantees: at most `pending_queries_max` are under way. Does not: run queries, prove. Imports core, codec, base.
"""

from __future__ import annotations

from collections.abc import Sequence

from deathless.base.errors import Overloaded
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.wire import BatchRefused, Type, encode_queries, struct_packet
from deathless.core.effects import Effect, RunQueries, Send
from deathless.core.events import Conn, QueriesAnswered
from deathless.core.primary.admission import Counters

QUERY_RETRY_MS = 50  # told to whom the maximum refuses


class Queries:
    """The queries that a primary has let in and not yet answered."""

    def __init__(self, limits: Limits, safeguards: Safeguards, counters: Counters) -> None:
        self._counters = counters
        self._limits = limits
        self._safeguards = safeguards
        self._running = 0  # handed out to be run
        self._answered: list[QueriesAnswered] = []  # linearizable ones without a proof
        self._stale: list[QueriesAnswered] = []  # those that saw what is not confirmed
        self._under_way = 0  # Invariant: those running, in the two lists, and with a proof under way

    def received(self, conn: Conn, stale: bool, ids: Sequence[int], messages: Sequence[bytes]) -> list[Effect]:
        """Have queries run, or refuse them (I10)."""
        if not ids:
            return []
        if self._under_way + len(ids) > self._limits.pending_queries_max:
            self._counters.refused += len(ids)
            text = f"pending queries at {self._limits.pending_queries_max}"
            body = BatchRefused(0, ids[0], Overloaded.code, text, QUERY_RETRY_MS)
            return [Send(conn, struct_packet(Type.BATCH_REFUSED, body))]
        self._counters.queries += len(ids)
        self._under_way += len(ids)
        self._running += len(ids)
        return [RunQueries(conn, ids, messages, stale)]

    def answered(self, event: QueriesAnswered, confirmed_lsn: int) -> list[Effect]:
        """Keep the answers until they may leave; gives those that may at once."""
        self._running -= len(event.ids)
        if not self._safeguards.proof_for_query or (event.stale and event.saw_lsn <= confirmed_lsn):
            self._under_way -= len(event.ids)
            return [Send(event.conn, encode_queries(event.ids, event.answers, stale=event.stale, answers=True))]
        (self._stale if event.stale else self._answered).append(event)
        return []

    def take(self, synced_lsn: int) -> list[QueriesAnswered]:
        """Give those that a proof which begins now covers."""
        if not self._answered:
            return []
        taken = [q for q in self._answered if q.saw_lsn <= synced_lsn]
        if taken:
            self._answered = [q for q in self._answered if q.saw_lsn > synced_lsn]
        return taken

    def release(self, proved: list[QueriesAnswered], confirmed_lsn: int, out: dict[Conn, list[bytes]]) -> None:
        """Add to `out` the answers that were proved, and the stale ones whose state is confirmed by now."""
        free = list(proved)
        if self._stale:
            free += [q for q in self._stale if q.saw_lsn <= confirmed_lsn]
            self._stale = [q for q in self._stale if q.saw_lsn > confirmed_lsn]
        for query in free:
            self._under_way -= len(query.ids)
            data = encode_queries(query.ids, query.answers, stale=query.stale, answers=True)
            out.setdefault(query.conn, []).append(data)

    @property
    def none(self) -> bool:
        """Is none under way, neither run nor answered?"""
        return not self._under_way

    @property
    def running(self) -> bool:
        """Are any being run?"""
        return self._running > 0

    def check_invariants(self) -> None:
        """Raise AssertionError when the count of those under way can't be right."""
        waiting = sum(len(q.ids) for q in (*self._answered, *self._stale))
        assert self._running >= 0
        assert self._running + waiting <= self._under_way <= self._limits.pending_queries_max
