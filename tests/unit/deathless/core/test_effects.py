"""Effects are records: frozen, comparable, and each one is in the union that the engine carries out."""

from __future__ import annotations

import typing

import msgspec
import pytest

from deathless.core import effects

CLASSES = [
    each
    for each in vars(effects).values()
    if isinstance(each, type) and issubclass(each, msgspec.Struct) and each.__module__ == effects.__name__
]


@pytest.mark.parametrize("effect", CLASSES, ids=lambda effect: effect.__name__)
def test_effect_is_frozen_and_known_to_the_engine(effect: type[msgspec.Struct]) -> None:
    assert effect in typing.get_args(effects.Effect)
    assert effect.__struct_config__.frozen
    assert effect.__doc__


def test_every_effect_of_the_union_is_here() -> None:
    assert len(typing.get_args(effects.Effect)) == len(CLASSES)
