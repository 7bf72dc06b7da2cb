"""Effects are records: frozen, comparable, and each one is in the union that the engine carries out."""

from __future__ import annotations

import dataclasses
import typing

import pytest

from deathless.core import effects

CLASSES = [
    each for each in vars(effects).values() if dataclasses.is_dataclass(each) and each.__module__ == effects.__name__
]


@pytest.mark.parametrize("effect", CLASSES, ids=lambda effect: effect.__name__)
def test_effect_is_frozen_and_slotted_and_known_to_the_engine(effect: type) -> None:
    assert effect in typing.get_args(effects.Effect)
    assert effect.__dataclass_params__.frozen  # type: ignore[attr-defined]  # every dataclass has it
    assert "__slots__" in vars(effect)
    assert effect.__doc__


def test_every_effect_of_the_union_is_here() -> None:
    assert len(typing.get_args(effects.Effect)) == len(CLASSES)
