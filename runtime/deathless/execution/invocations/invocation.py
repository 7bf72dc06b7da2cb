"""One invocation: an `async def` handler that waits, driven turn by turn.

    first turn ---await---> suspended ---what it waits for is there---> next turn ---await---> ... ---return---> ended

The coroutine is driven by hand: `send` runs it up to its next await of something that is not done yet, which is the
end of a turn. The state is encoded then and must fit, as behind any turn. What the handler asked for takes effect only
when all that succeeded; otherwise the turn never was, and the invocation ends with the error as its reply (I11).

A coroutine can't be written down. So everything it was given is (the journal), and after a restart it is run again
from its start with the same, which gives the same as often as it is done: `run_again` compares what it asks for, what
it looks at and its state with what was written down, and tells the first difference. While the process lives nothing
is run again.

Guarantees: all turns have the same room on the stack, wherever the executor was called from. Does not: apply what was
asked for (the table does). Imports base and codec.
"""

from __future__ import annotations

import contextlib
import contextvars
import dataclasses
import sys
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import fields, is_dataclass
from typing import Final, NamedTuple, cast

import msgspec

from deathless.base.errors import Cancelled, InvalidAwait, TooLarge
from deathless.codec.map_entries import prefix_of
from deathless.codec.peer_messages import Given, History
from deathless.codec.traces import within
from deathless.codec.wire import Status
from deathless.execution.handlers.entities import Entities
from deathless.execution.handlers.plan import Plan
from deathless.execution.invocations.difference import Differences, Recorded
from deathless.execution.invocations.journal import (
    Event,
    Looked,
    PendingActivity,
    Received,
    SuspendedInvocation,
    state_hash,
)
from deathless.execution.maps.map import Map, view_of
from deathless.execution.maps.table import Change, Look, Seen
from deathless.execution.turn import depth
from deathless.execution.turn.context import Context
from deathless.execution.turn.operations import CANCELLED, Activity, Operation, Waitable
from deathless.execution.turn.turn import Asked, Following, Settings, Turn
from deathless.execution.values.failure import FATAL

_OK: Final = bytes([Status.OK])
CANCEL: Final = 0
"""Operation of the event that cancels what an invocation waits for."""


class Turned(NamedTuple):
    """How a turn went."""

    new: bytes | None  # state behind it; None: it was rolled back
    asked: Asked | None  # what is to be carried out; None: nothing
    reply: bytes | None  # None: it waits, or another handler goes on for it
    following: Following | None
    items: Sequence[Change] = ()  # of maps; none where it was rolled back


class Invocation:
    """One run of an `async def` handler.

    Args:
        invocation: lsn of the message that began it.
        received: that message, or what `continue_with` made of it.
        address: of the key it holds, for the chain of its calls; empty: it holds none.
        place: lsn, logical time and elapsed time of its first turn.
        since_us: logical time when it began.
        first: operations asked for, operations resolved, and turns, of those that it continues.
    """

    __slots__ = (
        "_context", "_coroutine", "_entity", "_failures", "_first", "_look", "_variables", "admit",
        "asked", "current", "elapsed_us", "given", "id", "journal", "lsn", "now_us", "operations", "plan",
        "received", "recorded", "since_us", "size", "start", "turn", "waits",
    )  # fmt: skip

    def __init__(
        self,
        invocation: int,
        received: Received,
        plan: Plan,
        settings: Settings,
        *,
        address: str,
        place: tuple[int, int, int],
        since_us: int,
        first: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        self.id = invocation
        self.received = received
        self.plan = plan
        self._failures = settings.failures
        self.lsn, self.now_us, self.elapsed_us = place
        self.since_us = since_us
        self.turn = turn = Turn(settings.seed, self.now_us, settings)
        turn.key = received.key
        turn.waits = invocation
        turn.chain = (*received.chain, address) if address else received.chain
        turn.alive = False
        turn.count, turn.order, turn.part = self._first = first
        turn.before = turn.count
        if received.trace:
            turn.trace = within(received.trace, turn.span(0))
        self._context = Context(turn)
        self._coroutine: Coroutine[object, None, object] | None = None  # None: before the first turn, and at the end
        self._entity: object = None
        self._look: Look | None = None  # None: its state has no maps
        # Of its own, and empty at first: what a `with decimal.localcontext()` around an await sets is nobody else's.
        self._variables = contextvars.Context()
        self.admit: Callable[[Asked], None] | None = None  # raises when a turn asks too much; None: it runs again
        self.start: bytes | None = None  # state of the key at its start; None: it had none
        self.current = b""  # state behind its last turn
        self.journal: list[Event] = []
        self.recorded = Recorded()
        self.operations: dict[int, Operation[object]] = {}  # not resolved, by number
        self.asked: dict[int, tuple[str, int]] = {}  # (what, since when) of all it waited for, by number; for operators
        self.waits: Waitable[object] | None = None  # None: before the first turn, and at the end
        self.given = 0  # bytes of the journal; its maximum is the table's to keep
        self.size = 0  # bytes that it keeps, as last counted; the table's to change

    @property
    def kept(self) -> int:
        """Bytes of what it was given, asked for and looked at."""
        return self.given + self.recorded.bytes + (self._look.bytes if self._look is not None else 0)

    # ---- turns ------------------------------------------------------------------------------------------------

    def begin(self, entities: Entities, start: bytes | None, looked: list[Seen] | None = None) -> Turned:
        """Run the first turn.

        Args:
            entities: how states are encoded, and born.
            start: state of the key; None: it has none.
            looked: what it saw of its maps when it ran before; None: it never did.
        """
        self.start = start
        if entities.states.maps:
            self._look = Look(entities.maps, list(looked or ()), again=looked is not None)
        turn = self.turn
        self._open(self.lsn, self.now_us, self.elapsed_us)
        if not turn.part:
            turn.lsn = self.id
        key = self.received.key
        limit = depth.enter()
        try:
            try:
                arguments = self.plan.decode_arguments(self.received.arguments)
            except BaseException as error:  # noqa: BLE001  decoding runs the author's `__post_init__`
                return self._end(None, self._failures.of_arguments(error, self.received.method, key, turn.lsn))
            try:
                if start is not None:
                    self._entity = entities.begin(start, key, self._look)
                else:
                    self._entity = entities.bear(key, self._context, self._look)
                call = self.plan.call(self._entity, self._context, arguments)
            except BaseException as error:  # noqa: BLE001  the birth handler may raise anything
                return self._end(None, self._failed(error))
            self._coroutine = cast("Coroutine[object, None, object]", call)
            return self._step(entities, None)
        finally:
            depth.leave(limit)

    def give(self, event: Event) -> list[Operation[object]] | None:
        """Take an event in; gives the operations that were waited for and are not wanted any more.

        None: there is no such operation, so nothing happened. Whether a turn follows is `ready`.
        """
        if event.operation == CANCEL:
            assert self.waits is not None
            unwanted = [leaf for leaf in self.waits.leaves() if self.operations.pop(leaf.number, None) is not None]
            for leaf in unwanted:
                leaf.resolve(CANCELLED, self.turn.next_order())
            return unwanted
        operation = self.operations.pop(event.operation, None)
        if operation is None:
            return None
        operation.resolve(event.reply, self.turn.next_order())
        return []

    @property
    def ready(self) -> bool:
        """True when the next turn can run."""
        return self.waits is not None and self.waits.done

    def resume(self, entities: Entities, event: Event) -> Turned:
        """Run the turn behind an event; the event's state is taken over first."""
        self._open(event.lsn, event.now_us, event.elapsed_us or event.now_us)
        limit = depth.enter()
        try:
            if event.state is not None:
                self._refresh(entities.states.decode(event.state))
            return self._step(
                entities, Cancelled("the invocation was cancelled") if event.operation == CANCEL else None
            )
        finally:
            depth.leave(limit)

    def _open(self, lsn: int, now_us: int, elapsed_us: int) -> None:
        turn = self.turn
        turn.lsn, turn.now_us, turn.elapsed_us, turn.alive = lsn, now_us, elapsed_us, True
        if self._look is not None:
            self._look.alive = True
        self.waits = None

    def _step(self, entities: Entities, error: Exception | None) -> Turned:
        turn, coroutine = self.turn, self._coroutine
        assert coroutine is not None
        result: object = None
        ended = False
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(None, None)  # or a running loop would end generators that are left, in its own time
        try:
            if error is None:
                waits = self._variables.run(coroutine.send, None)
            else:
                waits = self._variables.run(coroutine.throw, error)
        except StopIteration as stop:
            ended, result, waits = True, stop.value, None
        except BaseException as raised:  # noqa: BLE001  a handler may raise anything
            return self._end(None, self._failed(raised))
        finally:
            sys.set_asyncgen_hooks(*hooks)
        try:
            if not ended:
                self._check_wait(waits)
            items = entities.changes(self._entity, self.received.key)
            new = entities.close(self._entity)
            following = turn.asked.following if ended and turn.asked is not None else None
            reply = entities.reply(self.plan, result) if ended and following is None else None
            entities.check_sizes(self.received.key, new, reply or b"")
            if self.admit is not None and turn.asked is not None:
                self._check_asked(turn.asked, entities.limits.journal_bytes_max)
                self.admit(turn.asked)
        except BaseException as raised:  # noqa: BLE001  encoding runs code of the author's types
            return self._end(None, self._failed(raised))
        return self._end(new, reply, following, items)

    def _check_asked(self, asked: Asked, bytes_max: int) -> None:
        """Refuse a turn behind which too much would be kept of what was asked for. Raises: TooLarge."""
        if self.recorded.bytes + asked.bytes > bytes_max:
            text = f"what a handler asks for keeps at most {bytes_max} bytes; go on with ctx.continue_with"
            raise TooLarge(text)

    def _failed(self, error: BaseException) -> bytes:
        return self._failures.of_turn(error, self.received.method, self.received.key, self.turn.lsn)

    def _check_wait(self, waits: object) -> None:
        if not isinstance(waits, Waitable) or waits.owner is not self.turn:
            raise InvalidAwait(f"what was awaited is no operation of this invocation: {type(waits).__name__}")
        if waits.done:
            raise InvalidAwait("what was awaited is done, so it would never be given again; await it by `await`")
        self.waits = waits

    def _end(
        self,
        new: bytes | None,
        reply: bytes | None,
        following: Following | None = None,
        items: Sequence[Change] = (),
    ) -> Turned:
        """End the turn; with `new` None as if it had never been, but for the reply."""
        turn = self.turn
        asked = turn.end()
        turn.alive = False
        if self._look is not None:
            self._look.alive = False
        turn.part += 1
        if new is None:
            asked = None
        else:
            self.current = new
        if asked is not None:
            turn.count = asked.count
            self.recorded.add(asked)
            for operation in asked.operations:
                if not operation.done:
                    self.operations[operation.number] = operation
                    self.asked[operation.number] = operation.what, operation.since_us
            for operation in asked.cancelled:
                self.operations.pop(operation.number, None)
        if self.waits is None or new is None:
            self.close()
        return Turned(new, asked, reply, following, items)

    def kill(self) -> None:
        """Let the coroutine go, whatever its `finally` clauses raise: nothing of them is kept.

        What raises there would end the process while the page names nobody. And as a kill is also what parks an
        invocation, the next primary would end in the same way, and so on (I11).
        """
        with contextlib.suppress(BaseException):
            self.close()

    def close(self) -> None:
        """Let the coroutine go. What its `finally` clauses do is lost: no turn is open."""
        coroutine, self._coroutine = self._coroutine, None
        self.waits = None
        if coroutine is None:
            return
        limit = depth.enter()
        try:
            self._variables.run(coroutine.close)
        except FATAL:
            raise
        except BaseException:  # noqa: BLE001, S110  it is lost, as the turn that it would be of
            pass
        finally:
            depth.leave(limit)

    def _refresh(self, state: object) -> None:
        """Make the handler's state what others have left, in place."""
        names = [field.name for field in fields(state)] if is_dataclass(state) else state.__struct_fields__  # type: ignore[attr-defined]  # it is one or the other
        for name in names:
            value = getattr(state, name)
            if type(value) is Map:  # the handler goes on with the map it has, and sees what others have left
                header = view_of(value)
                view_of(getattr(self._entity, name)).reset(header.count, header.chain)
            else:
                setattr(self._entity, name, value)

    def take_down(self, event: Event) -> int:
        """Enter an event into the journal; gives its bytes."""
        self.journal.append(event)
        size = len(event.reply) + len(event.state or b"")
        self.given += size
        return size

    def history(self, count_max: int) -> History:
        """Give what it was given, the last `count_max` of it; of handlers that it continues, nothing."""
        given = [
            Given(event.operation, *self.asked.get(event.operation, ("", 0)), event.lsn, event.now_us, event.reply)
            for event in self.journal[-count_max:]
        ]
        return History(self.received.arguments, given, len(self.journal))

    # ---- checkpoints ------------------------------------------------------------------------------------------

    def made_of(self, held: bytes | None) -> tuple[object, ...]:
        """Give all that `suspend` makes its record of and that may change; empty: that can't be said in short.

        What is only ever added to is told by its length.
        """
        if self._look is not None:
            return ()
        return (
            self.received,
            self.current,
            held == self.current,
            len(self.journal),
            len(self.recorded.records),
            [each.start for each in self.operations.values() if isinstance(each, Activity)],
        )

    def suspend(self, held: bytes | None) -> SuspendedInvocation:
        """Give what brings it back.

        Args:
            held: state of its key; None: it has none.
        """
        count, order, part = self._first
        record = SuspendedInvocation(
            id=self.id,
            received=self.received,
            lsn=self.lsn,
            now_us=self.now_us,
            count=count,
            order=order,
            part=part,
            start=self.start,
            journal=list(self.journal),
            prints=[],
            activities=[
                PendingActivity(operation.number, start.attempt, start.attempted, start.not_before_us)
                for operation in self.operations.values()
                if isinstance(operation, Activity)
                for start in [operation.start]
            ],
            state_hash=state_hash(self.current),
            since_us=self.since_us,
            elapsed_us=self.elapsed_us,
            asked=list(self.recorded.records),
            shared=self.plan.spec.shared,
            state=None if held == self.current else self.current,
            begun_in=self.turn.begun_in,
        )
        if self._look is None:
            return record
        return self._with_looks(record, self._look.taken or [])

    def _with_looks(self, record: SuspendedInvocation, taken: Sequence[Seen]) -> SuspendedInvocation:
        start = len(prefix_of(self.received.key, ""))
        fields: dict[str, int] = {}
        looked: list[Looked] = []
        for seen in taken:
            cut = len(seen.prefix)
            field = fields.setdefault(seen.prefix[start - 1 : -1].decode(), len(fields))
            answer = seen.answer[cut:] if seen.next and seen.answer is not None else seen.answer
            looked.append(Looked(field, seen.next, seen.entry[cut:], answer))
        return msgspec.structs.replace(record, looked=looked, fields=list(fields))

    def _seen(self, record: SuspendedInvocation) -> list[Seen]:
        """Give what it saw of its maps; of version 1 the answers alone."""
        prefixes = [prefix_of(self.received.key, field) for field in record.fields]
        seen: list[Seen] = []
        for look in record.looked or ():
            if not 0 <= look.field < len(prefixes):
                seen.append(Seen(look.next, b"", b"", look.answer))
                continue
            prefix = prefixes[look.field]
            answer = prefix + look.answer if look.next and look.answer is not None else look.answer
            seen.append(Seen(look.next, prefix, prefix + look.item, answer))
        return seen

    def run_again(self, entities: Entities, record: SuspendedInvocation, differences: Differences) -> None:
        """Bring it to where `suspend` found it; what it asks for on the way is asked for no more.

        Args:
            entities: as for `begin`.
            record: what `suspend` gave.
            differences: compares it with what it does.

        Raises: Unfit saying what it did otherwise; it is closed then.
        """
        settings = self.turn.settings
        assert settings is not None
        if record.asked is None:
            self.turn.settings = dataclasses.replace(settings, prints=True)
        try:
            self._run_again(entities, record, differences)
        except BaseException:
            self.kill()
            raise
        self.turn.settings = settings
        self.recorded.prints.clear()
        for activity in record.activities:
            operation = self.operations.get(activity.operation)
            assert isinstance(operation, Activity), "it asked for the same"
            operation.start = msgspec.structs.replace(
                operation.start,
                attempt=activity.attempt,
                attempted=activity.attempted,
                not_before_us=activity.not_before_us,
            )

    def _run_again(self, entities: Entities, record: SuspendedInvocation, differences: Differences) -> None:
        turned = self.begin(entities, record.start, self._seen(record))
        differences.check(self.recorded, self.turn.part, self._ended(turned), self._look)
        for event in record.journal:
            if self.waits is None or self.ready:
                raise differences.elsewhere(self.turn.part, self._ended(turned))
            operation = self.operations.get(event.operation)
            if self.give(event) is None:
                raise differences.elsewhere(self.turn.part, b"")
            if operation is not None and event.reply[:1] == _OK:
                differences.given(operation)
            if event.operation == CANCEL or self.ready:
                turned = self.resume(entities, event)
                differences.check(self.recorded, self.turn.part, self._ended(turned), self._look)
            self.take_down(event)
        if self.waits is None or self.ready:
            raise differences.elsewhere(self.turn.part, self._ended(turned))
        kept = record.state
        if kept is None:
            kept = entities.state.get(self.received.key)
        differences.check_end(self.turn.part, self.current, kept, state_hash(self.current))
        if self._look is not None and not self._look.go_on():
            raise differences.fewer_looks(self.turn.part)

    @staticmethod
    def _ended(turned: Turned) -> bytes:
        """Give the reply that a turn ended with; empty: it did not end, or another handler goes on."""
        return turned.reply or b""
