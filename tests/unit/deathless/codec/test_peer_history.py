"""Histories of what one service sent to another."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from deathless.codec.peer_history import NOTHING, UNKNOWN, differ, extended

MESSAGES = st.lists(st.binary(max_size=40), max_size=8)


def test_a_history_is_the_chain_of_hashes_over_the_messages() -> None:
    first = hashlib.blake2b(bytes(16) + b"one", digest_size=16).digest()
    assert extended(NOTHING, [b"one"]) == first
    assert extended(NOTHING, [b"one", b"two"]) == hashlib.blake2b(first + b"two", digest_size=16).digest()


@given(MESSAGES, MESSAGES)
def test_histories_are_equal_where_the_messages_are_and_go_on_from_anywhere(
    some: list[bytes], more: list[bytes]
) -> None:
    assert extended(extended(NOTHING, some), more) == extended(NOTHING, some + more)
    assert differ(extended(NOTHING, some), extended(NOTHING, more)) is (some != more)


def test_an_unknown_history_stays_unknown_and_differs_from_none() -> None:
    assert extended(UNKNOWN, [b"one"]) == UNKNOWN
    assert not differ(UNKNOWN, NOTHING)
    assert not differ(NOTHING, UNKNOWN)
