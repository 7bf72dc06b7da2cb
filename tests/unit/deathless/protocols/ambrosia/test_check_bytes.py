"""xxHash64: values that others published, and two implementations that agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.protocols.ambrosia.check_bytes import xxhash64
from deathless.protocols.ambrosia_binding.checksum import xxh64

PUBLISHED = [
    (b"", 0xEF46DB3751D8E999),
    (b"a", 0xD24EC4F1A98C6E5B),
    (b"abc", 0x44BC2CF5AD770999),
    (b"Nobody inspects the spammish repetition", 0xFBCEA83C8A378BF1),
    (b"The quick brown fox jumps over the lazy dog", 0x0B242D361FDA71BC),
    (bytes(range(101)), 0xE99038495F85381E),
]


@pytest.mark.parametrize(("data", "value"), PUBLISHED)
def test_published_values_are_met(data: bytes, value: int) -> None:
    assert xxhash64(data) == xxh64(data) == value


@given(st.binary(max_size=200))
def test_both_implementations_agree(data: bytes) -> None:
    assert xxhash64(data) == xxh64(data)


@pytest.mark.parametrize("size", range(70))
def test_every_tail_of_a_stripe_counts(size: int) -> None:
    data = bytes(range(size))
    assert xxhash64(data) == xxh64(data)
    if size:
        assert xxhash64(data[:-1] + b"\xff") != xxhash64(data)
