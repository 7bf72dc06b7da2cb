"""Where a key lives, and how a shard is called: fixed by docs/formats/shards.md, its table and its golden bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from deathless.base.errors import InvalidArgument
from deathless.base.shards import (
    SHARDS_MAX,
    Sharding,
    checked_shard,
    read_invocation,
    service_directory,
    shard_directory,
    shard_name,
    shard_of,
    show_invocation,
)

ROOT = Path(__file__).parents[4]
COUNTS = (1, 2, 3, 8, 64)


def vectors() -> list[tuple[bytes, list[int]]]:
    """The table of the page."""
    page = (ROOT / "docs/formats/shards.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\(empty\)|`[^`]+`) \|((?: \d+ \|){5})$", page, re.MULTILINE)
    found = [("" if key == "(empty)" else key.strip("`"), re.findall(r"\d+", cells)) for key, cells in rows]
    return [(key.encode(), [int(cell) for cell in cells]) for key, cells in found]


def test_keys_live_where_the_format_says() -> None:
    assert len(vectors()) == 14
    for key, expected in vectors():
        assert [shard_of(key, count) for count in COUNTS] == expected, key


def test_table_of_the_page_has_its_golden_bytes() -> None:
    blob = b"".join(key + b"\0" + bytes(shards) for key, shards in vectors())
    assert blob == (ROOT / "tests/golden/shards.bin").read_bytes()


def test_keys_with_one_tag_share_a_shard_and_others_spread() -> None:
    together = {shard_of(f"{prefix}{{order-7}}{prefix}".encode(), 64) for prefix in ("", "a", "b", "}")}
    assert together == {shard_of(b"order-7", 64)}
    counts = [0] * 8
    for number in range(8000):
        counts[shard_of(f"key{number}".encode(), 8)] += 1
    assert min(counts) > 850


def test_one_shard_is_called_as_its_service_and_lives_in_its_directory() -> None:
    assert shard_name("bank", 0, 1) == "bank"
    assert shard_directory("/x/bank", 0, 1) == service_directory("/x/bank", 1) == "/x/bank"
    assert show_invocation(512, 0, 1) == "512"
    assert read_invocation("512", 1) == (0, 512)


def test_one_of_several_says_which_and_of_how_many() -> None:
    assert shard_name("bank", 1, 2) == "bank/1/2"
    assert shard_directory("/x/bank/", 1, 2) == "/x/bank/shards/1"
    assert service_directory("/x/bank/shards/1/", 2) == "/x/bank"
    assert show_invocation(512, 1, 2) == "1-512"
    assert read_invocation("1-512", 2) == (1, 512)


@pytest.mark.parametrize(
    ("text", "shards"), [("1-512", 1), ("512", 2), ("2-5", 2), ("0-0", 2), ("01-5", 2), ("-5", 2), ("x", 1), ("0", 1)]
)
def test_what_is_no_id_of_an_invocation_is_refused(text: str, shards: int) -> None:
    with pytest.raises(InvalidArgument):
        read_invocation(text, shards)


def test_there_are_only_shards_below_their_number() -> None:
    assert checked_shard(SHARDS_MAX - 1, SHARDS_MAX) == SHARDS_MAX - 1
    with pytest.raises(InvalidArgument, match="0 alone"):
        checked_shard(1, 1)
    with pytest.raises(InvalidArgument, match="0 to 1"):
        checked_shard(-1, 2)


def test_a_shard_owns_its_keys_and_knows_the_places_of_others() -> None:
    alone, second = Sharding(), Sharding(shard=1, shards=2, peers={"stock": 3, "mail": 1})
    assert alone.owns(b"bob")
    assert second.owns(b"alice")
    assert not second.owns(b"bob")
    assert [second.place("stock", b"order-1"), second.place("mail", b"order-1"), second.place("x", b"bob")] == [2, 0, 0]


def test_numbers_above_one_are_named_for_the_fingerprint() -> None:
    assert Sharding(peers={"mail": 1}).parts() == {}
    assert Sharding(shard=1, shards=2, peers={"stock": 3}).parts() == {"shards": "2", "shards of stock": "3"}
