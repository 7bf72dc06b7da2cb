"""A primary with everything around it that is not the core: a shard that runs frames, a log in memory, peers that read.

`World.do` takes effects in: what is sent is kept decoded, by connection; what wants an answer stands in `todo` until a
test answers it (`sync`, `refuse`, `prove`, ...), in the order that the test wants. After each step every invariant is
looked at. The executor echoes: the reply to a message is OK with the message's arguments.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

from deathless.base.errors import Deposed
from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.base.times import Due, Times
from deathless.codec.frames import Frame, FrameKind, Run, chain_after
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import (
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
    ScheduleView,
    Target,
)
from deathless.codec.session_proof import nonce_of
from deathless.codec.wire import (
    Batch,
    BatchRefused,
    Follow,
    PacketReader,
    Registered,
    Type,
    decode_queries,
    decode_replies,
    decode_struct,
    ok_reply,
)
from deathless.core import effects as fx
from deathless.core import events as ev
from deathless.core.primary.messaging import Tables
from deathless.core.primary.primary import Primary
from deathless.core.primary.session_owners import SessionOwners
from deathless.core.replica.replica import ShardPlace
from deathless.engine.shard.assembly import shard_around
from deathless.engine.shard.shard import Executed

E = TypeVar("E", bound=fx.Effect)
SMALL = Limits(clock_step_us=1 << 62)  # no time records unless a test wants them: lsns are then easy to count
SECRET = b"known to one client"
WALL_US = 1_700_000_000_000_000


class Echo:
    """Executor: answers each message with its arguments, and counts."""

    def __init__(self) -> None:
        self.ran: list[bytes] = []

    def open(self) -> None:
        pass

    def close(self) -> None:
        pass

    def execute(
        self, session: int, first_seq: int, first_lsn: int, now_us: int, messages: Sequence[bytes]
    ) -> tuple[list[bytes], list[int]]:
        self.ran += messages
        return [ok_reply(message[8:]) for message in messages], [len(message) for message in messages]

    def execute_runs(
        self, runs: Sequence[tuple[Run, Sequence[bytes]]], first_lsn: int, now_us: int
    ) -> list[tuple[list[bytes], list[int], bytes]]:
        done = []
        for run, messages in runs:
            replies, digests = self.execute(run.session, run.first_seq, first_lsn, now_us, messages)
            done.append((replies, digests, self.rolling_update()))
            first_lsn += len(messages)
        return done

    def query(self, message: bytes, now_us: int) -> bytes:
        return ok_reply(message)

    def rolling_update(self) -> bytes:
        return str(len(self.ran)).encode()

    def count(self) -> int:
        return len(self.state())

    def state(self) -> dict[bytes, bytes]:
        return {b"ran": b"\n".join(self.ran)}

    def execute_peer(
        self,
        peer: Target,
        first_seq: int,
        first_lsn: int,
        now_us: int,
        messages: Sequence[bytes],
        session: int = SELF_SESSION,
    ) -> list[int]:
        self.ran += messages
        return [len(message) for message in messages]

    def moved(self, times: Times) -> None:
        """See the port."""

    def advance(self, lsn: int, times: Times, *, caught_up: bool = True) -> None:
        self.ran.append(b"advance")

    def outcome(self, lsn: int, now_us: int, outcome: Outcome) -> None:
        self.ran.append(b"outcome")

    def attempt(self, lsn: int, now_us: int, attempt: Attempt) -> None:
        self.ran.append(b"attempt")

    def order(self, lsn: int, now_us: int, order: Order) -> None:
        self.ran.append(b"order")

    def retry(self, lsn: int, now_us: int, parked: int, message: bytes) -> bytes:
        self.ran.append(b"retry")
        return b""

    def peer_replaced(self, lsn: int, now_us: int, target: Target) -> None:
        self.ran.append(b"peer_replaced")

    def take_outputs(self) -> Outputs | None:
        return None

    def limit_targets(self, known: Known) -> None:
        """See the port."""

    def due(self) -> Due:
        return Due()

    def activities(self) -> list[ActivityStart]:
        return []

    def traceparent(self, invocation: int, operation: int) -> str:
        return ""

    def holds(self, invocation: int) -> bool:
        return False

    def invocation_count(self) -> int:
        """See the port."""
        return len(self.invocations())

    def crowd(self) -> Crowd:
        return Crowd(0, 0, 0)

    def invocations(self, first: int = 0, count_max: int = 0) -> list[InvocationView]:
        return []

    def held_count(self) -> int:
        return 0

    def history(self, invocation: int, count_max: int) -> History | None:
        return None

    def not_begun(self, invocation: int) -> bytes:
        return b""

    def schedules(self) -> list[ScheduleView]:
        return []

    def suspended(self) -> list[bytes]:
        return []

    def restore(self, state: dict[bytes, bytes], suspended: Sequence[bytes] = (), *, same_code: bool = True) -> None:
        self.ran = state[b"ran"].split(b"\n") if state.get(b"ran") else []

    def discard(self) -> None:
        self.ran = []


def call(args: bytes = b"") -> bytes:
    """A CALL message."""
    return encode(Kind.CALL, args=args)


def batch(session: int, first_seq: int, messages: Sequence[bytes], acked: int = 0) -> Batch:
    """A BATCH as the wire gives it."""
    ends = struct.pack(f"<{len(messages)}I", *accumulate(map(len, messages)))
    return Batch(Run(session, first_seq, acked, len(messages)), ends, b"".join(messages))


def owners_showing(conn: int, safeguards: Safeguards = ALL_SAFEGUARDS) -> SessionOwners:
    """Bindings that know one connection, which showed SECRET."""
    owners = SessionOwners(safeguards)
    owners.opened(ev.Conn(conn), SECRET, "")
    return owners


class World:
    """A primary of epoch 1 at lsn 0, and what it has sent."""

    def __init__(
        self,
        limits: Limits = SMALL,
        safeguards: Safeguards = ALL_SAFEGUARDS,
        deaths: dict[tuple[int, int], int] | None = None,
        executor: Echo | None = None,
    ) -> None:
        self.now = 100.0
        self.run_s = 0.0  # what running one message takes
        self.wall_us = WALL_US
        self.place = ShardPlace(times=Times.at(WALL_US))
        self.executor = executor or Echo()
        self.shard = shard_around(self.executor, limits, safeguards, place=self.place)
        self.sessions = self.shard.sessions
        self.deaths = {} if deaths is None else deaths
        self.owners = SessionOwners(safeguards)
        self.primary = Primary(
            replica="r0",
            epoch=1,
            sessions=self.sessions,
            limits=limits,
            safeguards=safeguards,
            lsn=0,
            chain=bytes(16),
            times=Times.at(WALL_US),
            wall_us=WALL_US,
            now=self.now,
            deaths=self.deaths,
            tables=Tables(
                outbox=self.shard.outbox,
                peers=self.shard.peers,
                results=self.shard.results,
                undelivered=self.shard.undelivered,
                unknown=self.shard.unknown,
                activities=self.executor.activities,
                crowd=self.executor.crowd,
                holds=self.executor.holds,
                retried=self.shard.take_retried,
                due=lambda: self.place.due,
            ),
            owners=self.owners,
        )
        self.todo: list[fx.Effect] = []
        self.standing: list[int] = []  # lsns of verified checkpoints in the directory
        self.store_answers = True  # the lock store hears of the last confirmed place at once
        self.noted: list[fx.NoteConfirmed] = []
        self.sent: list[tuple[int, int, bytes]] = []

    # ---- effects ---------------------------------------------------------------------------------------------

    def do(self, effects: Sequence[fx.Effect]) -> Sequence[fx.Effect]:
        """Take effects in."""
        for effect in effects:
            if isinstance(effect, fx.Send):
                for kind, body in PacketReader(1 << 30).feed(effect.data):
                    self.sent.append((effect.conn, kind, body))
            elif isinstance(effect, fx.NoteConfirmed):  # it asks for no answer
                self.noted.append(effect)
            elif isinstance(effect, fx.ListCheckpoints):
                self.do(self.primary.checkpoints_found(self.standing, self.now, self.wall_us))
            elif isinstance(effect, fx.StoreConfirmed) and self.store_answers:
                self.do(self.primary.confirmed_stored(effect.lsn, self.now))
            else:
                self.todo.append(effect)
        self.primary.check_invariants()
        self.sessions.check_invariants()
        return effects

    def take(self, kind: type[E]) -> E:
        """Take the oldest effect of a kind out of `todo`."""
        found = next(effect for effect in self.todo if isinstance(effect, kind))
        self.todo.remove(found)
        return found

    def owes(self, kind: type[fx.Effect]) -> int:
        """Count the effects of a kind that wait for an answer."""
        return sum(isinstance(effect, kind) for effect in self.todo)

    # ---- clients ---------------------------------------------------------------------------------------------

    def show(self, conn: int, secret: bytes = SECRET, name: str = "") -> None:
        """A connection whose HELLO showed a secret."""
        self.owners.opened(ev.Conn(conn), secret, name)

    def register(self, conn: int = 1, nonce: bytes = nonce_of(SECRET)) -> int:
        """Register a session, to the end; gives its id."""
        self.do(self.primary.register_received(ev.Conn(conn), nonce))
        self.settle()
        return next(
            told.session
            for told in (decode_struct(Registered, body) for _, kind, body in self.sent if kind == Type.REGISTERED)
            if told.nonce == nonce
        )

    def send(self, session: int, first_seq: int, *args: bytes, conn: int = 1, acked: int = 0) -> None:
        """Messages of a client."""
        messages = [call(each) for each in args]
        self.do(self.primary.batches_received([(ev.Conn(conn), batch(session, first_seq, messages, acked))]))

    def query(self, *ids: int, conn: int = 1, stale: bool = False) -> None:
        """Queries of a client, run at once on what has run so far."""
        self.do(self.primary.queries_received(ev.Conn(conn), stale, ids, [b"q"] * len(ids)))
        if self.owes(fx.RunQueries):
            self.answer_queries()

    def answer_queries(self) -> None:
        """Answer the oldest queries that are being run."""
        run = self.take(fx.RunQueries)
        event = ev.QueriesAnswered(run.conn, run.ids, [b"\x00a"] * len(run.ids), self.place.lsn, run.stale)
        self.do(self.primary.queries_answered(event))

    # ---- the log ---------------------------------------------------------------------------------------------

    def pass_us(self, us: int) -> None:
        """Let so much pass on all clocks."""
        self.now += us / 1e6
        self.wall_us += us

    def drained(self) -> None:
        """Every socket was read."""
        self.do(self.primary.buffers_drained(self.now, self.wall_us))

    def sync(self) -> ev.FrameSynced:
        """Run, write and sync the frame that is due."""
        return self.written(*self.run_frame())

    def run_frame(self) -> tuple[fx.RunFrame, Executed]:
        """Run the frame that is due; that it is synced is told later."""
        run = self.take(fx.RunFrame)
        return run, self.shard.execute(run.runs)

    def written(self, run: fx.RunFrame, done: Executed) -> ev.FrameSynced:
        """The frame that ran is synced."""
        first, prev = self.place.lsn - done.count + 1, self.place.chain
        chain = chain_after(ChainHash(prev), first, done.payload)
        frame = Frame(
            FrameKind.DATA,
            Epoch(1),
            Lsn(first),
            Lsn(run.confirmed_lsn),
            done.count,
            Incarnation(1),
            ChainHash(prev),
            chain,
            0,
            done.payload,
        )
        self.place.chain = chain
        event = ev.FrameSynced(
            frame, done.payload, 0, 4096, done.results, done.registered, self.place.times,
            done.sent, done.starts, done.stops, done.finished, done.spans, done.count * self.run_s, done.unknown,
        )  # fmt: skip
        self.primary.digest = self.place.digest
        self.do(self.primary.frame_synced(event, self.now, self.wall_us))
        return event

    def refuse(self) -> None:
        """There is no room for the frame that is due."""
        run = self.take(fx.RunFrame)
        self.do(self.primary.space_refused(run.runs, self.now))

    def prove(self, *, owned: bool = True) -> None:
        """Answer the proof that is under way."""
        number = self.take(fx.Prove).number
        self.do(self.primary.proof_answered(number, owned, self.now, self.wall_us))

    def close_frame(self) -> None:
        """Sync the closing frame that is due."""
        confirmed = self.take(fx.WriteControl).confirmed_lsn
        self.do(self.primary.control_synced(confirmed, self.now, self.wall_us))

    def settle(self) -> None:
        """Write, sync and prove until nothing is left to do."""
        self.drained()
        while self.owes(fx.RunFrame) or self.owes(fx.Prove):
            if self.owes(fx.RunFrame):
                self.sync()
            if self.owes(fx.Prove):
                self.prove()

    def fire(self, after_s: float = 0.0) -> None:
        """Let time pass and the timer fire."""
        self.now += after_s
        self.do(self.primary.timer_fired(self.now, self.wall_us))

    # ---- followers -------------------------------------------------------------------------------------------

    def follow(self, replica: str, conn: int, lsn: int = 0, chain: bytes = bytes(16)) -> None:
        """A follower asks for the stream."""
        self.do(self.primary.follow_received(ev.Conn(conn), Follow(replica, lsn, chain, False)))

    def applied(self, conn: int, lsn: int | None = None) -> None:
        """A follower tells what it applied; None: all that is confirmed."""
        at = self.primary.confirmed_lsn if lsn is None else lsn
        self.do(self.primary.applied_received(ev.Conn(conn), at, self.now))

    # ---- what was sent ---------------------------------------------------------------------------------------

    def replies(self, session: int) -> list[tuple[int, bytes]]:
        """(seq, arguments echoed) of every reply sent to a session, in order; forgets nothing."""
        found: list[tuple[int, bytes]] = []
        for _, kind, body in self.sent:
            if kind == Type.REPLIES:
                to, seqs, replies = decode_replies(body)
                if to == session:
                    found += [(seq, reply[1:]) for seq, reply in zip(seqs, replies, strict=True)]
        return found

    def refusals(self) -> list[BatchRefused]:
        """Every BATCH_REFUSED sent."""
        return [decode_struct(BatchRefused, body) for _, kind, body in self.sent if kind == Type.BATCH_REFUSED]

    def answers(self) -> list[int]:
        """Ids of every query answered, in order."""
        return [each for _, kind, body in self.sent if kind == Type.ANSWERS for each in decode_queries(body)[1]]

    def to(self, conn: int) -> list[int]:
        """Types of the packets sent on a connection, in order."""
        return [kind for at, kind, _ in self.sent if at == conn]


def serving(limits: Limits = SMALL, safeguards: Safeguards | None = None) -> tuple[World, int]:
    """A world with one registered session."""
    world = World(limits, safeguards or Safeguards())
    return world, world.register()


def followed(limits: Limits = SMALL) -> tuple[World, int]:
    """The same with two followers in step, r1 (the checkpointer) on 51 and r2 on 52."""
    world, session = serving(limits)
    for number in (1, 2):
        world.follow(f"r{number}", 50 + number, 1, world.place.chain)
        world.applied(50 + number)
    world.sent.clear()
    return world, session


def stop_of(world: World) -> Deposed:
    """The error that the primary ends with."""
    error = world.take(fx.StopReplica).error
    assert isinstance(error, Deposed)
    return error
