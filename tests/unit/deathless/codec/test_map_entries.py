"""Keys of map items in a checkpoint: what they are made of, and their order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import CorruptCheckpoint
from deathless.codec.map_entries import PREFIX, ItemKey, encode_item, owner_of, prefix_of, show_key, take_apart

KEYS = st.binary(max_size=20)
FIELDS = st.from_regex(r"\A[a-zäé_]{1,8}\Z")
ITEMS = st.one_of(st.text(), st.binary(), st.integers(-(2**63), 2**63 - 1))


@given(KEYS, FIELDS, ITEMS)
def test_entry_comes_apart_into_what_it_was_made_of(key: bytes, field: str, item: ItemKey) -> None:
    prefix = prefix_of(key, field)
    entry = take_apart(prefix + encode_item(item))
    assert entry == (key, field, item, prefix)
    assert type(entry.item) is type(item)


@given(st.tuples(KEYS, FIELDS), st.tuples(KEYS, FIELDS))
def test_entries_of_two_maps_never_share_a_prefix(one: tuple[bytes, str], other: tuple[bytes, str]) -> None:
    assert prefix_of(*one).startswith(prefix_of(*other)) == (one == other)


@pytest.mark.parametrize("kind", [st.text(), st.binary(), st.integers(-(2**63), 2**63 - 1)])
def test_bytes_of_keys_order_as_the_keys_do(kind: st.SearchStrategy[ItemKey]) -> None:
    @given(st.lists(kind))
    def check(items: list[ItemKey]) -> None:
        assert sorted(items, key=encode_item) == sorted(items)  # all of one kind

    check()


@pytest.mark.parametrize("item", ["\ud800", 2**63, -(2**63) - 1])
def test_key_that_has_no_bytes_is_refused(item: ItemKey) -> None:
    with pytest.raises(ValueError, match=r"surrogates|64 bits"):
        encode_item(item)


@pytest.mark.parametrize(
    "entry",
    [
        PREFIX,
        PREFIX + b"\0",
        PREFIX + b"\0\1a",
        PREFIX + b"\0\1a\0sx",
        PREFIX + b"\0\1afield",
        prefix_of(b"a", "m"),
        prefix_of(b"a", "m") + b"x",
        prefix_of(b"a", "m") + b"i123",
        prefix_of(b"a", "m") + b"s\xff",
    ],
)
def test_what_is_no_entry_is_corrupt(entry: bytes) -> None:
    with pytest.raises(CorruptCheckpoint, match="no item of a map"):
        take_apart(entry)


def test_entries_are_shown_as_people_write_them() -> None:
    apple = prefix_of(b"alice", "items") + encode_item("apple")
    assert [show_key(b"alice"), show_key(apple)] == ["alice", "alice.items['apple']"]
    assert [owner_of(b"alice"), owner_of(apple)] == [b"alice", b"alice"]


def test_bytes_of_an_entry_stay_as_they_are() -> None:
    assert (
        prefix_of(b"key", "items") + encode_item(-2) == b"\0deathless.map\0\0\3keyitems\0i\x7f" + b"\xff" * 6 + b"\xfe"
    )
    assert (encode_item("é"), encode_item(b"\0")) == (b"s\xc3\xa9", b"b\0")
