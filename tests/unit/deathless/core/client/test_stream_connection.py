"""A stream is opened with each connection, and again once it was refused; one that is fenced never."""

from deathless.base.errors import Overloaded, StreamFenced
from deathless.codec.streams.packets import StreamHello, StreamRefused, StreamWelcome
from deathless.codec.streams.records import StreamKey
from deathless.codec.wire import PREFIX, decode_struct
from deathless.core.client.stream_connection import AGAIN_S, StreamConnection
from deathless.core.client.stream_sender import State, StreamSender

KEY = StreamKey("flights", 3)
NONCE = bytes(16)


def made() -> StreamConnection:
    return StreamConnection(StreamSender(KEY, NONCE))


def refusal(code: str, *, ms: int = 0, key: StreamKey = KEY) -> StreamRefused:
    return StreamRefused(*key, NONCE, code, "no", ms)


def opens(packets: list[bytes]) -> bool:
    """Is it one hello of the stream?"""
    return [decode_struct(StreamHello, each[PREFIX.size :]).key for each in packets] == [KEY]


def test_each_connection_opens_it_once() -> None:
    """While it is open there is nothing to open."""
    stream = made()
    assert opens(stream.connected())
    assert stream.reopened(1e9) == []
    stream.sender.welcomed(StreamWelcome(*KEY, NONCE, 7, 1, 1, ended=False, note=b""))
    assert stream.connected() == []
    stream.lost()
    assert opens(stream.connected())


def test_one_that_was_refused_is_opened_again_when_it_is_told() -> None:
    """Not before AGAIN_S, and not without a connection."""
    for ms, wait_s in ((0, AGAIN_S), (2000, 2.0)):
        stream = made()
        stream.connected()
        stream.refused(refusal(Overloaded.code, ms=ms), 10.0)
        assert stream.deadline(10.0) == 10.0 + wait_s
        assert stream.reopened(10.0 + wait_s / 2) == []
        assert opens(stream.reopened(10.0 + wait_s))
        assert stream.reopened(1e9) == []
        stream.refused(refusal(Overloaded.code), 20.0)
        stream.lost()
        assert stream.reopened(1e9) == []
        assert stream.deadline(20.0) is None


def test_one_that_was_taken_is_never_opened_again() -> None:
    """Whatever is connected."""
    stream = made()
    stream.connected()
    stream.refused(refusal(StreamFenced.code), 10.0)
    assert stream.sender.state is State.FENCED
    assert stream.reopened(1e9) == []
    stream.lost()
    assert stream.connected() == []


def test_what_is_about_another_stream_changes_nothing() -> None:
    """A connection carries many."""
    stream = made()
    stream.connected()
    stream.refused(refusal(StreamFenced.code, key=StreamKey("flights", 4)), 10.0)
    assert stream.sender.state is State.OPENING
