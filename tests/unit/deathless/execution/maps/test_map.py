"""`Map` outside of a service: a dictionary in memory whose keys ascend. And its header, as msgspec takes it."""

import copy
import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import InvalidArgument
from deathless.execution.maps.map import Map, decode_map, encode_map, view_of


def made(**items: int) -> Map[str, int]:
    map_: Map[str, int] = Map()
    map_.update(items)
    return map_


def test_map_is_a_dictionary_in_ascending_order() -> None:
    map_ = made(pear=2, apple=1, quince=3)
    assert (list(map_), list(map_.items()), list(map_.values())) == (
        ["apple", "pear", "quince"], [("apple", 1), ("pear", 2), ("quince", 3)], [1, 2, 3],
    )  # fmt: skip
    assert map_ == {"apple": 1, "pear": 2, "quince": 3}
    assert (len(map_), "apple" in map_, "plum" in map_, map_.get("plum"), map_.get("plum", 7)) == (
        3,
        True,
        False,
        None,
        7,
    )
    assert (map_.setdefault("plum", 5), map_.setdefault("plum", 6), map_.pop("plum"), map_.pop("plum", 0)) == (
        5,
        5,
        5,
        0,
    )
    assert (map_.popitem(), len(map_)) == (("apple", 1), 2)
    del map_["pear"]
    map_.clear()
    assert (list(map_), len(map_), bool(map_)) == ([], 0, False)


def test_missing_key_raises_as_in_a_dictionary() -> None:
    map_ = made(apple=1)
    with pytest.raises(KeyError, match="pear"):
        map_["pear"]
    with pytest.raises(KeyError, match="pear"):
        del map_["pear"]
    with pytest.raises(KeyError):
        map_.pop("pear")
    with pytest.raises(KeyError):
        made().popitem()


@given(st.dictionaries(st.integers(-(2**63), 2**63 - 1), st.none()), st.integers(-9, 9))
def test_pages_begin_above_a_key(items: dict[int, None], above: int) -> None:
    map_: Map[int, None] = Map()
    map_.update(items)
    assert list(map_) == sorted(items)
    assert list(map_.keys_above(above)) == sorted(key for key in items if key > above)


def test_iteration_sees_what_changes_ahead_of_it() -> None:
    map_ = made(b=1, d=1, f=1)
    seen = []
    for key in map_:
        seen.append(key)
        if key == "b":
            map_.update(a=1, c=1)
            del map_["d"]
    assert (seen, list(map_)) == (["b", "c", "f"], ["a", "b", "c", "f"])


@pytest.mark.parametrize("key", [None, 1.0, True, (1, 2), "\ud800", 2**63])
def test_key_that_cannot_be_is_refused(key: object) -> None:
    map_: Map[str, int] = Map()
    with pytest.raises(InvalidArgument, match="of map '' can't be"):
        map_[key] = 1  # type: ignore[index]  # what a checker would find
    with pytest.raises(InvalidArgument):
        key in map_  # noqa: B015  it raises


def test_map_shows_its_size_and_is_not_copied() -> None:
    map_ = made(a=1, b=2)
    assert repr(map_) == "<Map of 2>"
    for copied in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="can't be copied"):
            copied(map_)
    with pytest.raises(TypeError, match="unhashable"):
        hash(map_)


def test_header_goes_there_and_back() -> None:
    view = view_of(decode_map(None, [3, b"chain"]))
    assert (view.count, view.chain, encode_map(Map())) == (3, b"chain", (0, b""))


def test_what_has_no_header_is_refused() -> None:
    with pytest.raises(TypeError, match="type set is unsupported"):
        encode_map(set())
    with pytest.raises(TypeError, match="begins empty"):
        encode_map(made(a=1))
    with pytest.raises(msgspec.ValidationError, match="array"):
        decode_map(None, {"a": 1})
