"""The stream to followers: only confirmed frames, healed by reading the log, one checkpointer (I1, I9)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deathless.base.limits import Limits
from deathless.codec.wire import Follow, Following, PacketReader, Type, decode_struct
from deathless.core.effects import Disconnect, Effect, Send
from deathless.core.events import Conn
from deathless.core.primary.stream import Stream, StreamFrame, frame_packet


def chain_at(lsn: int) -> bytes:
    """A chain hash for each place."""
    return lsn.to_bytes(16, "little")


def made(limits: Limits | None = None) -> Stream:
    return Stream(epoch=3, limits=limits or Limits(), lsn=10, chain=chain_at(10))


def publish(stream: Stream, *lsns: int, size: int = 10) -> dict[Conn, list[bytes]]:
    """Frames of one message each."""
    out: dict[Conn, list[bytes]] = {}
    for lsn in lsns:
        frame = StreamFrame(lsn, lsn, chain_at(lsn - 1), frame_packet(lsn, 0, 4096, bytes(size)))
        stream.publish(frame, chain_at(lsn), out)
        stream.check_invariants()
    return out


def follow(stream: Stream, replica: str, conn: int, lsn: int, chain: bytes | None = None) -> list[tuple[int, object]]:
    """FOLLOW; gives (connection, Following or type of packet) of what it leads to."""
    where = chain_at(lsn) if chain is None else chain
    effects = stream.follow_received(Conn(conn), Follow(replica, lsn, where, False))
    stream.check_invariants()
    return told(effects)


def told(effects: list[Effect]) -> list[tuple[int, object]]:
    found: list[tuple[int, object]] = []
    for effect in effects:
        if isinstance(effect, Disconnect):
            found.append((effect.conn, "disconnect"))
            continue
        assert isinstance(effect, Send)
        for kind, body in PacketReader(1 << 20).feed(effect.data):
            found.append((effect.conn, decode_struct(Following, body) if kind == Type.FOLLOWING else Type(kind)))
    return found


def test_follower_in_step_gets_each_confirmed_frame() -> None:
    stream = made()
    assert follow(stream, "r1", 5, 10)[0] == (5, Following(True, 3, 10, ""))
    assert [len(parts) for parts in publish(stream, 11, 12).values()] == [2]


def test_follower_behind_gets_what_the_ring_holds_first() -> None:
    stream = made()
    publish(stream, 11, 12, 13)
    assert follow(stream, "r1", 5, 11)[:3] == [(5, Following(True, 3, 13, "")), (5, Type.FRAME), (5, Type.FRAME)]


def test_follower_that_the_ring_does_not_reach_reads_the_log_and_gets_no_frame() -> None:
    frame = len(frame_packet(11, 0, 0, bytes(10)))
    stream = made(Limits(stream_buffer_bytes_max=2 * frame))
    publish(stream, 11, 12, 13)
    assert follow(stream, "r1", 5, 11)[0] == (5, Following(True, 3, 13, ""))
    assert follow(stream, "r2", 6, 10) == [(6, Following(False, 3, 13, "r1"))]
    assert list(publish(stream, 14)) == [5]


def test_i10_ring_is_bounded_even_by_one_frame_that_is_larger() -> None:
    stream = made(Limits(stream_buffer_bytes_max=64))
    publish(stream, 11, size=100)
    assert follow(stream, "r1", 5, 10) == [(5, Following(False, 3, 11, ""))]
    assert follow(stream, "r1", 5, 11)[0] == (5, Following(True, 3, 11, ""))


def test_follower_on_another_chain_reads_the_log() -> None:
    stream = made()
    assert follow(stream, "r1", 5, 10, chain=b"x" * 16) == [(5, Following(False, 3, 10, ""))]
    publish(stream, 11)
    assert follow(stream, "r1", 5, 10, chain=b"x" * 16) == [(5, Following(False, 3, 11, ""))]


def test_follower_ahead_of_us_reads_the_log_and_is_not_believed() -> None:
    stream = made()
    assert follow(stream, "r1", 5, 99) == [(5, Following(False, 3, 10, ""))]
    assert stream.find("r1") is not None
    stream.applied_received(Conn(5), 99)
    assert stream.floor(50) == 10


def test_second_stream_of_a_replica_ends_the_first() -> None:
    stream = made()
    follow(stream, "r1", 5, 10)
    stream.applied_received(Conn(5), 10)
    assert (5, "disconnect") in follow(stream, "r1", 6, 10)
    assert stream.streaming == {"r1": 10}
    assert stream.checkpointer == "r1"
    assert stream.connection_lost(Conn(5)) == ("", [])


def test_progress_never_goes_back_and_comes_from_followers_alone() -> None:
    stream = made()
    publish(stream, 11, 12)
    follow(stream, "r1", 5, 12)
    stream.applied_received(Conn(5), 11)
    stream.applied_received(Conn(77), 12)
    assert stream.streaming == {"r1": 12}
    assert not stream.follows(Conn(77))
    assert stream.find("r9") is None


def test_i10_lag_is_that_of_the_best_follower_that_streams() -> None:
    stream = made()
    assert stream.lag() == 0
    follow(stream, "r1", 5, 10)
    follow(stream, "r2", 6, 10)
    publish(stream, 11, 12, 13)
    assert stream.lag() == 3
    stream.applied_received(Conn(6), 12)
    assert stream.lag() == 1


def test_i9_checkpointer_is_the_first_by_name_and_stays_while_it_streams() -> None:
    stream = made()
    assert (5, Following(True, 3, 10, "r2")) in follow(stream, "r2", 5, 10)
    follow(stream, "r1", 6, 10)
    assert stream.checkpointer == "r2"
    gone, effects = stream.connection_lost(Conn(5))
    assert gone == "r2"
    assert told(effects) == [(6, Following(True, 3, 10, "r1"))]
    assert stream.connection_lost(Conn(6)) == ("r1", [])
    assert stream.checkpointer == ""


def test_i9_checkpointer_that_falls_behind_the_ring_loses_its_role_to_one_that_streams() -> None:
    stream = made()
    follow(stream, "r1", 5, 10)
    follow(stream, "r2", 6, 10)
    follow(stream, "r1", 5, 3)
    assert stream.checkpointer == "r2"


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("follow"), st.sampled_from("abc"), st.integers(1, 6), st.integers(5, 30)),
            st.tuples(st.just("applied"), st.just(""), st.integers(1, 6), st.integers(0, 40)),
            st.tuples(st.just("lost"), st.just(""), st.integers(1, 6), st.just(0)),
            st.tuples(st.just("publish"), st.just(""), st.just(0), st.integers(0, 60)),
        ),
        max_size=40,
    )
)
def test_no_order_of_events_breaks_an_invariant(steps: list[tuple[str, str, int, int]]) -> None:
    stream = made(Limits(stream_buffer_bytes_max=200))
    lsn = 10
    for what, replica, conn, number in steps:
        if what == "follow":
            follow(stream, replica, conn, number)
        elif what == "applied":
            stream.applied_received(Conn(conn), number)
        elif what == "lost":
            stream.connection_lost(Conn(conn))
        else:
            lsn += 1
            publish(stream, lsn, size=number)
        stream.check_invariants()


# ---- upgraders ----------------------------------------------------------------------------------------------------


def upgrade(stream: Stream, replica: str, conn: int, lsn: int) -> list[tuple[int, object]]:
    """FOLLOW of an upgrader; gives as `follow`."""
    effects = stream.follow_received(Conn(conn), Follow(replica, lsn, chain_at(lsn), False, True))
    stream.check_invariants()
    return told(effects)


def test_an_upgrader_gets_each_confirmed_frame_and_is_no_candidate_for_anything() -> None:
    stream = made()
    assert upgrade(stream, "u0", 5, 10) == [(5, Following(True, 3, 10, ""))]
    assert list(publish(stream, 11)) == [5]
    assert (stream.streaming, stream.upgraders, stream.checkpointer) == ({}, frozenset({"u0"}), "")
    follow(stream, "r1", 6, 11)
    assert (stream.streaming, stream.checkpointer) == ({"r1": 11}, "r1")
    assert stream.upgraders == {"u0"}


def test_an_upgrader_that_reads_the_log_first_is_not_up_to_date() -> None:
    stream = made()
    assert upgrade(stream, "u0", 5, 3) == [(5, Following(False, 3, 10, ""))]
    assert stream.upgraders == frozenset()


def test_how_far_an_upgrader_is_holds_the_log_for_it_but_refuses_no_client() -> None:
    stream = made()
    upgrade(stream, "u0", 5, 10)
    publish(stream, 11, 12)
    assert (stream.lag(), stream.floor(12)) == (0, 10)
    stream.applied_received(Conn(5), 12)
    assert stream.floor(12) == 12


def test_an_upgrader_that_comes_back_as_a_replica_like_others_is_one() -> None:
    stream = made()
    upgrade(stream, "u0", 5, 10)
    follow(stream, "u0", 6, 10)
    assert (stream.upgraders, stream.streaming) == (frozenset(), {"u0": 10})
