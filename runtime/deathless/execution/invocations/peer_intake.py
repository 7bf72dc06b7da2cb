"""Messages of peers as the table of invocations knows them: FORK, REQUEST, RESPONSE and CANCEL taken apart.

Guarantees: one that can't be read changes nothing, and every replica notes the same of it. Does not: check who sent it
(the session did). Imports base and codec.
"""

from __future__ import annotations

from typing import Final

from deathless.base.errors import CorruptFrame, InvalidArgument
from deathless.codec.messages import Kind, Message, decode
from deathless.codec.peer_messages import SELF, Reference, Target, TracedFork, TracedRequest, decode_body
from deathless.codec.traces import readable
from deathless.codec.wire import error_reply
from deathless.execution.invocations.all_invocations import Invocations
from deathless.execution.invocations.arrivals import Arrivals
from deathless.execution.invocations.journal import FORK, REQUEST, TICK, Origin, Received

MALFORMED: Final = error_reply(InvalidArgument.code, InvalidArgument.__name__, "the message is malformed")


def take_in(table: Invocations, arrivals: Arrivals, peer: Target, message: bytes, lsn: int, now_us: int) -> bytes:
    """Run one message of a peer and all it causes; give what that wrote.

    Args:
        table: runs what it asks for.
        arrivals: take replies and cancellations.
        peer: who sent it.
        message: as codec.messages describes.
        lsn: of the message.
        now_us: logical time, microseconds.
    """
    try:
        taken = decode(message)
        match taken.kind:
            case Kind.FORK:
                sender = decode_body(TracedFork, taken.idempotency_key)
                schedule = sender.schedule
                origin = Origin(TICK, schedule) if schedule and peer == SELF else Origin(FORK, *peer)
                # Its chain ends here: none of those waits for this one, so coming back to them is no ring.
                reply = table.receive(_received(origin, taken, (), 0, sender.trace), lsn, now_us)
                if reply is not None:
                    table.answer(origin, lsn, reply)
            case Kind.REQUEST:
                asked = decode_body(TracedRequest, taken.idempotency_key)
                if table.tables.works_for(peer, asked.invocation, asked.operation) is not None:
                    return MALFORMED  # a reference names one request: who works for it stands in no checkpoint
                origin = Origin(REQUEST, *peer, asked.invocation, asked.operation)
                # Another service's deadline is by its own clock: it cancels by itself once that has passed.
                ours = peer == SELF or table.times.single
                received = _received(origin, taken, asked.chain, asked.deadline_us if ours else 0, asked.trace)
                reply = table.receive(received, lsn, now_us)
                if reply is not None:
                    table.respond(origin, reply)
            case Kind.RESPONSE:
                arrivals.response(peer, decode_body(Reference, taken.idempotency_key), taken.args, lsn, now_us)
            case Kind.CANCEL:
                arrivals.cancel_of(peer, decode_body(Reference, taken.idempotency_key), lsn, now_us)
            case _:
                return MALFORMED
    except CorruptFrame:
        return MALFORMED
    table.run_todo(lsn, now_us)
    return table.take_wrote()


def is_plain_sender(envelope: bytes) -> bool:
    """Can the envelope of a FORK be read, and holds it no trace context?"""
    try:
        return not decode_body(TracedFork, envelope).trace
    except CorruptFrame:
        return False


def _received(origin: Origin, taken: Message, chain: tuple[str, ...], deadline_us: int, trace: bytes) -> Received:
    method = taken.method.decode(errors="backslashreplace")
    return Received(origin, method, taken.key, taken.args, chain, deadline_us, readable(trace))
