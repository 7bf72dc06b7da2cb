"""All invocations of a shard: who holds which key, who waits for it, what was asked for, and what that gave.

    message --receive--> key held? --yes--> queue of the key        (the caller is told later)
                             |no
                             v
                       plain handler: one turn            `async def`: first turn --> waits, and holds the key
                             |                                              |
                             +------> reply                      RESPONSE, TIME, OUTCOME, ... --> next turn
                                                                            |
                                             ended: reply, key free --> queue of the key goes on

One message may cause several turns: that of an invocation which it resumes, those of messages which had waited for its
key, and those whose promises a turn completes. They run one after the other, from a list, before anything else; all
of what they write is the message's (I6).

Who sends: a client (told by a result), another handler (told by a RESPONSE), or somebody who waits for nothing.

Guarantees: a function of the log's prefix; a turn is whole or not at all; a reply to an operation that is gone, and a
second one, change nothing. Does not: send or log anything (`take_outputs` gives it to who does). Imports base, codec.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from itertools import groupby
from operator import itemgetter
from typing import Final

import msgspec

from deathless.base.errors import (
    CallCycle,
    DeadlineExceeded,
    HandlerFailed,
    HandlerGone,
    Overloaded,
    TooLarge,
    UnknownHandler,
)
from deathless.base.times import Times
from deathless.codec.messages import U64, Kind, encode
from deathless.codec.peer_messages import (
    SELF,
    STREAM_PREFIX,
    ActivityStart,
    Outputs,
    Ran,
    Reference,
    Target,
    encode_body,
)
from deathless.codec.snapshot import UnknownRecord
from deathless.codec.traces import within
from deathless.codec.wire import Status, accepted_reply, error_reply
from deathless.execution.handlers.entities import Changed, Entities
from deathless.execution.handlers.plan import Plan
from deathless.execution.invocations.held_invocation import HeldInvocation
from deathless.execution.invocations.invocation import Invocation, Turned
from deathless.execution.invocations.journal import (
    CAME_VALUE,
    CLIENT,
    FORK,
    REQUEST,
    TICK,
    Came,
    Event,
    Origin,
    Received,
    SuspendedMessage,
    SuspendedReply,
)
from deathless.execution.invocations.schedules import Schedules
from deathless.execution.invocations.spans import Spans
from deathless.execution.invocations.tables import Tables, size_of_chain
from deathless.execution.invocations.targets import Targets
from deathless.execution.turn import depth
from deathless.execution.turn.context import Context
from deathless.execution.turn.operations import CANCELLED, Activity, Call, Operation, Promise
from deathless.execution.turn.running import Blame
from deathless.execution.turn.turn import Asked, Completion, Settings, Turn
from deathless.execution.values.failure import FATAL, bounded, is_fatal

INVOCATION_BYTES: Final = 1024
"""What a suspended handler costs beside its own bytes, in round numbers."""

SMALL_BYTES: Final = 256
"""A reply up to this is always given: that a timer fired, an error. `operations_max` bounds those."""

Find = Callable[[bytes], Plan | None]
_NONE: Final[dict[bytes, Plan]] = {}
_ERROR: Final = bytes([Status.ERROR])
UNREFUSED: Final = (FORK, TICK)
"""Who waits for nothing, so that nobody would be told."""

LATE: Final = error_reply(DeadlineExceeded.code, DeadlineExceeded.__name__, "no reply came before the deadline")


class Invocations:
    """The table.

    Args:
        plans: of all handlers, by method.
        entities: state of the keys.
        settings: of all turns.
        schedules: of the service.
        blame: told whose turn begins, where a message causes turns of others (I11).
    """

    __slots__ = (
        "_blame", "_blamed", "_caused", "_entities", "_flat", "_outputs", "_plans", "_settings",
        "_taken", "_todo", "_turns", "_unknown", "_wrote", "committing", "entering", "schedules", "spans", "tables",
        "targets", "times",
    )  # fmt: skip

    def __init__(
        self,
        plans: Mapping[bytes, Plan],
        entities: Entities,
        settings: Settings,
        schedules: Schedules,
        blame: Blame,
    ) -> None:
        self._plans = plans
        flat = {method: plan for method, plan in plans.items() if not plan.spec.waits}
        # For everybody, and for streams, which alone reach inputs.
        self._flat = {method: plan for method, plan in flat.items() if not plan.of_streams}, flat
        self._entities = entities
        self._settings = settings
        self.schedules = schedules
        self.tables = Tables(beside=any(plan.spec.shared for plan in plans.values() if not plan.ours))
        self.times = Times()  # of the shard; the executor's to set
        self.entering: Callable[[int], None] | None = None  # told whose turn begins, while a record runs them (I11)
        self._blame = blame
        self._caused = False  # True: turns run that are not those of the message being run
        self._blamed = False  # True: the running page names another than that
        self.committing = False  # True: a turn is being carried out, so what is raised now is no handler's
        self._taken = False  # True: a message runs that has waited for its key
        self._todo: deque[Completion | bytes] = deque()  # promises to complete, and keys that became free
        self._wrote: list[bytes] = []
        self._outputs = _no_outputs()
        self._turns: list[Ran] = []
        self._unknown: list[UnknownRecord] = []
        self.spans = Spans(settings)
        self.targets = Targets(settings.limits.targets_max)

    def clear(self) -> None:
        """Forget everything."""
        for invocation in self.tables.live.values():
            invocation.close()
        self.schedules.clear()
        self.tables = Tables(beside=self.tables.beside)
        self._todo.clear()
        self._wrote.clear()
        self._outputs = _no_outputs()
        self._turns = []
        self._unknown = []
        self.spans.take()
        self.targets.taken()
        self._taken = False
        self._caused = self._blamed = False
        self.committing = False

    # ---- messages ---------------------------------------------------------------------------------------------

    def find(self, *, stream: bool = False) -> Find:
        """Give how the executor's loop finds plans it may run itself: none while a key is held.

        `stream`: messages of a stream are run, which alone reach inputs.
        """
        if self.tables.held:
            return _NONE.get
        return self._flat[stream].get

    def plain(self, method: bytes, key: bytes, message: bytes, args_at: int, *, stream: bool = False) -> Plan | None:
        """Give the plan of a plain handler whose keys are free; None: `receive` must look at it.

        Args:
            method: named by the message.
            key: likewise.
            message: whose arguments begin at `args_at`; they are looked at where they name keys.
            args_at: see there.
            stream: as for `find`.
        """
        plan = self._flat[stream].get(method)
        if plan is None or plan.spec.shared:
            return plan
        if not plan.keys:
            return None if (b"" if self._entities.single else key) in self.tables.held else plan
        return None if self._blocked(plan, key, message[args_at:]) else plan

    def receive(self, received: Received, lsn: int, now_us: int) -> bytes | None:
        """Run a message, or have it wait; gives its reply, or None when that comes later.

        A message that could not be taken is answered with Overloaded; nobody who waits for nothing is.
        """
        if self._entities.single:
            received = msgspec.structs.replace(received, key=b"")
        plan = self._plans.get(received.method.encode())
        if plan is None or (plan.of_streams and not self._may_input(received.origin)):
            return self.unknown(received.method)
        if plan.older is not None:
            received = msgspec.structs.replace(received, arguments=plan.renewed(received.arguments))
        if 0 < received.deadline_us <= self.times.elapsed_us:
            return LATE
        if not plan.spec.shared:
            blocked = self._blocked(plan, received.key, received.arguments)
            for address in map(self._address, blocked):
                if address in received.chain:
                    return error_reply(CallCycle.code, CallCycle.__name__, f"{address} waits for this call")
            if blocked and plan.of_streams and (unfit := self._unfit(plan, received, lsn)) is not None:
                return unfit
            if blocked:
                return self._line_up(SuspendedMessage(lsn, received, blocked[0], now_us))
        return self._begin(plan, received, lsn, lsn, now_us, now_us)

    def _may_input(self, origin: Origin) -> bool:
        """Is what comes from there a row of a stream, or one that was set aside and that an operator has run again?"""
        return self._taken or (origin.kind == FORK and origin.service.startswith(STREAM_PREFIX))

    def _unfit(self, plan: Plan, received: Received, lsn: int) -> bytes | None:
        """Give the refusal of a row that is none for its input; None: it is one, and waits.

        Once it waits it counts as taken in, and could neither be tried again nor kept.
        """
        try:
            plan.decode_arguments(received.arguments)
        except BaseException as error:  # noqa: BLE001  decoding runs the author's `__post_init__`
            reply = self._settings.failures.of_arguments(error, received.method, received.key, lsn)
            self._wrote.append(reply)
            return reply
        return None

    def receive_again(self, received: Received, lsn: int, now_us: int) -> bytes | None:
        """Run a message that was set aside, as `receive`; it was taken long ago, so it is never one too many."""
        self._note_turn(lsn, None, received)
        self._taken = True
        reply = self.receive(received, lsn, now_us)
        self._taken = False
        return reply

    def unknown(self, method: str) -> bytes:
        """Give the reply to a message for a handler that is not there."""
        text = f"the service has no {bounded(method, 100)!r}"
        return error_reply(UnknownHandler.code, UnknownHandler.__name__, text)

    def _address(self, key: bytes) -> str:
        return f"{self._settings.service}/{self._settings.sharding.shard}/{key.decode(errors='replace')}"

    def _blocked(self, plan: Plan, key: bytes, arguments: bytes) -> list[bytes]:
        """Give the keys that the message would work on and that are held."""
        held = self.tables.held
        if plan.ours or not held:
            return []
        if not plan.keys:
            return [key] if key in held else []
        try:
            keys = plan.keys_of(plan.decode_arguments(arguments), self._entities.limits.key_bytes_max)
        except FATAL:
            raise
        except BaseException:  # noqa: BLE001  it is run, and fails by itself
            return []
        return [one for one in keys.values() if one in held]

    def _full(self, origin: Origin) -> bytes | None:
        """Give the reply to a message that would be one too many.

        One that nobody waits for is never refused, and one that has waited for its key was taken already.
        """
        if origin.kind in UNREFUSED or self._taken:
            return None
        limits, tables = self._entities.limits, self.tables
        if len(tables) >= limits.invocations_max:
            text = f"{limits.invocations_max} invocations have begun and not ended"
        elif tables.bytes >= limits.suspended_bytes_max:
            text = f"suspended handlers and messages that wait keep {limits.suspended_bytes_max} bytes"
        else:
            return None
        return error_reply(Overloaded.code, Overloaded.__name__, text)

    def _line_up(self, message: SuspendedMessage) -> bytes | None:
        origin = message.received.origin
        queue = self.tables.queues.get(message.waits_for, ())
        most = self._entities.limits.key_queue_max
        if origin.kind not in UNREFUSED and not self._taken and len(queue) >= most:
            key = message.waits_for.decode(errors="replace")
            return error_reply(Overloaded.code, Overloaded.__name__, f"{most} messages wait for key {key!r}")
        refusal = self._full(origin)
        if refusal is None:
            self.tables.put(message)
            self.tables.note_caller(origin, message.id)
        return refusal

    def begin_anew(self, held: HeldInvocation, lsn: int, now_us: int) -> None:
        """Begin an invocation that was carried into this code; its caller is told if it ends at once."""
        received = held.received
        self.release(held)
        self._note_turn(lsn, held.id, received)
        plan = self._plans[received.method.encode()]
        self._taken = True
        reply = self._begin(plan, received, held.id, lsn, now_us, held.since_us, held.first)
        self._taken = False
        if reply is not None:
            self.answer(received.origin, held.id, reply)

    def _begin(
        self,
        plan: Plan,
        received: Received,
        invocation: int,
        lsn: int,
        now_us: int,
        since_us: int,
        first: tuple[int, int, int] = (0, 0, 0),
    ) -> bytes | None:
        if not plan.spec.waits:
            reply = self._run_plain(plan, received, invocation, now_us)
            self.spans.handled(received, invocation, since_us, reply)
            return reply
        if (refusal := self._full(received.origin)) is not None:
            return refusal
        start = self._entities.state.get(received.key)
        place = (lsn, now_us, self.times.elapsed_us)
        begun = self.make(plan, received, invocation, place, since_us, first, start)
        self.tables.note_caller(received.origin, invocation)
        begun.admit = self.targets.admit
        turned = begun.begin(self._entities, start)
        return self._carry_out(begun, turned, lsn, now_us)

    def make(
        self,
        plan: Plan,
        received: Received,
        invocation: int,
        place: tuple[int, int, int],
        since_us: int,
        first: tuple[int, int, int],
        start: bytes | None,
    ) -> Invocation:
        """Make an invocation and enter it; it holds its key, whose state is `start`, from now on.

        `place`: lsn, logical and elapsed time of its first turn.
        """
        shared = plan.spec.shared
        begun = Invocation(
            invocation,
            received,
            plan,
            self._settings,
            address="" if shared else self._address(received.key),
            place=place,
            since_us=since_us,
            first=first,
        )
        begun.size = self._size_of(begun, start)
        self.tables.enter(begun)
        if not shared:
            self.tables.held[received.key] = invocation
        return begun

    def weigh(self, invocation: Invocation) -> None:
        """Count anew what an invocation keeps."""
        self.tables.weigh(invocation, self._size_of(invocation, invocation.start))

    def _size_of(self, invocation: Invocation, start: bytes | None) -> int:
        received = invocation.received
        size = INVOCATION_BYTES + len(received.arguments) + size_of_chain(received) + len(start or b"")
        return size + invocation.kept + (len(invocation.current) if self.tables.beside else 0)

    # ---- plain handlers ---------------------------------------------------------------------------------------

    def _run_plain(self, plan: Plan, received: Received, lsn: int, now_us: int) -> bytes | None:
        """Run a plain handler outside the executor's loop; gives its reply, or None when that comes later."""
        turn = Turn(self._settings.seed, now_us, self._settings)
        turn.lsn, turn.key = lsn, received.key
        if received.trace:
            turn.trace = within(received.trace, turn.span(0))
        context = Context(turn)
        limit = depth.enter()
        try:
            return self._call_plain(plan, received, context, turn)
        except BaseException as error:
            if self.committing:
                raise
            turn.end()
            reply = self._settings.failures.of_turn(error, received.method, received.key, lsn)
            self._wrote.append(reply)
            return reply
        finally:
            turn.alive = False
            depth.leave(limit)

    def _call_plain(self, plan: Plan, received: Received, context: Context, turn: Turn) -> bytes | None:
        entities = self._entities
        try:
            arguments = plan.decode_arguments(received.arguments)
        except BaseException as error:  # noqa: BLE001  decoding runs the author's `__post_init__`
            reply = self._settings.failures.of_arguments(error, received.method, received.key, turn.lsn)
            self._wrote.append(reply)
            return reply
        if plan.ours:
            wrote, reply = entities.run_ours(plan, arguments, context, turn)
            self._wrote.append(wrote)
            return reply
        changed, result = entities.run_apart(plan, arguments, context, turn)
        reply = self.conclude(plan, received.origin, changed, result, turn)
        return None if reply[0] == Status.ACCEPTED else reply

    def conclude(self, plan: Plan, origin: Origin, changed: Changed, result: object, turn: Turn) -> bytes:
        """End the turn of a plain handler: keep its states and carry out what it asked for; gives its reply.

        `run_todo` must follow. Raises: TooLarge, Overloaded, and what encoding the result raises; nothing was kept.
        """
        if turn.asked is not None:
            self.targets.admit(turn.asked)
        later = turn.asked is not None and turn.asked.later
        if later and (refusal := self._full(origin)) is not None:
            return self._refuse(refusal, turn)
        reply = accepted_reply(turn.lsn) if later else self._entities.reply(plan, result)
        self._entities.keep(changed, reply)
        self.committing = True
        asked = turn.end()
        self._wrote += changed.states.values()
        self._wrote.append(reply)
        if later:
            self.tables.owed[turn.lsn] = SuspendedReply(turn.lsn, origin, plan.spec.name, turn.key, turn.now_us)
            self.tables.note_caller(origin, turn.lsn)
        if asked is not None:
            self._send(asked)
        self.committing = False
        return reply

    def _refuse(self, refusal: bytes, turn: Turn) -> bytes:
        turn.end()
        self._wrote.append(refusal)
        return refusal

    # ---- turns of invocations ---------------------------------------------------------------------------------

    def _carry_out(self, invocation: Invocation, turned: Turned, lsn: int, now_us: int) -> bytes | None:
        """Carry out what a turn asked for; gives the reply when the invocation ended."""
        self.committing = True
        while True:
            if turned.new is not None:
                self._entities.state[invocation.received.key] = turned.new
                self._wrote.append(turned.new)
                for change in turned.items:
                    self._entities.maps.apply(change)
            if turned.asked is not None:
                self._send(turned.asked)
                for operation in turned.asked.operations:
                    self.tables.schedule(invocation.id, operation)
            if turned.following is None:
                break
            self._give_up(invocation)
            received = _following(invocation.received, turned)
            plan = self._plans.get(received.method.encode())
            if plan is None or not plan.spec.waits or plan.spec.shared != invocation.plan.spec.shared:
                text = f"ctx.continue_with needs an `async def` handler of the same kind, not {received.method!r}"
                turned = Turned(None, None, error_reply(UnknownHandler.code, UnknownHandler.__name__, text), None)
                break
            turn, start = invocation.turn, self._entities.state.get(received.key)
            self.tables.leave(invocation)
            invocation = self.make(
                plan,
                received,
                invocation.id,
                (lsn, now_us, self.times.elapsed_us),
                invocation.since_us,
                (turn.count, turn.order, turn.part),
                start,
            )
            self.committing = False
            invocation.admit = self.targets.admit
            turned = invocation.begin(self._entities, start)
            self.committing = True
        reply = turned.reply
        if reply is not None:
            self._wrote.append(reply)
            self.leave(invocation, reply)
        else:
            self.weigh(invocation)
        self.committing = False
        return reply

    def _send(self, asked: Asked) -> None:
        """Carry out what a turn asked for."""
        for target, several in groupby(asked.messages, itemgetter(0)):
            self.targets.note(target)
            wrote, place = self._wrote, target.service.encode() + U64.pack(target.shard)
            for each in several:
                self._outputs.messages.append(each)
                wrote += (place, each[1])
        for start in asked.starts:
            self.start(start)
        for operation in asked.cancelled:
            self.undo(operation)
        self._todo += asked.completions

    def _emit(self, target: Target, message: bytes) -> None:
        self._outputs.messages.append((target, message))
        self.targets.note(target)
        self._wrote += (target.service.encode(), U64.pack(target.shard), message)

    def start(self, start: ActivityStart) -> None:
        """Have an attempt of an activity begin."""
        self._outputs.starts.append(start)
        self._wrote.append(encode_body(start))

    def note_unknown(self, start: ActivityStart, lsn: int, now_us: int) -> None:
        """Tell of an activity whose outcome, logged at `lsn`, is that nobody knows it."""
        received = self.tables.live[start.invocation].received
        self._unknown.append(
            UnknownRecord(
                start.invocation, start.operation, received.method, received.key, start.name, start.key, lsn, now_us
            )
        )

    def undo(self, operation: Operation[object]) -> None:
        """Give up an operation that is not wanted any more."""
        self.spans.resolved(operation, CANCELLED)
        self.withdraw(operation)

    def withdraw(self, operation: Operation[object]) -> None:
        """Tell whom it concerns that an operation is not wanted any more."""
        if isinstance(operation, Call):
            owner = operation.owner
            assert isinstance(owner, Turn)
            reference = Reference(owner.waits, operation.number)
            self._emit(operation.target, encode(Kind.CANCEL, idempotency_key=encode_body(reference)))
        elif isinstance(operation, Activity):
            reference = Reference(operation.start.invocation, operation.number)
            self._outputs.stops.append(reference)
            self._wrote.append(encode_body(reference))

    def _give_up(self, invocation: Invocation) -> None:
        """Cancel whatever an invocation that ends has asked for and not got."""
        for operation in invocation.operations.values():
            self.undo(operation)
        invocation.operations.clear()

    def leave(self, invocation: Invocation, reply: bytes) -> None:
        """Take an invocation that has ended with `reply` out of the tables; its key is free."""
        self._give_up(invocation)
        self.spans.handled(invocation.received, invocation.id, invocation.since_us, reply)
        invocation.close()
        self.tables.leave(invocation)
        self.tables.forget_caller(invocation.received.origin)
        if not invocation.plan.spec.shared:
            key = invocation.received.key
            del self.tables.held[key]
            self._todo.append(key)

    def answer(self, origin: Origin, invocation: int, reply: bytes) -> None:
        """Tell whoever waits what a message gave that was not answered at once."""
        if origin.kind == CLIENT:
            self._outputs.results.append((invocation, reply))
            self._wrote += (U64.pack(invocation), reply)
        elif origin.kind == REQUEST:
            self.respond(origin, reply)
        elif origin.kind == TICK:
            self.schedules.ended(origin.service, reply)
        elif origin.kind == FORK and origin.service.startswith(STREAM_PREFIX):
            self.maybe_refused(Target(origin.service, origin.shard), invocation, reply)

    def maybe_refused(self, stream: Target, lsn: int, reply: bytes) -> None:
        """Note it if an input of a stream was refused: nobody is answered, but nothing of it may be forgotten."""
        if reply[:1] == _ERROR:
            self._outputs = self._outputs._replace(refused=[*self._outputs.refused, (lsn, stream, reply)])

    def respond(self, origin: Origin, reply: bytes) -> None:
        """Send a reply to the handler that waits for it."""
        envelope = encode_body(Reference(origin.invocation, origin.operation))
        message = encode(Kind.RESPONSE, idempotency_key=envelope, args=reply)
        most = self._entities.limits.message_bytes_max
        if len(message) > most:
            text = f"the reply has {len(reply)} bytes, a message at most {most}"
            reply = error_reply(TooLarge.code, TooLarge.__name__, text)
            message = encode(Kind.RESPONSE, idempotency_key=envelope, args=reply)
        self._emit(Target(origin.service, origin.shard), message)

    def send_ticks(self, now_us: int) -> None:
        """Send the ticks that are due to ourselves."""
        for message in self.schedules.take_due(now_us):
            self._emit(SELF, message)

    # ---- what resumes -----------------------------------------------------------------------------------------

    def resolve(self, invocation: int, operation: int, reply: bytes, lsn: int, now_us: int) -> None:
        """Give an invocation what it asked for, and run its next turn if it waits for that."""
        found = self.tables.live.get(invocation)
        if found is None or operation not in found.operations:
            return
        reply = self._fitting(found, reply)
        event = Event(operation, reply, lsn, now_us, None, self.times.elapsed_us)
        self.spans.resolved(found.operations[operation], reply)
        found.give(event)
        if found.ready:
            self.resume(found, event)
        else:
            found.take_down(event)
            self.weigh(found)

    def _fitting(self, invocation: Invocation, reply: bytes) -> bytes:
        """Give a reply as an invocation may be given it: an error when its journal has no room for it."""
        most = self._entities.limits.journal_bytes_max
        if len(reply) <= SMALL_BYTES or invocation.given + len(reply) <= most:
            return reply
        text = f"a reply of {len(reply)} bytes, but a handler is given at most {most}; go on with ctx.continue_with"
        return error_reply(TooLarge.code, TooLarge.__name__, text)

    def end(self, invocation: Invocation, reply: bytes) -> None:
        """End an invocation from outside; its caller is told `reply`."""
        invocation.kill()
        self.leave(invocation, reply)
        self.answer(invocation.received.origin, invocation.id, reply)

    def resume(self, invocation: Invocation, event: Event) -> None:
        """Run the turn behind an event that the invocation was given; its caller is told if it ends."""
        self._note_turn(event.lsn, invocation.id, invocation.received)
        state = self._entities.state.get(invocation.received.key)
        if state != invocation.current:
            event = msgspec.structs.replace(event, state=state)
            most = self._entities.limits.journal_bytes_max
            if invocation.given + len(state or b"") > most:
                text = f"others change its state too often: a handler is given at most {most} bytes"
                self.end(invocation, error_reply(TooLarge.code, TooLarge.__name__, text))
                return
        invocation.take_down(event)
        turned = invocation.resume(self._entities, event)
        reply = self._carry_out(invocation, turned, event.lsn, event.now_us)
        if reply is not None:
            self.answer(invocation.received.origin, invocation.id, reply)

    def _note_turn(self, lsn: int, invocation: int | None, received: Received) -> None:
        """Note a turn that the message at `lsn` does not name; `invocation` None: the running page names it."""
        if invocation is None:
            pass
        elif self.entering is not None:
            self.entering(invocation)
        elif self._caused:
            self._blame.turn_of(invocation)
            self._blamed = True
        self._turns.append(Ran(lsn, received.method, received.key.decode(errors="replace")))

    def run_todo(self, lsn: int, now_us: int) -> None:
        """Run what turns have caused: completed promises, and messages whose key is free now."""
        self._caused = True
        while self._todo:
            match self._todo.popleft():
                case Completion(invocation, 0, reply):
                    self.pay(invocation, reply)
                case Completion(invocation, operation, reply):
                    if self.keep_for(invocation, Came(CAME_VALUE, operation, reply)):
                        pass
                    elif self.tables.operation(invocation, operation, Promise) is not None:
                        self.resolve(invocation, operation, reply, lsn, now_us)
                case key:
                    assert isinstance(key, bytes)
                    self._go_on(key, lsn, now_us)
            if self._blamed:
                self._blame.back(lsn)
                self._blamed = False
        self._caused = False

    def pay(self, invocation: int, reply: bytes) -> None:
        """Give a reply that was to come later."""
        owed = self.tables.owed.pop(invocation, None)
        if owed is None:
            return
        self.tables.forget_caller(owed.origin)
        plan = self._plans.get(owed.method.encode())  # None: its result has no type any more, so any is one
        if plan is not None and reply[0] == Status.OK:
            try:
                plan.check_result(reply[1:])
            except BaseException as error:  # decoding runs the author's `__post_init__`
                if is_fatal(error):
                    raise
                kind, text = type(error).__name__, bounded(f"completed with what {owed.method} can't give: {error}")
                reply = error_reply(HandlerFailed.code, kind, text)
        self.answer(owed.origin, invocation, reply)

    def _go_on(self, key: bytes, lsn: int, now_us: int) -> None:
        """Run the messages that waited for a key, until one of them holds it."""
        tables = self.tables
        reply: bytes | None
        while key not in tables.held and (message := tables.first(key)) is not None:
            tables.take(message)
            received = message.received
            plan = self._plans.get(received.method.encode())
            if plan is None:
                reply = _gone(received.method)
                self._wrote.append(reply)
                self.spans.handled(received, message.id, message.since_us, reply)
                self.answer(received.origin, message.id, reply)
                continue
            if blocked := self._blocked(plan, received.key, received.arguments):
                tables.put(SuspendedMessage(message.id, received, blocked[0], message.since_us))
                tables.note_caller(received.origin, message.id)
                continue
            if 0 < received.deadline_us <= self.times.elapsed_us:
                reply = LATE
            else:
                self._note_turn(lsn, message.id, received)
                self._taken = True
                reply = self._begin(plan, received, message.id, lsn, now_us, message.since_us)
                self._taken = False
            if reply is not None:
                self.answer(received.origin, message.id, reply)

    # ---- what they gave ---------------------------------------------------------------------------------------

    def take_wrote(self) -> bytes:
        """Give what was written since the last call, for digests."""
        wrote = b"".join(self._wrote)
        self._wrote.clear()
        return wrote

    def take_outputs(self) -> Outputs | None:
        """Give what is to be sent, told, started and stopped, since the last call; None: nothing."""
        if not (self._turns or any(self._outputs) or self.spans or self._unknown):
            return None
        outputs = self._outputs._replace(turns=self._turns, spans=self.spans.take(), unknown=self._unknown)
        self._unknown = []
        self._outputs = _no_outputs()
        self.targets.taken()
        self._turns = []
        return outputs

    # ---- invocations that are held ----------------------------------------------------------------------------

    @property
    def _own(self) -> Target:
        """Service and shard that stand in records for SELF."""
        return Target(self._settings.service, self._settings.sharding.shard)

    def keep_for(self, invocation: int, came: Came) -> bool:
        """Keep what came for an invocation that is held; False: it is not held."""
        if not self.tables.unfit:
            return False
        return self.tables.keep_for(invocation, came, self._own, self._entities.limits.journal_bytes_max)

    def keep_for_peer(self, target: Target, came: Came) -> None:
        """Keep what came of a peer for all that are held and may wait for it."""
        for held in list(self.tables.unfit.values()):
            if held.waits_for_peer(target, self._own):
                self.keep_for(held.id, came)

    def hold(self, held: HeldInvocation) -> None:
        """Hold an invocation that the code does not fit; nothing overtakes it."""
        self.tables.hold(held)
        self.tables.note_caller(held.received.origin, held.id)
        if held.holds:
            self.tables.held.setdefault(held.received.key, held.id)

    def release(self, held: HeldInvocation) -> None:
        """Take an invocation out that was held, without an end."""
        self.tables.let_go(held)
        self.tables.forget_caller(held.received.origin)
        if self.tables.held.get(held.received.key) == held.id:
            del self.tables.held[held.received.key]

    def end_held(self, held: HeldInvocation, reply: bytes) -> None:
        """End an invocation that is held; its caller is told `reply`, its key is free."""
        key = held.received.key
        had = self.tables.held.get(key) == held.id
        self.release(held)
        for number, target in held.calls(self._own):
            self._emit(target, encode(Kind.CANCEL, idempotency_key=encode_body(Reference(held.id, number))))
        for number in held.activities():
            reference = Reference(held.id, number)
            self._outputs.stops.append(reference)
            self._wrote.append(encode_body(reference))
        self._wrote.append(reply)
        self.spans.handled(held.received, held.id, held.since_us, reply)
        self.answer(held.received.origin, held.id, reply)
        if had:
            self._todo.append(key)


def _gone(method: str) -> bytes:
    """Give the reply to a message that had been taken, and whose handler is gone when its turn comes."""
    text = f"the service has no {bounded(method, 100)!r} any more"
    return error_reply(HandlerGone.code, HandlerGone.__name__, text)


def _following(received: Received, turned: Turned) -> Received:
    assert turned.following is not None
    method, arguments = turned.following
    return msgspec.structs.replace(received, method=method, arguments=arguments)


def _no_outputs() -> Outputs:
    return Outputs([], [], [], [])
