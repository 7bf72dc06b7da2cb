"""Integers of variable length: known bytes, both ends of both ranges, and bytes that are none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.protocols.ambrosia.errors import ProtocolViolated
from deathless.protocols.ambrosia.integers import LONG_BITS, encode_int, encode_long, find_int, read_int
from deathless.protocols.ambrosia_binding import encoding

KNOWN = [(0, "00"), (-1, "01"), (1, "02"), (-2, "03"), (63, "7e"), (64, "8001"), (-64, "7f"), (-65, "8101")]
ENDS = [(2**31 - 1, "feffffff0f"), (-(2**31), "ffffffff0f")]
LONG_ENDS = [(2**63 - 1, "feffffffffffffffff01"), (-(2**63), "ffffffffffffffffff01")]


@pytest.mark.parametrize(("value", "data"), KNOWN + ENDS)
def test_an_integer_has_the_bytes_of_the_format(value: int, data: str) -> None:
    assert encode_int(value).hex() == encode_long(value).hex() == encoding.number(value).hex() == data
    assert read_int(bytes.fromhex(data), 0, "n") == (value, len(data) // 2)


@pytest.mark.parametrize(("value", "data"), LONG_ENDS)
def test_a_long_reaches_to_both_ends(value: int, data: str) -> None:
    assert encode_long(value).hex() == encoding.number(value).hex() == data
    assert read_int(bytes.fromhex(data), 0, "n", LONG_BITS) == (value, 10)
    assert encoding.Scanner(bytes.fromhex(data)).long() == value


@given(st.integers(-(2**31), 2**31 - 1), st.binary(max_size=3))
def test_what_is_written_is_read_wherever_it_stands(value: int, before: bytes) -> None:
    data = before + encode_int(value) + b"\xff"
    assert read_int(data, len(before), "n") == (value, len(data) - 1)
    assert encoding.Scanner(data, len(before)).number() == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_a_long_is_read_as_it_was_written(value: int) -> None:
    assert read_int(encode_long(value), 0, "n", LONG_BITS)[0] == value


@pytest.mark.parametrize("value", [2**31, -(2**31) - 1])
def test_what_does_not_fit_is_not_written(value: int) -> None:
    with pytest.raises(AssertionError):
        encode_int(value)


def test_an_integer_that_is_not_whole_yet_is_waited_for() -> None:
    assert find_int(b"", 0, "n") is None
    assert find_int(b"\x80\x80", 0, "n") is None
    with pytest.raises(ProtocolViolated, match="ends within its count"):
        read_int(b"\x80\x80", 0, "count")


def test_a_form_that_is_longer_than_needed_is_read() -> None:
    assert read_int(b"\x82\x80\x00", 0, "n") == (1, 3)


@pytest.mark.parametrize(
    ("data", "bits", "match"),
    [
        (b"\xff\xff\xff\xff\x1f", 32, "size has more than 32 bits"),
        (b"\x80" * 5 + b"\x00", 32, "size has more than 5 bytes"),
        (b"\xff" * 9 + b"\x02", 64, "size has more than 64 bits"),
        (b"\x80" * 10, 64, "size has more than 10 bytes"),
    ],
)
def test_bits_that_do_not_fit_are_never_cut_off(data: bytes, bits: int, match: str) -> None:
    with pytest.raises(ProtocolViolated, match=match):
        find_int(data, 0, "size", bits)


@given(st.binary(max_size=12), st.sampled_from([32, 64]))
def test_arbitrary_bytes_are_an_integer_or_an_error_of_ours(data: bytes, bits: int) -> None:
    try:
        found = find_int(data, 0, "n", bits)
    except ProtocolViolated:
        return
    if found is not None:
        assert -(1 << (bits - 1)) <= found[0] < 1 << (bits - 1)
