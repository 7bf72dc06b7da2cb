"""An executor that is looked at: it does what any other does, and takes down what each step of it was.

Both codes run in one of these. That of the former code stands in a shard, which deals with sessions, outboxes and
repeated calls; so what it takes down is what the handlers are told, and the one of the new code, which stands alone, is
told the same. What is taken down of a turn is what others see of it: what it asked for, and the reply that it ended
with; of a step besides which states it wrote.

    shard = open_shard(service, limits, seed, make=Recorder);  shard.apply(frame);  shard.executor.taken()

Guarantees: states, replies and digests are those of HandlerExecutor. Does not: compare (see judge). Imports base and
codec.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

from deathless.base.errors import CorruptFrame
from deathless.base.limits import Limits
from deathless.base.shards import Sharding
from deathless.base.times import Times
from deathless.codec.frames import Run
from deathless.codec.map_entries import prefix_of
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_messages import (
    SELF,
    SELF_SESSION,
    Attempt,
    Order,
    Outcome,
    Target,
    encode_body,
)
from deathless.codec.wire import Status
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor, Hide, nothing_hidden
from deathless.execution.handlers.entities import Changed
from deathless.execution.handlers.plan import Plan
from deathless.execution.invocations.all_invocations import Invocations
from deathless.execution.invocations.comparison import Comparison
from deathless.execution.invocations.invocation import Invocation, Turned
from deathless.execution.invocations.journal import Origin, Received
from deathless.execution.invocations.translation import IDENTITY, Translation
from deathless.execution.maps.table import Change, MapTable
from deathless.execution.rehearsal import steps
from deathless.execution.rehearsal.steps import Did, MapChange, Step
from deathless.execution.turn.asked_operation import AskedComplete, AskedFork, encode_asked
from deathless.execution.turn.running import RunningPage
from deathless.execution.turn.turn import Asked, Settings, Turn
from deathless.execution.values.failure import FATAL, Tell, untold
from deathless.execution.values.key_table import KeyTable

_ACCEPTED: Final = bytes([Status.ACCEPTED])
_NOBODY: Final = 0
"""The id of no invocation."""


class _Keys:
    """A table of idempotency keys that is looked at: did it answer?"""

    def __init__(self, keys: KeyTable) -> None:
        self._keys = keys
        self.answered = False

    def __contains__(self, key: bytes) -> bool:
        return key in self._keys

    def check(self, key: bytes, request_hashes: Collection[bytes]) -> bytes | None:
        reply = self._keys.check(key, request_hashes)
        self.answered = self.answered or reply is not None
        return reply

    def remember(self, key: bytes, request_hash: bytes, reply: bytes) -> None:
        self._keys.remember(key, request_hash, reply)


class _States(dict[bytes, bytes]):
    """States that are looked at: what is written, and what stood there before the step."""

    __slots__ = ("before", "written")

    def __init__(self, states: Mapping[bytes, bytes]) -> None:
        super().__init__(states)
        self.before: dict[bytes, bytes | None] = {}
        self.written: dict[bytes, bytes] = {}  # since the last turn began

    def __setitem__(self, key: bytes, state: bytes) -> None:
        if key not in self.before:
            self.before[key] = self.get(key)
        self.written[key] = state
        super().__setitem__(key, state)

    def update(self, states: Mapping[bytes, bytes]) -> None:  # type: ignore[override]  # this is all that is used of it
        for key, state in states.items():
            self[key] = state


class _Maps(MapTable):
    """Maps that are looked at: what became of them."""

    __slots__ = ("changes",)

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[MapChange] = []  # since the last turn began

    def apply(self, change: Change) -> None:
        self.changes.append(MapChange(*change))
        super().apply(change)


class _Table(Invocations):
    """The table of invocations, looked at: turns, what they asked for, and how they ended."""

    __slots__ = ("first", "turns")

    def begin(self) -> None:
        """A step begins."""
        self.turns: list[steps.Turned] = []
        self.first = steps.Turned(0, "", b"")  # takes what the executor's loop writes, which names no turn

    def clear(self) -> None:
        super().clear()
        self.begin()

    def close_turn(self) -> None:
        """Have the turn that was noted last be what wrote all that was written since."""
        states, maps = self._entities.state, self._entities.maps
        if not (isinstance(states, _States) and isinstance(maps, _Maps)):
            return  # they are being restored
        last = self.turns[-1] if self.turns else self.first
        if states.written:
            last.states |= states.written
            states.written = {}
        if maps.changes:
            last.maps += maps.changes
            maps.changes = []

    def _note(self, invocation: int, handler: str, key: bytes) -> steps.Turned:
        self.close_turn()
        turned = steps.Turned(invocation, handler, key)
        self.turns.append(turned)
        return turned

    def conclude(self, plan: Plan, origin: Origin, changed: Changed, result: object, turn: Turn) -> bytes:
        noted = self._note(turn.lsn, plan.spec.name, turn.key)
        try:
            reply = super().conclude(plan, origin, changed, result, turn)
        except BaseException:
            self.turns.pop()
            raise
        noted.reply = _given(reply)
        return reply

    def _run_plain(self, plan: Plan, received: Received, lsn: int, now_us: int) -> bytes | None:
        count = len(self.turns)
        reply = super()._run_plain(plan, received, lsn, now_us)
        if len(self.turns) == count:
            self._note(lsn, plan.spec.name, received.key).reply = reply or b""
        return reply

    def _carry_out(self, invocation: Invocation, turned: Turned, lsn: int, now_us: int) -> bytes | None:
        self._note(invocation.id, invocation.plan.spec.name, invocation.received.key)
        return super()._carry_out(invocation, turned, lsn, now_us)

    def _send(self, asked: Asked) -> None:
        self.turns[-1].asked += asked.records if asked.turn.waits else _records_of(asked, self._settings)
        super()._send(asked)

    def leave(self, invocation: Invocation, reply: bytes) -> None:
        self._ended(invocation.id, invocation.plan.spec.name, invocation.received.key, reply)
        super().leave(invocation, reply)

    def answer(self, origin: Origin, invocation: int, reply: bytes) -> None:
        self._ended(invocation, "", b"", reply)
        super().answer(origin, invocation, reply)

    def pay(self, invocation: int, reply: bytes) -> None:
        owed = self.tables.owed.get(invocation)
        if owed is not None:
            self._note(invocation, owed.method, owed.key)
        super().pay(invocation, reply)

    def _ended(self, invocation: int, handler: str, key: bytes, reply: bytes) -> None:
        last = self.turns[-1] if self.turns else None
        if last is None or last.invocation != invocation or last.reply not in (b"", reply):
            last = self._note(invocation, handler, key)
        last.handler = handler or last.handler
        last.reply = reply


def _records_of(asked: Asked, settings: Settings) -> list[bytes]:
    """Give what a plain handler asked for as records, which it keeps none of."""
    records = []
    for target, message in asked.messages:
        _, method, key, _, arguments = decode(message)
        service, shard = (settings.service, settings.sharding.shard) if target == SELF else target
        fork = AskedFork(service, shard, key.decode(), method.decode(), arguments)
        records.append(encode_asked(fork))
    for invocation, operation, reply in asked.completions:
        records.append(encode_asked(AskedComplete(f"{invocation}.{operation}", reply)))
    return records


def _given(reply: bytes) -> bytes:
    return b"" if reply[:1] == _ACCEPTED else reply


class Recorder(HandlerExecutor):
    """See the module; arguments are those of HandlerExecutor."""

    __slots__ = ("_advancing", "_maps", "_states", "_table", "_taken", "_watched_keys")
    make_table = _Table

    def __init__(
        self,
        service: Service,
        limits: Limits,
        seed: bytes,
        keys: KeyTable,
        running: RunningPage,
        hide: Hide = nothing_hidden,
        sharding: Sharding | None = None,
        *,
        more_memory: Callable[[], object] = int,
        tell: Tell = untold,
    ) -> None:
        self._watched_keys = _Keys(keys)
        super().__init__(
            service, limits, seed, self._watched_keys, running, hide, sharding, more_memory=more_memory, tell=tell
        )
        assert isinstance(self._invocations, _Table)
        self._table: _Table = self._invocations
        self._taken: list[tuple[Step, Did]] = []
        self._advancing = False
        self._watch()
        self._table.begin()

    # ---- what was taken down ----------------------------------------------------------------------------------

    def taken(self) -> list[tuple[Step, Did]]:
        """Give the steps since the last call, each with what came of it."""
        taken, self._taken = self._taken, []
        return taken

    def before(self) -> dict[bytes, bytes | None]:
        """Give what stood under the keys that the last step has written; None: nothing."""
        return self._states.before

    def _begin(self) -> None:
        self._watched_keys.answered = False
        self._states.before = {}
        self._table.begin()

    def _end(self, step: Step, named: Sequence[bytes] = (), *, ran: bool = True) -> None:
        """Take a step down; `named`: keys of it."""
        self._table.close_turn()
        turns, tables = self._table.turns, self._table.tables
        keys = dict.fromkeys((*named, *(turned.key for turned in turns)))
        self._taken.append(
            (
                step,
                Did(
                    turns,
                    {key: key in tables.held for key in keys},
                    step.lsn in tables,
                    ran and not self._watched_keys.answered,
                ),
            )
        )

    def _end_message(self, step: steps.Called | steps.Sent, reply: bytes) -> None:
        """Take down a message that was run; `reply`: what the loop gave, empty where it comes of a turn noted."""
        try:
            _, method, key, _, _ = decode(step.message)
        except CorruptFrame:
            method, key = b"", b""
        if self._entities.single:
            key = b""
        reply = _given(reply)
        turns = self._table.turns
        if reply and not any(turned.invocation == step.lsn for turned in turns):
            name = method.decode(errors="replace")
            self._table.close_turn()
            first = self._table.first
            turns.insert(0, steps.Turned(step.lsn, name, key, [], reply, first.states, first.maps))
        self._end(step, [key])

    # ---- what is kept ------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        """Look at the tables of states and items, which are empty."""
        self._maps = self._entities.maps = _Maps()
        self._states = self._entities.state = _States({})

    def discard(self) -> None:
        """See HandlerExecutor."""
        super().discard()
        self._watch()

    def restore(
        self,
        state: dict[bytes, bytes],
        suspended: Sequence[bytes] = (),
        *,
        same_code: bool = True,
        translation: Translation = IDENTITY,
    ) -> None:
        """See HandlerExecutor."""
        super().restore(state, suspended, same_code=same_code, translation=translation)
        self._states = self._entities.state = _States(self._entities.state)
        self._taken = []

    def put(self, key: bytes, state: bytes | None, items: Mapping[str, Mapping[bytes, bytes]]) -> None:
        """Have a key stand otherwise; nothing is taken down of it.

        Args:
            key: whose state it is.
            state: None: it has none.
            items: of all its maps, by field and encoded key of the item.
        """
        if state is None:
            self._states.pop(key, None)
        else:
            dict.__setitem__(self._states, key, state)
        for field in self._entities.states.maps:
            prefix = prefix_of(key, field.name)
            held = sorted(items.get(field.name, {}).items())
            MapTable.apply(self._maps, Change(prefix, True, [(prefix + item, value) for item, value in held]))

    def item(self, prefix: bytes, entry: bytes) -> bytes | None:
        """Give an item of a map; None: it is not there."""
        return self._maps.get(prefix, entry)

    def state_of(self, key: bytes) -> bytes | None:
        """Give a key's state; None: it has none."""
        return self._states.get(key)

    def items_of(self, key: bytes) -> dict[str, dict[bytes, bytes]]:
        """Give the items of a key's maps by field, those that hold any."""
        found = {}
        for field in self._entities.states.maps:
            prefix = prefix_of(key, field.name)
            if held := self._maps.maps.get(prefix):
                found[field.name] = {entry[len(prefix) :]: value for entry, value in held.items()}
        return found

    # ---- what leaves -------------------------------------------------------------------------------------------

    def drop(self, invocation: int) -> None:
        """Take something out that has begun, or waits to, as if it had never come; nobody is told."""
        tables = self._table.tables
        if (live := tables.live.get(invocation)) is not None:
            live.kill()
            tables.leave(live)
            tables.forget_caller(live.received.origin)
            if tables.held.get(live.received.key) == invocation:
                del tables.held[live.received.key]
        elif (held := tables.unfit.get(invocation)) is not None:
            self._table.release(held)
        elif (message := tables.waiting(invocation)) is not None:
            tables.take(message)
        elif (owed := tables.owed.pop(invocation, None)) is not None:
            tables.forget_caller(owed.origin)

    def drop_key(self, key: bytes) -> list[int]:
        """Take out whoever holds a key, and all that wait for it; gives their ids."""
        tables = self._table.tables
        holder = tables.held.get(key, _NOBODY)
        gone = [] if holder == _NOBODY else [holder]
        gone += list(tables.queues.get(key, ()))
        for each in gone:
            self.drop(each)
        tables.held.pop(key, None)
        return gone

    def hold_key(self, key: bytes) -> None:
        """Have nothing run for a key that nobody holds, until `drop_key`; who works on another as well waits for it."""
        self._table.tables.held.setdefault(key, _NOBODY)

    def drop_unfit(self) -> dict[int, bytes]:
        """Take out what the code does not fit; gives the key of each by its id."""
        unfit = {id_: held.received.key for id_, held in self._table.tables.unfit.items()}
        for each in unfit:
            self.drop(each)
        return unfit

    def keys_named(self, method: bytes, key: bytes, arguments: bytes) -> list[bytes]:
        """Give the keys that a message works on."""
        plan = self._plans.get(method)
        if plan is None or not plan.keys:
            return [b"" if self._entities.single else key]
        try:
            return list(plan.keys_of(plan.decode_arguments(arguments), self._entities.limits.key_bytes_max).values())
        except FATAL:
            raise
        except BaseException:  # noqa: BLE001  decoding runs the author's `__post_init__`; it fails by itself then
            return [key]

    def comparison(self) -> Comparison:
        """Give what says whether two operations, results or states are the same to this code."""
        return Comparison(self._plans, self._entities, self._settings, strict=False)

    # ---- steps -------------------------------------------------------------------------------------------------

    def execute_runs(
        self, runs: Sequence[tuple[Run, Sequence[bytes]]], first_lsn: int, now_us: int
    ) -> list[tuple[list[bytes], list[int], bytes]]:
        """See HandlerExecutor; one message after the other. Handlers run as deep below here as below that one."""
        done = []
        lsn = first_lsn
        for run, messages in runs:
            replies: list[bytes] = []
            digests: list[int] = []
            for index, message in enumerate(messages):
                self._begin()
                one = Run(run.session, run.first_seq + index, 0, 1)
                [(given, columns, _)] = self._run_all([(one, [message])], lsn, now_us)
                self._end_message(steps.Called(lsn, now_us, message), given[0])
                replies += given
                digests += columns
                lsn += 1
            done.append((replies, digests, self._written.rolling_update()))
        return done

    def execute_peer(
        self,
        peer: Target,
        first_seq: int,
        first_lsn: int,
        now_us: int,
        messages: Sequence[bytes],
        session: int = SELF_SESSION,
    ) -> list[int]:
        """See HandlerExecutor; likewise."""
        digests: list[int] = []
        for index, message in enumerate(messages):
            lsn = first_lsn + index
            self._begin()
            one = Run(session, first_seq + index, 0, 1)
            [(given, columns, _)] = self._run_all([(one, [message])], lsn, now_us, peer)
            service, shard = ("", 0) if peer == SELF else peer
            self._end_message(steps.Sent(lsn, now_us, message, service, shard), given[0])
            digests += columns
        return digests

    def moved(self, times: Times) -> None:
        """See HandlerExecutor."""
        if self._advancing:
            super().moved(times)
            return
        self._begin()
        super().moved(times)
        self._end(steps.Moved(0, times))

    def advance(self, lsn: int, times: Times, *, caught_up: bool = True) -> None:
        """See HandlerExecutor."""
        self._begin()
        self._advancing = True
        try:
            super().advance(lsn, times, caught_up=caught_up)
        finally:
            self._advancing = False
        self._end(steps.Advanced(lsn, times, caught_up))

    def outcome(self, lsn: int, now_us: int, outcome: Outcome) -> None:
        """See HandlerExecutor."""
        self._begin()
        super().outcome(lsn, now_us, outcome)
        self._end(steps.Recorded(lsn, now_us, Kind.OUTCOME, encode_body(outcome)))

    def attempt(self, lsn: int, now_us: int, attempt: Attempt) -> None:
        """See HandlerExecutor."""
        self._begin()
        super().attempt(lsn, now_us, attempt)
        self._end(steps.Recorded(lsn, now_us, Kind.ATTEMPT, encode_body(attempt)))

    def order(self, lsn: int, now_us: int, order: Order) -> None:
        """See HandlerExecutor."""
        self._begin()
        super().order(lsn, now_us, order)
        self._end(steps.Recorded(lsn, now_us, Kind.ORDER, encode_body(order)))

    def retry(self, lsn: int, now_us: int, parked: int, message: bytes) -> bytes:
        """See HandlerExecutor."""
        self._begin()
        refusal = super().retry(lsn, now_us, parked, message)
        self._end(steps.Again(lsn, now_us, parked, message), ran=not refusal)
        return refusal

    def peer_replaced(self, lsn: int, now_us: int, target: Target) -> None:
        """See HandlerExecutor."""
        self._begin()
        super().peer_replaced(lsn, now_us, target)
        self._end(steps.Replaced(lsn, now_us, *target))
