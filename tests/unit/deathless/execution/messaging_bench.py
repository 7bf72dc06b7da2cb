"""Executors whose messages to themselves and to each other are carried by hand, and a log that can be run again."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec
from tests.unit.deathless.execution.executor_bench import SEED, Bench, Keys, error, value

from deathless.base.limits import Limits
from deathless.base.times import Times
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_messages import (
    SELF,
    SELF_SESSION,
    ActivityStart,
    Attempt,
    Order,
    Outcome,
    Outputs,
    Reference,
    Target,
    decode_body,
)
from deathless.codec.snapshot import UnknownRecord
from deathless.codec.traces import Span
from deathless.codec.wire import accepted_invocation, error_reply, ok_reply
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.turn.running import PAGE_BYTES, Cells

__all__ = ["SELF", "Entry", "Hub", "Target", "error", "log_of", "ok", "replay", "value"]
Record = Outcome | Attempt | Order | Target | None


class Entry(NamedTuple):
    """One step of a log: a run of messages, or a record."""

    kind: str  # calls, peer, record
    lsn: int
    now_us: int
    messages: tuple[bytes, ...] = ()
    peer: Target = SELF
    record: Record = None  # None: time
    caught_up: bool = True  # of time


class Hub(Bench):
    """An executor, what its turns gave, and the log that led there.

    `sent` holds what is for others; what is for itself waits in `own` until `deliver`.
    """

    def __init__(
        self, service: Service, limits: Limits | None = None, hide: Callable[[], Callable[[], object]] | None = None
    ) -> None:
        super().__init__(service, limits, hide)
        self.now_us = 1_000
        self.own: list[bytes] = []
        self.sent: list[tuple[Target, bytes]] = []
        self.results: dict[int, bytes] = {}
        self.starts: list[ActivityStart] = []
        self.stops: list[Reference] = []
        self.spans: list[Span] = []
        self.unknown: list[UnknownRecord] = []
        self.log: list[Entry] = []

    # Steps of the log.

    def step(self, entry: Entry) -> list[bytes]:
        """Run one entry; gives the replies of calls."""
        self.log.append(entry)
        self.lsn = max(self.lsn, entry.lsn + max(len(entry.messages), 1) - 1)
        replies = apply(self.executor, entry)[0]
        self.take()
        return replies

    def run(self, messages: Sequence[bytes], now_us: int = 0) -> list[bytes]:
        return self.step(Entry("calls", self.lsn + 1, self.now_us, tuple(messages)))

    def receive(self, *messages: bytes, peer: Target = SELF) -> None:
        self.step(Entry("peer", self.lsn + 1, self.now_us, messages, peer))

    def deliver(self) -> int:
        """Take what waits for itself in, until nothing does; gives how much it was."""
        count = 0
        while self.own:
            own, self.own = self.own, []
            count += len(own)
            self.receive(*own)
        return count

    def record(self, record: Record) -> None:
        self.step(Entry("record", self.lsn + 1, self.now_us, record=record))

    def tick(self, now_us: int = 0) -> None:
        """Move time, to when something is due unless told."""
        self.now_us = now_us or self.executor.due().first_us
        self.record(None)

    def outcome(self, start: ActivityStart, result: object = None) -> None:
        reply = error_reply(*result) if isinstance(result, tuple) else ok(result)
        self.record(Outcome(start.invocation, start.operation, start.attempt, reply))

    def settle(self) -> None:
        """Go on until nothing is left but what waits for others."""
        while self.deliver() or self.executor.due().first_us:
            if self.executor.due().first_us:
                self.tick()

    # What came of it.

    def take(self) -> None:
        outputs: Outputs | None = self.executor.take_outputs()
        if outputs is None:
            return
        for target, message in outputs.messages:
            if target == SELF:
                self.own.append(message)
            else:
                self.sent.append((target, message))
        self.results.update(outputs.results)
        self.starts += outputs.starts
        self.stops += outputs.stops
        self.spans += outputs.spans
        self.unknown += outputs.unknown

    def begin(self, method: str, key: str = "a", /, **arguments: object) -> int:
        """Call a handler that waits; gives its invocation."""
        reply = self.send(method, key, **arguments)
        invocation = accepted_invocation(reply)
        assert invocation is not None, reply
        return invocation

    def result(self, invocation: int) -> object:
        return value(self.results[invocation])

    def failure(self, invocation: int) -> str:
        """Give "code type" of how an invocation failed."""
        failed = error(self.results[invocation])
        return f"{failed.code} {failed.type}"

    def value_of(self, key: str = "a") -> object:
        """Give the state of a key, as plain values."""
        return msgspec.msgpack.decode(self.executor.state()[key.encode()])

    def waiting(self) -> dict[int, tuple[str, ...]]:
        return {view.invocation: view.waits_for for view in self.executor.invocations()}

    def restart(self) -> None:
        """Go on from a checkpoint in another process."""
        state, suspended = dict(self.executor.state()), self.executor.suspended()
        self.executor = executor_of(self.service, self.keys)
        self.executor.restore(state, suspended)
        assert self.executor.suspended() == suspended
        assert self.executor.take_outputs() is None


def executor_of(service: Service, keys: Keys, limits: Limits | None = None) -> HandlerExecutor:
    return HandlerExecutor(service, limits or Limits(), SEED, keys, Cells(bytearray(PAGE_BYTES)))


def apply(executor: HandlerExecutor, entry: Entry) -> tuple[list[bytes], list[int]]:
    """Run one entry; gives replies and digests."""
    executor.moved(Times.at(entry.now_us))
    if entry.kind == "calls":
        return executor.execute(3, entry.lsn, entry.lsn, entry.now_us, list(entry.messages))
    if entry.kind == "peer":
        session = SELF_SESSION if entry.peer == SELF else 5
        return [], executor.execute_peer(entry.peer, entry.lsn, entry.lsn, entry.now_us, list(entry.messages), session)
    match entry.record:
        case None:
            executor.advance(entry.lsn, Times.at(entry.now_us), caught_up=entry.caught_up)
        case Outcome() as outcome:
            executor.outcome(entry.lsn, entry.now_us, outcome)
        case Attempt() as attempt:
            executor.attempt(entry.lsn, entry.now_us, attempt)
        case Order() as order:
            executor.order(entry.lsn, entry.now_us, order)
        case target:
            executor.peer_replaced(entry.lsn, entry.now_us, target)
    return [], []


class Trace(NamedTuple):
    """All that a log led to."""

    replies: list[bytes]
    digests: list[int]
    rolling: list[bytes]  # behind each entry; behind all of them where entries were cut apart
    outputs: Outputs
    state: dict[bytes, bytes]
    suspended: list[bytes]


def replay(
    service: Service, log: Sequence[Entry], *, restart: Callable[[int], bool] = lambda at: False, single: bool = False
) -> Trace:
    """Run a log from its beginning.

    Args:
        restart: whether to go on from a checkpoint in another process, by index of the entry that follows.
        single: each message is a batch of its own.
    """
    keys = Keys()
    executor = executor_of(service, keys)
    trace = Trace([], [], [], Outputs([], [], [], [], unknown=[]), {}, [])
    for at, entry in enumerate(log):
        if restart(at):
            state, suspended = dict(executor.state()), executor.suspended()
            executor = executor_of(service, keys)
            executor.restore(state, suspended)
        for part in cut(entry) if single else [entry]:
            replies, digests = apply(executor, part)
            trace.replies.extend(replies)
            trace.digests.extend(digests)
            outputs = executor.take_outputs()
            if outputs is not None:
                trace.outputs.messages.extend(outputs.messages)
                trace.outputs.results.extend(outputs.results)
                trace.outputs.starts.extend(outputs.starts)
                trace.outputs.stops.extend(outputs.stops)
                assert isinstance(trace.outputs.unknown, list)
                trace.outputs.unknown.extend(outputs.unknown)
            if not single:
                trace.rolling.append(executor.rolling_update())
    if single:
        trace.rolling.append(executor.rolling_update())
    trace.state.update(executor.state())
    trace.suspended.extend(executor.suspended())
    return trace


def cut(entry: Entry) -> list[Entry]:
    if not entry.messages:
        return [entry]
    return [entry._replace(lsn=entry.lsn + at, messages=(one,)) for at, one in enumerate(entry.messages)]


def log_of(*hubs: Hub) -> list[Entry]:
    return [entry for hub in hubs for entry in hub.log]


def ok(result: object = None) -> bytes:
    return ok_reply(msgspec.msgpack.encode(result))


def kinds(messages: Sequence[bytes]) -> list[str]:
    return [Kind(decode(message).kind).name for message in messages]


def reference(message: bytes) -> Reference:
    return decode_body(Reference, decode(message).idempotency_key)
