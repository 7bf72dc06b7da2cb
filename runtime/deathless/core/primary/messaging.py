"""A primary's work beside its clients: own work, peers in and out, those who wait for results, activities, timers.

    core.tables.own_work    what turns send to their own service, into the next frame
    core.primary.receiving    who sends to us
    core.primary.inputs       streams: numbered input from outside
    core.primary.sending      whom we send to
    core.primary.attached     who waits for the result of an invocation
    core.primary.activities   what runs beside the primary
    core.primary.own_records  what of all this is logged

This only joins them: it says what the next frame holds of theirs, tells them when a frame is synced and when it is
confirmed, and routes their events. When a primary lets go, nothing here is waited for but its frames, and for a while
activities that must run at most once (core.primary.handover): the outbox, what is suspended, what is pending and the
timers are functions of the log's prefix, and the successor has them all.

Does not: form, write or prove frames (core.primary). Imports core, codec and base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, assert_never

import msgspec

from deathless.base.errors import (
    DeathlessError,
    InputNotKept,
    InvocationUnknown,
    NotParked,
    NotPrimary,
    NotUndelivered,
    NotUnsettled,
    Overloaded,
    StreamNotForgotten,
    StreamNotStopped,
)
from deathless.base.ids import SYSTEM_SESSION
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.base.times import Due
from deathless.codec.frames import Run
from deathless.codec.generations import NEWEST
from deathless.codec.messages import Kind, encode, encode_parked
from deathless.codec.peer_messages import (
    DISCARD,
    DROP_INPUT,
    FORGET_STREAM,
    REDELIVER,
    RETRY,
    RETRY_INPUT,
    RUN_INPUT,
    SETTLE,
    SKIP_INPUT,
    ActivityStart,
    Adopt,
    Crowd,
    Order,
    Retried,
    Target,
    encode_body,
)
from deathless.codec.wire import AdminReply, ReplyError, Type, decode_struct, error_reply, struct_packet
from deathless.core.effects import Effect, ExportSpans, ReportUnknown, Send
from deathless.core.events import (
    ActivityEnded,
    AttachReceived,
    Conn,
    FrameSynced,
    OfMessaging,
    OrderReceived,
    PeerCommitted,
    PeerHelloReceived,
    PeerLost,
    PeerReady,
    StreamBatchReceived,
    StreamHelloReceived,
)
from deathless.core.primary.activities import Activities
from deathless.core.primary.admission import Admission, Runs
from deathless.core.primary.attached import Attached
from deathless.core.primary.inputs import Inputs
from deathless.core.primary.overload import nobody
from deathless.core.primary.own_records import OwnRecords
from deathless.core.primary.receiving import Peering
from deathless.core.primary.sending import Outreach
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.own_work import OwnWork
from deathless.core.tables.peer_table import PeerTable
from deathless.core.tables.results import Results
from deathless.core.tables.stream_table import not_forgotten
from deathless.core.tables.undelivered import Undelivered
from deathless.core.tables.unknown_outcomes import UnknownOutcomes


def _nothing_pending() -> Sequence[ActivityStart]:
    return ()


def _holds_nothing(_invocation: int) -> bool:
    return False


_ANSWERS: Final[dict[str, type[DeathlessError]]] = {
    RETRY: NotParked,
    RUN_INPUT: InputNotKept,
    DROP_INPUT: InputNotKept,
    FORGET_STREAM: StreamNotForgotten,
}
"""Orders that are answered with what became of them: how one is refused while another one is on its way."""


def _nothing_retried(_parked: int) -> Retried:
    return Retried(0, error_reply(NotParked.code, NotParked.__name__, _text(NotParked)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What the core reads of the shard for messaging; the engine gives it, the shard alone changes it.

    Attributes:
        activities: all that have no outcome, in the order in which they were asked for.
        crowd: how much is suspended.
        holds: has this invocation begun and not ended?
        retried: what became of the last order to run again what is parked at this lsn, once it is executed.
        due: when a time record has something to do.
        keys_floor_us: time of the latest UUIDv7 ever forgotten.
        level: format level of the log (codec.generations).
    """

    outbox: Outbox = field(default_factory=Outbox)
    peers: PeerTable = field(default_factory=lambda: PeerTable(Limits()))
    results: Results = field(default_factory=lambda: Results(Limits()))
    unknown: UnknownOutcomes = field(default_factory=lambda: UnknownOutcomes(Limits()))
    undelivered: Undelivered = field(default_factory=Undelivered)
    activities: Callable[[], Sequence[ActivityStart]] = _nothing_pending
    crowd: Callable[[], Crowd] = nobody
    holds: Callable[[int], bool] = _holds_nothing
    retried: Callable[[int], Retried] = _nothing_retried
    due: Callable[[], Due] = Due
    keys_floor_us: Callable[[], int] = int
    level: Callable[[], int] = lambda: NEWEST


class Messaging:
    """The parts of one primary; arguments as theirs."""

    def __init__(
        self,
        *,
        tables: Tables,
        limits: Limits,
        safeguards: Safeguards,
        admission: Admission,
        deaths: dict[tuple[int, int], int],
        activity_processes: int | None = None,
    ) -> None:
        self.records = OwnRecords()
        self.own = OwnWork(outbox=tables.outbox, limits=limits, deaths=deaths)
        self.peering = Peering(
            peers=tables.peers,
            records=self.records,
            safeguards=safeguards,
            stands=admission.peer_stands,
            welcome=admission.welcome_peer,
        )
        self.outreach = Outreach(outbox=tables.outbox, peers=tables.peers, limits=limits, safeguards=safeguards)
        self.attached = Attached(results=tables.results, holds=tables.holds, limits=limits)
        self.activities = Activities(
            limits=limits, safeguards=safeguards, records=self.records, processes=activity_processes
        )
        self.inputs = Inputs(
            admission=admission, records=self.records, limits=limits, safeguards=safeguards, level=tables.level
        )
        self._tables = tables
        self._limits = limits
        self._admission = admission
        self._deaths = deaths
        self._killers: list[int] = []  # invocations to be set aside before time goes on (I11)
        self._retrying: set[int] = set()  # lsns of parked messages and refused inputs whose order is on its way
        self._ended: list[ActivityEnded] = []  # while a switchover was under way that may be called off

    def begin(self, now: float, elapsed_us: int) -> list[Effect]:
        """We lead: go on where the log ends.

        Deaths that are told later count for the next primary: a turn that ends a follower has passed here.
        """
        most = self._limits.deaths_before_parking
        self._killers = [
            invocation
            for (session, invocation), deaths in self._deaths.items()
            if session == SYSTEM_SESSION and deaths >= most and self._tables.holds(invocation)
        ]
        return [*self.outreach.begin(), *self.activities.begin(self._tables.activities(), now, elapsed_us)]

    # ---- frames ----------------------------------------------------------------------------------------------

    def waiting(self, *, staying: bool, now: float) -> bool:
        """Is there anything for a frame? What a successor finds in the log is no reason to stay."""
        if self.records.waiting or self._killers:
            return True
        return staying and (self.own.waiting or self.outreach.trims_due(now))

    @property
    def quiet(self) -> bool:
        """Has the next frame nothing of all this, and does nothing follow from its confirmation?"""
        return not (
            self.records.waiting
            or self.records.unconfirmed
            or self._killers
            or self.own.waiting
            or self.outreach.trimming
            or self.activities.holding
        )

    def set_aside(self) -> Runs:
        """Give what a frame begins with: a turn that nobody sent, and that ended its process, is not run (I11)."""
        return [
            (Run(SYSTEM_SESSION, 0, 0, 1), (encode_parked(SYSTEM_SESSION, invocation, b""),))
            for invocation in self._killers
        ]

    def fill(self, count: int, *, staying: bool) -> Runs:
        """Give the runs of the next frame, clients' among them.

        A quarter of it is for our own records, and of the rest half for our own work, if there is any (I10). Where one
        large message leaves no room for another, the next frame begins with that other.

        Args:
            count: messages that the frame holds already.
            staying: this primary does not let go; then our own work goes on.
        """
        limits = self._limits
        quarter = max(1, limits.frame_messages_max // 4)
        trims = self.outreach.take_trims(quarter) if staying else []
        runs: Runs = [(Run(SYSTEM_SESSION, 0, 0, 1), (trim,)) for trim in trims]
        runs += self.records.take(quarter, limits.frame_bytes_max // 4)
        count += len(runs)
        size = _bytes_of(runs)
        if not staying or not self.own.waiting:
            return runs + self._admission.take(count)
        most = min(limits.frame_messages_max, self._admission.count_max)
        if self.own.passed_over:
            ours = self.own.take(max(1, most // 2), limits.frame_bytes_max // 2, alone=True)
            count += sum(len(messages) for _, messages in ours)
            return runs + ours + self._admission.take(count, size + _bytes_of(ours))
        admitted = self._admission.take(count, half=True)
        theirs = sum(len(messages) for _, messages in admitted)
        size += _bytes_of(admitted)
        room = max(1, min(limits.frame_messages_max - count, self._admission.count_max) - theirs)
        return runs + admitted + self.own.take(room, limits.frame_bytes_max - size, alone=size == 0)

    def frame_refused(self, now: float) -> list[Effect]:
        """There was no room for the frame: nothing of it ran."""
        self.records.frame_refused()
        self.outreach.frame_refused(now)
        return self.inputs.frame_refused()

    def frame_synced(self, event: FrameSynced) -> None:
        """The frame ran and is durable."""
        self.records.frame_synced(event.frame.last_lsn)
        self.outreach.frame_synced()
        self.inputs.frame_synced(event.inputs)
        self._killers = [invocation for invocation in self._killers if self._tables.holds(invocation)]
        self.attached.frame_synced(event.finished)

    def frame_confirmed(
        self, event: FrameSynced, out: dict[Conn, list[bytes]], now: float, elapsed_us: int
    ) -> list[Effect]:
        """A proof covers the frame: what it brought may leave (I1)."""
        self.attached.frame_confirmed(event.finished, out)
        self.inputs.frame_confirmed(event.inputs, out)
        effects = self.records.frame_confirmed(event.frame.last_lsn)
        if event.sent:
            effects += self.outreach.frame_confirmed(event.sent, now)
        if event.starts or event.stops:
            effects += self.activities.frame_confirmed(event.starts, event.stops, now, elapsed_us)
        if event.spans:
            effects.append(ExportSpans(event.spans))
        if event.unknown:
            effects.append(ReportUnknown(event.unknown))
        return effects

    # ---- events ----------------------------------------------------------------------------------------------

    def handle(
        self, event: OfMessaging, *, staying: bool, writing: bool, confirmed_lsn: int, synced_lsn: int, now: float
    ) -> list[Effect]:
        """Take one event in; `writing`: a frame is on its way to the log."""
        match event:
            case PeerCommitted(target, through):
                return self.outreach.committed(target, through, now)
            case PeerHelloReceived(conn, said):
                if not staying:
                    return self.peering.leaving(conn)
                return self.peering.hello_received(conn, said, confirmed_lsn)
            case StreamHelloReceived(conn, hello):
                return self.inputs.hello_received(conn, hello) if staying else self.inputs.leaving(conn, hello)
            case StreamBatchReceived(conn, batch):
                return self.inputs.batch_received(conn, batch) if staying else []
            case PeerReady(target, session, next_position, history):
                return self.outreach.ready(target, session, next_position, now, history)
            case PeerLost(target):
                self.outreach.lost(target)
                return []
            case AttachReceived(conn, ids, invocations):
                return self.attached.received(conn, ids, invocations, synced_lsn, writing=writing)
            case ActivityEnded(invocation, operation, attempt, reply):
                if staying:
                    return self.activities.ended(invocation, operation, attempt, reply)
                if len(self._ended) < self._limits.activities_max:
                    self._ended.append(event)
                return []
            case OrderReceived():
                return self._ordered(event) if staying else [_told(event, NotPrimary)]
            case _:
                assert_never(event)

    def _ordered(self, event: OrderReceived) -> list[Effect]:
        """Log an operator's order; it is answered once that is confirmed."""
        record = event.record
        if isinstance(record, Adopt):
            target = Target(record.service, record.shard)
            if self.outreach.adopting(target):
                return [_told(event, Overloaded)]

            def adopted() -> Sequence[Effect]:
                return [
                    *self.peering.adopted(target, anew=record.anew),
                    *self.outreach.adopted(target),
                    _told(event, None),
                ]

            self.records.add(encode(Kind.ADOPT, args=encode_body(record)), adopted)
            return self.outreach.adopt_ordered(target)
        if record.command in _ANSWERS:
            return self._retry(event, record)
        error: type[DeathlessError] | None
        if record.command == SETTLE:
            error = None if self._tables.unknown.holds(record.invocation, record.operation) else NotUnsettled
        elif record.command in (RETRY_INPUT, SKIP_INPUT):
            seq = record.operation if record.command == SKIP_INPUT else None
            error = None if self._admission.streams.stands_at(record.invocation, seq) else StreamNotStopped
        elif record.command in (REDELIVER, DISCARD):
            error = None if self._tables.undelivered.holds(record.invocation) else NotUndelivered
        else:
            error = None if self._tables.holds(record.invocation) else InvocationUnknown
        self.records.add(encode(Kind.ORDER, args=encode_body(record)), lambda: [_told(event, error)])
        return []

    def _retry(self, event: OrderReceived, order: Order) -> list[Effect]:
        """Log an order about a parked message, a refused input or a stream; it is answered with what became of it.

        One at a time for each.
        """
        parked = order.invocation
        if parked in self._retrying:
            return [_told(event, _ANSWERS[order.command])]
        if order.command == FORGET_STREAM and (why := self.inputs.forget(parked)):
            return [_retried(event, order, not_forgotten(why))]
        self._retrying.add(parked)

        def executed() -> Sequence[Effect]:
            self._retrying.discard(parked)
            self.inputs.forgotten(parked)
            return [_retried(event, order, self._tables.retried(parked))]

        self.records.add(encode(Kind.ORDER, args=encode_body(order)), executed)
        return []

    def differing(self) -> set[Target]:
        """Give the peers with which we have not one history, in either direction, as far as it shows."""
        return self.outreach.differing() | self.peering.differing()

    def connection_lost(self, conn: Conn) -> None:
        """Forget a connection."""
        self.peering.connection_lost(conn)
        self.inputs.connection_lost(conn)
        self.attached.connection_lost(conn)

    # ---- time ------------------------------------------------------------------------------------------------

    def timer_fired(self, now: float, *, staying: bool) -> list[Effect]:
        """Do what is due; outcomes that came while we were about to let go are logged when we stay after all."""
        effects: list[Effect] = []
        if staying:
            ended, self._ended = self._ended, []
            for event in ended:
                effects += self.activities.ended(event.invocation, event.operation, event.attempt, event.reply)
        return [*effects, *self.outreach.timer_fired(now), *self.activities.timer_fired(now)]

    def deadline(self) -> float | None:
        """When timer_fired is due next."""
        one, other = self.outreach.deadline(), self.activities.deadline()
        if one is None or other is None:
            return other if one is None else one
        return min(one, other)

    def check_invariants(self) -> None:
        """Raise AssertionError when an `Invariant:` of a part is broken."""
        self.peering.check_invariants()
        self.inputs.check_invariants()
        self.outreach.check_invariants()
        self.attached.check_invariants()
        self.activities.check_invariants()


def _bytes_of(runs: Runs) -> int:
    return sum(len(message) for _, messages in runs for message in messages)


def _told(event: OrderReceived, error: type[DeathlessError] | None) -> Send:
    """The answer to a tool: done, or why it can't be."""
    code, result = (
        ("", b'{"done":true}') if error is None else (error.code, msgspec.json.encode({"error": _text(error)}))
    )
    return Send(event.conn, struct_packet(Type.ADMIN_REPLY, AdminReply(event.request, code, result)))


def _retried(event: OrderReceived, order: Order, retried: Retried) -> Send:
    """The answer to a RETRY: the new invocation, or why there is none; to a RUN_INPUT also a refusal."""
    if retried.invocation:
        code, result = "", msgspec.json.encode({"done": True, "invocation": retried.invocation})
    else:
        told = decode_struct(ReplyError, retried.reason[1:])
        if order.command == RUN_INPUT and told.code != InputNotKept.code:
            why = f"{told.type}: {told.text}"
            code, result = "", msgspec.json.encode({"done": False, "code": told.code, "why": why})
        else:
            code, result = told.code, msgspec.json.encode({"error": told.text})
    return Send(event.conn, struct_packet(Type.ADMIN_REPLY, AdminReply(event.request, code, result)))


def _text(error: type[DeathlessError]) -> str:
    return (error.__doc__ or "").strip()
