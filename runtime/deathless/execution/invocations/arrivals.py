"""What comes for invocations from outside their handlers: replies, time, outcomes, orders, and callers that gave up.

    RESPONSE   a call is answered                TIME      timers fire, deadlines pass
    CANCEL     a caller waits no more            OUTCOME   an activity's attempt ended: tried again, or given
    ORDER      an operator's command             ATTEMPT   an at-most-once activity may have begun
    ADOPT      a peer was created anew: what waits for it fails

Each finds the operation it is for and resolves it; one that finds none changes nothing, so that late and repeated ones
are harmless. What comes for an invocation that is held is kept, and given to it with the first TIME record behind its
coming back. Guarantees: in which order operations are resolved depends on the log alone. Does not: run turns (the
table does). Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from deathless.base.errors import Cancelled, OutcomeUnknown, PeerReplaced, TooLarge
from deathless.base.limits import Limits
from deathless.base.times import Times
from deathless.codec.peer_messages import Attempt, Order, Outcome, Reference, Target
from deathless.codec.wire import Status, error_reply, ok_reply
from deathless.execution.invocations.all_invocations import LATE, Invocations
from deathless.execution.invocations.held_invocation import HeldInvocation
from deathless.execution.invocations.invocation import CANCEL
from deathless.execution.invocations.journal import (
    CAME_ATTEMPT,
    CAME_CANCEL,
    CAME_OUTCOME,
    CAME_REPLACED,
    CAME_RESPONSE,
    CAME_VALUE,
    Came,
    Event,
)
from deathless.execution.invocations.restoration import Restoration
from deathless.execution.turn.activity import Policy, final_reply, is_unknown, next_start
from deathless.execution.turn.operations import CANCELLED, Activity, Call, Promise
from deathless.execution.values.failure import bounded, not_retryable

_NIL: Final = ok_reply(b"\xc0")
_OK: Final = bytes([Status.OK])
_READABLE: Final = (_OK, bytes([Status.ERROR]))
_UNREADABLE: Final = b"\x01"
_LOST: Final = "the primary that began it is gone"
_KILLED: Final = error_reply(Cancelled.code, Cancelled.__name__, "ended by an operator")


class Arrivals:
    """Takes them in.

    Args:
        table: whose invocations they are for.
        limits: `reply_bytes_max` is used.
        policies: of activities, by name.
        restoration: brings back what was held.
    """

    __slots__ = ("_limits", "_policies", "_table", "restoration")

    def __init__(
        self, table: Invocations, limits: Limits, policies: Mapping[str, Policy], restoration: Restoration
    ) -> None:
        self._table = table
        self.restoration = restoration
        self._limits = limits
        self._policies = policies

    def advance(self, lsn: int, times: Times, *, caught_up: bool) -> None:
        """Fire what is due, in (deadline, invocation, operation) order; ticks of schedules are sent if `caught_up`."""
        now_us = times.time_us
        if caught_up:
            self._table.send_ticks(now_us)
        for held in self._table.tables.returning():
            self._come_back(held, lsn, now_us)
        for invocation, number in self._table.tables.take_due(times):
            if (call := self._table.tables.operation(invocation, number, Call)) is not None:
                self._table.withdraw(call)
                self._table.resolve(invocation, number, LATE, lsn, now_us)
            else:
                self._table.resolve(invocation, number, _NIL, lsn, now_us)
            self._table.run_todo(lsn, now_us)

    def _come_back(self, held: HeldInvocation, lsn: int, now_us: int) -> None:
        """Have an invocation go on that was held, and give it what came meanwhile, in order."""
        table, came = self._table, list(held.came.values())
        if held.begins_anew:
            table.begin_anew(held, lsn, now_us)
            for each in came:
                self._give(held.id, each, lsn, now_us)
            table.run_todo(lsn, now_us)
            return
        if table.entering is not None:
            table.entering(held.id)
        invocation = self.restoration.bring_back(held)
        if invocation is None:
            return
        for each in came:
            if each.kind == CAME_ATTEMPT:
                self.attempt(Attempt(held.id, each.operation, each.attempt))
        ended = {each.operation for each in came if each.kind == CAME_OUTCOME}
        for operation in list(invocation.operations.values()):
            if isinstance(operation, Activity) and operation.number not in ended:
                start = operation.start
                if start.at_most_once and start.attempted:  # whoever ran it knows nothing of it any more
                    reply = error_reply(OutcomeUnknown.code, OutcomeUnknown.__name__, _LOST)
                    self.outcome(Outcome(held.id, start.operation, start.attempt, reply), lsn, now_us)
                else:
                    table.start(start)
        for each in came:
            self._give(held.id, each, lsn, now_us)
        table.run_todo(lsn, now_us)

    def _give(self, invocation: int, came: Came, lsn: int, now_us: int) -> None:
        """Give an invocation one thing that came while it was held."""
        peer = Target(came.service, came.shard)
        match came.kind:
            case kind if kind == CAME_RESPONSE:
                self.response(peer, Reference(invocation, came.operation), came.reply, lsn, now_us)
            case kind if kind == CAME_OUTCOME:
                self.outcome(Outcome(invocation, came.operation, came.attempt, came.reply), lsn, now_us)
            case kind if kind == CAME_VALUE:
                self._resume_by_hand(Order("resume", invocation, came.operation, came.reply), lsn, now_us)
            case kind if kind == CAME_CANCEL:
                self._cancel(invocation, CANCELLED, lsn, now_us)
            case kind if kind == CAME_REPLACED:
                self._replaced(peer, lsn, now_us, invocation)
            case _:
                pass

    def outcome(self, outcome: Outcome, lsn: int, now_us: int) -> None:
        """Take the end of an attempt in: it is tried again, or the handler gets what it gave."""
        came = Came(CAME_OUTCOME, outcome.operation, outcome.reply, outcome.attempt)
        if self._table.keep_for(outcome.invocation, came):
            return
        activity = self._table.tables.operation(outcome.invocation, outcome.operation, Activity)
        if activity is None or outcome.attempt != activity.start.attempt:
            return
        reply = outcome.reply
        most = self._limits.reply_bytes_max
        if len(reply) > most:
            reply = not_retryable(TooLarge.__name__, f"it gave {len(reply)} bytes, at most {most}")
        if reply[:1] != _OK:
            further = next_start(
                self._policies.get(activity.start.name), activity.start, self._table.times.elapsed_us, reply
            )
            if further is not None:
                activity.start = further
                self._table.start(further)
                return
        reply = final_reply(activity.start, reply)
        if is_unknown(reply):
            self._table.note_unknown(activity.start, lsn, now_us)
        self._table.resolve(outcome.invocation, outcome.operation, reply, lsn, now_us)

    def attempt(self, attempt: Attempt) -> None:
        """Note that an at-most-once activity may have begun."""
        if self._table.keep_for(attempt.invocation, Came(CAME_ATTEMPT, attempt.operation, b"", attempt.attempt)):
            return
        activity = self._table.tables.operation(attempt.invocation, attempt.operation, Activity)
        if activity is not None and activity.start.attempt == attempt.attempt:
            activity.start = msgspec.structs.replace(activity.start, attempted=True)

    def order(self, order: Order, lsn: int, now_us: int) -> None:
        """Carry out an operator's command; one that does not fit changes nothing."""
        match order.command:
            case "cancel":
                if (held := self._table.tables.unfit.get(order.invocation)) is not None:
                    self._table.end_held(held, _cancelled(held))  # its handler can't see it, whatever it would do
                    return
                self._cancel(order.invocation, _KILLED, lsn, now_us)
            case "kill":
                self._kill(order.invocation, order.value or _KILLED)
            case "resume" if order.value[:1] in _READABLE:
                self._resume_by_hand(order, lsn, now_us)
            case _:
                pass

    def _kill(self, invocation: int, reply: bytes) -> None:
        found = self._table.tables.live.get(invocation)
        if (held := self._table.tables.unfit.get(invocation)) is not None:
            self._table.end_held(held, reply)
            return
        if found is None:
            self._drop(invocation, reply)
            return
        self._table.end(found, reply)

    def _resume_by_hand(self, order: Order, lsn: int, now_us: int) -> None:
        if order.invocation in self._table.tables.owed:
            self._table.pay(order.invocation, order.value)
            return
        if self._table.keep_for(order.invocation, Came(CAME_VALUE, order.operation, order.value)):
            return
        promises = (promise.number for at, promise in self._table.tables.operations(Promise) if at == order.invocation)
        number = order.operation or next(promises, 0)
        if self._table.tables.operation(order.invocation, number, Promise) is not None:
            self._table.resolve(order.invocation, number, order.value, lsn, now_us)

    def peer_replaced(self, target: Target, lsn: int, now_us: int) -> None:
        """Fail what waits for a peer that was created anew, and answer nobody for what it asked."""
        self._table.tables.disown(target)
        self._table.keep_for_peer(target, Came(CAME_REPLACED, service=target.service, shard=target.shard))
        self._replaced(target, lsn, now_us)

    def _replaced(self, target: Target, lsn: int, now_us: int, only: int | None = None) -> None:
        """Fail what waits for a peer; `only`: of this invocation."""
        text = f"{target.service}/{target.shard} was created anew"
        reply = error_reply(PeerReplaced.code, PeerReplaced.__name__, text)
        calls = self._table.tables.operations(Call)
        waiting = [(at, call.number) for at, call in calls if call.target == target and only in (None, at)]
        for invocation, number in waiting:
            self._table.resolve(invocation, number, reply, lsn, now_us)
            self._table.run_todo(lsn, now_us)

    def response(self, peer: Target, reference: Reference, reply: bytes, lsn: int, now_us: int) -> None:
        """Take the reply to a request in; one from another than was asked is not looked at."""
        came = Came(CAME_RESPONSE, reference.operation, reply, 0, peer.service, peer.shard)
        if self._table.keep_for(reference.invocation, came):
            return
        call = self._table.tables.operation(reference.invocation, reference.operation, Call)
        if call is None or call.target != peer:
            return
        if reply[:1] not in _READABLE:
            reply = _UNREADABLE
        self._table.resolve(reference.invocation, reference.operation, reply, lsn, now_us)

    def cancel_of(self, peer: Target, reference: Reference, lsn: int, now_us: int) -> None:
        """Take a caller's word that it does not wait any more."""
        found = self._table.tables.works_for(peer, reference.invocation, reference.operation)
        if found is not None:
            self._cancel(found, CANCELLED, lsn, now_us)

    def _cancel(self, invocation: int, reply: bytes, lsn: int, now_us: int) -> None:
        """Let a handler see Cancelled where it waits; what has not begun, or owes a reply alone, ends with `reply`."""
        if (found := self._table.tables.live.get(invocation)) is not None:
            event = Event(CANCEL, CANCELLED, lsn, now_us, None, self._table.times.elapsed_us)
            for operation in found.give(event) or ():
                self._table.undo(operation)
            self._table.resume(found, event)
        elif not self._table.keep_for(invocation, Came(CAME_CANCEL)):
            self._drop(invocation, reply)

    def _drop(self, invocation: int, reply: bytes) -> None:
        """End what has not begun, or owes a reply alone."""
        if (message := self._table.tables.waiting(invocation)) is not None:
            self._table.tables.take(message)
            self._table.answer(message.received.origin, invocation, reply)
        else:
            self._table.pay(invocation, reply)


def _cancelled(held: HeldInvocation) -> bytes:
    text = "ended by an operator"
    if held.misfit is not None:
        text = f"{text} while it was held, because the code does not fit it ({held.misfit.code}): {held.misfit}"
    return error_reply(Cancelled.code, Cancelled.__name__, bounded(text))
