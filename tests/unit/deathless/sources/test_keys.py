"""Whose a record is, and what makes it no input: by its own reason, never by being dropped."""

from __future__ import annotations

import pytest

from deathless.base.shards import shard_of
from deathless.codec.messages import decode
from deathless.codec.streams.rows import decode_row
from deathless.sources.keys import KEPT_BYTES, Routing
from deathless.sources.port import Record


def routing(
    key: str = "value.origin", *, shards: int = 1, key_bytes_max: int = 20, message_bytes_max: int = 1 << 20
) -> Routing:
    return Routing(
        key, input_name="flights", shards=shards, key_bytes_max=key_bytes_max, message_bytes_max=message_bytes_max
    )


@pytest.mark.parametrize(
    ("key", "record", "found"),
    [
        ("", Record(0, b"{}"), b""),
        ("key", Record(0, b"{}", key=b"JFK"), b"JFK"),
        ("value.origin", Record(0, b'{"origin": "JFK", "more": [1]}'), b"JFK"),
        ("value.origin", Record(0, b'{"origin": 17}'), b"17"),
        ("value.at.gate", Record(0, b'{"at": {"gate": "A 1"}}'), b"A 1"),
    ],
)
def test_a_record_has_the_key_that_the_manifest_names(key: str, record: Record, found: bytes) -> None:
    routed = routing(key).route(record)
    assert (routed.key, routed.why) == (found, "")


@pytest.mark.parametrize(
    ("key", "record", "why"),
    [
        ("key", Record(0, b"{}"), "the record has no key"),
        ("key", Record(0, b"{}", key=b"\xff"), "the key is not UTF-8"),
        ("key", Record(0, b"{}", key=b"\0a"), "begins with a zero byte"),
        ("value.origin", Record(0, b"{}"), "the key, `origin` of the row, is missing"),
        ("value.origin", Record(0, b'{"origin": ""}'), "is empty"),
        ("value.origin", Record(0, b'{"origin": true}'), "is no text or whole number"),
        ("value.origin", Record(0, b'{"origin": 1.5}'), "is no text or whole number"),
        ("value.at.gate", Record(0, b'{"at": {}}'), "the key, `at.gate` of the row, is missing"),
        ("value.origin", Record(0, b'{"origin": "' + b"x" * 21 + b'"}'), "the key has 21 bytes, at most 20"),
        ("value.origin", Record(0, b"no json"), "the key can't be read of the row"),
        ("value.origin", Record(0, b'{"origin": ' + b"[" * 300 + b"]" * 300 + b"}"), "nested more than 200 levels"),
        ("value.origin", Record(0, None), "the record has no value"),
        ("", Record(0, None), "the record has no value"),
    ],
)
def test_a_record_that_can_be_no_input_says_why_and_has_no_key(key: str, record: Record, why: str) -> None:
    routed = routing(key).route(record)
    assert routed.key == b""
    assert why in routed.why
    assert decode_row(decode(routing(key).message(routed, b"")).args).why == routed.why


def test_a_row_that_is_too_long_is_named_and_its_beginning_kept() -> None:
    small = routing(message_bytes_max=2000)
    longest = b'{"origin": "JFK", "more": "' + b"x" * 3000 + b'"}'
    routed = small.route(Record(0, longest))
    assert f"the row has {len(longest)} bytes, at most " in routed.why
    assert routed.row == longest[:KEPT_BYTES]
    fits = Record(0, b'{"origin": "JFK", "more": "' + b"x" * 1780 + b'"}')
    assert small.route(fits).why == ""
    assert len(small.message(small.route(fits), b"n" * 64)) <= 2000


def test_a_key_lives_on_its_shard_and_settings_that_place_rows_otherwise_have_another_fingerprint() -> None:
    found = routing(shards=3).route(Record(0, b'{"origin": "JFK"}'))
    assert found.shard == shard_of(b"JFK", 3)
    others = [routing("key"), routing(shards=2), routing(message_bytes_max=5), routing(key_bytes_max=5)]
    assert routing().fingerprint == routing().fingerprint
    assert len({routing().fingerprint, *(each.fingerprint for each in others)}) == 5


@pytest.mark.parametrize("message_bytes_max", [300, 2000, 1 << 20])
@pytest.mark.parametrize("key", ["value.origin", "value." + ".".join(["deep"] * 40), "key", ""])
def test_a_row_near_the_longest_that_is_refused_leaves_room_for_the_reason(key: str, message_bytes_max: int) -> None:
    """A longer message is taken by no shard, whatever `onRefusal` says, and its stream would stand for ever."""
    small = routing(key, message_bytes_max=message_bytes_max)
    for longest in (b'{"origin": "' + b"x" * message_bytes_max, b"[" * message_bytes_max):
        for below in range(0, 260, 7):
            routed = small.route(Record(0, longest[: message_bytes_max - below]))
            assert len(small.message(routed, b"n" * 56)) <= message_bytes_max
            decode_row(decode(small.message(routed, b"")).args)
