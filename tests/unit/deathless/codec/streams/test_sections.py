"""Sections about streams: the bytes, both ways, older files, and content that contradicts itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.encoded import chunk_reader
from tests.unit.deathless.codec.test_checkpoint import sample

from deathless.codec.checkpoint import decode, encode, verify
from deathless.codec.sections import Section
from deathless.codec.snapshot import RefusedRecord, Snapshot, StreamRecord
from deathless.codec.streams.sections import Reader, payloads

STOPPED = RefusedRecord(41, 30, 9, 1_700_000_000_000_000, "DL3014", "ValueError: no", b"")
STREAMS = [
    StreamRecord("flights", 0, 12, 43, True, b"epoch 3", bytes(range(16)), "deadLetter", 1),
    StreamRecord("flights", 1, 30, 9, False, b"", bytes(16), "stop", 1, STOPPED),
]
REFUSED = [RefusedRecord(40, 12, 42, 1_700_000_000_000_000, "DL3014", "KeyError: 'x'", b"the message")]


def streaming() -> Snapshot:
    """The sample, with streams."""
    return replace(sample(), streams=STREAMS, refused=REFUSED)


def test_the_bytes_of_a_checkpoint_with_streams_are_version_2(golden: Callable[[str, bytes], None]) -> None:
    golden("checkpoint_streams", b"".join(encode(streaming())))


def test_a_checkpoint_with_streams_reads_back_and_one_without_has_none() -> None:
    data = b"".join(encode(streaming()))
    found = decode(chunk_reader([data]))
    assert (found.streams, found.refused) == (STREAMS, REFUSED)
    assert verify(chunk_reader([data]))[1] == found.state_digest
    plain = decode(chunk_reader(list(encode(sample()))))
    assert (plain.streams, plain.refused) == ([], [])


@given(st.integers(0, 40))
def test_streams_are_cut_into_sections_and_put_together_again(count: int) -> None:
    records = [StreamRecord("s", n, n + 1, 1, False, b"", bytes(16), "skip", 0) for n in range(count)]
    reader = Reader()
    for kind, items, payload in payloads(replace(sample(), streams=records, refused=REFUSED)):
        reader.read(kind, items, payload)
    assert (reader.streams, reader.refused) == (records, REFUSED)


def test_sections_about_streams_that_contradict_themselves_are_errors() -> None:
    [(_, count, payload)] = payloads(replace(sample(), streams=STREAMS))
    reader = Reader()
    reader.read(Section.STREAMS, count, payload)
    with pytest.raises(ValueError, match="do not ascend"):
        reader.read(Section.STREAMS, count, payload)
    with pytest.raises(ValueError, match="columns pass"):
        Reader().read(Section.STREAMS, 100, b"\x00")
    with pytest.raises(ValueError, match="disagree"):
        Reader().read(Section.REFUSED, count, payload[:-1])
    with pytest.raises(ValueError, match="Expected"):
        Reader().read(Section.REFUSED, 1, b"\x01\x00\x00\x00\x80")
