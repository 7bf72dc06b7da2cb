"""Minted idempotency keys carry their time where the shard looks for it."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from deathless.core.keys import time_of_key
from deathless.shell.uuid7 import uuid7


@given(st.integers(0, 2**48 - 1))
def test_key_carries_its_time_and_version(milliseconds: int) -> None:
    key = uuid7(milliseconds * 1_000_000 + 999_999)
    parsed = uuid.UUID(key)
    assert (parsed.version, parsed.variant, str(parsed)) == (7, uuid.RFC_4122, key)
    assert time_of_key(key.encode()) == milliseconds * 1000


def test_keys_of_one_moment_differ() -> None:
    assert len({uuid7(10**18) for _ in range(1000)}) == 1000
