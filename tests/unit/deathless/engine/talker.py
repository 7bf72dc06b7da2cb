"""An executor that talks: what each message makes it send, start and answer late stands in the message itself.

It holds one entity, a list of what it heard. Arguments are words: `send SERVICE` and `self` send a FORK, `wait`
makes the message an invocation that ends with the next RESPONSE, OUTCOME or order that names it, `timer SECONDS` one
that ends by itself, `start` asks for an activity and `stop` for its end.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence

import msgspec
from tests.encoded import encode_fork

from deathless.base.errors import CorruptFrame
from deathless.base.times import Due, Times
from deathless.codec.frames import Run
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_messages import (
    SELF,
    SELF_SESSION,
    ActivityStart,
    Attempt,
    Crowd,
    History,
    InvocationView,
    Known,
    Order,
    Outcome,
    Outputs,
    Ran,
    Reference,
    ScheduleView,
    Target,
    decode_body,
)
from deathless.codec.snapshot import UnknownRecord
from deathless.codec.wire import accepted_reply, error_reply, ok_reply
from deathless.engine.shard.messaging import NOTHING_WRITTEN

SECOND = 1_000_000


class Waiting(msgspec.Struct, array_like=True):
    """One invocation."""

    lsn: int
    handler: str
    key: str
    due_us: int  # 0: it waits for somebody


class Talker:
    """The executor. `mark` is mixed into what it writes, so that another mark gives other digests."""

    def __init__(self, mark: bytes = b"") -> None:
        self.mark = mark
        self.heard: list[bytes] = []
        self.waiting: dict[int, Waiting] = {}
        self.parts: list[bytes] = []
        self.outputs = Outputs([], [], [], [], [], [], [])

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def execute(
        self, session: int, first_seq: int, first_lsn: int, now_us: int, messages: Sequence[bytes]
    ) -> tuple[list[bytes], list[int]]:
        replies = [self.hear(lsn, now_us, message) for lsn, message in enumerate(messages, first_lsn)]
        return replies, [zlib.crc32(reply + self.mark) for reply in replies]

    def execute_runs(
        self, runs: Sequence[tuple[Run, Sequence[bytes]]], first_lsn: int, now_us: int
    ) -> list[tuple[list[bytes], list[int], bytes]]:
        done = []
        for run, messages in runs:
            replies, digests = self.execute(run.session, run.first_seq, first_lsn, now_us, messages)
            done.append((replies, digests, self.rolling_update()))
            first_lsn += len(messages)
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
        return [zlib.crc32(self.hear(lsn, now_us, m) + self.mark) for lsn, m in enumerate(messages, first_lsn)]

    def hear(self, lsn: int, now_us: int, message: bytes) -> bytes:
        try:
            kind, method, key, envelope, args = decode(message)
        except CorruptFrame:
            return self.write(b"malformed")
        if kind == Kind.RESPONSE:
            return self.end(lsn, decode_body(Reference, envelope).invocation, args)
        reply = ok_reply(b"\xc0")
        match args.decode(errors="replace").split():
            case ["send", service]:
                self.send(Target(service, 0), b"from %d" % lsn)
            case ["self"]:
                self.send(SELF, b"")
            case ["self", *words]:
                self.send(SELF, " ".join(words).encode())
            case ["wait"]:
                reply = self.begin(Waiting(lsn, method.decode(), key.decode(), 0))
            case ["timer", seconds]:
                reply = self.begin(Waiting(lsn, method.decode(), key.decode(), now_us + int(seconds) * SECOND))
            case ["start"]:
                start = ActivityStart(lsn, 1, 1, "activity", b"\x80", f"k{lsn}", False, False)
                self.outputs.starts.append(start)
            case ["stop"]:
                self.outputs.stops.append(Reference(lsn, 1))
        self.heard.append(message)
        return self.write(reply)

    def begin(self, waiting: Waiting) -> bytes:
        self.waiting[waiting.lsn] = waiting
        return accepted_reply(waiting.lsn)

    def send(self, target: Target, args: bytes) -> None:
        self.outputs.messages.append((target, encode_fork(method=b"said", key=b"", args=args)))

    def end(self, lsn: int, invocation: int, reply: bytes) -> bytes:
        """The invocation ends, if it waits; its handler tells another service of it."""
        waiting = self.waiting.pop(invocation, None)
        if waiting is None:
            return b""
        self.outputs.results.append((invocation, reply))
        assert isinstance(self.outputs.turns, list)
        self.outputs.turns.append(Ran(lsn, waiting.handler, waiting.key))
        self.send(Target("shop", 0), b"ended %d" % invocation)
        return self.write(reply)

    def write(self, written: bytes) -> bytes:
        self.parts.append(written + self.mark)
        return written

    def moved(self, times: Times) -> None:
        """See the port."""

    def advance(self, lsn: int, times: Times, *, caught_up: bool = True) -> None:
        due = sorted((w.due_us, w.lsn) for w in self.waiting.values() if 0 < w.due_us <= times.elapsed_us)
        assert due, "called when there is nothing to do"
        for _, invocation in due:
            self.end(lsn, invocation, b"\x00time")

    def outcome(self, lsn: int, now_us: int, outcome: Outcome) -> None:
        if outcome.reply.endswith(b"unknown") and (waiting := self.waiting.get(outcome.invocation)) is not None:
            names = (waiting.handler, waiting.key.encode(), "activity", f"k{waiting.lsn}")
            assert isinstance(self.outputs.unknown, list)
            self.outputs.unknown.append(UnknownRecord(outcome.invocation, outcome.operation, *names, lsn, now_us))
        self.end(lsn, outcome.invocation, outcome.reply)

    def attempt(self, lsn: int, now_us: int, attempt: Attempt) -> None:
        if attempt.invocation in self.waiting:
            self.write(b"attempt %d" % attempt.attempt)

    def order(self, lsn: int, now_us: int, order: Order) -> None:
        self.end(lsn, order.invocation, order.value or order.command.encode())

    def retry(self, lsn: int, now_us: int, parked: int, message: bytes) -> bytes:
        if message == b"refused":
            return error_reply("DL3026", "NotParked", "refused")
        self.write(b"%d again: " % parked + message)
        self.send(Target("shop", 0), b"again")
        self.outputs.results.append((lsn, ok_reply(b"\xc0")))
        return b""

    def peer_replaced(self, lsn: int, now_us: int, target: Target) -> None:
        self.write(b"replaced " + target.service.encode())
        self.send(target, b"welcome")

    def take_outputs(self) -> Outputs | None:
        outputs, self.outputs = self.outputs, Outputs([], [], [], [], [], [], [])
        return outputs if any(outputs) else None

    def limit_targets(self, known: Known) -> None:
        """See the port."""

    def due(self) -> Due:
        return Due(min((w.due_us for w in self.waiting.values() if w.due_us), default=0))

    def activities(self) -> list[ActivityStart]:
        return []

    def traceparent(self, invocation: int, operation: int) -> str:
        return ""

    def holds(self, invocation: int) -> bool:
        return invocation in self.waiting

    def invocation_count(self) -> int:
        """See the port."""
        return len(self.invocations())

    def crowd(self) -> Crowd:
        """See the port."""
        return Crowd(0, 0, 0)

    def held_count(self) -> int:
        """See the port."""
        return 0

    def invocations(self, first: int = 0, count_max: int = 0) -> list[InvocationView]:
        return []

    def schedules(self) -> list[ScheduleView]:
        return []

    def history(self, invocation: int, count_max: int) -> History | None:
        return None

    def not_begun(self, invocation: int) -> bytes:
        return b"not begun" if invocation == 77 else b""

    def suspended(self) -> list[bytes]:
        return [msgspec.msgpack.encode(waiting) for _, waiting in sorted(self.waiting.items())]

    def query(self, message: bytes, now_us: int) -> bytes:
        return ok_reply(b"\xc0")

    def rolling_update(self) -> bytes:
        parts, self.parts = self.parts, []
        return hashlib.blake2b(b"".join(parts), digest_size=32).digest() if parts else NOTHING_WRITTEN

    def count(self) -> int:
        return 1

    def state(self) -> dict[bytes, bytes]:
        return {b"": msgspec.msgpack.encode(self.heard)}

    def restore(self, state: dict[bytes, bytes], suspended: Sequence[bytes] = (), *, same_code: bool = True) -> None:
        self.discard()
        self.heard = msgspec.msgpack.decode(state[b""], type=list[bytes])
        for encoded in suspended:
            waiting = msgspec.msgpack.decode(encoded, type=Waiting)
            self.waiting[waiting.lsn] = waiting

    def discard(self) -> None:
        self.__init__(self.mark)  # type: ignore[misc]  # everything as at the start
