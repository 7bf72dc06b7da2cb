"""Fields of frames: what is read is there, what is written fits, and the error says where."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from deathless.base.errors import CorruptFrame, DeathlessError, InvalidArgument, TooLarge
from deathless.protocols.connector.fields import (
    SHORT_BYTES_MAX,
    U64_MAX,
    Fields,
    put_i64,
    put_short,
    put_text,
    put_u8,
    put_u32,
    put_u64,
)


def test_numbers_are_big_endian_both_ways() -> None:
    data = put_u8("F", "a", 7) + put_u32("F", "b", 1) + put_u64("F", "c", U64_MAX) + put_i64("F", "d", -2)
    assert data.hex() == "07" + "00000001" + "f" * 16 + "f" * 15 + "e"
    fields = Fields("F", data)
    assert (fields.u8("a"), fields.u32("b"), fields.u64("c"), fields.i64("d")) == (7, 1, U64_MAX, -2)
    fields.end()


def test_bytes_and_texts_stand_behind_their_length() -> None:
    fields = Fields("F", put_short("F", "a", b"\xff\x00") + put_text("F", "b", "ä") + b"rest", 0)
    assert (fields.short("a"), fields.text("b"), fields.left, fields.take("c", 4)) == (b"\xff\x00", "ä", 4, b"rest")


@pytest.mark.parametrize(
    ("read", "data", "told"),
    [
        (lambda f: f.u8("n"), b"", "n: needs 1 bytes, 0 are left"),
        (lambda f: f.u32("n"), b"abc", "n: needs 4 bytes, 3 are left"),
        (lambda f: f.u64("n"), b"abc", "n: needs 8 bytes, 3 are left"),
        (lambda f: f.i64("n"), b"abc", "n: needs 8 bytes, 3 are left"),
        (lambda f: f.short("n"), b"\x00", "n: needs 2 bytes, 1 are left"),
        (lambda f: f.short("n"), b"\xff\xffab", "n: needs 65535 bytes, 2 are left"),
        (lambda f: f.text("n"), b"\x00\x02a\xff", "n: no UTF-8 at byte 1"),
        (lambda f: f.flag("n"), b"\x02", "n: 2, where 0 or 1 is meant"),
        (lambda f: f.count("n", item_bytes=16), b"\xff\xff\xff\xff1234", "n: 4294967295 items need 68719476720 bytes"),
        (lambda f: f.end(), b"abc", "end: 3 more bytes"),
    ],
)
def test_what_is_not_there_is_named_with_its_field_and_a_remedy(
    read: Callable[[Fields], object], data: bytes, told: str
) -> None:
    with pytest.raises(CorruptFrame, match=told) as caught:
        read(Fields("NOTIFY", data))
    assert str(caught.value).startswith("DL4001 NOTIFY: ")
    assert "docs/formats/connector.md" in caught.value.advice


def test_truth_is_a_one_and_falsehood_a_zero() -> None:
    assert [Fields("F", bytes((value,))).flag("n") for value in (0, 1)] == [False, True]


@pytest.mark.parametrize(
    ("write", "kind"),
    [
        (lambda: put_u8("F", "n", 256), InvalidArgument),
        (lambda: put_u32("F", "n", 2**32), InvalidArgument),
        (lambda: put_u64("F", "n", -1), InvalidArgument),
        (lambda: put_i64("F", "n", 2**63), InvalidArgument),
        (lambda: put_text("F", "n", "\ud800"), InvalidArgument),
        (lambda: put_short("F", "n", bytes(SHORT_BYTES_MAX + 1)), TooLarge),
    ],
)
def test_what_does_not_fit_its_field_is_never_written_wrapped(
    write: Callable[[], bytes], kind: type[DeathlessError]
) -> None:
    with pytest.raises(kind, match="F: n: "):
        write()


def test_the_longest_bytes_that_their_length_can_say_are_written() -> None:
    assert Fields("F", put_short("F", "n", bytes(SHORT_BYTES_MAX))).short("n") == bytes(SHORT_BYTES_MAX)
