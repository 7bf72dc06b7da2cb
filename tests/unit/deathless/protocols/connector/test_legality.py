"""Tables of what is legal when, and whom an error is for."""

from __future__ import annotations

import enum

import pytest

from deathless.base.errors import InvalidArgument, InvalidUse
from deathless.protocols.connector.legality import FRAME_REMEDY, USE_REMEDY, Table, misuse, violation


class State(enum.Enum):
    A = 1
    B = 2


class Stream(enum.Enum):
    OPEN = 1
    SHUT = 2


TABLE = Table[State, Stream]({State.A: {int: None, str: frozenset({Stream.OPEN})}, State.B: {}})


@pytest.mark.parametrize(
    ("state", "kind", "stream", "legal"),
    [
        (State.A, int, None, True),
        (State.A, int, Stream.SHUT, True),
        (State.A, str, Stream.OPEN, True),
        (State.A, str, Stream.SHUT, False),
        (State.A, str, None, False),
        (State.A, bytes, None, False),
        (State.B, int, None, False),
    ],
)
def test_the_table_alone_says_what_is_legal(state: State, kind: type, stream: Stream | None, legal: bool) -> None:
    assert TABLE.allows(state, kind, stream) is legal
    if legal:
        TABLE.check_frame(state, kind, stream)
        TABLE.check_event(state, kind, stream)
    else:
        with pytest.raises(InvalidArgument):
            TABLE.check_frame(state, kind, stream)
        with pytest.raises(InvalidUse):
            TABLE.check_event(state, kind, stream)


def test_an_error_names_what_came_where_and_what_would_be_legal() -> None:
    with pytest.raises(InvalidArgument) as caught:
        TABLE.check_frame(State.A, str, Stream.SHUT, what="stream 7")
    assert str(caught.value) == (
        f"DL3003 str (stream 7) is not legal now (connection A, stream SHUT); legal are: int, str ({FRAME_REMEDY})"
    )
    with pytest.raises(InvalidUse) as used:
        TABLE.check_event(State.B, str)
    assert str(used.value) == f"DL3049 str is not legal now (connection B); legal are: nothing ({USE_REMEDY})"


def test_values_that_can_not_be_are_told_to_whom_they_came_from() -> None:
    assert (misuse("x").code, misuse("x").advice) == ("DL3049", USE_REMEDY)
    assert (violation("x").code, violation("x").advice) == ("DL3003", FRAME_REMEDY)
    assert violation("x", "stop").advice == "stop"
