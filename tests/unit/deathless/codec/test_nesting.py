"""How deep a value is nested is told by its bytes, at any depth and in every process."""

import sys

import msgspec
import pytest

from deathless.base.limits import NESTING_MAX
from deathless.codec.nesting import is_too_deep

encode = msgspec.msgpack.Encoder().encode


def lists(levels: int) -> bytes:
    return b"\x91" * levels + b"\x01"


def maps(levels: int) -> bytes:
    return b"\x81\xa1a" * levels + b"\xc0"


@pytest.mark.parametrize("make", [lists, maps])
@pytest.mark.parametrize("levels", [0, 1, NESTING_MAX - 1, NESTING_MAX])
def test_what_has_so_many_levels_is_not_too_deep(make: object, levels: int) -> None:
    assert callable(make)
    assert not is_too_deep(make(levels))


@pytest.mark.parametrize("make", [lists, maps])
@pytest.mark.parametrize("levels", [NESTING_MAX + 1, 900, 1_500, 9_990, 100_000, 1_000_000])
def test_one_level_more_is_too_deep_however_many_there_are(make: object, levels: int) -> None:
    assert callable(make)
    assert is_too_deep(make(levels))


def test_deep_value_is_found_beside_flat_ones_and_behind_keys() -> None:
    assert is_too_deep(b"\x92\x01" + lists(NESTING_MAX))
    assert is_too_deep(b"\x81" + lists(NESTING_MAX) + b"\x01")
    assert not is_too_deep(b"\x92" + lists(NESTING_MAX - 1) * 2)


def test_many_flat_containers_are_not_deep() -> None:
    assert not is_too_deep(encode([[{"a": [1]}] for _ in range(1_000)]))
    assert not is_too_deep(encode("\x81" * 1_000))
    assert not is_too_deep(encode(b"\x91" * 1_000))


@pytest.mark.parametrize("data", [b"", b"\xc1" * 300, b"\x91" * 150 + b"\xc1" * 100, encode([{1: 2}] * 300)[:-1]])
def test_bytes_that_are_no_value_are_for_the_decoder_to_refuse(data: bytes) -> None:
    assert not is_too_deep(data)


def test_verdict_does_not_depend_on_the_room_on_the_stack() -> None:
    def deeper(frames: int) -> bool:
        return deeper(frames - 1) if frames else is_too_deep(lists(NESTING_MAX))

    assert not deeper(sys.getrecursionlimit() // 2)
