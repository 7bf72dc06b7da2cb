"""Runs the messages of a log on the state they made: design section 8, "Between turns a key's state is its bytes".

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

import hashlib
import struct
import sys
from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Final, Protocol
from zlib import crc32

import msgspec

from deathless.base.errors import CorruptFrame, InvalidArgument, TooLarge, UnknownHandler
from deathless.base.limits import Limits
from deathless.codec.messages import HEADER_BYTES, Kind, decode
from deathless.codec.wire import error_reply, ok_reply
from deathless.execution import depth
from deathless.execution.context import Context, QueryContext, Turn
from deathless.execution.failure import bad_arguments, bounded, failed, query_failed
from deathless.execution.plan import Plan, StatePlan, check_key
from deathless.execution.probe import SPECS as PROBE_SPECS
from deathless.execution.probe import ProbeTable
from deathless.execution.running import RunningPage
from deathless.execution.service import Service
from deathless.execution.signature import Function

FOLD_MESSAGES: Final = 256
"""What a frame's messages wrote is folded into its digest after so many, so that old states do not pile up."""

FOLD_BYTES: Final = 16384
"""And at once when a message writes more than this."""

ROLLING_BYTES: Final = 32

# As codec.messages.HEADER, with kind and flags taken as one number: version 1 knows no flags.
_HEADER: Final = struct.Struct("<HHHH")
_NO_HEADER: Final = (0, 0, 0, 0)
_CALL: Final = int(Kind.CALL)
_OK: Final = ok_reply(b"")
_REQUEST_HASH_BYTES: Final = 16
_MALFORMED: Final = error_reply(InvalidArgument.code, InvalidArgument.__name__, "the message is malformed")

Hide = Callable[[], Callable[[], object]]
"""Hides from handlers what they must not see (a running event loop); gives what brings it back."""


class KeyTable(Protocol):
    """Idempotency keys of the shard."""

    def check(self, key: bytes, request_hash: bytes, now_us: int) -> bytes | None:
        """Give the reply to use instead of running (recorded, or a refusal); None: run it, then `remember`."""
        ...

    def remember(self, key: bytes, request_hash: bytes, reply: bytes, now_us: int) -> None:
        """Keep the reply of a message that ran."""
        ...


def _nothing_hidden() -> Callable[[], object]:
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
    """

    __slots__ = (
        "_birth", "_hash", "_hide", "_keys", "_limits", "_open", "_parts", "_plans", "_probes", "_queries", "_running",
        "_seed", "_single", "_small_bytes", "_state", "_states",
    )  # fmt: skip

    def __init__(
        self,
        service: Service,
        limits: Limits,
        seed: bytes,
        keys: KeyTable,
        running: RunningPage,
        hide: Hide = _nothing_hidden,
    ) -> None:
        plans = {name.encode(): Plan(spec) for name, spec in (*service.specs.items(), *PROBE_SPECS.items())}
        self._plans = {name: plan for name, plan in plans.items() if plan.spec.kind == "handler"}
        self._queries = {name: plan for name, plan in plans.items() if plan.spec.kind == "query"}
        self._states = StatePlan(service)
        self._birth: Function | None = service.birth_function
        self._single = service.single
        self._limits = limits
        self._seed = seed
        self._small_bytes = min(FOLD_BYTES, limits.entity_bytes_max, limits.reply_bytes_max)  # up to this: no check
        self._keys = keys
        self._running = running
        self._hide = hide
        self._open: tuple[int, Callable[[], object]] | None = None  # between `open` and `close`: what `close` undoes
        self._state: dict[bytes, bytes] = {}  # encoded state by key (UTF-8)
        self._probes = ProbeTable()  # apart, so that no message finds it under the key it names
        self._parts: list[bytes] = []  # what messages wrote since the last fold
        # Over what was folded since the last `rolling_update`; None: nothing was. Most runs are hashed in one step.
        self._hash: hashlib.blake2b | None = None

    def open(self) -> None:
        """Make ready for several `execute` of one frame, called from where this is called; `close` must follow."""
        assert self._open is None, "frames are executed one after the other"
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

        Raises: RecursionError, MemoryError and what is no Exception, from a handler: the process must end, and the
        running page still names the message.
        """
        replies: list[bytes] = []
        digests: list[int] = []
        if self._open is not None:  # ready already
            self._running.enter(session, first_seq)
            for start in range(0, len(messages), FOLD_MESSAGES):
                self._run(messages, start, first_lsn, now_us, replies, digests)
            self._running.leave()
            return replies, digests
        show = self._hide()
        limit = depth.enter()
        self._running.enter(session, first_seq)
        try:
            for start in range(0, len(messages), FOLD_MESSAGES):
                self._run(messages, start, first_lsn, now_us, replies, digests)
        finally:
            depth.leave(limit)
            show()
        self._running.leave()
        return replies, digests

    def _run(
        self,
        messages: Sequence[bytes],
        start: int,
        first_lsn: int,
        now_us: int,
        replies: list[bytes],
        digests: list[int],
    ) -> None:
        """Run up to FOLD_MESSAGES messages from index `start` on; append to `replies` and `digests`."""
        cells, unpack, find, header_bytes, call = (
            self._running.cells,
            _HEADER.unpack_from,
            self._plans.get,
            HEADER_BYTES,
            _CALL,
        )
        state, single, small_bytes = self._state, self._single, self._small_bytes
        decode_state, encode_state = self._states.decode, self._states.encode
        wrote: list[bytes] = []
        keep, answer, count_references, unkept, ok = wrote.append, replies.append, sys.getrefcount, _UNKEPT, _OK
        turn = Turn(self._seed, now_us)
        context = Context(turn)
        for index, message in enumerate(messages[start : start + FOLD_MESSAGES], start):
            cells[2] = index
            kind, method_len, key_len, idem_len = unpack(message) if len(message) >= header_bytes else _NO_HEADER
            key_at = header_bytes + method_len
            idem_at = key_at + key_len
            args_at = idem_at + idem_len
            request = b""
            if kind != call or args_at > len(message):
                written = reply = _MALFORMED
                idem_len = 0
            elif idem_len and (
                recorded := self._keys.check(
                    message[idem_at:args_at], request := _request_hash(message, idem_at, args_at), now_us
                )
            ):
                written = reply = recorded
                idem_len = 0
            elif (plan := find(message[header_bytes:key_at])) is None:
                written = reply = self._unknown(message[header_bytes:key_at], self._queries, "a query: ask it as one")
            else:
                turn.lsn = first_lsn + index
                turn.key = key = b"" if single else message[key_at:idem_at]
                try:
                    arguments = plan.decode_arguments(message[args_at:])
                except Exception as error:  # noqa: BLE001  decoding runs the author's `__post_init__`
                    written = reply = bad_arguments(error)
                else:
                    try:
                        if plan.keys:
                            written, reply = self._run_several(plan, arguments, context, turn)
                        else:
                            old = state.get(key)
                            entity = decode_state(old) if old is not None else self._bear(key, context)
                            result = plan.call(entity, context, arguments)
                            new = encode_state(entity)
                            decode_state(new)
                            reply = ok + plan.encode_result(result)
                            if type(result) is not plan.scalar:
                                plan.check_result(reply[1:])
                            written = new + reply
                            if len(written) > small_bytes:
                                self._check_sizes(key, new, reply)
                            state[key] = new
                    except Exception as error:  # noqa: BLE001  a handler may raise anything; nothing was kept yet
                        written = reply = failed(error)
                    if turn.random is not None:
                        turn.close_random()
                    if count_references(context) != unkept:
                        turn, context = self._replace(turn)
            keep(written)
            answer(reply)
            if idem_len:
                self._keys.remember(message[idem_at:args_at], request, reply, now_us)
            if len(written) > small_bytes:  # large things must not pile up
                self._hand_in(wrote, digests)
        turn.alive = False
        self._hand_in(wrote, digests)

    def _hand_in(self, wrote: list[bytes], digests: list[int]) -> None:
        """Take what messages wrote into the digests; what was handed in before goes into the hash and is let go."""
        if self._parts:
            self._fold()
        digests.extend(map(crc32, wrote))
        self._parts += wrote
        wrote.clear()

    def _replace(self, kept: Turn) -> tuple[Turn, Context]:
        """Kill the context that somebody kept, give a new one."""
        kept.alive = False
        turn = Turn(self._seed, kept.now_us)
        return turn, Context(turn)

    def _run_several(self, plan: Plan, arguments: msgspec.Struct, context: Context, turn: Turn) -> tuple[bytes, bytes]:
        """Run a handler of several keys; give (what it wrote, reply). Nothing is kept if it raises."""
        state, states = self._state, self._states
        keys = plan.keys_of(arguments, self._limits.key_bytes_max)
        if plan.ours:
            return self._run_ours(plan, arguments, context, turn, *keys.values())
        entities: dict[str, object] = {}
        for name, key in keys.items():
            old = state.get(key)
            entities[name] = entity = states.decode(old or states.default)
            if old is None and self._birth is not None:
                address, turn.key = turn.key, key
                self._birth(entity, context)
                turn.key = address
        result = plan.call(MappingProxyType(entities), context, arguments)
        new: dict[bytes, bytes] = {}
        for name, key in keys.items():
            new[key] = states.encode(entities[name])
            states.decode(new[key])
        reply = _OK + plan.encode_result(result)
        plan.check_result(reply[1:])
        for key, encoded in new.items():
            self._check_sizes(key, encoded, reply)
        state.update(new)
        return b"".join((*new.values(), reply)), reply

    def _run_ours(
        self, plan: Plan, arguments: msgspec.Struct, context: Context, turn: Turn, series: bytes
    ) -> tuple[bytes, bytes]:
        """Run a built-in handler; give (what it wrote, reply). Nothing is kept if it raises."""
        probed = self._probes.open(series)
        reply = _OK + plan.encode_result(plan.call(probed, context, arguments))
        return self._probes.keep(series, probed, turn.lsn) + reply, reply

    def _bear(self, key: bytes, context: Context) -> object:
        """Give the state with which a key's first turn begins."""
        if not self._single:
            check_key(key, self._limits.key_bytes_max, "key")
        entity = self._states.decode(self._states.default)
        if self._birth is not None:
            self._birth(entity, context)
        return entity

    def _check_sizes(self, key: bytes, new: bytes, reply: bytes) -> None:
        """Refuse what is too large."""
        limits = self._limits
        if len(new) > limits.entity_bytes_max:
            named = bounded(key.decode(errors="backslashreplace"), 100)
            raise TooLarge(f"state of key {named!r} would have {len(new)} bytes, at most {limits.entity_bytes_max}")
        if len(reply) > limits.reply_bytes_max:
            raise TooLarge(f"the reply would have {len(reply)} bytes, at most {limits.reply_bytes_max}")

    def _unknown(self, method: bytes, others: dict[bytes, Plan], but: str) -> bytes:
        name = bounded(method.decode(errors="backslashreplace"), 100)
        text = f"{name!r} is {but}" if method in others else f"the service has no {name!r}"
        return error_reply(UnknownHandler.code, UnknownHandler.__name__, text)

    def query(self, message: bytes, now_us: int) -> bytes:
        """Run a query on the last completed turn's state; nothing is kept.

        Args:
            message: kind CALL, as codec.messages describes; an idempotency key is not looked at.
            now_us: logical time, microseconds.

        Returns: reply bytes. A query is not in the log, so whatever it raises is an answer, except KeyboardInterrupt.
        """
        show = self._hide()
        limit = depth.enter()
        turn = Turn(self._seed, now_us)
        try:
            return self._answer(message, turn)
        except (Exception, SystemExit) as error:  # noqa: BLE001  a query may raise anything
            return query_failed(error)
        finally:
            turn.alive = False
            depth.leave(limit)
            show()

    def _answer(self, message: bytes, turn: Turn) -> bytes:
        try:
            kind, method, key, _, encoded = decode(message)
        except CorruptFrame:
            return _MALFORMED
        if kind != Kind.CALL:
            return _MALFORMED
        plan = self._queries.get(method)
        if plan is None:
            return self._unknown(method, self._plans, "a handler: call it")
        try:
            arguments = plan.decode_arguments(encoded)
        except Exception as error:  # noqa: BLE001  decoding runs the author's `__post_init__`
            return bad_arguments(error)
        turn.key = b"" if self._single else key
        seen: object
        if plan.spec.keys:
            keys = plan.keys_of(arguments, self._limits.key_bytes_max)
            if plan.ours:
                [series] = keys.values()
                seen = self._probes.open(series)
            else:
                seen = MappingProxyType({name: self._look(key) for name, key in keys.items()})
        else:
            if not self._single:
                check_key(key, self._limits.key_bytes_max, "key")
            seen = self._look(turn.key)
        reply = _OK + plan.encode_result(plan.call(seen, QueryContext(turn), arguments))
        plan.check_result(reply[1:])
        if len(reply) > self._limits.reply_bytes_max:
            raise TooLarge(f"the answer would have {len(reply)} bytes, at most {self._limits.reply_bytes_max}")
        return reply

    def _look(self, key: bytes) -> object:
        return self._states.decode(self._state.get(key, self._states.default))

    def _fold(self) -> None:
        if self._hash is None:
            self._hash = hashlib.blake2b(digest_size=ROLLING_BYTES)
        self._hash.update(b"".join(self._parts))
        self._parts.clear()

    def rolling_update(self) -> bytes:
        """Give 32 bytes that stand for all new states and replies since the last call.

        They are BLAKE2b-256 over what each message wrote, new state bytes and then reply bytes, one after the other;
        so they do not depend on how messages were cut into batches.
        """
        if self._hash is None:
            update = hashlib.blake2b(b"".join(self._parts), digest_size=ROLLING_BYTES).digest()
        else:
            self._fold()
            update = self._hash.digest()
            self._hash = None
        self._parts.clear()
        return update

    def state(self) -> dict[bytes, bytes]:
        """Encoded state per key (UTF-8; b"" for a service of one object); the caller must not change it."""
        return {**self._state, **self._probes.held} if self._probes.held else self._state

    def count(self) -> int:
        """How many keys have a state."""
        return len(self._state)

    def restore(self, state: dict[bytes, bytes]) -> None:
        """Replace all state; what was written and not asked for by `rolling_update` is forgotten."""
        self.discard()
        self._state.update(state)
        self._probes.restore(self._state)

    def discard(self) -> None:
        """Forget everything."""
        self._state = {}
        self._probes = ProbeTable()
        self._parts.clear()
        self._hash = None


def _request_hash(message: bytes, idem_at: int, args_at: int) -> bytes:
    """Hash all of a message but its idempotency key: the same request gives the same hash under every key."""
    request = hashlib.blake2b(message[:6], digest_size=_REQUEST_HASH_BYTES)
    request.update(message[HEADER_BYTES:idem_at])
    request.update(message[args_at:])
    return request.digest()


_UNKEPT: Final = _references_of_one()
