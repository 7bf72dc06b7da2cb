"""What a source's connection takes and is told, whatever brings the messages to a sink."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.encoded import encode_fork

from deathless.base.errors import CorruptFrame, DeathlessError, Deposed
from deathless.drivers.port import Answer, Source
from deathless.drivers.source_link import Policy, SourceLink, idempotency_key

SOURCE = Source("shop", 0, b"i" * 16, 1, 2)


class Told:
    """A connection, and the way of answers."""

    def __init__(self) -> None:
        self.welcomed: list[int] = []
        self.refused: list[DeathlessError] = []
        self.lowest: int | None = None

    def welcome(self, next_position: int) -> None:
        """See Listener."""
        self.welcomed.append(next_position)

    def commit(self, through: int) -> None:
        """See Listener."""

    def refuse(self, error: DeathlessError) -> None:
        """See Listener."""
        self.refused.append(error)

    def add(self, answers: Sequence[Answer]) -> None:
        """See Outgoing."""


class Link(SourceLink):
    """Keeps what it takes."""

    def __init__(self, told: Told) -> None:
        super().__init__(SOURCE, 1, Policy("mail"), told)
        self.kept: list[int] = []
        self._next, self._open = 1, True

    def _taken_through(self) -> int:
        return self._next + len(self.kept)

    def _take(self, position: int, message: bytes) -> None:
        self.kept.append(position)


def linked() -> tuple[Link, Told]:
    """A link with a connection."""
    told = Told()
    link = Link(told)
    link.attach(told, 1)
    return link, told


def fork() -> bytes:
    return encode_fork(method=b"write", key=b"k", args=b"")


def test_i3_positions_are_taken_in_order_a_lower_one_is_dropped_and_a_higher_one_ends_the_connection() -> None:
    link, told = linked()
    link.taken(told, 1, [fork(), fork()])
    link.taken(told, 2, [fork(), fork()])
    assert link.kept == [1, 2, 3]
    with pytest.raises(CorruptFrame, match="message 5 was sent, 4 was expected"):
        link.taken(told, 5, [fork()])


def test_what_an_older_connection_brings_is_not_taken() -> None:
    link, older = linked()
    newer = Told()
    link.attach(newer, 1)
    link.taken(older, 1, [fork()])
    link.detach(older)
    link.taken(newer, 1, [fork()])
    assert link.kept == [1]
    link.detach(newer)
    link.taken(newer, 2, [fork()])
    assert link.kept == [1]


def test_a_new_connection_is_told_not_to_begin_beyond_an_answer_that_the_service_has_not_confirmed() -> None:
    link, told = linked()
    link._next, told.lowest = 9, 4
    link.attach(told, 1)
    assert told.welcomed == [1, 4]


def test_a_connection_behind_a_later_epoch_is_refused() -> None:
    link, told = linked()
    link.problem = Deposed("epoch 3 writes here")
    link.attach(told, 1)
    assert [each.code for each in told.refused] == ["DL2001"]


def test_idempotency_keys_name_source_and_position() -> None:
    assert idempotency_key(SOURCE, "mail", 7) == "shop/0/6969696969696969/1/mail/7"
