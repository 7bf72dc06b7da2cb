"""The coordinator's machine towards one application: one process, one pair of connections, from its start to its end.

Why it exists: an application in any language takes part in a replicated service through two sockets. It gets logged
inputs and emits outputs, late and in its own time; on replay it emits them again. This machine says what each end may
send when (`states` has the table), numbers what comes back (`lanes`), and finds out when it is not what it was.

Guarantees:
  - What is not legal ends the application with an error that says what it sent; nothing of it or behind it counts.
    An RPC that is too long costs the application that item alone.
  - Nothing is delivered before it is confirmed, so whatever is emitted depends on confirmed inputs alone; nor is it
    told what an unconfirmed log knows of outputs. Where outputs are held (an upgrade), what is not confirmed may be
    delivered, and nothing leaves until `Commit`.
  - An item that is known to have had its effect is compared and dropped; what differs is reported, also where the
    policy lets the application live on.
  - A checkpoint names what was delivered before it and what was emitted before it; it is refused, and the application
    ended, if that is less than what the log says up to there.
  - No message follows one that may change the application's state while it is loading or taking a checkpoint.
  - A checkpoint's bytes pass through in pieces, both ways.

Does not: IO; log, send to others, or decide who leads (the owner does); name the services that targets are. An order
that the table does not allow is a bug of the owner: Internal. Imports base.
"""

from __future__ import annotations

from typing import Final, assert_never

from deathless.base.errors import Internal
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.check_bytes import xxhash64
from deathless.protocols.ambrosia.delivery import Delivery
from deathless.protocols.ambrosia.errors import ProtocolViolated
from deathless.protocols.ambrosia.events import Effect, Event, Socket
from deathless.protocols.ambrosia.holding import Holding
from deathless.protocols.ambrosia.lanes import Compare, Difference, Lane, Lanes, What
from deathless.protocols.ambrosia.messages import (
    SELF,
    AskCheckpoint,
    AttachTo,
    CheckpointEnds,
    CheckpointPart,
    CheckpointStarts,
    Initial,
    Item,
    Kind,
    MessageType,
    Oversized,
    Rpc,
    encode_delivery,
    encode_message,
)
from deathless.protocols.ambrosia.reader import StreamReader
from deathless.protocols.ambrosia.records import Check
from deathless.protocols.ambrosia.states import AFTER_CHECKPOINT, APPLICATION, ORDERS, Answer, Order, Sent, State


class ApplicationMachine:
    """One application.

    Args:
        name: of the instance; a call to it is one to itself.
        committer: id in every record, in [-2**31, 2**31).
        policy: for outputs that differ.
        stop_at_difference: a fatal difference ends the application; False: its lane alone is held.
        bounds: maximums.
        check: computes the check bytes of records.
        together: forks that are alike are told by one effect.
    """

    __slots__ = (
        "_bounds",
        "_delivery",
        "_holding",
        "_lanes",
        "_loading",
        "_name",
        "_opened",
        "_reader",
        "_stops",
        "_together",
        "state",
    )

    def __init__(
        self,
        *,
        name: str,
        committer: int,
        policy: Compare = Compare.BYTES,
        stop_at_difference: bool = True,
        bounds: Bounds | None = None,
        check: Check = xxhash64,
        together: bool = False,
    ) -> None:
        self.state = State.CONNECTING
        self._name = name
        self._stops = stop_at_difference
        self._together = together
        self._bounds = bounds or Bounds()
        self._reader = StreamReader(self._bounds)
        self._lanes = Lanes(policy, self._bounds)
        self._delivery = Delivery(committer, check)
        self._holding = Holding(self._bounds.held_bytes_max)
        self._opened: list[Socket] = []
        self._loading = 0  # bytes of the checkpoint that are still to come

    @property
    def may_deliver(self) -> bool:
        """Whether a confirmed record may be delivered now."""
        return Order.DELIVER in ORDERS[self.state]

    @property
    def may_read(self) -> bool:
        """Whether more is to be read from the application: False while it has more held than may be."""
        return not self._holding.is_full

    @property
    def message_bytes_max(self) -> int:
        """How long one message of the application may be, which a row of its owner's log has room for."""
        return self._bounds.message_bytes_max

    def lane(self, target: str) -> Lane:
        """Give what goes to a target; its own name and SELF are one."""
        return self._lanes.get(SELF if target == self._name else target)

    def check_invariants(self) -> None:
        """Raise AssertionError if the machine contradicts itself."""
        self._lanes.check_invariants()
        assert self._delivery.lsn <= self._delivery.confirmed or self._holding.on or self.state is State.GONE
        assert not self._loading or self.state in {State.LOADING, State.GONE}

    def handle(self, event: Event) -> list[Effect]:
        """Take what happened or was decided, and give what is to be done.

        Raises:
            Internal: the table does not allow this order now; a bug of the owner.
        """
        if self.state is State.GONE:
            return []  # what was decided before the owner heard of the end
        match event:
            case on.BytesReceived():
                return self._read(event.data)
            case on.SocketOpened():
                return self._open(event.socket)
            case on.SocketEnded() | on.Stop():
                return self._end(None)
            case on.Confirmed():
                self._delivery.confirmed = max(self._delivery.confirmed, event.lsn)
                return []
            case on.Expected() | on.EffectKnown() | on.Welcomed() | on.Parted():
                return self._hear(event)
            case on.LoadPart():
                return self._load_part(event.data)
            case _:
                return self._obey(event)

    # ------------------------------------------------------------ orders

    def _obey(
        self,
        event: on.Begin
        | on.Load
        | on.Deliver
        | on.DeliverInitial
        | on.TakeCheckpoint
        | on.Lead
        | on.HoldOutputs
        | on.TestUpgrade
        | on.Upgrade
        | on.Commit,
    ) -> list[Effect]:
        match event:
            case on.Begin():
                self._go(Order.BEGIN)
                return [self._control(MessageType.TAKE_BECOMING_PRIMARY_CHECKPOINT)]
            case on.Load():
                return self._load(event)
            case on.Deliver():
                self._require(bool(event.rpcs), "a record without messages")
                self._require(self._delivery.records > 0, "calls before INITIAL, which is the first record")
                return self._deliver(event.lsn, encode_delivery(event.rpcs))
            case on.DeliverInitial():
                self._require(self._delivery.records == 0, "INITIAL is the first record")
                return self._deliver(event.lsn, encode_message(MessageType.INITIAL, event.data))
            case on.TakeCheckpoint():
                self._go(Order.TAKE_CHECKPOINT)
                return [self._control(MessageType.TAKE_CHECKPOINT)]
            case on.Lead():
                return self._lead(with_checkpoint=event.with_checkpoint)
            case on.HoldOutputs():
                self._go(Order.HOLD_OUTPUTS)
                self._holding.on = True
                return []
            case on.TestUpgrade():
                self._require(not self._delivery.begun, "an upgrade is tested before anything is replayed")
                self._go(Order.TEST_UPGRADE)
                return [self._control(MessageType.UPGRADE_SERVICE)]
            case on.Upgrade():
                self._go(Order.UPGRADE)
                self._holding.on = True
                return [self._control(MessageType.UPGRADE_TAKE_CHECKPOINT)]
            case on.Commit():
                return self._commit()
            case _:
                assert_never(event)

    def _go(self, order: Order) -> None:
        after = ORDERS[self.state].get(order)
        self._require(after is not None, f"{order.name} in {self.state.name}")
        self.state = after or self.state

    def _require(self, holds: object, what: str) -> None:
        if not holds:
            raise Internal(f"an order that the AMBROSIA protocol does not allow: {what}")

    def _control(self, kind: MessageType) -> Effect:
        return on.Send(data=self._delivery.control(kind))

    def _load(self, event: on.Load) -> list[Effect]:
        self._require(self._lanes.is_new, "a checkpoint behind what is known of outputs")
        self._go(Order.LOAD)
        self._lanes.restore(event.lanes)
        self._loading = event.length
        record: Effect = on.Send(data=self._delivery.load(event.length, event.lsn, event.records))
        return [record, *self._loaded()]

    def _load_part(self, data: bytes) -> list[Effect]:
        self._require(self.state is State.LOADING and len(data) <= self._loading, "more of a checkpoint than it has")
        self._loading -= len(data)
        return [on.Send(data=data), *self._loaded()]

    def _loaded(self) -> list[Effect]:
        if self._loading:
            return []
        self.state = State.FOLLOWING
        return [on.Loaded()]

    def _deliver(self, lsn: int, payload: bytes) -> list[Effect]:
        self._go(Order.DELIVER)
        return [on.Send(data=self._delivery.deliver(lsn, payload, held=self._holding.on))]

    def _lead(self, *, with_checkpoint: bool) -> list[Effect]:
        self._require(not self._holding.on, "to lead while outputs are held")
        if with_checkpoint:
            self._go(Order.LEAD_WITH_CHECKPOINT)
            return [self._control(MessageType.TAKE_BECOMING_PRIMARY_CHECKPOINT)]
        self._go(Order.LEAD)
        return [self._control(MessageType.BECOMING_PRIMARY)]

    def _commit(self) -> list[Effect]:
        self._require(self._delivery.lsn <= self._delivery.confirmed, "to commit what was delivered unconfirmed")
        self._go(Order.COMMIT)
        return [effect for effect in self._holding.release() if not self._had_its_effect(effect)]

    def _had_its_effect(self, effect: Effect) -> bool:
        """Whether what was held has become known to have had its effect meanwhile."""
        return isinstance(effect, on.Emitted) and effect.position <= self.lane(effect.target).floor

    # ------------------------------------------------------------ what is known from outside

    def _hear(self, event: on.Expected | on.EffectKnown | on.Welcomed | on.Parted) -> list[Effect]:
        lane = self.lane(event.target)
        if isinstance(event, on.Expected | on.EffectKnown):
            # A checkpoint holds what was told; what is not confirmed may be gone when that is loaded.
            lsn, confirmed = event.known.lsn, self._delivery.confirmed
            self._require(lsn <= confirmed, f"outputs are known by lsn {lsn}, and {confirmed} is confirmed")
        match event:
            case on.Expected():
                return self._judge(lane.expect(event.known))
            case on.EffectKnown():
                return self._judge(lane.confirm(event.known))
            case on.Welcomed():
                return self._judge(lane.welcome(event.known))
            case on.Parted():
                lane.part()
                return []
            case _:
                assert_never(event)

    def _judge(self, found: list[Difference]) -> list[Effect]:
        """Tell what differs; what is fatal may end the application."""
        effects: list[Effect] = [on.Differs(difference=each) for each in found]
        fatal = next((each for each in found if each.fatal), None)
        if fatal is None or (not self._stops and fatal.what is not What.FEWER):
            return effects
        return effects + self._end(
            ProtocolViolated(
                f"output {fatal.position} to {fatal.target or 'itself'} is not what it was: {fatal.what.value}",
                remedy="outputs may depend on logged inputs and the state in checkpoints alone",
            )
        )

    # ------------------------------------------------------------ what the application sends

    def _open(self, socket: Socket) -> list[Effect]:
        self._require(self._opened == ([] if socket is Socket.RECEIVE else [Socket.RECEIVE]), f"{socket} opened")
        self._opened.append(socket)
        if socket is Socket.SEND:
            self.state = State.WAITING
        return []

    def _read(self, data: bytes) -> list[Effect]:
        self._require(self._opened, "bytes before the connection")
        effects: list[Effect] = []
        try:
            for item in self._reader.feed_together(data):
                effects += self._take_forks(item) if isinstance(item, list) else self._take(item)
                if self.state is State.GONE:
                    return effects
        except ProtocolViolated as error:
            effects += self._end(error)
        return effects

    def _take(self, item: Item) -> list[Effect]:
        match item:
            case AttachTo():
                self._judge_sent(Sent.ATTACH)
                target = item.destination
                return [] if target in {SELF, self._name} else [on.Attach(target=target)]
            case Rpc() | Oversized():
                return self._take_output(item)
            case AskCheckpoint():
                taken = self._judge_sent(Sent.ASK_CHECKPOINT)
                return [on.CheckpointWanted()] if taken is Answer.TAKEN else []
            case Initial():
                self._judge_sent(Sent.INITIAL)
                self.state = State.INITIALIZING
                return [on.InitialMade(data=item.data)]
            case CheckpointStarts():
                return self._take_checkpoint(item.length)
            case CheckpointPart():
                return [on.CheckpointPart(data=item.data)]
            case CheckpointEnds():
                self.state = AFTER_CHECKPOINT[self.state]
                return [on.CheckpointEnded()]
            case _:
                assert_never(item)

    def _judge_sent(self, sent: Sent) -> Answer:
        """Look up what becomes of it. Raises: ProtocolViolated, which ends the application."""
        answer = APPLICATION[self.state].get(sent)
        if answer is None:
            raise ProtocolViolated(f"{_TOLD[sent]} in state {self.state.name}, where it is not allowed")
        return answer

    def _take_output(self, item: Rpc | Oversized) -> list[Effect]:
        impulse = item.kind is Kind.IMPULSE
        self._judge_sent(Sent.IMPULSE if impulse else Sent.OUTPUT)
        if not impulse and not self._delivery.begun:
            raise ProtocolViolated(
                f"a {item.kind.name} before the first record: what is sent depends on logged messages, "
                "and an impulse alone may come from elsewhere"
            )
        target = SELF if item.destination == self._name else item.destination
        refusal = ""
        if isinstance(item, Oversized):
            refusal = f"a message of {item.size} bytes, at most {self._bounds.message_bytes_max}"
        elif impulse:
            return self._holding.pass_on(on.ImpulseEmitted(rpc=item))
        position, effects = 0, list[Effect]()
        if not impulse:
            lane = self._lanes.admit(target)
            position, differences = lane.emit(item)
            effects = self._judge(differences)
            if position <= lane.floor or lane.fatal:
                return effects
            effects += self._holding.pass_on(on.Emitted(target=lane.target, position=position, item=item))
        if refusal:
            refused = on.OutputRefused(target=target, position=position, item=item, reason=refusal)
            effects += self._holding.pass_on(refused)
        return effects

    def _take_forks(self, forks: list[Rpc]) -> list[Effect]:
        """Take forks that are alike, as one by one; together where there is nothing to compare them with."""
        first = forks[0]
        target = SELF if first.destination == self._name else first.destination
        lane = self._lanes.own(target)
        if lane is None or self._holding.on or not self._delivery.begun or not lane.may_take(len(forks)):
            effects: list[Effect] = []
            for item in forks:
                effects += self._take_output(item)
                if self.state is State.GONE:
                    break
            return effects
        self._judge_sent(Sent.OUTPUT)
        first_position = lane.emitted + 1
        lane.take(forks)
        if self._together:
            return [on.ForksEmitted(target=target, position=first_position, items=tuple(forks))]
        return [
            on.Emitted(target=target, position=position, item=item)
            for position, item in enumerate(forks, first_position)
        ]

    def _take_checkpoint(self, length: int) -> list[Effect]:
        self._judge_sent(Sent.CHECKPOINT)
        refused = self._judge(self._lanes.judge_barrier(self._delivery.lsn))
        if refused:
            return refused
        return [
            on.CheckpointBegan(
                length=length, lsn=self._delivery.lsn, records=self._delivery.records, lanes=self._lanes.snapshot()
            )
        ]

    def _end(self, error: ProtocolViolated | None) -> list[Effect]:
        self.state = State.GONE
        self._holding.release()
        return [on.End(error=error)]


_TOLD: Final = {
    Sent.ATTACH: "AttachTo",
    Sent.OUTPUT: "a call, fork or return",
    Sent.IMPULSE: "an impulse",
    Sent.ASK_CHECKPOINT: "TakeCheckpoint",
    Sent.INITIAL: "InitialMessage",
    Sent.CHECKPOINT: "a checkpoint that nobody asked for",
}
