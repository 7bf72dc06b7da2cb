"""One turn as the executor sees it: what the context shows, and what the handler asked for.

    Turn    what a context hands out: key, logical time, chance; one object serves many turns, one after the other
    Asked   what the handler asked for in this turn; it takes effect when the turn commits, or not at all (I11)

Everything asked for has a number within its invocation. A handler that waits keeps a record of each (see
asked_operation), so that one that is run again can be shown to ask for the same (see invocation). Checkpoints of former
versions hold a checksum of each instead; it is made only where such a one is read.

Guarantees: nothing here reads what other invocations do, so a turn that is run again sees the same. Does not: send.
Imports base and codec.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar, cast
from zlib import crc32

import msgspec

from deathless.base.errors import Closed, InvalidArgument, InvalidAwait, InvalidUse, TooLarge
from deathless.base.limits import Limits
from deathless.base.shards import Sharding, shard_of
from deathless.base.times import Due
from deathless.base.topics.emitted import EMIT
from deathless.codec.messages import U64, Kind, decode, encode
from deathless.codec.peer_messages import (
    SELF,
    ActivityStart,
    Request,
    Sender,
    Target,
    TracedFork,
    TracedRequest,
    encode_body,
    is_service_name,
)
from deathless.codec.traces import span_id, within
from deathless.codec.wire import ok_reply
from deathless.execution.turn.activity import ActivitySpec, duration_us
from deathless.execution.turn.asked_operation import (
    AskedCall,
    AskedCancel,
    AskedComplete,
    AskedContinue,
    AskedFork,
    AskedOperation,
    AskedPromise,
    AskedRun,
    AskedTimer,
    encode_asked,
)
from deathless.execution.turn.generator import Random
from deathless.execution.turn.operations import CANCELLED, Activity, Call, Operation, Promise, Timer, decoder
from deathless.execution.turn.topic import Row, Topic
from deathless.execution.values.failure import Failures
from deathless.execution.values.function import Function
from deathless.execution.values.ordered import encode_any

T = TypeVar("T")
KEY_BYTES: Final = 16  # of an activity's idempotency key
ASKED_BYTES: Final = 48
"""What the record of something asked for costs beside its own bytes, in round numbers."""
_target: Final = functools.lru_cache(maxsize=1024)(Target)  # asked for with every message that a turn sends


@functools.lru_cache(maxsize=1024)  # likewise
def _checksum(text: str) -> int:
    return crc32(text.encode())


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What is the same for all turns of an executor."""

    service: str = ""
    version: int = 1  # of the service's code
    begun_in: int = 0  # version of the code in which the invocation began that a turn is of; 0: in this one
    seed: bytes = bytes(32)
    limits: Limits = field(default_factory=Limits)
    activities: Mapping[Function, ActivitySpec] = field(default_factory=dict)
    topics: Mapping[str, Topic[msgspec.Struct]] = field(default_factory=dict)  # that the service publishes, by name
    sharding: Sharding = field(default_factory=Sharding)
    failures: Failures = field(default_factory=Failures)
    prints: bool = False  # True: a handler runs again for a checkpoint that holds checksums of what it asked for


class Completion(NamedTuple):
    """A promise that the turn completes."""

    invocation: int
    operation: int
    reply: bytes


class Following(NamedTuple):
    """What goes on where an invocation ends."""

    method: str
    arguments: bytes


class Turn:
    """The executor's side of a context: what the next turn shall see. Owner of the operations of an invocation."""

    __slots__ = (
        "alive", "asked", "before", "chain", "count", "elapsed_us", "key", "lsn", "now_us", "order", "part",
        "random", "seed", "settings", "trace", "used", "waits",
    )  # fmt: skip

    def __init__(self, seed: bytes, now_us: int, settings: Settings | None = None) -> None:
        self.seed = seed  # 32 bytes of the service
        self.now_us = now_us  # logical time, microseconds
        self.elapsed_us = now_us  # what durations are counted by; set for handlers that wait, which alone have some
        self.settings = settings
        self.lsn = 0  # of the message being run
        self.key = b""  # of its address, UTF-8
        self.random: Random | None = None  # None: not asked for in this turn
        self.alive = True  # False: the context was kept beyond its turn
        self.used = False  # True: `random` or `asked` is there, so there is something to do when the turn ends
        self.asked: Asked | None = None  # None: nothing was asked for in this turn
        self.waits = 0  # id of the invocation; 0: a plain `def` handler, which can't wait
        self.chain: tuple[str, ...] = ()  # of addresses that wait for this invocation, and its own
        self.before = 0  # operations of those that the invocation continues
        self.count = 0  # operations of the invocation, of committed turns
        self.order = 0  # resolved ones
        self.part = 0  # turns of the invocation before this one
        self.trace = b""  # context of what the handler causes; empty: none

    @property
    def begun_in(self) -> int:
        """Version of the code in which its invocation began; 0: in this one."""
        return self.settings.begun_in if self.settings is not None else 0

    def chance(self) -> Random:
        """Give the generator of this turn."""
        if self.random is None:
            seed = self.seed
            if self.part:  # a later turn of an invocation: several may come from one message
                place = U64.pack(self.waits) + U64.pack(self.part)
                seed = hashlib.blake2b(seed + place, digest_size=32).digest()
            self.random = Random(seed, self.lsn)
            self.used = True
        return self.random

    def ask(self) -> Asked:
        """Give what takes down what the handler asks for."""
        if self.asked is None:
            self.asked = Asked(self)
            self.used = True
        return self.asked

    def asks(self) -> bool:
        """End its chance; was something asked for, so that there is more to `end`?"""
        if self.random is not None:
            self.random.close()
            self.random = None
        self.used = self.asked is not None
        return self.used

    def end(self) -> Asked | None:
        """End the turn; gives what was asked for."""
        if self.random is not None:
            self.random.close()
            self.random = None
        asked, self.asked = self.asked, None
        self.used = False
        return asked

    def from_now(self, due: Due) -> Due:
        """Give `due`, or the next moment where it is past."""
        elapsed_us = due.elapsed_us and max(due.elapsed_us, self.elapsed_us + 1)
        return Due(elapsed_us, due.time_us and max(due.time_us, self.now_us + 1))

    def time_at(self, due: Due) -> int:
        """Give the logical time when something is due, as the counters stand now; 0: never."""
        return due.elapsed_us - self.elapsed_us + self.now_us if due.elapsed_us else due.time_us

    def elapsed_at(self, due: Due) -> int:
        """Give the same as elapsed time; 0: never."""
        return due.time_us - self.now_us + self.elapsed_us if due.time_us else due.elapsed_us

    def span(self, operation: int) -> bytes:
        """Give the id of the span of an operation, or with 0 of the invocation."""
        assert self.settings is not None
        return span_id(self.seed, self.settings.sharding.shard, self.waits or self.lsn, operation)

    def next_order(self) -> int:
        """Give the place of what is resolved now."""
        self.order += 1
        return self.order

    def cancel(self, operation: Operation[object]) -> None:
        """Take back what was asked for, see operations.Owner."""
        if not self.alive:
            raise Closed("this operation belongs to an invocation; cancel it in a turn of that")
        self.ask().cancel(operation)


class Asked:
    """What a handler asked for in one turn, in order."""

    __slots__ = (
        "_limits", "_sender", "_settings", "bytes", "cancelled", "completions", "count", "following", "later",
        "messages", "operations", "prints", "records", "starts", "turn",
    )  # fmt: skip

    def __init__(self, turn: Turn) -> None:
        assert turn.settings is not None, "only turns of an executor can ask"
        self.turn = turn
        self._settings = turn.settings
        self._limits = turn.settings.limits
        self._sender = b""  # envelope of every FORK of this turn; empty: none was sent
        self.count = turn.count
        self.messages: list[tuple[Target, bytes]] = []
        self.operations: list[Operation[object]] = []
        self.starts: list[ActivityStart] = []
        self.cancelled: list[Operation[object]] = []
        self.completions: list[Completion] = []
        self.following: Following | None = None
        self.later = False  # the reply comes by `complete`
        self.records: list[bytes] = []  # of each thing asked for, of a handler that waits (see asked_operation)
        self.bytes = 0  # that `records` keep
        self.prints: list[int] = []  # u32 of each, where the turn wants them

    def _note(self) -> None:
        """Count something asked for.

        Raises: TooLarge.
        """
        if self.count - self.turn.before >= self._limits.operations_max:
            raise TooLarge(f"more than {self._limits.operations_max} operations; use ctx.continue_with in a long one")
        self.count += 1

    def _keep(self, asked: AskedOperation) -> None:
        """Keep the record of what was asked for, see `records`."""
        record = encode_asked(asked)
        self.records.append(record)
        self.bytes += len(record) + ASKED_BYTES

    def _print(self, kind: str, what: bytes, service: str = "") -> None:
        """Note the checksum of what was asked for, see `prints`."""
        self.prints.append(crc32(what, _checksum(kind + service)))

    def _from_turn(self, due: Due) -> tuple[int, int]:
        """Give when something is due as (duration from this turn on, moment), 0: by the other."""
        return max(0, due.elapsed_us - self.turn.elapsed_us), due.time_us

    def _number(self, what: str) -> int:
        """Give the number of the next operation that can be waited for.

        Raises: InvalidAwait in a plain handler.
        """
        if not self.turn.waits:
            raise InvalidAwait(f"ctx.{what} gives what is awaited, but this handler is a plain `def`")
        return self.count + 1

    def _message(self, kind: Kind, address: tuple[str, str, str], envelope: bytes, arguments: bytes) -> bytes:
        _, key, method = address
        named = key.encode()
        if named[:1] == b"\0":
            raise InvalidArgument("a key that begins with a zero byte is not for users")
        if len(named) > self._limits.key_bytes_max:
            raise TooLarge(f"the key has {len(named)} bytes, at most {self._limits.key_bytes_max}")
        encoded = encode(kind, method=method.encode(), key=named, idempotency_key=envelope, args=arguments)
        if len(encoded) > self._limits.message_bytes_max:
            size, most = len(encoded), self._limits.message_bytes_max
            raise TooLarge(f"the message to {'/'.join(address)} would have {size} bytes, at most {most}")
        return encoded

    def _with_trace(self, message: bytes, envelope: TracedFork | TracedRequest) -> bytes:
        """Give a message with its trace context; without it where it would be too long, for nobody must notice."""
        kind, method, key, _, arguments = decode(message)
        try:
            traced = encode(kind, method=method, key=key, idempotency_key=encode_body(envelope), args=arguments)
        except TooLarge:
            return message
        return traced if len(traced) <= self._limits.message_bytes_max else message

    def _target(self, service: str, key: str) -> Target:
        """Give where a key of a service lives; nobody is asked, so every replica and every replay finds the same."""
        if not service:
            raise InvalidUse("the name of a service must not be empty")
        if not is_service_name(service):  # it becomes part of a path, and of every list of peers
            raise InvalidUse(f"{service[:100]!r} is no name of a service")
        if service in self._settings.topics:  # whose rows are checked before they are sent
            raise InvalidUse(f"{service!r} is a topic: publish rows with ctx.emit")
        ours = self._settings.sharding
        if service != self._settings.service:
            return _target(service, ours.place(service, key.encode()))
        shard = shard_of(key.encode(), ours.shards)
        return SELF if shard == ours.shard else Target(service, shard)

    def fork(self, address: tuple[str, str, str], arguments: bytes) -> None:
        """Send a message that nobody waits for.

        Args:
            address: service, key, method.
            arguments: msgpack map.
        """
        self._send(self._target(address[0], address[1]), address, arguments)

    def emit(self, topic: Topic[Row], row: Row) -> None:
        """Send a row to a topic: as a fork, by whose key others tell which entity it is of."""
        if self._settings.topics.get(topic.name) is not topic:
            raise InvalidUse(f"{topic!r} is no topic of {self._settings.service}")
        arguments = topic.encode(row, self.turn.now_us)
        self._send(_target(topic.name, 0), (topic.name, self.turn.key.decode(), EMIT), arguments)

    def _send(self, target: Target, address: tuple[str, str, str], arguments: bytes) -> None:
        if not self._sender:
            self._sender = encode_body(Sender(self.turn.chain))
        message = self._message(Kind.FORK, address, self._sender, arguments)
        self._note()
        if self.turn.waits:
            service, key, method = address
            shard = self._settings.sharding.shard if target == SELF else target.shard
            self._keep(AskedFork(service, shard, key, method, arguments))
            if self._settings.prints:
                self._print("fork", message, service)
        if self.turn.trace:
            message = self._with_trace(message, TracedFork(self.turn.chain, "", self.turn.trace))
        self.messages.append((target, message))

    def call(self, address: tuple[str, str, str], arguments: bytes, stated: type[T], due: Due) -> Call[T]:
        """Send a request.

        Args:
            address: service, key, method.
            arguments: msgpack map.
            stated: annotation of the result.
            due: its deadline.
        """
        turn = self.turn
        number = self._number("call")
        target = self._target(address[0], address[1])
        due = turn.from_now(due)
        # By the counter of who reads it: of our own, elapsed; another service has time alone in common with us.
        deadline_us = turn.elapsed_at(due) if target == SELF else turn.time_at(due)
        envelope = encode_body(Request(turn.waits, number, deadline_us, turn.chain))
        message = self._message(Kind.REQUEST, address, envelope, arguments)
        self._note()
        service, key, method = address
        shard = self._settings.sharding.shard if target == SELF else target.shard
        self._keep(AskedCall(service, shard, key, method, arguments, *self._from_turn(due)))
        if self._settings.prints:
            self._print("call", message, service)
        if turn.trace:
            context = within(turn.trace, turn.span(number))
            message = self._with_trace(message, TracedRequest(turn.waits, number, deadline_us, turn.chain, context))
        what = f"{service}/{shard}/{key} {method}"
        call = Call(turn, number, turn.now_us, what, decoder(stated), target, due, stated)
        self.messages.append((target, message))
        self.operations.append(call)
        return call

    def timer(self, due: Due) -> Timer:
        """Wait until the times of the shard are so far, or until they move where that is past."""
        turn = self.turn
        number = self._number("timer")
        due = turn.from_now(due)
        self._note()
        self._keep(AskedTimer(*self._from_turn(due)))
        if self._settings.prints:
            self._print("timer", b"%d" % due.first_us)
        timer = Timer(turn, number, turn.now_us, turn.time_at(due), due)
        self.operations.append(timer)
        return timer

    def run(self, function: object, positional: tuple[object, ...], named: Mapping[str, object]) -> Activity[object]:
        """Have an activity run."""
        turn = self.turn
        number = self._number("run")
        spec = self._settings.activities.get(function)  # type: ignore[call-overload]  # whatever else is not in it
        if spec is None:
            raise InvalidUse(f"{function!r} is no registered activity of {self._settings.service}")
        fields = spec.args_type.__struct_fields__
        if len(positional) > len(fields):
            raise InvalidUse(f"activity {spec.name} takes {len(fields)} arguments, not {len(positional)}")
        given = dict(zip(fields, positional, strict=False))
        if twice := sorted(given.keys() & named.keys()):
            raise InvalidUse(f"activity {spec.name}: {twice[0]!r} is given twice")
        arguments = encode_any({**given, **named})
        try:
            msgspec.msgpack.decode(arguments, type=spec.args_type)
        except msgspec.MsgspecError as error:
            raise InvalidUse(f"activity {spec.name}: {error}") from None
        if len(arguments) > self._limits.message_bytes_max:
            size, most = len(arguments), self._limits.message_bytes_max
            raise TooLarge(f"the arguments of activity {spec.name} would have {size} bytes, at most {most}")
        place = self._settings.seed + U64.pack(turn.waits) + U64.pack(number)
        start = ActivityStart(
            invocation=turn.waits,
            operation=number,
            attempt=1,
            name=spec.name,
            arguments=arguments,
            key=hashlib.blake2b(place, digest_size=KEY_BYTES).hexdigest(),
            at_most_once=spec.policy.at_most_once,
            attempted=False,
            timeout_us=duration_us(spec.policy.timeout),
            heartbeat_us=duration_us(spec.policy.heartbeat),
        )
        self._note()
        self._keep(AskedRun(spec.name, arguments, start.timeout_us, start.heartbeat_us, start.at_most_once))
        if self._settings.prints:
            self._print("run", encode_body(start))
        stated = cast("type[object]", spec.result_type)
        activity = Activity(turn, number, turn.now_us, start, decoder(stated), stated)
        self.starts.append(start)
        self.operations.append(activity)
        return activity

    def promise(self, stated: type[T]) -> Promise[T]:
        """Give something that another turn completes."""
        turn = self.turn
        number = self._number("promise")
        self._note()
        self._keep(AskedPromise())
        if self._settings.prints:
            self._print("promise", b"")
        promise = Promise(turn, number, turn.now_us, f"{turn.waits}.{number}", decoder(stated))
        self.operations.append(promise)
        return promise

    def complete(self, promise: str, value: object) -> None:
        """Complete a promise; one that nobody waits for any more is let alone."""
        invocation, dot, operation = promise.partition(".")
        if not (dot and _is_number(invocation) and _is_number(operation)):
            raise InvalidArgument(f"{promise!r} is no id of a promise")
        reply = ok_reply(encode_any(value))
        if len(reply) > self._limits.reply_bytes_max:
            raise TooLarge(f"the value would have {len(reply)} bytes, at most {self._limits.reply_bytes_max}")
        self._note()
        if self.turn.waits:
            self._keep(AskedComplete(promise, reply))
            if self._settings.prints:
                self._print("complete", promise.encode() + reply)
        self.completions.append(Completion(int(invocation), int(operation), reply))

    def reply_later(self) -> str:
        """Have the reply come when the promise is completed whose id this gives."""
        if self.turn.waits:
            raise InvalidUse("an `async def` handler replies when it returns; await a promise of ctx.promise")
        self._note()
        self.later = True
        return f"{self.turn.lsn}.0"

    def continue_with(self, method: str, arguments: bytes) -> None:
        """Have another handler of this key go on where this one returns."""
        if not self.turn.waits:
            raise InvalidUse("only an `async def` handler continues; a plain one sends with ctx.fork")
        if len(arguments) > self._limits.message_bytes_max:
            size, most = len(arguments), self._limits.message_bytes_max
            raise TooLarge(f"the arguments of {method} would have {size} bytes, at most {most}")
        self._note()
        self._keep(AskedContinue(method, arguments))
        if self._settings.prints:
            self._print("continue", method.encode() + b"\0" + arguments)
        self.following = Following(method, arguments)

    def cancel(self, operation: Operation[object]) -> None:
        """Take back what was asked for."""
        self._note()
        self._keep(AskedCancel(operation.number))
        if self._settings.prints:
            self._print("cancel", b"%d" % operation.number)
        operation.resolve(CANCELLED, self.turn.next_order())
        self.cancelled.append(operation)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 21


def encode_arguments(arguments: Mapping[str, object]) -> bytes:
    """Give the msgpack map of named arguments."""
    return encode_any(arguments)
