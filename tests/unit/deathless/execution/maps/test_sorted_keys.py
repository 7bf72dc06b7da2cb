"""Keys in ascending order, against a sorted list."""

import random

from hypothesis import given
from hypothesis import strategies as st

from deathless.execution.maps.sorted_keys import PART_KEYS, SortedKeys

KEYS = st.binary(max_size=3)


def keys_of(keys: SortedKeys) -> list[bytes]:
    found, at = [], keys.after(b"")
    while at is not None:
        found.append(at)
        at = keys.after(at)
    return found


@given(st.sets(KEYS), st.lists(KEYS), KEYS)
def test_next_key_is_that_of_a_sorted_list(first: set[bytes], changes: list[bytes], asked: bytes) -> None:
    keys, model = SortedKeys(first), set(first)
    for change in changes:
        (keys.remove if change in model else keys.add)(change)
        model ^= {change}
    assert keys.after(asked) == min((key for key in model if key > asked), default=None)
    assert keys_of(keys) == sorted(model - {b""})


def test_many_keys_in_any_order_are_found_in_theirs() -> None:
    order = list(range(5 * PART_KEYS))
    random.Random(1).shuffle(order)
    keys = SortedKeys([])
    for number in order:
        keys.add(b"%06d" % number)
    for number in order[::2]:
        keys.remove(b"%06d" % number)
    assert keys_of(keys) == sorted(b"%06d" % number for number in order[1::2])


def test_keys_that_ascend_and_go_in_the_same_order() -> None:
    keys = SortedKeys(b"%06d" % n for n in range(3 * PART_KEYS))
    for number in range(3 * PART_KEYS):
        assert keys.after(b"") == b"%06d" % number
        keys.remove(b"%06d" % number)
        keys.add(b"9%06d" % number)
    assert keys.after(b"") == b"9000000"
