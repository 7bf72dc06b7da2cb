"""The AMBROSIA client protocol, section by section: what its page says is what both of our ends do.

The page is "Client Protocol for AMBROSIA network participants". Each test names a section of it and walks what stands
there, with the coordinator's machine at one end and the reference binding at the other; what went over both sockets is
read off the bytes. Where the original's sources say more than the page, or something else, the test says so.

Does not: test what happens in between (kills, cuts, differences): tests/unit/deathless/protocols does.
"""

from __future__ import annotations

import struct

import pytest

from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.events import Effect, Event, Socket
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.messages import (
    CheckpointEnds,
    CheckpointPart,
    Item,
    Kind,
    Rpc,
    make_call,
    make_return,
)
from deathless.protocols.ambrosia.reader import StreamReader
from deathless.protocols.ambrosia_binding import binding as bound
from deathless.protocols.ambrosia_binding.binding import Binding
from deathless.protocols.ambrosia_binding.encoding import Answer, Call, CallType, Outcome, messages_of
from deathless.protocols.ambrosia_binding.errors import NotAllowedNow

STATE = b"the state as it was"
CALL = make_call("", 5, Kind.FORK, b"arguments")
ASYNC = make_call("", 6, Kind.ASYNC, b"arguments", name="bank", sequence=11)
IMPULSE = make_call("", 7, Kind.IMPULSE, b"arguments")


class Pair:
    """Both ends, joined by two sockets that bring everything at once."""

    def __init__(self) -> None:
        self.machine = ApplicationMachine(name="me", committer=0x11223344)
        self.binding = Binding("me")
        self.events: list[bound.Event] = []
        self.effects: list[Effect] = []
        self.received: list[str] = []  # names of messages, as the application got them
        self.sent: list[str] = []  # as it sent them
        self.state = STATE
        self.reader = StreamReader(Bounds())
        self.tell(on.SocketOpened(socket=Socket.RECEIVE), on.SocketOpened(socket=Socket.SEND), on.Confirmed(lsn=100))

    def tell(self, *events: Event) -> None:
        """Tell the machine, and let both ends talk until they rest."""
        for event in events:
            effects = self.machine.handle(event)
            self.effects += effects
            data = b"".join(effect.data for effect in effects if isinstance(effect, on.Send))
            if not isinstance(event, on.LoadPart):
                self.note(data)
            self.binding.receive(data)
            self.run()

    def run(self) -> None:
        """Let the application do what it has to, and the machine hear of it."""
        while (event := self.binding.next_event()) is not None:
            self.events.append(event)
            if isinstance(event, bound.FirstStart):
                self.binding.initial(b"hello")
            if isinstance(event, bound.UpgradeNow):
                self.state = b"converted: " + STATE
            if isinstance(event, bound.FirstStart | bound.SaveDue):
                self.binding.begin_save(len(self.state))
                self.binding.save(self.state)
        data = self.binding.outgoing()
        if data:
            self.sent += [name_of(item) for item in self.reader.feed(data) if not isinstance(item, CheckpointPart)]
            self.effects += self.machine.handle(on.BytesReceived(data=data))

    def note(self, data: bytes) -> None:
        """Write down which records the application gets."""
        while data:
            size, sequence = struct.unpack_from("<i", data, 4)[0], struct.unpack_from("<q", data, 16)[0]
            names = [tag.name for tag, _ in messages_of(data[24:size])]
            self.received.append(f"{'+'.join(names)} {sequence}")
            data = data[size:]

    def recover(self) -> None:
        """Load a checkpoint, and replay two records."""
        self.tell(on.Load(length=len(STATE), lsn=3, records=8), on.LoadPart(data=STATE))
        self.tell(on.Deliver(lsn=4, rpcs=(CALL,)), on.Deliver(lsn=6, rpcs=(CALL, IMPULSE)))

    @property
    def at(self) -> str:
        """State of the machine."""
        return self.machine.state.name

    def checkpoint(self) -> bytes:
        """The checkpoint that the coordinator got; it is whole."""
        assert isinstance(self.effects[-1], on.CheckpointEnded)
        return b"".join(effect.data for effect in self.effects if isinstance(effect, on.CheckpointPart))


def name_of(item: Item) -> str:
    return "end of it" if isinstance(item, CheckpointEnds) else type(item).__name__


RECOVERED = ["CHECKPOINT -2", "RPC 8", "RPC+RPC 9"]


# ---------------------------------------------------------------- "Message Formats"


def test_message_formats_a_log_record_begins_with_a_header_of_24_bytes() -> None:
    pair = Pair()
    effects = pair.machine.handle(on.Begin())
    assert isinstance(effects[0], on.Send)
    data = effects[0].data
    assert data[:8].hex() == "44332211" + "1a000000"  # committer id, size with the header
    assert data[16:].hex() == "ff" * 8 + "020b"  # sequence id -1; size 1, type 11


def test_message_formats_sequence_ids_are_in_order_but_for_control_records() -> None:
    pair = Pair()
    pair.recover()
    pair.tell(on.Lead(), on.Deliver(lsn=7, rpcs=(CALL,)), on.TakeCheckpoint(), on.Deliver(lsn=8, rpcs=(CALL,)))
    # The sources: a checkpoint's record has -2, which the page does not say.
    assert pair.received == [*RECOVERED, "BECOMING_PRIMARY -1", "RPC 10", "TAKE_CHECKPOINT -1", "RPC 11"]


def test_message_formats_a_checkpoints_bytes_follow_its_message_without_a_header() -> None:
    pair = Pair()
    record, loaded = pair.machine.handle(on.Load(length=0, lsn=0, records=0))
    assert isinstance(record, on.Send) and isinstance(loaded, on.Loaded)
    assert record.data[4:8].hex() == "1b000000"  # the bytes that follow do not count
    pair = Pair()
    pair.tell(on.Load(length=len(STATE), lsn=0, records=0), on.LoadPart(data=STATE[:3]), on.LoadPart(data=STATE[3:]))
    assert pair.events[0] == bound.RestoreBegins(len(STATE))
    assert b"".join(e.data for e in pair.events if isinstance(e, bound.RestorePart)) == STATE


def test_message_formats_incoming_rpcs_of_each_type_arrive_as_they_were_sent() -> None:
    pair = Pair()
    pair.recover()
    returned = make_return("", Kind.VALUE, b"result", name="bank", sequence=9)
    pair.tell(on.Deliver(lsn=7, rpcs=(CALL, ASYNC, IMPULSE, returned)))
    assert pair.events[-4:] == [
        Call(5, CallType.FORKED, b"arguments"),
        Call(6, CallType.AWAITED, b"arguments", "bank", 11),  # name and number: the sources alone say so
        Call(7, CallType.IMPULSE, b"arguments"),
        Answer(Outcome.VALUE, "bank", 9, b"result"),  # likewise; the page calls its first byte reserved
    ]


def test_message_formats_an_outgoing_rpc_is_an_incoming_one_behind_its_destination() -> None:
    pair = Pair()
    pair.recover()
    pair.binding.fork(5, b"arguments", to="bank")
    pair.binding.fork(5, b"arguments")
    pair.run()
    to_bank, to_self = [effect.item for effect in pair.effects if isinstance(effect, on.Emitted)]
    assert isinstance(to_bank, Rpc) and isinstance(to_self, Rpc)
    assert to_bank.body == to_self.body == CALL.body
    assert (to_bank.destination, to_self.destination) == ("bank", "")


# ---------------------------------------------------------------- "Starting up"


def test_starting_up_for_the_first_time() -> None:
    pair = Pair()
    pair.tell(on.Begin())
    assert pair.received == ["TAKE_BECOMING_PRIMARY_CHECKPOINT -1"]
    assert pair.sent == ["Initial", "CheckpointStarts", "end of it"]
    assert pair.checkpoint() == STATE
    assert pair.at == "LEADING" and pair.binding.primary
    # "will simply be echoed back"
    pair.tell(on.DeliverInitial(lsn=1, data=b"hello"))
    assert pair.received[-1] == "INITIAL_MESSAGE 0"
    assert pair.events[-1] == bound.InitialCame(b"hello")


def test_starting_up_recovering_standalone() -> None:
    pair = Pair()
    pair.recover()
    pair.tell(on.Lead(with_checkpoint=True))
    assert pair.received == [*RECOVERED, "TAKE_BECOMING_PRIMARY_CHECKPOINT -1"]
    assert pair.sent == ["CheckpointStarts", "end of it"]
    assert pair.checkpoint() == STATE
    assert pair.at == "LEADING" and pair.binding.primary


def test_starting_up_recovering_in_active_active() -> None:
    pair = Pair()
    pair.recover()
    pair.tell(on.Lead())
    assert pair.received == [*RECOVERED, "BECOMING_PRIMARY -1"]
    assert pair.sent == []
    assert pair.at == "LEADING" and pair.binding.primary
    assert pair.events[-1] == bound.BecamePrimary()


def test_starting_up_recovering_and_upgrading() -> None:
    pair = Pair()
    pair.recover()
    pair.tell(on.Upgrade())
    assert pair.received == [*RECOVERED, "UPGRADE_TAKE_CHECKPOINT -1"]
    assert pair.events[-2:] == [bound.UpgradeNow(test=False), bound.SaveDue()]
    assert pair.checkpoint() == b"converted: " + STATE
    assert pair.at == "SWITCHED" and pair.binding.primary
    pair.tell(on.Commit())
    # The sources: a standalone upgrade goes on with a TakeCheckpoint at once.
    pair.tell(on.TakeCheckpoint())
    assert pair.received[-1] == "TAKE_CHECKPOINT -1"
    assert pair.at == "LEADING"


def test_starting_up_a_repro_test() -> None:
    pair = Pair()
    pair.recover()
    assert pair.received == RECOVERED
    assert not pair.binding.primary and pair.sent == []


def test_starting_up_an_upgrade_test() -> None:
    pair = Pair()
    pair.tell(on.Load(length=len(STATE), lsn=3, records=8), on.LoadPart(data=STATE), on.TestUpgrade())
    pair.tell(on.Deliver(lsn=4, rpcs=(CALL,)))
    assert pair.received == ["CHECKPOINT -2", "UPGRADE_SERVICE -1", "RPC 8"]
    assert pair.events[-2:] == [bound.UpgradeNow(test=True), Call(5, CallType.FORKED, b"arguments")]
    assert pair.state == b"converted: " + STATE
    assert not pair.binding.primary and pair.sent == []


# ---------------------------------------------------------------- "Normal processing"


def test_normal_processing_is_any_mix_of_rpcs_batches_and_take_checkpoint() -> None:
    pair = Pair()
    pair.recover()
    pair.tell(on.Lead())
    for lsn, rpcs in [(10, (CALL,)), (20, (CALL, CALL)), (30, (CALL,))]:
        pair.tell(on.Deliver(lsn=lsn, rpcs=rpcs), on.TakeCheckpoint())
    assert pair.sent == ["CheckpointStarts", "end of it"] * 3
    assert len([event for event in pair.events if isinstance(event, Call)]) == 3 + 4


def test_normal_processing_nothing_is_processed_while_a_checkpoint_is_loaded_or_taken() -> None:
    pair = Pair()
    pair.tell(on.Load(length=len(STATE), lsn=3, records=8))
    loading = pair.machine.may_deliver
    pair.tell(on.LoadPart(data=STATE), on.Deliver(lsn=4, rpcs=(CALL,)))
    pair.machine.handle(on.TakeCheckpoint())
    assert (loading, pair.machine.may_deliver) == (False, False)


def test_normal_processing_a_primary_may_ask_for_a_checkpoint() -> None:
    pair = Pair()
    pair.recover()
    pair.tell(on.Lead())
    pair.binding.ask_save()
    pair.run()
    assert pair.effects[-1] == on.CheckpointWanted()


# ---------------------------------------------------------------- "Receive logged replay messages"


def test_replay_a_replayed_impulse_may_fork_and_may_not_send_impulses() -> None:
    pair = Pair()
    pair.recover()
    pair.binding.fork(8, b"follows from the impulse")
    with pytest.raises(NotAllowedNow):
        pair.binding.impulse(7, b"")
    pair.run()
    assert [type(effect) for effect in pair.effects if isinstance(effect, on.Emitted | on.End)] == [on.Emitted]


def test_replay_an_impulse_that_a_binding_sends_nevertheless_ends_the_application() -> None:
    pair = Pair()
    pair.recover()
    pair.binding.primary = True  # a binding that does not know better
    pair.binding.impulse(7, b"")
    pair.run()
    [end] = [effect for effect in pair.effects if isinstance(effect, on.End)]
    assert "an impulse in state FOLLOWING" in str(end.error)


# ---------------------------------------------------------------- "Attach-before-send protocol"


def test_attach_before_send_once_for_each_destination_but_oneself() -> None:
    pair = Pair()
    pair.recover()
    for to in ("bank", "", "shop", "me", "bank"):
        pair.binding.fork(5, b"", to=to)
    pair.run()
    assert pair.sent == ["AttachTo", "Rpc", "Rpc", "AttachTo", "Rpc", "Rpc", "Rpc"]
    assert [effect.target for effect in pair.effects if isinstance(effect, on.Attach)] == ["bank", "shop"]


# ---------------------------------------------------------------- "Active/Active"


def test_active_active_a_checkpointing_secondary_goes_on_recovering() -> None:
    pair = Pair()
    pair.recover()
    pair.tell(on.TakeCheckpoint())
    assert pair.checkpoint() == STATE
    pair.tell(on.Deliver(lsn=7, rpcs=(CALL,)), on.TakeCheckpoint(), on.Deliver(lsn=8, rpcs=(CALL,)))
    assert pair.received == [*RECOVERED, "TAKE_CHECKPOINT -1", "RPC 10", "TAKE_CHECKPOINT -1", "RPC 11"]
    assert not pair.binding.primary and pair.at == "FOLLOWING"


def test_active_active_three_messages_tell_that_the_instance_is_primary() -> None:
    for order in (on.Lead(), on.Lead(with_checkpoint=True), on.Upgrade()):
        pair = Pair()
        pair.recover()
        before = pair.binding.primary
        pair.tell(order)
        assert (before, pair.binding.primary) == (False, True)
        pair.binding.impulse(7, b"from outside")
        pair.run()
        assert pair.at != "GONE"


# ---------------------------------------------------------------- "App Upgrade"


def test_app_upgrade_that_fails_leaves_nothing_behind() -> None:
    pair = Pair()
    pair.recover()
    pair.tell(on.Upgrade())
    pair.binding.impulse(7, b"of the new code")
    pair.run()
    pair.tell(on.Stop())
    assert not [effect for effect in pair.effects if isinstance(effect, on.ImpulseEmitted | on.Emitted)]
