"""Minted idempotency keys carry their time where the shard looks for it."""

from __future__ import annotations

import uuid

from hypothesis import given
from hypothesis import strategies as st

from deathless.core.tables.keys import time_of_key
from deathless.shell.ingress.uuid7 import drawn_key, uuid7


@given(st.integers(0, 2**48 - 1))
def test_key_carries_its_time_and_version(milliseconds: int) -> None:
    key = uuid7(milliseconds * 1_000_000 + 999_999)
    parsed = uuid.UUID(key)
    assert (parsed.version, parsed.variant, str(parsed)) == (7, uuid.RFC_4122, key)
    assert time_of_key(key.encode()) == milliseconds * 1000


def test_keys_of_one_moment_differ() -> None:
    assert len({uuid7(10**18) for _ in range(1000)}) == 1000


def test_key_is_drawn_from_the_services_time_and_carries_none_where_that_is_not_known() -> None:
    assert time_of_key(drawn_key(1_700_000_000_123_456).encode()) == 1_700_000_000_123_000
    assert uuid.UUID(drawn_key(None)).version == 4
    assert drawn_key(None) != drawn_key(None)
