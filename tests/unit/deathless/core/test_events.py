"""Events are records: frozen, comparable, and each one is in the union that the machine takes."""

from __future__ import annotations

import typing

import msgspec
import pytest

from deathless.core import events

CLASSES = [
    each
    for each in vars(events).values()
    if isinstance(each, type) and issubclass(each, msgspec.Struct) and each.__module__ == events.__name__
]


@pytest.mark.parametrize("event", CLASSES, ids=lambda event: event.__name__)
def test_event_is_frozen_and_known_to_the_machine(event: type[msgspec.Struct]) -> None:
    assert event in typing.get_args(events.Event)
    assert event.__struct_config__.frozen
    assert event.__doc__


def test_parts_of_the_union_are_parts() -> None:
    every = set(typing.get_args(events.Event))
    assert set(typing.get_args(events.OfClient)) <= every
    assert set(typing.get_args(events.RareForPrimary)) <= every
    assert len(every) == len(CLASSES)


def test_upstream_is_no_accepted_connection() -> None:
    assert events.UPSTREAM == 0
