"""Runs the messages of a log on the state they made: design 0003, "Turns".

One turn: the state of the key is decoded from its bytes, the handler is called with it, a context and the decoded
arguments, then state and result are encoded. Only when all of that succeeded does the new state take the old one's
place; until then nothing was touched, so a turn commits whole or rolls back whole by itself (I11). An exception is a
reply (I5, see failure). The digest of a message is the CRC-32 of new state bytes and reply (I6); what a message
wrote also enters the digest of its frame.

There is no cache of decoded states, on purpose. A decoded object can remember more than its bytes say: an int where
the type says float, two fields that are one list, an attribute outside the type. A replica that restarted from a
checkpoint would not have that, and would go another way. Decoding anew makes the bytes the only memory there is. The
new bytes are decoded once before they are kept: a state that does not fit its type fails its own turn, not the next.
To keep what that gives for the next turn would be safe, and save a decoding: with a small state less than the look-up.

The loop is flat because it is the hot path: one pass, no object per message but the handler's own. One context is
handed to turn after turn as long as nobody kept it, which its reference count tells; a kept one is dead.

Guarantees: same messages in the same order give the same replies, digests and states in every process, however they
are cut into batches, if the handlers are deterministic; `execute` raises nothing for what a handler does, except what
must end the process (see failure). Does not: read a clock, know sessions, remember replies of sessions, collect
garbage. Imports base and codec.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import ClassVar, Final, TypeVar
from zlib import crc32

import msgspec

from deathless.base.errors import CorruptFrame, InvalidService, NotParked, Overloaded
from deathless.base.ids import SYSTEM_SESSION
from deathless.base.limits import Limits
from deathless.base.shards import Sharding
from deathless.base.times import Due, Times, first_us
from deathless.codec.frames import Run
from deathless.codec.messages import BEGINNING, HEADER_BYTES, Kind, decode, encode
from deathless.codec.peer_messages import (
    SELF,
    SELF_SESSION,
    STREAM_PREFIX,
    ActivityStart,
    Attempt,
    Crowd,
    History,
    InvocationView,
    Known,
    Order,
    Outcome,
    Outputs,
    ScheduleView,
    Target,
)
from deathless.codec.traces import readable, traceparent, untraced, within
from deathless.codec.wire import Status, accepted_reply, error_reply, ok_reply
from deathless.execution.author.service import Service
from deathless.execution.handlers.entities import Changed, Entities
from deathless.execution.handlers.older_arguments import older_forms
from deathless.execution.handlers.plan import Plan
from deathless.execution.handlers.probe import SPECS as PROBE_SPECS
from deathless.execution.handlers.request_hash import hash_by_bytes, hash_by_meaning, hashes
from deathless.execution.invocations import journal
from deathless.execution.invocations.all_invocations import Invocations
from deathless.execution.invocations.arrivals import Arrivals
from deathless.execution.invocations.journal import CLIENT, Origin, Received, encode_record
from deathless.execution.invocations.kept_records import KeptRecords
from deathless.execution.invocations.peer_intake import MALFORMED, is_plain_sender, take_in
from deathless.execution.invocations.restoration import Restoration
from deathless.execution.invocations.schedules import Schedules
from deathless.execution.invocations.translation import IDENTITY, Translation
from deathless.execution.queries import Queries, unknown
from deathless.execution.turn import depth
from deathless.execution.turn.context import Context, Turn
from deathless.execution.turn.running import Blame, RunningPage
from deathless.execution.turn.turn import Settings
from deathless.execution.turn.written import Written
from deathless.execution.values.failure import Failures, Tell, untold
from deathless.execution.values.key_table import KeyTable

FOLD_MESSAGES: Final = 256
"""What a frame's messages wrote is folded into its digest after so many, so that old states do not pile up."""

FOLD_BYTES: Final = 16384
"""And at once when a message writes more than this."""

# As codec.messages.HEADER, with kind and flags taken as one number: the loop knows no flags.
_HEADER: Final = struct.Struct("<HHHH")
_NO_HEADER: Final = (0, 0, 0, 0)
_CALL: Final = int(Kind.CALL)
_FORK: Final = int(Kind.FORK)
_NO_KIND: Final = -1  # what no message has
_UNREADABLE: Final = -2  # a FORK whose envelope is none, or holds a trace context
_OK: Final = ok_reply(b"")
_FROM_CLIENT: Final = Origin(CLIENT)
_REFUSED: Final = error_reply(Overloaded.code, "", "")[: -len(b"\xa0\xa0")]
_NO_BEGIN: Final = error_reply(
    NotParked.code,
    NotParked.__name__,
    "what was set aside begins no handler: it is a later turn of one, whose earlier turns stand",
)
_KEY_USED: Final = error_reply(
    NotParked.code, NotParked.__name__, "its idempotency key was used again since then, or its window has passed"
)
SOON: Final = Due(1, 1)
"""When something is due that the next TIME record deals with, whatever it says."""
T = TypeVar("T")

Hide = Callable[[], Callable[[], object]]
"""Hides from handlers what they must not see (a running event loop); gives what brings it back."""


def nothing_hidden() -> Callable[[], object]:
    """Hide nothing."""
    return int


def _references_of_one() -> int:
    """What the reference count of an object says that a single local variable holds."""
    context = Context(Turn(bytes(32), 0))
    return sys.getrefcount(context)


class HandlerExecutor:
    """Executes one service's messages; the engine's port of that name.

    Args:
        service: whose handlers run.
        limits: `entity_bytes_max`, `reply_bytes_max` and `key_bytes_max` are used.
        seed: 32 bytes of the service, for `ctx.random`.
        keys: idempotency keys.
        running: where the message being run is written down.
        hide: called around each batch and query.
        more_memory: called where what turns have kept is no reason to deny memory to the next.
        sharding: which shard this is, and how many others have; None: of services of one shard each.
        tell: told each bug of a handler or query, wherever its message runs (see failure).

    Raises: InvalidService for a service of one object with several shards.
    """

    __slots__ = (
        "_arrivals", "_blame", "_catching_up", "_entities", "_hide", "_invocations", "_keys", "_more_memory", "_open",
        "_plans", "_queries", "_running", "_settings", "_single", "_small_bytes", "_written",
    )  # fmt: skip

    make_table: ClassVar[type[Invocations]] = Invocations
    """Class of its table; another one for who looks on (see rehearsal)."""

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
        sharding = sharding or Sharding()
        if service.single and sharding.shards > 1:
            raise InvalidService(f"service {service.name} is one object, so it has one shard, not {sharding.shards}")
        self._entities = Entities(service, limits, sharding)
        maps = bool(self._entities.states.maps)
        specs = (*service.specs.items(), *PROBE_SPECS.items())
        plans = {name.encode(): Plan(spec, maps=maps, older=older_forms(service, spec)) for name, spec in specs}
        plans |= {old.encode(): plans[now.encode()] for old, now in service.declared.former_names().items()}
        self._plans = {name: plan for name, plan in plans.items() if plan.spec.kind == "handler"}
        self._plans |= {spec.name.encode(): Plan(spec, maps=maps) for spec in service.inputs.values()}
        self._single = service.single
        self._small_bytes = min(FOLD_BYTES, limits.entity_bytes_max, limits.reply_bytes_max)  # up to this: no check
        activities = service.activities
        self._settings = Settings(
            service=service.name, version=service.version, seed=seed, limits=limits,
            activities={spec.function: spec for spec in activities.values()},
            topics=service.topics,
            sharding=sharding,
            failures=Failures(tell),
        )  # fmt: skip
        policies = {name: spec.policy for name, spec in activities.items()}
        schedules = Schedules(service.schedules.values())
        self._blame = Blame(running)
        self._invocations = self.make_table(self._plans, self._entities, self._settings, schedules, self._blame)
        restoration = Restoration(self._invocations, self._plans, self._entities, self._settings)
        self._arrivals = Arrivals(self._invocations, limits, policies, restoration)
        queries = {name: plan for name, plan in plans.items() if plan.spec.kind == "query"}
        self._queries = Queries(queries, self._plans, self._entities, self._settings)
        self._catching_up = False  # True: turns run that another one has caused, and that one has committed
        self._keys = keys
        self._running = running
        self._hide = hide
        self._more_memory = more_memory
        self._open: tuple[int, Callable[[], object]] | None = None  # between `open` and `close`: what `close` undoes
        self._written = Written()

    def open(self) -> None:
        """Make ready to execute the runs of one frame, called from where this is called; `close` must follow."""
        assert self._open is None, "frames are executed one after the other"
        self._blame.begin()
        show = self._hide()
        self._open = depth.enter(), show

    def close(self) -> None:
        """End what `open` began."""
        assert self._open is not None, "`open` comes first"
        (limit, show), self._open = self._open, None
        depth.leave(limit)
        show()

    def execute(
        self, session: int, first_seq: int, first_lsn: int, now_us: int, messages: Sequence[bytes]
    ) -> tuple[list[bytes], list[int]]:
        """Run CALL messages of one sender in order, each turn whole or rolled back whole.

        Args:
            session: whose messages these are; handlers do not see it.
            first_seq: of the first message, its successors count on.
            first_lsn: likewise.
            now_us: logical time of all of them, microseconds.
            messages: as codec.messages describes.

        Returns: reply bytes and u32 digest, one item per message each.

        Raises: MemoryError and ProcessEnds, from a handler: the process must end, and the running page still names the
        message.
        """
        runs = [(Run(session, first_seq, 0, len(messages)), messages)]
        if self._open is not None:  # ready already
            [(replies, digests, _)] = self._run_all(runs, first_lsn, now_us)
            return replies, digests
        show = self._hide()
        limit = depth.enter()
        try:
            [(replies, digests, _)] = self._run_all(runs, first_lsn, now_us)
        finally:
            depth.leave(limit)
            show()
        return replies, digests

    def execute_runs(
        self, runs: Sequence[tuple[Run, Sequence[bytes]]], first_lsn: int, now_us: int
    ) -> list[tuple[list[bytes], list[int], bytes]]:
        """Run CALL messages of several senders one after the other: what `execute` and `rolling_update` give for each.

        Args:
            runs: each with its messages, as many as it says.
            first_lsn: of the first message of all.
            now_us: logical time of all of them, microseconds.

        Returns: for each run its reply bytes, its u32 digests, and the 32 bytes of `rolling_update`.

        Raises: as `execute`.
        """
        assert self._open is not None, "runs of a frame are executed between `open` and `close`"
        return self._run_all(runs, first_lsn, now_us, updates=True)

    def _run_all(
        self,
        runs: Sequence[tuple[Run, Sequence[bytes]]],
        first_lsn: int,
        now_us: int,
        peer: Target | None = None,
        *,
        updates: bool = False,
    ) -> list[tuple[list[bytes], list[int], bytes]]:
        """As `_run`. It is called as deep below `open` as below whoever made ready for this alone: see depth."""
        if self._open is None:
            self._blame.begin()
        return self._run(runs, first_lsn, now_us, peer, updates=updates)

    def _run(  # noqa: PLR0915  flat, as the module says
        self,
        runs: Sequence[tuple[Run, Sequence[bytes]]],
        lsn: int,
        now_us: int,
        peer: Target | None,
        *,
        updates: bool,
    ) -> list[tuple[list[bytes], list[int], bytes]]:
        """Run the messages of clients, or of one peer; gives what `execute_runs` does, updates only where asked.

        Of clients CALLs are run here, of a peer FORKs; whatever else there is, and what may have to wait, elsewhere.
        """
        cells, unpack, header_bytes, call = (
            self._running.cells,
            _HEADER.unpack_from,
            HEADER_BYTES,
            _CALL if peer is None else _NO_KIND if peer == SELF else _FORK,  # a tick of ours looks like a FORK
        )
        stream = peer is not None and peer.service.startswith(STREAM_PREFIX)
        envelope: bytes | None = None  # of a FORK; one that can be read
        origin = _FROM_CLIENT if peer is None else Origin(journal.FORK, *peer)
        entities, plain = self._entities, self._invocations.plain
        state, single, small_bytes = entities.state, self._single, self._small_bytes
        failures = self._settings.failures
        decode_state, encode_state = entities.states.decode, entities.states.encode
        wrote: list[bytes] = []
        keep, count_references, unkept, ok = wrote.append, sys.getrefcount, _UNKEPT, _OK
        turn = Turn(self._settings.seed, now_us, self._settings)
        context = Context(turn)
        hand_in, alone, enter, leave = self._written.hand_in, self._written.only, self._blame.enter, self._running.leave
        done: list[tuple[list[bytes], list[int], bytes]] = []
        for run, messages in runs:
            enter(run[0], run[1], lsn, run[3])
            find = self._invocations.find(stream=stream)
            replies: list[bytes] = []
            digests: list[int] = []
            answer = replies.append
            for index, message in enumerate(messages):
                cells[2] = index
                kind, method_len, key_len, idem_len = unpack(message) if len(message) >= header_bytes else _NO_HEADER
                key_at = header_bytes + method_len
                idem_at = key_at + key_len
                args_at = idem_at + idem_len
                request = b""
                if peer is not None:
                    idem_len = 0  # an envelope stands there, mostly the same
                    if kind == call and message[idem_at:args_at] != envelope:
                        if is_plain_sender(message[idem_at:args_at]):
                            envelope = message[idem_at:args_at]
                        else:
                            kind = _UNREADABLE
                if kind != call or args_at > len(message):
                    written, reply = self._of_peer(peer, message, lsn + index, now_us)
                    find = self._invocations.find(stream=stream)
                    idem_len = 0
                elif idem_len and (
                    recorded := self._keys.check(
                        message[idem_at:args_at],
                        hashes(self._plans, message, idem_at, args_at)
                        if message[idem_at:args_at] in self._keys
                        else (),
                    )
                ):
                    written = reply = recorded
                    idem_len = 0
                elif (plan := find(message[header_bytes:key_at])) is None and (
                    plan := plain(
                        message[header_bytes:key_at], message[key_at:idem_at], message, args_at, stream=stream
                    )
                ) is None:
                    if peer is None:
                        written, reply, remembered = self._divert(
                            message[header_bytes:key_at],
                            message[key_at:idem_at],
                            message[args_at:],
                            lsn + index,
                            now_us,
                        )
                        if not remembered:
                            idem_len = 0
                        elif idem_len:
                            request, _ = hashes(self._plans, message, idem_at, args_at)
                    else:
                        written, reply = self._of_peer(peer, message, lsn + index, now_us)
                    find = self._invocations.find(stream=stream)
                else:
                    turn.lsn = lsn + index
                    turn.key = key = b"" if single else message[key_at:idem_at]
                    try:
                        arguments = plan.decode_arguments(message[args_at:])
                    except BaseException as error:  # noqa: BLE001  decoding runs the author's `__post_init__`
                        written = reply = failures.of_arguments(error, plan.spec.name, key, turn.lsn)
                        if idem_len:
                            request = hash_by_bytes(message, idem_at, args_at)
                    else:
                        if idem_len:
                            request = hash_by_meaning(plan, arguments, message, idem_at, args_at)
                        try:
                            if plan.apart:
                                written, reply, remembered = self._run_apart(plan, arguments, context, turn, origin)
                                if not remembered:
                                    idem_len = 0
                            else:
                                old = state.get(key)
                                entity = decode_state(old) if old is not None else entities.bear(key, context)
                                result = plan.call(entity, context, arguments)
                                new = encode_state(entity)
                                decode_state(new)
                                if turn.used and turn.asks():
                                    written, reply, remembered = self._conclude(
                                        plan, Changed({key: new}), result, turn, origin
                                    )
                                    if not remembered:
                                        idem_len = 0
                                else:
                                    reply = ok + plan.encode_result(result)
                                    if type(result) is not plan.scalar:
                                        plan.check_result(reply[1:])
                                    written = new + reply
                                    if len(written) > small_bytes:
                                        entities.check_sizes(key, new, reply)
                                    state[key] = new
                        except BaseException as error:
                            if self._catching_up or self._invocations.committing:
                                raise
                            turn.end()
                            written = reply = failures.of_turn(error, plan.spec.name, key, turn.lsn)
                        if count_references(context) != unkept:
                            turn, context = self._replace(turn)
                keep(written)
                answer(reply)
                if idem_len:
                    self._keys.remember(message[idem_at:args_at], request, reply)
                if len(written) > small_bytes:  # large things must not pile up
                    hand_in(wrote, digests)
                    self._more_memory()
                elif len(wrote) == FOLD_MESSAGES:
                    hand_in(wrote, digests)
            leave()
            lsn += len(messages)
            if updates and len(wrote) == 1 and not digests and (update := alone(wrote[0])) is not None:
                done.append((replies, [crc32(wrote.pop())], update))  # a client that waits for each call
                continue
            hand_in(wrote, digests)
            done.append((replies, digests, self._written.rolling_update() if updates else b""))
        turn.alive = False
        return done

    def _replace(self, kept: Turn) -> tuple[Turn, Context]:
        """Kill the context that somebody kept, give a new one."""
        kept.alive = False
        turn = Turn(self._settings.seed, kept.now_us, self._settings)
        return turn, Context(turn)

    def _run_apart(
        self, plan: Plan, arguments: msgspec.Struct, context: Context, turn: Turn, origin: Origin
    ) -> tuple[bytes, bytes, bool]:
        """Run a handler of several keys or of maps; gives as `_divert`. Nothing is kept if it raises."""
        entities = self._entities
        if plan.ours:
            return (*entities.run_ours(plan, arguments, context, turn), True)
        changed, result = entities.run_apart(plan, arguments, context, turn)
        if turn.used and turn.asks():
            return self._conclude(plan, changed, result, turn, origin)
        reply = entities.reply(plan, result)
        entities.keep(changed, reply)
        return b"".join((*changed.states.values(), reply)), reply, True

    def _conclude(
        self, plan: Plan, changed: Changed, result: object, turn: Turn, origin: Origin
    ) -> tuple[bytes, bytes, bool]:
        """End a turn that asked for something; gives as `_divert`, with what it caused."""
        lsn, now_us = turn.lsn, turn.now_us
        reply = self._invocations.conclude(plan, origin, changed, result, turn)
        self._catching_up = True
        self._invocations.run_todo(lsn, now_us)
        self._catching_up = False
        return self._invocations.take_wrote(), reply, reply[0] != Status.ERROR  # an error is a refusal here

    def _of_peer(self, peer: Target | None, message: bytes, lsn: int, now_us: int) -> tuple[bytes, bytes]:
        """Run what the loop does not: what is no CALL, what has a trace context, and a FORK that may have to wait.

        Gives what it wrote, and the reply to a client.
        """
        if peer is None:
            return self._call_traced(message, lsn, now_us)
        return take_in(self._invocations, self._arrivals, peer, message, lsn, now_us), b""

    def _call_traced(self, message: bytes, lsn: int, now_us: int) -> tuple[bytes, bytes]:
        """Run a CALL with a trace context as any other; gives as `_of_peer`. Whatever else there is, is malformed."""
        plain, trace = untraced(message)
        if not trace:
            return MALFORMED, MALFORMED
        try:
            _, method, key, third, arguments = decode(plain)
        except CorruptFrame:
            return MALFORMED, MALFORMED
        request = b""
        if third:
            args_at = len(plain) - len(arguments)
            request, by_bytes = hashes(self._plans, plain, args_at - len(third), args_at)
            recorded = self._keys.check(third, (request, by_bytes))
            if recorded is not None:
                return recorded, recorded
        written, reply, remembered = self._divert(method, key, arguments, lsn, now_us, readable(trace))
        if third and remembered:
            self._keys.remember(third, request, reply)
        return written, reply

    def _divert(
        self, method: bytes, key: bytes, arguments: bytes, lsn: int, now_us: int, trace: bytes = b""
    ) -> tuple[bytes, bytes, bool]:
        """Run a CALL that may have to wait, or that nothing handles.

        Returns: what it wrote, its reply, and whether that is to be remembered under its idempotency key.
        """
        table = self._invocations
        if method not in self._plans:
            reply = unknown(method, self._queries.plans, "a query: ask it as one")
            return reply, reply, True
        received = Received(_FROM_CLIENT, method.decode(), b"" if self._single else key, arguments, trace=trace)
        answer = table.receive(received, lsn, now_us)
        reply = accepted_reply(lsn) if answer is None else answer
        self._catching_up = True
        table.run_todo(lsn, now_us)
        self._catching_up = False
        return table.take_wrote() + reply, reply, not reply.startswith(_REFUSED)

    # ---- messages of peers and records ------------------------------------------------------------------------

    def execute_peer(
        self,
        peer: Target,
        first_seq: int,
        first_lsn: int,
        now_us: int,
        messages: Sequence[bytes],
        session: int = SELF_SESSION,
    ) -> list[int]:
        """Run FORK, REQUEST, RESPONSE and CANCEL messages of a peer in order (SELF: of our own outbox).

        Args:
            peer: who sent them.
            first_seq: of the first message, its successors count on.
            first_lsn: likewise.
            now_us: logical time of all of them, microseconds.
            messages: as codec.messages describes.
            session: of the peer, for the running page.

        Returns: u32 digest of each; what the turns give is in `take_outputs`.

        Raises: as `execute`.
        """
        runs = [(Run(session, first_seq, 0, len(messages)), messages)]
        if self._open is not None:  # ready already
            [(replies, digests, _)] = self._run_all(runs, first_lsn, now_us, peer)
        else:
            show = self._hide()
            limit = depth.enter()
            try:
                [(replies, digests, _)] = self._run_all(runs, first_lsn, now_us, peer)
            finally:
                depth.leave(limit)
                show()
        if peer.service.startswith(STREAM_PREFIX):
            for lsn, reply in enumerate(replies, first_lsn):
                self._invocations.maybe_refused(peer, lsn, reply)
        return digests

    def moved(self, times: Times) -> None:
        """The shard's times are these now: behind a TIME record, before `advance`, and behind `restore`."""
        self._invocations.times = times

    def advance(self, lsn: int, times: Times, *, caught_up: bool = True) -> None:
        """Take a TIME record in: ticks of schedules are sent, and timers and deadlines that are due fire, in order.

        Args:
            lsn: of the record.
            times: of the shard from now on.
            caught_up: False, in version 1: more time records come at once, and ticks wait for the last of them.
        """
        self.moved(times)
        if self.due().reached(times):
            self._record(lsn, times.time_us, lambda: self._arrivals.advance(lsn, times, caught_up=caught_up))

    def outcome(self, lsn: int, now_us: int, outcome: Outcome) -> None:
        """Take the end of an activity's attempt in; one that nobody waits for changes nothing."""
        self._record(lsn, now_us, lambda: self._arrivals.outcome(outcome, lsn, now_us))

    def attempt(self, lsn: int, now_us: int, attempt: Attempt) -> None:
        """Note that an at-most-once activity may have begun."""
        self._record(lsn, now_us, lambda: self._arrivals.attempt(attempt))

    def order(self, lsn: int, now_us: int, order: Order) -> None:
        """Carry out an operator's command for an invocation."""
        self._record(lsn, now_us, lambda: self._arrivals.order(order, lsn, now_us))

    def retry(self, lsn: int, now_us: int, parked: int, message: bytes) -> bytes:
        """Run a message that was set aside (I11), as a call whose result is kept under `lsn`.

        Who had sent it was told that it is parked, and is told nothing more. An idempotency key of it counts: where it
        was used since, nothing is run.

        Args:
            lsn: of the order, and so of the new invocation.
            now_us: logical time, microseconds.
            parked: lsn of the record that set it aside; the running page names it, in session 0. It is no invocation,
                so that a death here, before the order is in the log, is held against none.
            message: as codec.messages describes.

        Returns: b"" when it was run, or waits for its key; else the error reply that says why nothing happened.
        """
        message, trace = untraced(message)
        try:
            kind, method, key, third, arguments = decode(message)
        except CorruptFrame:
            return _NO_BEGIN
        if kind not in BEGINNING:
            return _NO_BEGIN
        if method not in self._plans:
            return unknown(method, self._queries.plans, "a query: ask it as one")
        request = b""
        if kind == Kind.CALL and third:
            args_at = len(message) - len(arguments)
            request, by_bytes = hashes(self._plans, message, args_at - len(third), args_at)
            if self._keys.check(third, (request, by_bytes)) is not None:
                return _KEY_USED

        def again() -> None:
            self._running.enter(SYSTEM_SESSION, parked)
            received = Received(_FROM_CLIENT, method.decode(), key, arguments, trace=readable(trace))
            reply = self._invocations.receive_again(received, lsn, now_us)
            if request:
                self._keys.remember(third, request, accepted_reply(lsn) if reply is None else reply)
            if reply is not None:
                self._invocations.answer(_FROM_CLIENT, lsn, reply)

        self._record(lsn, now_us, again)
        return b""

    def peer_replaced(self, lsn: int, now_us: int, target: Target) -> None:
        """Resolve what waits for a peer that was created anew, with error PeerReplaced."""
        self._record(lsn, now_us, lambda: self._arrivals.peer_replaced(target, lsn, now_us))

    def _record(self, lsn: int, now_us: int, act: Callable[[], None]) -> None:
        """Run the turns that a record causes; what they wrote enters `rolling_update`.

        The running page names them by session 0 and their invocation: nobody sent the record, and whoever leads next
        would log it again, so the invocation is what is set aside (I11).
        """

        def run() -> None:
            self._invocations.entering = lambda invocation: self._running.enter(SYSTEM_SESSION, invocation)
            act()
            self._invocations.run_todo(lsn, now_us)
            self._invocations.entering = None
            self._running.leave()

        self._hidden(run)
        self._written.add(self._invocations.take_wrote())

    def _hidden(self, run: Callable[[], T]) -> T:
        """Run something with hidden what handlers must not see."""
        if self._open is not None:
            return run()
        show = self._hide()
        try:
            return run()
        finally:
            show()

    def take_outputs(self) -> Outputs | None:
        """Give what turns sent, answered late, started and stopped since the last call, in order; None: nothing."""
        return self._invocations.take_outputs()

    def due(self) -> Due:
        """When `advance` has something to do."""
        timers, ticks_us = self._invocations.tables.due(), self._invocations.schedules.due_us()
        if self._invocations.tables.unfit and self._invocations.tables.returning():
            return SOON
        return Due(timers.elapsed_us, first_us(timers.time_us, ticks_us)) if ticks_us else timers

    def timers_due(self) -> Due:
        """When the first timer or deadline is due."""
        return self._invocations.tables.due()

    def schedules(self) -> list[ScheduleView]:
        """All schedules, for operators."""
        return self._invocations.schedules.views(self._invocations.tables.ticks())

    def activities(self) -> list[ActivityStart]:
        """All activities without an outcome, in the order in which they were asked for."""
        return self._invocations.tables.activities()

    def traceparent(self, invocation: int, operation: int) -> str:
        """Give the trace context of what an operation causes, as the header of that name; empty: none."""
        found = self._invocations.tables.live.get(invocation)
        if found is None or not found.turn.trace:
            return ""
        return traceparent(within(found.turn.trace, found.turn.span(operation)))

    def holds(self, invocation: int) -> bool:
        """Has this invocation begun, and not ended? One that waits for its key has."""
        return invocation in self._invocations.tables

    def invocation_count(self) -> int:
        """How many have begun, or wait to, and not ended."""
        return len(self._invocations.tables)

    def crowd(self) -> Crowd:
        """How much is suspended, to compare with its maximums."""
        return self._invocations.tables.crowd()

    def invocations(self, first: int = 0, count_max: int = sys.maxsize) -> list[InvocationView]:
        """Invocations that have begun and not ended, from id `first` on, `count_max` of them; for operators."""
        return self._invocations.tables.views(first, count_max)

    @property
    def restoration(self) -> Restoration:
        """Tells what of the checkpoint that was restored does not fit the code."""
        return self._arrivals.restoration

    def held_count(self) -> int:
        """How many invocations are held because the code does not fit them, or did not until now."""
        return len(self._invocations.tables.unfit)

    def history(self, invocation: int, count_max: int) -> History | None:
        """What an invocation was given, the last `count_max` of it, for operators; None: it is not there."""
        return self._invocations.tables.history(invocation, count_max)

    def not_begun(self, invocation: int) -> bytes:
        """Give the message that waits for its key under this id, as a CALL; b"": there is none, or it has begun."""
        waiting = self._invocations.tables.waiting(invocation)
        if waiting is None:
            return b""
        received = waiting.received
        return encode(Kind.CALL, method=received.method.encode(), key=received.key, args=received.arguments)

    def suspended(self, kept: KeptRecords | None = None) -> list[bytes]:
        """Encoded schedules and invocations for a checkpoint, ascending by id; `kept`: as they were given before."""
        return [
            *map(encode_record, self._invocations.schedules.suspended()),
            *self._invocations.tables.suspended(self._entities.state, kept),
        ]

    def limit_targets(self, known: Known) -> None:
        """Say whom the outbox knows; a turn that would send to more than `targets_max` others fails."""
        self._invocations.targets.known = known

    # ---- queries and state ------------------------------------------------------------------------------------

    def query(self, message: bytes, now_us: int) -> bytes:
        """Run a query on the last completed turn's state; nothing is kept (see queries)."""
        show = self._hide()
        try:
            return self._queries.answer(message, now_us)
        finally:
            show()

    def rolling_update(self) -> bytes:
        """Give 32 bytes that stand for all new states, replies and outputs since the last call (see written)."""
        return self._written.rolling_update()

    @property
    def entities(self) -> Entities:
        """State of all keys, for who notes how it changes."""
        return self._entities

    def state(self) -> dict[bytes, bytes]:
        """Encoded state per key (UTF-8; b"" for a service of one object); the caller must not change it.

        Beside them stand entries of ours, under keys that no user may name: items of maps, counts of probes.
        """
        return self._entities.all()

    def count(self) -> int:
        """How many keys have a state."""
        return len(self._entities.state)

    def restore(
        self,
        state: dict[bytes, bytes],
        suspended: Sequence[bytes] = (),
        *,
        same_code: bool = True,
        translation: Translation = IDENTITY,
    ) -> None:
        """Replace all state, and all invocations by what `suspended` gave: each runs again up to where it waits.

        What was written and not asked for by `rolling_update` is forgotten.

        Args:
            state: as `state` gave it.
            suspended: as `suspended` gave it.
            same_code: this very code gave them. An invocation that does something else has diverged then; of other
                code, it is held (see `restoration`), and all others go on.
            translation: of what `suspended` holds into what this code expects; `state` is translated already.

        Raises: Diverged naming the invocation that did something else than before; CorruptCheckpoint.
        """
        self.discard()
        self._entities.restore(state)
        records = self._with_memory(suspended)
        self._hidden(lambda: self.restoration.restore(records, same_code=same_code, translation=translation))

    def restoring(self, work: Callable[[Entities, Restoration, Callable[[], object]], T]) -> T:
        """Do something that runs handlers again; it is given what is to be called before each of them as well."""
        return self._hidden(lambda: work(self._entities, self.restoration, self._more_memory))

    def _with_memory(self, suspended: Sequence[bytes]) -> Iterator[bytes]:
        for record in suspended:
            self._more_memory()
            yield record

    def discard(self) -> None:
        """Forget everything."""
        self._invocations.clear()
        self._entities.clear()
        self._catching_up = False
        self._written = Written()


_UNKEPT: Final = _references_of_one()
