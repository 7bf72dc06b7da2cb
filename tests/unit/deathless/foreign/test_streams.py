"""Each lane has a stream of its own, which every replica calls the same."""

from deathless.base.foreign.binding import SOURCE
from deathless.codec.streams.packets import StreamCommit, StreamHello, StreamWelcome
from deathless.codec.wire import PREFIX, Type, decode_struct, struct_packet
from deathless.core.client.stream_sender import State
from deathless.foreign.rows import Emitted, What
from deathless.foreign.streams import CONTROL, Streams, number_of


def streams() -> Streams:
    return Streams(lambda: bytes(16))


def opened(packets: list[bytes]) -> list[int]:
    """Numbers of the streams that packets open."""
    return [decode_struct(StreamHello, each[PREFIX.size :]).stream for each in packets]


def welcome(number: int, next_seq: int = 1) -> bytes:
    """Body of a welcome; its session is its number."""
    told = StreamWelcome(SOURCE, number, bytes(16), number, 1, next_seq, ended=False, note=b"")
    return struct_packet(Type.STREAM_WELCOME, told)[PREFIX.size :]


def test_number_of_a_lane_is_the_same_for_ever() -> None:
    """It stands in logs."""
    assert number_of("bank/alice") == 122514401916964633
    assert number_of("") == 8238016292129134938
    assert CONTROL not in {number_of(""), number_of("bank/alice")}


def test_streams_are_opened_as_soon_as_a_connection_stands() -> None:
    """Those that are opened later at once."""
    found = streams()
    assert found.open_control() == []
    assert opened(found.connected()) == [CONTROL]
    assert opened(found.open("bank")) == [number_of("bank")]
    found.lost()
    assert found.open("shop") == []
    assert opened(found.connected()) == [CONTROL, number_of("bank"), number_of("shop")]


def test_first_welcome_of_each_is_told_and_nothing_is_offered_before() -> None:
    """Later ones change nothing of it; a stream of nobody here is passed over."""
    found = streams()
    found.open("bank")
    found.open("shop")
    found.connected()
    bank = found.lanes["bank"]
    assert bank.next_id == -1
    assert found.received(Type.STREAM_WELCOME, welcome(4711), 0.0) is None
    assert found.received(Type.STREAM_WELCOME, welcome(number_of("bank"), next_seq=8), 0.0) is bank
    assert bank.next_id == 7
    assert found.lanes["shop"].next_id == -1
    found.lost()
    found.connected()
    assert found.received(Type.STREAM_WELCOME, welcome(number_of("bank"), next_seq=8), 0.0) is None


def test_what_is_offered_is_sent_until_it_is_committed() -> None:
    """A commit is of one of them."""
    found = streams()
    found.open("bank")
    found.connected()
    found.received(Type.STREAM_WELCOME, welcome(number_of("bank")), 0.0)
    found.lanes["bank"].offer(3, Emitted(What.ITEMS, b"", "bank", 3))
    assert len(found.packets(0.0)) == 1
    assert found.packets(0.0) == []
    assert (found.is_fenced, found.problem, found.deadline(0.0)) == (False, "", None)
    for session, left in ((1, 1), (number_of("bank"), 0)):
        commit = struct_packet(Type.STREAM_COMMIT, StreamCommit(session, 5, ended=False))
        found.received(Type.STREAM_COMMIT, commit[PREFIX.size :], 0.0)
        assert len(found.lanes["bank"].connection.sender) == left
    assert found.lanes["bank"].connection.sender.state is State.OPEN
