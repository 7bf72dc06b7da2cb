"""One process of an application as a part of its service: what it gets, what of it leaves, and when it is copied; pure.

    rows of the topic --> Deliver --> application --> lanes --> streams, one for each lane --> the service's log
                                         |
                                         '--> checkpoints, at a position of the topic

A lane's stream has the lane's positions as its ids, so what the log has of a lane is dropped there, and a successor's
application that emits it again changes nothing. Before it sends its first item of a lane, the chain of the items that
the log has must be what this application emitted up to there: the welcome of the stream tells position and chain.

Each row of a lane that was logged comes back to all replicas in the topic, with its position and chain. So every
replica's application is compared with what the primary's had sent, and forgets what had its effect.

    not begun   the primary of a service whose log has no first message, without a checkpoint: it begins (11), its first
                message is kept with checkpoint 0, and only then logged
    begun       every replica goes on from the newest checkpoint (8), with the rows behind it
    leading     once it has everything that was there when its replica became the primary (15)

One life of this is one process of the application. Whoever stops to lead ends the process and begins with another one:
the application takes itself for the primary, and there is no message that tells it otherwise.

Guarantees: what was delivered is confirmed, since rows of a topic are; no item leaves that was not compared; a lack of
room holds deliveries back, and never what the log has. Does not: IO, know clocks but for the `now` of its calls.
Imports core, codec, protocols and this package.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from deathless.base.errors import ApplicationStateMissing, LaneUnknown
from deathless.base.foreign.binding import SOURCE
from deathless.codec.streams.packets import StreamCommit, StreamRefused, StreamWelcome
from deathless.codec.streams.records import StreamKey
from deathless.codec.streams.rows import encode_row
from deathless.codec.wire import Type, decode_struct
from deathless.core.client.stream_sender import State as SenderState
from deathless.core.client.stream_sender import StreamSender
from deathless.foreign.checkpoints import Head, decode_lanes, encode_lanes
from deathless.foreign.rows import INPUT, Emitted, Given, What, decode_items, encode_emitted, encode_items
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.lanes import Difference, Expectation, Lane
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.messages import Oversized, Rpc
from deathless.protocols.ambrosia.states import State

GROUP_BYTES: Final = 128 << 10  # of items in one row of a stream; one item that has more is alone
DELIVERED_BYTES: Final = 64 << 10  # of rows in one record
ROWS_MAX: Final = 4096  # that wait to be delivered
ROWS_BYTES_MAX: Final = 4 << 20  # likewise
KEPT_BYTES_MAX: Final = 8 << 20  # that were emitted and are not logged yet; with more nothing is delivered
AGAIN_S: Final = 0.05  # the shortest pause until a stream that was refused is opened again
ALONE: Final = 4  # who is no checkpointer takes a checkpoint when this many times as much is due
CONTROL: Final = 0
"""Number of the stream of what is in no lane: the first message, and impulses."""
_ITEM_BYTES: Final = 64  # what an item costs beside its body
_COPIED_IN: Final = frozenset({State.FOLLOWING, State.LEADING})


# ---- what is to be done ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tell:
    """Have the application's machine take this."""

    event: on.Event


@dataclass(frozen=True, slots=True)
class LoadBlob:
    """Have the machine take the bytes of the checkpoint that was found."""


@dataclass(frozen=True, slots=True)
class BeginFile:
    """Begin a checkpoint's file."""

    head: Head


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Some of its bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class EndFile:
    """It is whole; `kept` is to be called once it is durable."""


@dataclass(frozen=True, slots=True)
class Packets:
    """Send this to the primary."""

    packets: list[bytes]


Action = Tell | LoadBlob | BeginFile | WriteFile | EndFile | Packets


class Every(NamedTuple):
    """How much is delivered between two checkpoints."""

    rows: int
    bytes: int


class Owned(NamedTuple):
    """Whose application it is."""

    service_id: str
    incarnation: int


def stream_of(target: str) -> int:
    """Give the number of a lane's stream, in [1, 2**63): the same on all replicas, for ever."""
    digest = hashlib.blake2b(target.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 1) or 1


class _Stream:
    """One stream on its way to the primary."""

    __slots__ = ("again_at", "compared", "sender", "sent", "target", "waiting")

    def __init__(self, number: int, target: str, nonce: bytes) -> None:
        self.target = target
        self.sender = StreamSender(StreamKey(SOURCE, number), nonce)
        self.compared = False  # the welcome was told to the machine
        self.sent = 0  # position up to which items were offered
        self.waiting: deque[Rpc] = deque()  # of the control stream: impulses that were not offered yet
        self.again_at: float | None = None


class _Rows:
    """Rows that came and are not delivered yet."""

    __slots__ = ("bytes", "delivered", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, Given]] = deque()
        self.bytes = 0  # Invariant: of their items
        self.delivered = 0  # position of the last row that was delivered or passed

    @property
    def next(self) -> int:
        """Position behind all that came."""
        return (self.waiting[-1][0] if self.waiting else self.delivered) + 1

    @property
    def is_full(self) -> bool:
        """Whether no more are wanted now."""
        return len(self.waiting) >= ROWS_MAX or self.bytes >= ROWS_BYTES_MAX

    def add(self, rows: Iterable[tuple[int, Given]]) -> None:
        """More came."""
        for position, row in rows:
            self.waiting.append((position, row))
            self.bytes += len(row.items)

    def take(self) -> tuple[int, Given]:
        """Give the first one, which is delivered now."""
        position, row = self.waiting.popleft()
        self.bytes -= len(row.items)
        self.delivered = position
        return position, row


class _Unlogged:
    """What was emitted and is not logged yet, as far as its size counts."""

    __slots__ = ("_by_target", "bytes")

    def __init__(self) -> None:
        self._by_target: dict[str, deque[tuple[int, int]]] = {}  # position and size
        self.bytes = 0  # Invariant: their sum

    def add(self, target: str, position: int, item: Rpc | Oversized) -> None:
        """It was emitted."""
        size = _size(item)
        self._by_target.setdefault(target, deque()).append((position, size))
        self.bytes += size

    def forget(self, target: str, upto: int) -> None:
        """It is logged."""
        kept = self._by_target.get(target)
        while kept and kept[0][0] <= upto:
            self.bytes -= kept.popleft()[1]

    def targets(self) -> list[str]:
        """Give those that have some."""
        return [target for target, kept in self._by_target.items() if kept]

    def check_invariants(self) -> None:
        """Raise AssertionError when the sum is not exact."""
        assert self.bytes == sum(size for kept in self._by_target.values() for _, size in kept)


class CopyPlan:
    """When the application is to give a checkpoint.

    Args:
        every: how much is delivered between two.
    """

    __slots__ = ("_bytes", "_every", "_rows", "checkpointer", "first_is_kept", "under_way", "wanted")

    def __init__(self, every: Every) -> None:
        self.checkpointer = False  # this replica is to take them; its owner's to set
        self.under_way = False  # it was told to give one, or gives it
        self.wanted = False  # the application asked for one
        self.first_is_kept = False  # the one at position 0 is durable
        self._every = every
        self._rows = 0  # since the last one
        self._bytes = 0  # likewise

    @property
    def is_due(self) -> bool:
        """Whether it is time for one."""
        factor = 1 if self.checkpointer else ALONE
        much = self._rows >= factor * self._every.rows or self._bytes >= factor * self._every.bytes
        return bool(self._rows) and not self.under_way and (self.wanted or much)

    def delivered(self, row: Given) -> None:
        """The application was given this."""
        self._rows += 1
        self._bytes += len(row.items)

    def taken(self) -> None:
        """One was told to be given, or another replica has one."""
        self._rows = self._bytes = 0


class Coordinator:
    """One application's.

    Args:
        machine: of its process, new.
        owned: whose it is.
        nonces: gives 16 bytes by chance.
        every: how much is delivered between two checkpoints.
    """

    def __init__(self, machine: ApplicationMachine, owned: Owned, nonces: Callable[[], bytes], every: Every) -> None:
        self.differences: list[Difference] = []  # that were found, the fatal ones included
        self.refused = 0  # outputs that went nowhere
        self.copies = CopyPlan(every)
        self._machine = machine
        self._owned = owned
        self._nonces = nonces
        self._leads = False
        self._lead_from = 0  # rows below it are delivered before it leads; 0: not known
        self._told_to_lead = False
        self._streams: dict[str | None, _Stream] = {}  # by target; None: the control stream
        self._up = False  # a connection to the primary stands
        self._rows = _Rows()
        self._unlogged = _Unlogged()
        self._loaded = False  # a checkpoint is loaded, or this is a first start
        self._initial: bytes | None = None  # the first message, until it is known to be logged

    # ---- what the owner tells ------------------------------------------------------------------------------------

    @property
    def next_row(self) -> int:
        """Position of the row that is wanted next; 0: none is now."""
        return 0 if not self._loaded or self._rows.is_full else self._rows.next

    @property
    def delivered(self) -> int:
        """Position up to which rows were delivered."""
        return self._rows.delivered

    @property
    def is_fenced(self) -> bool:
        """Another replica's application has a stream of ours: this process is to end."""
        return any(each.sender.state is SenderState.FENCED for each in self._streams.values())

    @property
    def kept_bytes(self) -> int:
        """Bytes that were emitted and are not logged yet."""
        return self._unlogged.bytes

    @property
    def problem(self) -> str:
        """Why streams do not go on, code first; empty: nothing is told."""
        return next((each.sender.why for each in self._streams.values() if each.sender.why), "")

    def leads(self, reach: int) -> list[Action]:
        """Our replica is the primary.

        Args:
            reach: position behind the last row that is there now.
        """
        if self._leads:
            return []
        self._leads, self._lead_from = True, reach
        return self._open(None) + self._advance()

    def found(self, head: Head) -> list[Action]:
        """A checkpoint is there: go on from it. Raises: ApplicationStateMissing: it is of another service."""
        assert not self._loaded
        assert self._machine.state is State.WAITING
        if (head.service_id, head.incarnation) != self._owned:
            raise ApplicationStateMissing(
                f"the checkpoint at position {head.position} is of service {head.service_id}, incarnation "
                f"{head.incarnation}; this is {self._owned.service_id}, incarnation {self._owned.incarnation}"
            )
        self._loaded, self._rows.delivered = True, head.position
        self._initial = head.initial if head.position == 0 else None
        self.copies.first_is_kept = True
        load = on.Load(length=head.length, lsn=head.position, records=head.records, lanes=decode_lanes(head.lanes))
        for lane in load.lanes:
            for at, kept in enumerate(lane.kept):
                self._unlogged.add(lane.target, lane.floor + 1 + at, kept.item)
        return [Tell(load), LoadBlob(), *self._advance()]

    def nothing_found(self) -> list[Action]:
        """There is no checkpoint. Raises: ApplicationStateMissing: there must have been one."""
        control = self._streams.get(None)
        if self._loaded or control is None or not control.compared or self._machine.state is not State.WAITING:
            return []
        if control.sender.committed_id >= 0:
            raise ApplicationStateMissing("the log has the application's first message, and no checkpoint is there")
        self._loaded = True
        return [Tell(on.Begin())]

    def rows(self, rows: Iterable[tuple[int, Given]]) -> list[Action]:
        """Rows of the topic, in the order of their positions, from `next_row` on."""
        self._rows.add(rows)
        return self._advance()

    def took(self, effects: Iterable[on.Effect]) -> list[Action]:
        """The machine wants this."""
        actions: list[Action] = []
        for effect in effects:
            match effect:
                case on.Emitted():
                    self._unlogged.add(effect.target, effect.position, effect.item)
                case on.ImpulseEmitted():
                    self._streams[None].waiting.append(effect.rpc)
                case on.OutputRefused():
                    self.refused += 1
                case on.InitialMade():
                    self._initial = effect.data
                case on.CheckpointWanted():
                    self.copies.wanted = True
                case on.CheckpointBegan():
                    actions.append(BeginFile(self._head(effect)))
                    self.copies.wanted = False
                case on.CheckpointPart():
                    actions.append(WriteFile(effect.data))
                case on.CheckpointEnded():
                    self.copies.under_way = False
                    actions.append(EndFile())
                case on.Differs():
                    self.differences.append(effect.difference)
                case _:
                    pass  # bytes were sent; a connection is made when there is something to send; the end is told apart
        return actions + self._advance()

    def kept(self, position: int) -> list[Action]:
        """A checkpoint of ours is durable."""
        self.copies.first_is_kept |= position == 0
        return self._advance()

    def others_checkpoint(self) -> None:
        """Another replica has taken one: ours is not due for a while."""
        self.copies.taken()

    # ---- the connection to the primary ---------------------------------------------------------------------------

    def connected(self) -> list[Action]:
        """A connection stands."""
        self._up = True
        return _sent([packet for each in self._streams.values() for packet in _hello(each)])

    def lost(self) -> None:
        """It ended."""
        self._up = False
        for each in self._streams.values():
            each.again_at = None
            each.sender.lost()

    def received(self, kind: int, body: bytes, now: float) -> list[Action]:
        """A packet about streams came. Raises: CorruptFrame, LaneUnknown."""
        actions: list[Action] = []
        for target, each in list(self._streams.items()):
            match kind:
                case Type.STREAM_WELCOME:
                    welcome = decode_struct(StreamWelcome, body)
                    if (welcome.source, welcome.stream) == each.sender.key:
                        each.sender.welcomed(welcome)
                        if not each.compared and each.sender.state is SenderState.OPEN:
                            actions += self._welcomed(target, each, welcome)
                case Type.STREAM_COMMIT:
                    each.sender.committed(decode_struct(StreamCommit, body))
                case Type.STREAM_REFUSED:
                    refused = decode_struct(StreamRefused, body)
                    if (refused.source, refused.stream) == each.sender.key:
                        wait_s = each.sender.refused(refused, now)
                        each.again_at = None if wait_s is None else now + max(wait_s, AGAIN_S)
                case _:
                    pass
        return actions + self._advance(now)

    def due(self, now: float) -> list[Action]:
        """Give what is to be done now though nothing came."""
        packets: list[bytes] = []
        for each in self._streams.values():
            if self._up and each.again_at is not None and each.again_at <= now:
                each.again_at = None
                packets += _hello(each)
        return _sent(packets) + self._advance(now)

    def deadline(self, now: float) -> float | None:
        """When `due` may give something; None: never."""
        found = [each.again_at for each in self._streams.values() if each.again_at is not None]
        found += [at for each in self._streams.values() if (at := each.sender.deadline(now)) is not None]
        return min(found, default=None)

    # ---- its parts -----------------------------------------------------------------------------------------------

    def _open(self, target: str | None) -> list[Action]:
        if target not in self._streams:
            number = CONTROL if target is None else stream_of(target)
            self._streams[target] = _Stream(number, target or "", self._nonces())
        return _sent(_hello(self._streams[target])) if self._up else []

    def _welcomed(self, target: str | None, each: _Stream, welcome: StreamWelcome) -> list[Action]:
        """The log says what it has of a lane."""
        if target is not None and max(welcome.last_id, 0) < self._machine.lane(target).floor:
            return []  # it was said before another owner took the stream, whose rows are here already: we are fenced
        each.compared = True
        if target is None:
            if welcome.last_id >= 0:
                self._initial = None
            return []
        known = None
        if welcome.last_id >= 0:
            known = _noted(welcome)
            each.sent = known.position
        return [Tell(on.Welcomed(target=target, known=known))]

    def _head(self, began: on.CheckpointBegan) -> Head:
        return Head(
            service_id=self._owned.service_id,
            incarnation=self._owned.incarnation,
            position=began.lsn,
            records=began.records,
            length=began.length,
            lanes=encode_lanes(began.lanes),
            initial=(self._initial or b"") if began.lsn == 0 else b"",
        )

    def _advance(self, now: float = 0.0) -> list[Action]:
        """Do what may be done by now: deliver, lead, copy, send."""
        actions: list[Action] = []
        actions += self._deliver()
        actions += self._maybe_lead()
        actions += self._maybe_copy()
        actions += self._open_lanes()
        self._offer_control()
        for each in self._streams.values():
            if each.sender.key.stream != CONTROL:
                self._offer(each)
        packets = [packet for each in self._streams.values() for packet in each.sender.packets(now)]
        return actions + _sent(packets)

    def _open_lanes(self) -> list[Action]:
        """Open the streams of lanes that have something which is not logged yet."""
        if not self._leads:
            return []
        missing = [target for target in self._unlogged.targets() if target not in self._streams]
        return [action for target in missing for action in self._open(target)]

    def _deliver(self) -> Iterator[Action]:
        """Give the application what came, as far as it may be given and there is room for what it emits."""
        rows = self._rows
        while rows.waiting and self._may_deliver:
            position, row = rows.waiting[0]
            if row.what == What.INITIAL:
                self._take_row()
                yield Tell(on.Confirmed(lsn=position))
                yield Tell(on.DeliverInitial(lsn=position, data=row.items))
                continue
            rpcs: list[Rpc] = []
            known: list[on.EffectKnown] = []
            size = 0
            while rows.waiting and rows.waiting[0][1].what != What.INITIAL and size < DELIVERED_BYTES:
                position, row = self._take_row()
                rpcs += decode_items(row.items)
                size += len(row.items) + _ITEM_BYTES
                if row.upto:
                    there = Expectation(row.upto, row.chain, lsn=position)
                    known.append(on.EffectKnown(target=row.target, known=there))
                    self._unlogged.forget(row.target, row.upto)
            yield Tell(on.Confirmed(lsn=position))
            if rpcs:
                yield Tell(on.Deliver(lsn=position, rpcs=tuple(rpcs)))
            yield from (Tell(each) for each in known)

    @property
    def _may_deliver(self) -> bool:
        free = self._machine.may_deliver and not self.copies.under_way
        return free and self._unlogged.bytes < KEPT_BYTES_MAX

    def _take_row(self) -> tuple[int, Given]:
        position, row = self._rows.take()
        self.copies.delivered(row)
        return position, row

    def _maybe_lead(self) -> list[Action]:
        """It leads once it has all that was there when its replica became the primary."""
        control = self._streams.get(None)
        told = control is not None and control.compared
        # Without its first message, which is not logged yet, it has run nothing.
        caught_up = 0 < self._rows.delivered >= self._lead_from - 1
        free = self._machine.state is State.FOLLOWING and not self.copies.under_way and not self._told_to_lead
        if self._leads and told and caught_up and free:
            self._told_to_lead = True
            return [Tell(on.Lead())]
        return []

    def _maybe_copy(self) -> list[Action]:
        """Have it give a checkpoint when one is due."""
        if self._machine.state not in _COPIED_IN or not self.copies.is_due:
            return []
        self.copies.taken()
        self.copies.under_way = True
        return [Tell(on.TakeCheckpoint())]

    def _offer_control(self) -> None:
        """Have the first message and impulses logged."""
        control = self._streams.get(None)
        if control is None or not control.compared or control.sender.next_id < 0:
            return
        if control.sender.next_id == 0:
            if self._initial is None or not self.copies.first_is_kept:
                return
            self._put(control, 0, Emitted(What.INITIAL, self._initial), b"")
            self._initial = None
        while control.waiting:
            group = _group(control.waiting)
            row = Emitted(What.ITEMS, encode_items(group, with_destination=True))
            self._put(control, control.sender.next_id, row, b"")

    def _offer(self, each: _Stream) -> None:
        """Have items of a lane logged, as far as it is open."""
        if not each.compared or each.sender.next_id < 0:
            return
        lane: Lane = self._machine.lane(each.target)
        first = lane.release_from
        if first is None:
            return
        pending = deque(lane.kept_from(max(first, each.sent + 1)))
        while pending:
            items: list[Rpc | Oversized] = []
            size = 0
            while pending and (not items or size < GROUP_BYTES):
                each.sent, item = pending.popleft()
                items.append(item)
                size += _size(item)
                if pending and _too_large(size, pending[0][1]):
                    break
            chain = lane.chain_at(each.sent)
            row = Emitted(What.ITEMS, encode_items(items), each.target, each.sent, chain)
            self._put(each, each.sent, row, each.sent.to_bytes(8, "big") + chain)

    def _put(self, each: _Stream, number: int, row: Emitted, note: bytes) -> None:
        each.sender.offer(number, encode_row(INPUT, b"", encode_emitted(row), note))

    def check_invariants(self) -> None:
        """Raise AssertionError when a bookkeeping is not exact."""
        assert self._rows.bytes == sum(len(row.items) for _, row in self._rows.waiting)
        self._unlogged.check_invariants()


def _noted(welcome: StreamWelcome) -> Expectation:
    """Give what the log has of a lane. Raises: LaneUnknown where its stream stands at a row that was refused."""
    position, chain = int.from_bytes(welcome.note[:8], "big"), welcome.note[8:]
    if position != welcome.last_id:
        raise LaneUnknown(
            f"the log has a lane up to position {welcome.last_id}, and its row up to {position} was refused"
        )
    return Expectation(position, chain)


def _hello(each: _Stream) -> list[bytes]:
    return [each.sender.hello()] if each.sender.state is SenderState.CLOSED else []


def _group(waiting: deque[Rpc]) -> list[Rpc]:
    """Take what goes into one row."""
    items = [waiting.popleft()]
    size = _size(items[0])
    while waiting and not _too_large(size, waiting[0]):
        items.append(waiting.popleft())
        size += _size(items[-1])
    return items


def _too_large(size: int, item: Rpc | Oversized) -> bool:
    return size + _size(item) > GROUP_BYTES


def _size(item: Rpc | Oversized) -> int:
    return _ITEM_BYTES + (len(item.body) if isinstance(item, Rpc) else 0)


def _sent(packets: Sequence[bytes]) -> list[Action]:
    return [Packets(list(packets))] if packets else []
