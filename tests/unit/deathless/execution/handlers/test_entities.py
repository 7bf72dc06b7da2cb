"""Keyed state, decoded for a turn and encoded behind it."""

import msgspec
import pytest

from deathless.base.errors import InvalidArgument, TooLarge
from deathless.base.limits import Limits
from deathless.execution.author.service import Service
from deathless.execution.handlers.entities import Changed, Entities
from deathless.execution.turn.context import Context
from deathless.execution.turn.turn import Turn


class State(msgspec.Struct):
    log: list[str] = []


@pytest.fixture
def entities() -> Entities:
    return Entities(Service("svc", state=State), Limits(entity_bytes_max=100, reply_bytes_max=50))


def context() -> Context:
    return Context(Turn(bytes(32), 0))


def test_new_key_begins_with_the_default_and_shares_nothing(entities: Entities) -> None:
    first, second = entities.open(b"a", context()), entities.open(b"a", context())
    assert first == second == State()
    assert first is not second
    assert entities.state == {}


def test_kept_state_is_what_the_next_turn_sees(entities: Entities) -> None:
    entities.keep(Changed({b"a": entities.close(State(log=["x"]))}), b"")
    assert entities.open(b"a", context()) == entities.look(b"a") == State(log=["x"])


def test_all_states_are_kept_or_none(entities: Entities) -> None:
    good, bad = entities.close(State(log=["x"])), entities.close(State(log=["x" * 200]))
    with pytest.raises(TooLarge, match="'b'"):
        entities.keep(Changed({b"a": good, b"b": bad}), b"")
    with pytest.raises(TooLarge, match="reply"):
        entities.keep(Changed({b"a": good}), b"x" * 51)
    assert entities.state == {}


def test_state_that_does_not_fit_its_type_is_found_at_once(entities: Entities) -> None:
    with pytest.raises(msgspec.ValidationError):
        entities.close(State(log=[3]))  # type: ignore[list-item]  # what a checker would find


def test_key_that_cannot_be_is_not_born(entities: Entities) -> None:
    with pytest.raises(InvalidArgument):
        entities.open(b"", context())
    entities.clear()
    assert entities.state == {}
