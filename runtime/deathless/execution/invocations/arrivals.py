"""What comes for invocations from outside their handlers: replies, time, outcomes, orders, and callers that gave up.

    RESPONSE   a call is answered                TIME      timers fire, deadlines pass
    CANCEL     a caller waits no more            OUTCOME   an activity's attempt ended: tried again, or given
    ORDER      an operator's command             ATTEMPT   an at-most-once activity may have begun
    ADOPT      a peer was created anew: what waits for it fails

Each finds the operation it is for and resolves it; one that finds none changes nothing, so that late and repeated ones
are harmless. Guarantees: in which order operations are resolved depends on the log alone. Does not: run turns (the
table does). Imports base and codec.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from deathless.base.errors import Cancelled, PeerReplaced, TooLarge
from deathless.base.limits import Limits
from deathless.base.times import Times
from deathless.codec.peer_messages import Attempt, Order, Outcome, Reference, Target
from deathless.codec.wire import Status, error_reply, ok_reply
from deathless.execution.invocations.all_invocations import LATE, Invocations
from deathless.execution.invocations.invocation import CANCEL
from deathless.execution.invocations.journal import Event
from deathless.execution.turn.activity import Policy, final_reply, is_unknown, next_start
from deathless.execution.turn.operations import CANCELLED, Activity, Call, Promise
from deathless.execution.values.failure import not_retryable

_NIL: Final = ok_reply(b"\xc0")
_OK: Final = bytes([Status.OK])
_READABLE: Final = (_OK, bytes([Status.ERROR]))
_UNREADABLE: Final = b"\x01"
_KILLED: Final = error_reply(Cancelled.code, Cancelled.__name__, "ended by an operator")


class Arrivals:
    """Takes them in.

    Args:
        table: whose invocations they are for.
        limits: `reply_bytes_max` is used.
        policies: of activities, by name.
    """

    __slots__ = ("_limits", "_policies", "_table")

    def __init__(self, table: Invocations, limits: Limits, policies: Mapping[str, Policy]) -> None:
        self._table = table
        self._limits = limits
        self._policies = policies

    def advance(self, lsn: int, times: Times, *, caught_up: bool) -> None:
        """Fire what is due, in (deadline, invocation, operation) order; ticks of schedules are sent if `caught_up`."""
        now_us = times.time_us
        if caught_up:
            self._table.send_ticks(now_us)
        for invocation, number in self._table.tables.take_due(times):
            if (call := self._table.tables.operation(invocation, number, Call)) is not None:
                self._table.withdraw(call)
                self._table.resolve(invocation, number, LATE, lsn, now_us)
            else:
                self._table.resolve(invocation, number, _NIL, lsn, now_us)
            self._table.run_todo(lsn, now_us)

    def outcome(self, outcome: Outcome, lsn: int, now_us: int) -> None:
        """Take the end of an attempt in: it is tried again, or the handler gets what it gave."""
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
        activity = self._table.tables.operation(attempt.invocation, attempt.operation, Activity)
        if activity is not None and activity.start.attempt == attempt.attempt:
            activity.start = msgspec.structs.replace(activity.start, attempted=True)

    def order(self, order: Order, lsn: int, now_us: int) -> None:
        """Carry out an operator's command; one that does not fit changes nothing."""
        match order.command:
            case "cancel":
                self._cancel(order.invocation, _KILLED, lsn, now_us)
            case "kill":
                self._kill(order.invocation, order.value or _KILLED)
            case "resume" if order.value[:1] in _READABLE:
                self._resume_by_hand(order, lsn, now_us)
            case _:
                pass

    def _kill(self, invocation: int, reply: bytes) -> None:
        found = self._table.tables.live.get(invocation)
        if found is None:
            self._drop(invocation, reply)
            return
        self._table.end(found, reply)

    def _resume_by_hand(self, order: Order, lsn: int, now_us: int) -> None:
        if order.invocation in self._table.tables.owed:
            self._table.pay(order.invocation, order.value)
            return
        promises = (promise.number for at, promise in self._table.tables.operations(Promise) if at == order.invocation)
        number = order.operation or next(promises, 0)
        if self._table.tables.operation(order.invocation, number, Promise) is not None:
            self._table.resolve(order.invocation, number, order.value, lsn, now_us)

    def peer_replaced(self, target: Target, lsn: int, now_us: int) -> None:
        """Fail what waits for a peer that was created anew, and answer nobody for what it asked."""
        self._table.tables.disown(target)
        text = f"{target.service}/{target.shard} was created anew"
        reply = error_reply(PeerReplaced.code, PeerReplaced.__name__, text)
        waiting = [(at, call.number) for at, call in self._table.tables.operations(Call) if call.target == target]
        for invocation, number in waiting:
            self._table.resolve(invocation, number, reply, lsn, now_us)
            self._table.run_todo(lsn, now_us)

    def response(self, peer: Target, reference: Reference, reply: bytes, lsn: int, now_us: int) -> None:
        """Take the reply to a request in; one from another than was asked is not looked at."""
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
        else:
            self._drop(invocation, reply)

    def _drop(self, invocation: int, reply: bytes) -> None:
        """End what has not begun, or owes a reply alone."""
        if (message := self._table.tables.waiting(invocation)) is not None:
            self._table.tables.take(message)
            self._table.answer(message.received.origin, invocation, reply)
        else:
            self._table.pay(invocation, reply)
