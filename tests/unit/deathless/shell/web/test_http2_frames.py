"""Frames are told apart however they come, what was kept from h2 is GOAWAY alone, and floods are found."""

from __future__ import annotations

import pytest
from h2.errors import ErrorCodes
from http2_wire import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HEADERS,
    PADDED,
    PING,
    PREFACE,
    SETTINGS,
    WINDOW_UPDATE,
    frame,
)
from hypothesis import given
from hypothesis import strategies as st

from deathless.shell.web.http2_frames import FRAME_BYTES_MAX, IDLE_MAX, PIECES_MAX, RESETS_MAX, Frames, Refused


def frames() -> Frames:
    made = Frames(1000, 0.0)
    list(made.take(PREFACE, 0.0))
    return made


def take(some: Frames, data: bytes, now: float = 0.0) -> bytes:
    return b"".join(some.take(data, now))


KINDS = [DATA, HEADERS, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, 99]
SOUND = st.builds(
    lambda kind, flags, body: frame(kind, flags | (END_HEADERS if kind == HEADERS else 0), 1, body),
    st.sampled_from(KINDS),
    st.integers(0, 255),
    st.binary(max_size=90),
)


@given(st.lists(SOUND, max_size=8), st.lists(st.integers(1, 30), max_size=40))
def test_what_h2_may_read_is_what_came_but_for_goaway_however_it_is_cut(sent: list[bytes], cuts: list[int]) -> None:
    data, some, given_on = PREFACE + b"".join(sent), Frames(1000, 0.0), b""
    for cut in cuts:
        pieces = list(some.take(data[:cut], 0.0))
        given_on += b"".join(pieces)
        data = data[cut:]
    given_on += take(some, data)
    assert given_on == PREFACE + b"".join(each for each in sent if each[3] != GOAWAY)
    assert some.goodbye == any(each[3] == GOAWAY for each in sent)
    assert some.open_since is None


def test_each_piece_is_of_one_frame() -> None:
    one, other = frame(DATA, 0, 1, b"x" * 100), frame(PING, 0, 0, b"12345678")
    assert list(frames().take(one + other + one[:20], 0.0)) == [one, other, one[:20]]


def test_what_is_open_is_known_since_it_began() -> None:
    some, head, body = Frames(1000, 1.0), frame(HEADERS, 0, 1, b"a"), frame(DATA, 0, 1, b"aa")
    seen = [(some.open_since, some.in_data)]
    coming = [PREFACE, head[:4], head[4:], frame(CONTINUATION, END_HEADERS, 1, b"a"), body[:-1], body[-1:]]
    for second, data in enumerate(coming, 2):
        take(some, data, float(second))
        seen.append((some.open_since, some.in_data))
    expected = [(1.0, False), (None, False), (3.0, False), (3.0, False), (None, False), (6.0, True), (None, True)]
    assert seen == expected


@pytest.mark.parametrize(
    "idle",
    [
        frame(PING, 0, 0, b"12345678"), frame(SETTINGS), frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\1"), frame(99),
        frame(DATA, 0, 1), frame(DATA, 0, 1, b"x"), frame(DATA, PADDED, 1, b"\xff" + b"\0" * 255),
    ],
    ids=["ping", "settings", "window", "unknown", "empty body", "tiny body", "padded body"],
)  # fmt: skip
def test_frames_that_bring_nothing_have_a_maximum_that_time_and_requests_fill_up(idle: bytes) -> None:
    some = frames()
    take(some, idle * IDLE_MAX)
    some.pass_time(3600.0)
    take(some, idle * IDLE_MAX)
    some.answered()
    take(some, idle * 10)
    some.moved(1 << 20)
    take(some, idle * 400)
    with pytest.raises(Refused) as told:
        take(some, idle * IDLE_MAX)
    assert told.value.code == ErrorCodes.ENHANCE_YOUR_CALM


def test_frames_of_heads_and_bodies_are_never_too_many() -> None:
    some = frames()
    request = frame(HEADERS, END_HEADERS, 1, b"a") + frame(DATA, 0, 1, b"x" * 64) + frame(DATA, END_STREAM, 1, b"")
    take(some, request * 3 * IDLE_MAX)


def test_streams_that_end_early_have_a_maximum() -> None:
    some = frames()
    for _ in range(RESETS_MAX):
        some.reset()
    with pytest.raises(Refused):
        some.reset()
    some.pass_time(3600.0)
    some.reset()
    some.answered()
    some.reset()


def test_frame_that_announces_too_much_is_refused_before_it_comes() -> None:
    take(frames(), frame(DATA, 0, 1, b"x" * FRAME_BYTES_MAX))
    with pytest.raises(Refused) as told:
        take(frames(), (FRAME_BYTES_MAX + 1).to_bytes(3, "big") + b"\0" * 6)
    assert told.value.code == ErrorCodes.FRAME_SIZE_ERROR


@pytest.mark.parametrize("data", [
    frame(HEADERS, 0, 1, b"a") + frame(CONTINUATION, 0, 1) * PIECES_MAX,
    frame(HEADERS, 0, 1, b"a" * 600) + frame(CONTINUATION, END_HEADERS, 1, b"a" * 600),
    frame(HEADERS, END_HEADERS, 1, b"a" * 1001),
], ids=["pieces", "bytes", "at once"])  # fmt: skip
def test_head_has_a_maximum_of_pieces_and_bytes(data: bytes) -> None:
    with pytest.raises(Refused):
        take(frames(), data)
