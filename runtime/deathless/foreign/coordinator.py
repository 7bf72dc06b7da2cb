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
    going over  where it has its next version in it, in place of 15: it is told to go over (10), and gives a checkpoint.
                What it emits is held until that is durable, in the place of any other at its position; then it leads,
                and is asked for another one (2), as the original does

One life of this is one process of the application. Whoever stops to lead ends the process and begins with another one:
the application takes itself for the primary, and there is no message that tells it otherwise.

Guarantees: what was delivered is confirmed, since rows of a topic are; no item leaves that was not compared; a lack of
room holds deliveries back, and never what the log has; what waits for an application, or comes of the one that leads,
is bounded. Does not: IO, know clocks but for the `now` of its calls. Imports core, codec, protocols and this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from deathless.base.errors import ApplicationStateMissing, LaneUnknown, ProgramVersionDiffers
from deathless.codec.generations import Level
from deathless.codec.streams.packets import StreamWelcome
from deathless.foreign.checkpoint_plan import CheckpointPlan, Every
from deathless.foreign.checkpoints import Head, decode_lanes, encode_lanes
from deathless.foreign.rows import Emitted, Given, What, delivered, encode_items
from deathless.foreign.skips import Skip, answers
from deathless.foreign.streams import Stream, Streams
from deathless.foreign.waiting import ITEM_BYTES, Impulses, Kept, Rows, Unlogged, group_behind
from deathless.foreign.watching.counts import Counts
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.items import HASH_BYTES, OTHERS, shape_of
from deathless.protocols.ambrosia.lanes import Difference, Expectation
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.messages import Kind, MessageType, Oversized, Packed, Rpc
from deathless.protocols.ambrosia.runs import pack
from deathless.protocols.ambrosia.states import State

GROUP_BYTES: Final = 128 << 10  # of items in one row of a stream; one item that has more is alone
RUN_BYTES: Final = 512 << 10  # of forks that are in one row as a run, where there is room for so much
RUN_ITEM_BYTES: Final = 6  # what an item has in a run beside its body, at most
DELIVERED_BYTES: Final = 64 << 10  # of rows in one record
UNLOGGED_BYTES_MAX: Final = 8 << 20  # that were emitted and are not logged yet; with more, deliveries wait
FLOOD_BYTES_MAX: Final = 32 << 20  # likewise, with impulses; with more, who leads is not read any more
UNREAD_BYTES_MAX: Final = 4 << 20  # that were delivered and wait for the application; with more, it gets no more rows
OFFERED_IMPULSES_MAX: Final = 64  # groups of them that are offered to the log and not logged yet
OPENED_AT_ONCE: Final = 32  # lanes of which the log has something; others are opened with their first output
HELD: Final = "outside held: `deathless resume-outside` has it lead"
_CHECKPOINTED_IN: Final = frozenset({State.FOLLOWING, State.LEADING})
_POSITION_BYTES: Final = 8  # of a note, before chain and shape


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
    """It is whole; `kept` is to be called once it is durable.

    Attributes:
        goes_over: it takes the place of any other at its position, `went_over` is to be called in place of `kept`, and
            without it the process ends.
    """

    goes_over: bool = False


@dataclass(frozen=True, slots=True)
class Packets:
    """Send this to the primary."""

    packets: list[bytes]


Action = Tell | LoadBlob | BeginFile | WriteFile | EndFile | Packets


class Owned(NamedTuple):
    """Whose application it is."""

    service_id: str
    incarnation: int


class Versions(NamedTuple):
    """Which versions the program has in it."""

    now: int = -1  # that it begins with; -1: nobody numbers them
    next: int = -1  # that it is to go over to before it leads; -1: it stays


class Leading:
    """How far an application is on its way to lead.

    Args:
        versions: of the program.
    """

    __slots__ = ("asked", "going_over", "next_version", "outside_held", "since", "told", "version")

    def __init__(self, versions: Versions) -> None:
        self.version = versions.now  # of its code, and of the checkpoints that it gives
        self.next_version = versions.next  # -1: it stays
        self.going_over = False  # it was told to go over, and its checkpoint is not durable
        self.since: int | None = None  # rows below it are delivered before it leads; None: its replica does not
        self.outside_held = False  # it is not told to lead, since it may then reach the outside
        self.asked = False  # for a row
        self.told = False  # it was told to lead

    @property
    def may_send(self) -> bool:
        """Whether what it emitted may leave: before it has gone over it may be that the former version goes on."""
        return not self.going_over


class Coordinator:
    """One application's.

    Args:
        machine: of its process, new.
        owned: whose it is.
        nonces: gives 16 bytes by chance.
        every: how much is delivered between two checkpoints.
        skips: what an operator has the application not get, by position.
        versions: of the program.
        counts: of all processes of the application beside its replica; None: nobody asks for them.
    """

    def __init__(
        self,
        machine: ApplicationMachine,
        owned: Owned,
        nonces: Callable[[], bytes],
        every: Every,
        skips: Mapping[int, Skip] | None = None,
        versions: Versions = Versions(),  # noqa: B008  it never changes
        counts: Counts | None = None,
    ) -> None:
        self.counts = counts or Counts()
        self.plan = CheckpointPlan(every)
        self._machine = machine
        self._owned = owned
        self.leading = Leading(versions)
        self._streams = Streams(nonces)
        self._rows = Rows()
        self._unlogged = Unlogged()
        self._impulses = Impulses()
        self._kept = Kept()
        self._skips = skips or {}
        self._loaded = False  # a checkpoint is loaded, or this is a first start
        self._initial: bytes | None = None  # the first message, until it is known to be logged

    # ---- what the owner asks -------------------------------------------------------------------------------------

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
        return self._streams.is_fenced

    @property
    def goes_over(self) -> bool:
        """Whether it is to go over to its next version, and has not yet."""
        return self.leading.next_version >= 0

    @property
    def unlogged_bytes(self) -> int:
        """Bytes that were emitted and are not logged yet."""
        return self._unlogged.bytes

    @property
    def skipped(self) -> int:
        """Rows of which an operator has it skip something."""
        return len(self._skips)

    @property
    def unlogged_impulses(self) -> int:
        """Impulses that were emitted and are not known to be logged."""
        return self._impulses.unlogged

    @property
    def is_flooded(self) -> bool:
        """Whether no more is to be read of it: it leads, and emits more than is logged.

        What the log says comes to who leads without another word of the application, so it is read again some time. One
        that follows is read on: rows that would tell of its outputs may stand behind those that it has not read.
        """
        leads = self.leading.since is not None
        return leads and self._unlogged.bytes + self._impulses.bytes >= FLOOD_BYTES_MAX

    @property
    def problem(self) -> str:
        """Why outputs are not logged, code first where it has one, or what else is to be known; empty: nothing is."""
        refused = self.counts.too_long
        held = self.leading.outside_held and self.leading.since is not None
        told = f"messages refused: {refused}, the last one {self.counts.refusal}" if refused else ""
        return self._streams.problem or self._kept.problem or (HELD if held else told)

    # ---- what the owner tells ------------------------------------------------------------------------------------

    def leads(self, reach: int, now: float) -> list[Action]:
        """Our replica is the primary; said once.

        Args:
            reach: position behind the last row that is there now.
            now: monotonic seconds, as in all that follows.
        """
        self.leading.since = reach
        packets = self._streams.open_control()
        for target in self._unlogged.recent(OPENED_AT_ONCE):  # a first output would wait for its stream otherwise
            packets += self._streams.open(target)
        return [*_sent(packets), *self._advance(now)]

    def found(self, head: Head, now: float) -> list[Action]:
        """A checkpoint of this service is there: go on from it.

        Raises: ProgramVersionDiffers: it is of another version of the program.
        """
        assert not self._loaded
        assert self._machine.state is State.WAITING
        version = self.leading.version
        if version >= 0 and head.version not in {-1, version}:
            raise ProgramVersionDiffers.between(version, head.version)
        self._loaded, self._rows.delivered = True, head.position
        self._initial = head.initial if head.position == 0 else None
        for at, skip in self._skips.items():
            for each in answers(skip) if at > head.position else ():
                self._impulses.add(each)
        self.plan.first_is_kept = True
        load = on.Load(length=head.length, lsn=head.position, records=head.records, lanes=decode_lanes(head.lanes))
        for lane in load.lanes:
            for at, kept in enumerate(lane.kept):
                self._unlogged.add(lane.target, lane.floor + 1 + at, kept.item)
        return [Tell(load), LoadBlob(), *self._advance(now)]

    def nothing_found(self) -> list[Action]:
        """There is no checkpoint. Raises: ApplicationStateMissing: there must have been one."""
        control = self._streams.control
        welcome = control.welcome if control is not None else None
        if self._loaded or welcome is None or self._machine.state is not State.WAITING:
            return []
        if welcome.last_id >= 0:
            raise ApplicationStateMissing("the log has the application's first message, and no checkpoint is there")
        self._loaded = True
        return [Tell(on.Begin())]

    @property
    def may_be_first(self) -> bool:
        """Whether we lead, and the log does not have the application's first message."""
        control = self._streams.control
        return control is not None and control.welcome is not None and control.welcome.last_id < 0

    def ask_for_row(self, now: float) -> list[Action]:
        """Nothing was published in this incarnation, so where its rows begin is not known: ask for one, once."""
        control = self._streams.control
        if self.leading.asked or control is None or control.next_id <= 0:
            return []
        self.leading.asked = True
        control.offer(control.next_id, Emitted(What.ITEMS, encode_items([], with_destination=True)))
        return self._advance(now)

    def rows(self, rows: Iterable[tuple[int, Given]], now: float) -> list[Action]:
        """Rows of the topic, in the order of their positions, from `next_row` on."""
        came = list(rows)
        for _, row in came:
            if row.upto:
                self._unlogged.logged(row.target, row.upto)
            elif row.what != What.ITEMS:
                self._kept.take(row)
        self._rows.add(came)
        return self._advance(now)

    def took(self, effects: Iterable[on.Effect], now: float) -> list[Action]:
        """The machine wants this."""
        actions: list[Action] = []
        for effect in effects:
            match effect:
                case on.ForksEmitted():
                    self._unlogged.add_alike(effect.target, effect.position, effect.items)
                    self.counts.emitted(effect.target, effect.items[0], len(effect.items))
                case on.Emitted():
                    self._unlogged.add(effect.target, effect.position, effect.item)
                    self.counts.emitted(effect.target, effect.item)
                case on.ImpulseEmitted():
                    self._impulses.add(effect.rpc)
                    self.counts.impulses += 1
                case on.OutputRefused():
                    self.counts.refuse(effect.target, effect.reason)
                case on.InitialMade():
                    self._initial = effect.data
                case on.CheckpointWanted():
                    self.plan.wanted = True
                case on.CheckpointBegan():
                    actions.append(BeginFile(self._head(effect)))
                    self.plan.wanted = False
                case on.CheckpointPart():
                    actions.append(WriteFile(effect.data))
                case on.CheckpointEnded():
                    self.plan.under_way = False
                    actions.append(EndFile(goes_over=self.leading.going_over))
                case on.Differs():
                    self.counts.differed(_told(effect.difference))
                case _:
                    pass  # bytes were sent; a connection is made when there is something to send; the end is told apart
        return actions + self._advance(now)

    def kept(self, position: int, now: float) -> list[Action]:
        """A checkpoint of ours is durable."""
        self.plan.first_is_kept |= position == 0
        return self._advance(now)

    def went_over(self) -> list[Action]:
        """The checkpoint of its next version is durable: it leads, and what it emitted since may leave."""
        leading = self.leading
        assert leading.going_over
        leading.version, leading.next_version, leading.going_over = leading.next_version, -1, False
        return [Tell(on.Commit()), self._take_checkpoint()]

    def connected(self) -> list[Action]:
        """A connection to the primary stands."""
        return _sent(self._streams.connected())

    def lost(self) -> None:
        """It ended."""
        self._streams.lost()

    def received(self, kind: int, body: bytes, now: float) -> list[Action]:
        """A packet about streams came. Raises: CorruptFrame, LaneUnknown."""
        welcomed = self._streams.received(kind, body, now)
        for target, each in self._streams.lanes.items():
            self._unlogged.logged(target, each.connection.sender.committed_id)
        if self._streams.control is not None:
            self._impulses.logged(self._streams.control.connection.sender.committed_id)
        actions = self._welcomed(welcomed) if welcomed is not None else []
        return actions + self._advance(now)

    def unread(self, size: int, now: float) -> list[Action]:
        """So many bytes that were delivered wait for the application, beside what the kernel has."""
        was, self._rows.unread = self._rows.unread, size
        return self._advance(now) if size < UNREAD_BYTES_MAX <= was else []

    def due(self, now: float) -> list[Action]:
        """Give what is to be done now though nothing came."""
        return self._advance(now)

    def deadline(self, now: float) -> float | None:
        """When `due` may give something; None: never."""
        return self._streams.deadline(now)

    # ---- its parts -----------------------------------------------------------------------------------------------

    def _welcomed(self, each: Stream) -> list[Action]:
        """The log says for the first time what it has of a lane, or of what is in none."""
        target, welcome = each.target, each.welcome
        assert welcome is not None
        if target is None:
            self._initial = None if welcome.last_id >= 0 else self._initial
            return []
        if max(welcome.last_id, 0) < self._machine.lane(target).floor:
            each.welcome = None  # another owner has taken the stream since, whose rows are here already: we are fenced
            return []
        known = _noted(welcome)
        each.sent = known.position if known is not None else 0
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
            version=self.leading.next_version if self.leading.going_over else self.leading.version,
        )

    def _advance(self, now: float) -> list[Action]:
        """Do what may be done by now: deliver, lead, checkpoint, send."""
        actions = [*self._deliver(), *self._maybe_lead(), *self._maybe_checkpoint()]
        packets: list[bytes] = []
        if self.leading.since is not None:
            for target in self._unlogged.targets():
                if target not in self._streams.lanes:
                    packets += self._streams.open(target)
        if self.leading.may_send:
            self._offer_control()
            for target, each in self._streams.lanes.items():
                if target not in self._kept.full:
                    self._offer(target, each)
        return actions + _sent(packets + self._streams.packets(now))

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
            rpcs: list[Rpc | Packed] = []
            known: list[on.EffectKnown] = []
            size = 0
            while rows.waiting and rows.waiting[0][1].what != What.INITIAL and size < DELIVERED_BYTES:
                position, row = self._take_row()
                rpcs += delivered(row.items)
                size += len(row.items) + ITEM_BYTES
                if row.upto:
                    there = Expectation(row.upto, row.chain, row.shape, lsn=position)
                    known.append(on.EffectKnown(target=row.target, known=there))
            yield Tell(on.Confirmed(lsn=position))
            if rpcs:
                rows.unread += size
                yield Tell(on.Deliver(lsn=position, rpcs=tuple(rpcs)))
            yield from (Tell(each) for each in known)

    @property
    def _may_deliver(self) -> bool:
        """Whether there is room for what comes of the next rows.

        Who leads waits until what was emitted is logged. Others wait for rows that tell them so, as far as there is
        room for rows: behind that they may be.
        """
        if not self._machine.may_deliver or self.plan.under_way or self._rows.unread >= UNREAD_BYTES_MAX:
            return False
        return self._unlogged.bytes < UNLOGGED_BYTES_MAX or (self._rows.is_full and self.leading.since is None)

    def _take_row(self) -> tuple[int, Given]:
        position, row = self._rows.take()
        self.plan.delivered(row)
        return position, row

    def _maybe_lead(self) -> list[Action]:
        """It leads once it has all that was there when its replica became the primary."""
        control = self._streams.control
        # Without its first message, which is not logged yet, it has run nothing.
        leading = self.leading
        caught_up = 0 < self._rows.delivered >= (leading.since or 0) - 1
        free = self._machine.state is State.FOLLOWING and not self.plan.under_way and not leading.told
        if control is None or control.welcome is None or not caught_up or not free or leading.outside_held:
            return []
        leading.told = True
        if leading.next_version < 0:
            return [Tell(on.Lead())]
        leading.going_over = True
        self.plan.begin()
        return [Tell(on.Upgrade())]

    def _maybe_checkpoint(self) -> list[Action]:
        """Have it give a checkpoint when one is due."""
        if self._machine.state not in _CHECKPOINTED_IN or not self.plan.is_due:
            return []
        return [self._take_checkpoint()]

    def _take_checkpoint(self) -> Action:
        self.plan.begin()
        return Tell(on.TakeCheckpoint())

    def _offer_control(self) -> None:
        """Have the first message and impulses logged."""
        control = self._streams.control
        if control is None or control.next_id < 0:
            return
        if control.next_id == 0:
            if self._initial is None or not self.plan.first_is_kept:
                return
            control.offer(0, Emitted(What.INITIAL, self._initial))
            self._initial = None
        while self._impulses.waiting and len(control.connection.sender) < OFFERED_IMPULSES_MAX:
            group = self._impulses.take(GROUP_BYTES, self._machine.message_bytes_max, control.next_id)
            control.offer(control.next_id, Emitted(What.ITEMS, encode_items(group, with_destination=True)))

    def _offer(self, target: str, each: Stream) -> None:
        """Have items of a lane logged, as far as it is open."""
        if each.next_id < 0:
            return
        lane = self._machine.lane(target)
        first = lane.release_from
        if first is None:
            return
        begins, unsent = lane.items_from(max(first, each.sent + 1))
        each.sent = begins - 1 if unsent else each.sent
        at = 0
        runs = target != OTHERS and each.level >= Level.RUNS
        while at < len(unsent):
            group = _run(unsent, at, min(RUN_BYTES, self._machine.message_bytes_max)) if runs else []
            if group:
                items = pack(group)
            else:
                group = unsent[at : group_behind(unsent, at, GROUP_BYTES, self._machine.message_bytes_max)]
                items = encode_items(group, with_destination=target == OTHERS)
            at += len(group)
            each.sent += len(group)
            chain, shape = lane.chain_at(each.sent), shape_of(group[-1])
            row = Emitted(What.ITEMS, items, target, each.sent, chain, shape)
            each.offer(each.sent, row, each.sent.to_bytes(_POSITION_BYTES, "big") + chain + shape)

    def check_invariants(self) -> None:
        """Raise AssertionError when a bookkeeping is not exact."""
        self._rows.check_invariants()
        self._unlogged.check_invariants()
        self._impulses.check_invariants()


def _noted(welcome: StreamWelcome) -> Expectation | None:
    """Give what the log has of a lane; None: nothing.

    Raises: LaneUnknown where its stream stands at a row that was refused.
    """
    if welcome.last_id < 0:
        return None
    position, known = int.from_bytes(welcome.note[:_POSITION_BYTES], "big"), welcome.note[_POSITION_BYTES:]
    if position != welcome.last_id:
        raise LaneUnknown(
            f"the log has a lane up to position {welcome.last_id}, and its row up to {position} was refused"
        )
    return Expectation(position, known[:HASH_BYTES], known[HASH_BYTES:])


def _told(difference: Difference) -> str:
    """Give a difference as a sentence."""
    return f"to {difference.target or 'itself'}, at position {difference.position}: {difference.what.value}"


def _run(unsent: list[Rpc | Oversized], at: int, most: int) -> list[Rpc | Oversized]:
    """Give the forks from here on that go into one row as a run; none where a single one is next, or something else."""
    size = 0
    end = at
    for item in islice(unsent, at, None):
        if not isinstance(item, Rpc) or item.kind is not Kind.FORK or item.type is not MessageType.RPC:
            break  # as `runs.may_run` says, which is not called: this is done for each message
        size += RUN_ITEM_BYTES + len(item.body)
        if size > most and end > at:
            break
        end += 1
    return unsent[at:end] if end - at > 1 else []


def _sent(packets: list[bytes]) -> list[Action]:
    return [Packets(packets)] if packets else []
