"""Spans of what is over: handlers that replied, calls and activities that gave something or were given up.

Only what a message with a sampled trace context caused is noted; of everything else nothing is kept. The ids are
functions of the log (see codec.traces), so an operation that a former primary asked for ends under the id that its
callee was told.

Guarantees: nothing here enters a digest, a reply or a message. An invocation that is run again out of its journal notes
nothing: the table, which tells us, does not take part in that. Does not: know when a span ended (who confirms does),
export anything. Imports codec.
"""

from __future__ import annotations

from deathless.codec.traces import Span, SpanKind, is_sampled, span_id
from deathless.codec.wire import Status
from deathless.execution.invocations.journal import FORK, TICK, Received
from deathless.execution.turn.operations import Activity, Call, Operation
from deathless.execution.turn.turn import Settings, Turn


class Spans:
    """What is over since `take`.

    Args:
        settings: of all turns.
    """

    __slots__ = ("_noted", "_settings")

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._noted: list[Span] = []

    def __bool__(self) -> bool:
        """Is there any?"""
        return bool(self._noted)

    def take(self) -> list[Span]:
        """Give them, in order."""
        noted, self._noted = self._noted, []
        return noted

    def handled(self, received: Received, invocation: int, start_us: int, reply: bytes | None) -> None:
        """Note a handler that ended; without a reply it gives that later."""
        if not is_sampled(received.trace):
            return
        settings = self._settings
        forked = received.origin.kind in (FORK, TICK)
        self._noted.append(
            Span(
                SpanKind.FORK if forked else SpanKind.CALL,
                received.trace,
                span_id(settings.seed, settings.sharding.shard, invocation, 0),
                settings.service,
                received.method,
                received.key.decode(errors="replace"),
                invocation,
                0,
                0,
                start_us,
                _error(reply or b""),
            )
        )

    def resolved(self, operation: Operation[object], reply: bytes) -> None:
        """Note a call or an activity that gave something, or was given up."""
        turn = operation.owner
        assert isinstance(turn, Turn)
        if not is_sampled(turn.trace):
            return
        if isinstance(operation, Call):
            address, _, method = operation.what.rpartition(" ")
            service, _, rest = address.partition("/")
            kind, key, attempt = SpanKind.REQUEST, rest.partition("/")[2], 0
        elif isinstance(operation, Activity):
            service, method = self._settings.service, operation.start.name
            kind, key, attempt = SpanKind.ACTIVITY, turn.key.decode(errors="replace"), operation.start.attempt
        else:
            return
        number, error = operation.number, _error(reply)
        span = turn.span(number)
        since_us, of = operation.since_us, turn.waits
        self._noted.append(Span(kind, turn.trace, span, service, method, key, of, number, attempt, since_us, error))


def _error(reply: bytes) -> bytes:
    return reply[1:] if reply[:1] == bytes([Status.ERROR]) else b""
