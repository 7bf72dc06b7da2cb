"""State that is written ahead: what is finished reads as the whole does, and what is only begun reads as nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import CorruptCheckpoint
from deathless.base.ids import ChainHash, Digest, Epoch, Fingerprint, Incarnation, Lsn
from deathless.base.times import Times
from deathless.codec import checkpoint
from deathless.codec.checkpoint_ahead import (
    HEAD_AT,
    STATE_AT,
    begin,
    changes_between,
    finish,
    read_begun,
    verify_finished,
)
from deathless.codec.generations import Generation
from deathless.codec.snapshot import Begun, SessionRecord, Since, Snapshot

STATES = st.dictionaries(st.binary(max_size=3), st.binary(max_size=5), max_size=12)


def snapshot(state: dict[bytes, bytes], **more: object) -> Snapshot:
    made = Snapshot(
        service="bank", service_id=bytes(16), incarnation=Incarnation(7), epoch=Epoch(3), lsn=Lsn(2**40),
        chain=ChainHash(b"c" * 16), digest=Digest(b"d" * 16), times=Times.at(5), fingerprint=Fingerprint(b"f" * 16),
        state=state, sessions=[SessionRecord(1, 4, 2, 9, bytes(16), {3: b"reply"})],
        generation=Generation(2, 2**40, b"g" * 16),
    )  # fmt: skip
    for name, value in more.items():
        setattr(made, name, value)
    return made


def reader(data: bytes) -> checkpoint.Read:
    return lambda offset, size: data[offset : offset + size]


def written(before: dict[bytes, bytes], now: dict[bytes, bytes]) -> tuple[bytes, Begun, Snapshot]:
    """A file that was begun with one state and finished with another."""
    data = b"".join(begin(before))
    begun = read_begun(reader(data), len(data))
    whole = snapshot(now)
    head, rest = finish(reader(data), whole, Since(begun, *changes_between(before, now)))
    return data[:HEAD_AT] + head + data[HEAD_AT + len(head) :] + b"".join(rest), begun, whole


def test_bytes_are_those_of_the_format(golden: Callable[[str, bytes], None]) -> None:
    golden("checkpoint_ahead", written({b"ann": b"1", b"bob": b"2"}, {b"ann": b"3", b"zoe": b"4"})[0])


@pytest.mark.parametrize("level", [1, 2])
def test_level_is_read_whether_room_or_the_level_follows_the_generation(level: int) -> None:
    generation = Generation(2, 2**40, b"g" * 16, level)
    data = b"".join(begin({}))
    begun = read_begun(reader(data), len(data))
    head, rest = finish(reader(data), snapshot({}, generation=generation), Since(begun, {}, []))
    whole = data[:HEAD_AT] + head + data[HEAD_AT + len(head) :] + b"".join(rest)
    assert checkpoint.decode(reader(whole)).generation == generation
    assert checkpoint.read_head(reader(whole)).of_generation() == generation
    assert verify_finished(reader(whole), begun).of_generation() == generation


@given(STATES, STATES)
def test_what_is_finished_reads_as_the_whole_does(before: dict[bytes, bytes], now: dict[bytes, bytes]) -> None:
    data, begun, whole = written(before, now)
    found = checkpoint.decode(reader(data))
    plain = checkpoint.decode(reader(b"".join(checkpoint.encode(snapshot(now)))))
    assert (found.state, list(found.state)) == (plain.state, sorted(now))
    assert (found.sessions, found.generation, found.lsn, found.chain) == (
        plain.sessions, plain.generation, plain.lsn, plain.chain,
    )  # fmt: skip
    assert found.state_digest == whole.state_digest == checkpoint.verify(reader(data))[1]
    assert (
        verify_finished(reader(data), begun) == checkpoint.read_head(reader(data)) == checkpoint.verify(reader(data))[0]
    )
    if before == now:
        assert found.state_digest == plain.state_digest, "nothing changed: the state's digest is what it always is"


def test_changes_are_all_that_differs() -> None:
    before = {b"a": b"1", b"b": b"2", b"c": b"3"}
    assert changes_between(before, {b"a": b"1", b"b": b"4", b"d": b"5"}) == ({b"b": b"4", b"d": b"5"}, [b"c"])
    assert changes_between(before, dict(before)) == ({}, [])


def test_what_is_only_begun_reads_as_no_checkpoint() -> None:
    data = b"".join(begin({b"k%d" % i: b"v" for i in range(9)}))
    for read in (checkpoint.decode, checkpoint.verify, checkpoint.read_head):
        with pytest.raises(CorruptCheckpoint):
            read(reader(data))


def test_every_changed_byte_is_found_by_who_reads_all_and_all_but_states_by_who_reads_back_the_end() -> None:
    before = {b"k%d" % i: b"v" * 9 for i in range(9)}
    data, begun, _ = written(before, before | {b"new": b"1", b"k3": b"other"})
    states = range(STATE_AT + checkpoint.SECTION_HEADER.size, begun.end)
    for at in range(len(data)):
        broken = data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        with pytest.raises(CorruptCheckpoint):
            checkpoint.verify(reader(broken))
        if at not in states:
            with pytest.raises(CorruptCheckpoint):
                verify_finished(reader(broken), begun)


def test_every_cut_is_found() -> None:
    data, begun, _ = written({b"k": b"v"}, {b"k": b"w", b"l": b"v"})
    for end in random.Random(1).sample(range(len(data)), 200):
        with pytest.raises(CorruptCheckpoint):
            verify_finished(reader(data[:end]), begun)
        if end < begun.end:
            with pytest.raises(CorruptCheckpoint):
                read_begun(reader(data[:end]), begun.end)


def test_another_file_than_the_one_that_was_begun_is_not_finished() -> None:
    data = b"".join(begin({b"k": b"v"}))
    other = b"".join(begin({b"k": b"v", b"l": b"w"}))
    since = Since(read_begun(reader(other), len(other)), {}, [])
    with pytest.raises(CorruptCheckpoint, match="end"):
        finish(reader(data), snapshot({b"k": b"v"}), since)


def test_keys_that_are_gone_must_have_been_there() -> None:
    data = b"".join(begin({b"k": b"v"}))
    since = Since(read_begun(reader(data), len(data)), {}, [b"other"])
    head, rest = finish(reader(data), snapshot({b"k": b"v"}), since)
    with pytest.raises(CorruptCheckpoint, match="is not in STATE"):
        checkpoint.decode(reader(data[:HEAD_AT] + head + data[HEAD_AT + len(head) :] + b"".join(rest)))
