"""Records of an upgrade, whose bytes stay; format levels: who refuses a log, and when it gets a later one."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from deathless.base.errors import CorruptFrame, NewerLevel
from deathless.codec import messages
from deathless.codec.generations import (
    FIRST,
    NEWEST,
    Generation,
    Level,
    Upgraded,
    check_level,
    decode_upgraded,
    encode_of,
    encode_upgraded,
    raised,
)
from deathless.codec.messages import Kind

RECORD = Upgraded(2, 9, bytes(range(16)), 1, b"a" * 16, 2, b"b" * 16, 1_700_000_000_000_000)


def test_the_bytes_of_an_upgraded_record_are_those_of_today(golden: Callable[[str, bytes], None]) -> None:
    data = encode_upgraded(RECORD)
    golden("message_upgraded", data)
    found = messages.decode(data)
    assert found.kind == Kind.UPGRADED
    assert decode_upgraded(found.args) == RECORD


@pytest.mark.parametrize("body", [b"", b"\xc0", b"\x91\x02", b"\x9a" + b"\xa0" * 10])
def test_a_body_that_is_none_is_refused(body: bytes) -> None:
    with pytest.raises(CorruptFrame, match="record of an upgrade"):
        decode_upgraded(body)


def test_what_is_of_the_first_generation_has_the_bytes_of_older_versions() -> None:
    assert encode_of(RECORD, FIRST) != encode_of(RECORD, Generation(2, 1, bytes(16)))
    assert len(encode_of(RECORD, FIRST)) < len(encode_of(RECORD, Generation(2, 1, bytes(16))))


def test_a_level_stands_last_and_only_where_it_is_above_the_first(golden: Callable[[str, bytes], None]) -> None:
    later = msgspec.structs.replace(RECORD, level=Level.RUNS)
    data = encode_upgraded(later)
    golden("message_upgraded_level", data)
    assert decode_upgraded(messages.decode(data).args) == later
    second = Generation(2, 1, bytes(16))
    assert len(encode_of(RECORD, second)) + 1 == len(encode_of(later, second._replace(level=Level.RUNS)))
    assert encode_of(later, FIRST._replace(level=Level.RUNS)) == msgspec.msgpack.encode(later)


# ---- the format level -----------------------------------------------------------------------------------------------


def test_each_level_up_to_the_newest_is_read() -> None:
    for level in Level:
        check_level(level, "log/e1")
    assert [*Level] == [*range(1, NEWEST + 1)], "a number is given once, and none is left out"


def test_a_later_level_is_refused_and_names_both_levels() -> None:
    with pytest.raises(NewerLevel, match=r"log/e1: the log has format level 7, and this build reads levels up to 6"):
        check_level(7, "log/e1", 6)
    with pytest.raises(NewerLevel, match="DL4021"):
        check_level(NEWEST + 1, "log/e1")


@pytest.mark.parametrize(
    ("level", "newest", "former", "behind"),
    [(1, 2, 1, 1), (1, 2, 2, 2), (1, 1, 2, 1), (2, 2, 1, 2), (2, 4, 3, 3), (3, 2, 2, 3)],
)
def test_an_upgrade_raises_the_level_to_what_both_builds_know(
    level: int, newest: int, former: int, behind: int
) -> None:
    """It never falls, and who goes back to the former code still reads the log."""
    assert raised(level, newest, former) == behind
