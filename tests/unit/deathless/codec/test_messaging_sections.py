"""Sections about messaging: the bytes, both ways, and content that contradicts itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.encoded import chunk_reader
from tests.unit.deathless.codec.test_checkpoint import built, parts_of, sample

from deathless.base.errors import CorruptCheckpoint
from deathless.codec import messaging_sections
from deathless.codec.checkpoint import SESSION, decode, encode, verify
from deathless.codec.messaging_sections import OUTBOX_HEAD, PEER, RESULT, UNDELIVERED, UNKNOWN, Reader, payloads
from deathless.codec.peer_messages import SELF_SESSION, Target
from deathless.codec.sections import Section
from deathless.codec.snapshot import (
    OutboxRecord,
    PeerRecord,
    ResultRecord,
    SessionRecord,
    Snapshot,
    UndeliveredRecord,
    UnknownRecord,
)

U64 = st.integers(0, 2**64 - 1)
BLOB = st.binary(max_size=24)


def peer_session(session_id: int, next_seq: int) -> SessionRecord:
    return SessionRecord(session_id, next_seq, next_seq - 1, 0, bytes(16), {}, True)


def busy() -> Snapshot:
    """The sample, with messaging."""
    plain = sample()
    return replace(
        plain,
        sessions=[*plain.sessions, peer_session(12, 6), peer_session(SELF_SESSION, 3)],
        invocations=[b"first", b"second one"],
        outbox=[OutboxRecord("", 0, 3, [b"to myself"]), OutboxRecord("shop", 0, 9, [b"one", b"", b"three"])],
        peers=[PeerRecord("shop", 0, bytes(range(16)), 77, 12)],
        results=[
            ResultRecord(30, 1_600_000_000_000_000, b"\x00\x05"),
            ResultRecord(29, 1_600_000_000_000_001, b"\x01"),
        ],
    )


def test_the_bytes_of_a_checkpoint_with_messaging_are_version_2(golden: Callable[[str, bytes], None]) -> None:
    golden("checkpoint_messaging", b"".join(encode(busy())))


def compared() -> Snapshot:
    """The one with messaging, with the histories of what was sent and taken in."""
    plain = busy()
    peer, ours = plain.sessions[-2:]
    shop = msgspec.structs.replace(plain.outbox[1], history=bytes(range(16, 32)))
    sessions = [*plain.sessions[:-2], msgspec.structs.replace(peer, history=bytes(range(16))), ours]
    return replace(plain, sessions=sessions, outbox=[plain.outbox[0], shop])


def test_the_bytes_of_a_checkpoint_with_histories_are_version_2(golden: Callable[[str, bytes], None]) -> None:
    data = b"".join(encode(compared()))
    golden("checkpoint_histories", data)
    found = decode(chunk_reader([data]))
    assert (found.outbox, found.sessions) == (compared().outbox, compared().sessions)


def test_a_reader_that_does_not_know_histories_may_leave_them_out() -> None:
    *others, (kind, _, _, flags) = parts_of(b"".join(encode(compared())))
    assert (kind, flags) == (Section.HISTORIES, 0)
    found = decode(built(others))
    assert found.outbox == busy().outbox
    assert found.sessions == busy().sessions


def unsettled() -> Snapshot:
    """The sample, with activities of unknown outcome."""
    cases = [
        UnknownRecord(30, 1, "place", b"alice", "charge", "k1", 32, 1_600_000_000_000_000),
        UnknownRecord(29, 4, "send", "Zoë".encode(), "mail", "k2", 33, 1_600_000_000_000_001),
    ]
    return replace(sample(), unknown=cases)


def test_the_bytes_of_a_checkpoint_with_unknown_outcomes_are_version_2(golden: Callable[[str, bytes], None]) -> None:
    golden("checkpoint_unknown", b"".join(encode(unsettled())))


def test_a_checkpoint_with_unknown_outcomes_reads_back_as_it_was_written() -> None:
    written = unsettled()
    assert decode(chunk_reader(list(encode(written)))) == written


def given_up() -> Snapshot:
    """The sample, with messages that drivers gave up, one of them seen to."""
    records = [
        UndeliveredRecord(0, "mail", 0, 3, 0, "", b""),
        UndeliveredRecord(30, "mail", 0, 4, 1_600_000_000_000_000, "503 (given up after 9 attempts)", b"message"),
        UndeliveredRecord(31, "sms", 0, 1, 1_600_000_000_000_001, "", b""),
    ]
    return replace(sample(), undelivered=records)


def test_the_bytes_of_a_checkpoint_with_messages_given_up_are_version_2(golden: Callable[[str, bytes], None]) -> None:
    golden("checkpoint_undelivered", b"".join(encode(given_up())))


def test_a_checkpoint_with_messages_given_up_reads_back_as_it_was_written() -> None:
    written = given_up()
    assert decode(chunk_reader(list(encode(written)))) == written


def test_a_checkpoint_with_messaging_reads_back_as_it_was_written() -> None:
    written = busy()
    read = chunk_reader(list(encode(written)))
    assert decode(read) == written
    assert verify(read) == (written.head(), written.state_digest)


def test_a_service_without_messaging_has_none_of_these_sections() -> None:
    assert list(messaging_sections.payloads(sample())) == []


def test_a_target_without_messages_keeps_its_position() -> None:
    written = replace(sample(), outbox=[OutboxRecord("shop", 0, 9, []), OutboxRecord("shop", 1, 1, [])])
    assert decode(chunk_reader(list(encode(written)))).outbox == written.outbox


NAMES = st.tuples(st.text(max_size=5), st.integers(0, 2**32 - 1))


@st.composite
def peers(draw: st.DrawFn) -> tuple[list[PeerRecord], list[SessionRecord]]:
    names = sorted(draw(st.lists(NAMES, max_size=4, unique=True)))
    ids = draw(st.lists(st.integers(100, 2**62), min_size=len(names), max_size=len(names), unique=True))
    service_id = st.binary(min_size=16, max_size=16)
    records = [PeerRecord(*name, draw(service_id), draw(U64), number) for name, number in zip(names, ids, strict=True)]
    return records, [peer_session(number, draw(st.integers(1, 2**40))) for number in sorted(ids)]


@given(
    invocations=st.lists(BLOB, max_size=5),
    outbox=st.dictionaries(NAMES, st.tuples(st.integers(1, 2**40), st.lists(BLOB, max_size=6)), max_size=4),
    known=peers(),
    results=st.dictionaries(U64, st.tuples(U64, BLOB), max_size=5),
    unknown=st.lists(
        st.tuples(U64, U64, st.text(max_size=5), BLOB, st.text(max_size=5), st.text(max_size=5)), max_size=5
    ),
    group_bytes=st.integers(1, 60),
)
def test_whatever_messaging_holds_reads_back_however_it_is_cut(
    invocations: list[bytes],
    outbox: dict[tuple[str, int], tuple[int, list[bytes]]],
    known: tuple[list[PeerRecord], list[SessionRecord]],
    results: dict[int, tuple[int, bytes]],
    unknown: list[tuple[int, int, str, bytes, str, str]],
    group_bytes: int,
) -> None:
    written = replace(
        sample(),
        sessions=[*sample().sessions, *known[1]],
        invocations=invocations,
        outbox=[OutboxRecord(*target, *held) for target, held in sorted(outbox.items())],
        peers=known[0],
        results=sorted((ResultRecord(i, *kept) for i, kept in results.items()), key=lambda record: record.at_us),
        unknown=[UnknownRecord(*each, lsn, 7) for lsn, each in enumerate(unknown, 1)],
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(messaging_sections, "GROUP_BYTES", group_bytes)
        chunks = list(encode(written))
    assert decode(chunk_reader(chunks)) == written


@given(
    kind=st.sampled_from([kind for kind in Section if Section.INVOCATIONS <= kind <= Section.HISTORIES]),
    count=st.one_of(st.integers(0, 4), st.integers(0, 2**32 - 1)),
    payload=st.binary(max_size=80),
)
def test_a_section_of_random_bytes_is_read_or_refused_cleanly(kind: Section, count: int, payload: bytes) -> None:
    parts = parts_of(b"".join(encode(sample())))
    try:
        decode(built([*parts, (kind, count, payload, 1)]))
    except CorruptCheckpoint:
        return


def outbox_section(position: int, name: bytes, *messages: bytes, shard: int = 0) -> tuple[int, int, bytes]:
    lengths = b"".join(len(message).to_bytes(4, "little") for message in messages)
    head = OUTBOX_HEAD.pack(position, shard, len(name))
    return Section.OUTBOX, len(messages), head + name + lengths + b"".join(messages)


def peer_row(session: int, name: bytes, shard: int = 0) -> bytes:
    return PEER.pack(session, 77, bytes(16), shard, len(name))


def undelivered_row(number: int, service: int = 0, why: int = 0, message: int = 0) -> bytes:
    return UNDELIVERED.pack(number, 1, 7, 0, service, why, message)


def unknown_row(lsn: int, handler: int = 0, key: int = 0, activity: int = 0, activity_key: int = 0) -> bytes:
    return UNKNOWN.pack(1, 1, lsn, 5, handler, key, activity, activity_key)


A, B = outbox_section(1, b"a", b"x"), outbox_section(1, b"b", b"x")
WRONG: dict[str, tuple[list[tuple[int, int, bytes]], str]] = {
    "an outbox without its head": ([(Section.OUTBOX, 0, bytes(15))], "shorter than its head"),
    "an outbox without its lengths": ([(Section.OUTBOX, 9, A[2])], "columns pass"),
    "an outbox with more than its messages": ([(Section.OUTBOX, 1, A[2] + b"x")], "disagree"),
    "an outbox with a name that is no text": ([outbox_section(1, b"\xff", b"x")], "utf-8"),
    "an outbox that begins at position 0": ([outbox_section(0, b"a", b"x")], "a position is 0"),
    "targets that fall": ([B, A], "do not ascend"),
    "shards that fall": ([outbox_section(1, b"a", shard=1), outbox_section(1, b"a")], "do not ascend"),
    "a gap between two sections of a target": ([A, outbox_section(3, b"a", b"y")], "position 3 of a/0"),
    "a section that repeats positions": ([A, outbox_section(1, b"a", b"y")], "position 1 of a/0"),
    "an empty section behind messages": ([A, outbox_section(2, b"a")], "position 2 of a/0"),
    "messages behind an empty section": ([outbox_section(1, b"a"), A], "position 1 of a/0"),
    "invocations without their lengths": ([(Section.INVOCATIONS, 1, bytes(3))], "columns pass"),
    "peers without their rows": ([(Section.PEERS, 2, peer_row(7, b""))], "columns pass"),
    "peers without their names": ([(Section.PEERS, 1, peer_row(7, b"a"))], "disagree"),
    "peers that come twice": ([(Section.PEERS, 2, 2 * peer_row(7, b""))], "peers do not ascend"),
    "results without their rows": ([(Section.RESULTS, 1, bytes(23))], "columns pass"),
    "results without their replies": ([(Section.RESULTS, 1, RESULT.pack(1, 1, 1, 0))], "disagree"),
    "results whose times fall": (
        [(Section.RESULTS, 2, RESULT.pack(1, 2, 0, 0) + RESULT.pack(2, 1, 0, 0))],
        "times of results fall",
    ),
    "messages given up without their rows": ([(Section.UNDELIVERED, 1, bytes(39))], "columns pass"),
    "messages given up without their texts": ([(Section.UNDELIVERED, 1, undelivered_row(1, 0, 0, 1))], "disagree"),
    "messages given up whose ids do not ascend": (
        [(Section.UNDELIVERED, 2, undelivered_row(5) + undelivered_row(5))],
        "ids of messages that were given up do not ascend",
    ),
    "unknown outcomes without their rows": ([(Section.UNKNOWN, 1, bytes(47))], "columns pass"),
    "unknown outcomes without their texts": ([(Section.UNKNOWN, 1, unknown_row(1, 0, 0, 0, 1))], "disagree"),
    "unknown outcomes with a name that is no text": ([(Section.UNKNOWN, 1, unknown_row(1, 1) + b"\xff")], "utf-8"),
    "unknown outcomes whose lsns do not ascend": (
        [(Section.UNKNOWN, 2, unknown_row(5) + unknown_row(5))],
        "lsns of unknown outcomes do not ascend",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_section_that_contradicts_itself_is_refused_by_name(name: str) -> None:
    sections, what = WRONG[name]
    parts = parts_of(b"".join(encode(sample())))
    kind = Section(sections[0][0]).name
    with pytest.raises(CorruptCheckpoint, match=rf"section {kind} at offset \d+: .*{what}"):
        decode(built([*parts, *((*section, 1) for section in sections)]))


@pytest.mark.parametrize(
    ("sections", "what"),
    [
        ([(Section.PEERS, 1, peer_row(8, b""))], "session 8 of a peer is missing"),
        ([(Section.PEERS, 1, peer_row(7, b""))], "session 7 of a peer waits"),
        ([(Section.PEERS, 2, peer_row(6, b"") + peer_row(6, b"", 1))], "belongs to two peers"),
        ([(Section.RESULTS, 2, 2 * RESULT.pack(1, 1, 0, 0))], "an invocation has two results"),
    ],
)
def test_sections_that_contradict_each_other_are_refused(sections: list[tuple[int, int, bytes]], what: str) -> None:
    head, state, _, *_ = parts_of(b"".join(encode(sample())))
    known = SESSION.pack(7, 3, 1, 0, bytes(16)) + SESSION.pack(6, 1, 0, 0, bytes(16))
    with pytest.raises(CorruptCheckpoint, match=what):
        decode(built([head, state, (Section.SESSIONS, 2, known, 1), *((*section, 1) for section in sections)]))


def test_a_reader_of_nothing_marks_no_session_but_our_own() -> None:
    client, ours = SessionRecord(7, 3, 1, 5, bytes(16), {2: b"r"}), peer_session(SELF_SESSION, 4)
    bare = SessionRecord(SELF_SESSION, 4, 3, 0, bytes(16), {})
    assert Reader().finish({7: client, SELF_SESSION: bare}) == [client, ours]


def test_an_outbox_is_written_and_read_a_group_at_a_time() -> None:
    """It may be larger than the memory of its replica."""

    class Counted:
        def __init__(self) -> None:
            self.given = 0

        def __len__(self) -> int:
            return 5

        def __iter__(self) -> Iterator[bytes]:
            for _ in range(5):
                self.given += 1
                yield bytes(400_000)

    class Loader:
        def __init__(self) -> None:
            self.calls: list[tuple[object, ...]] = []

        def begin(self, target: Target, first_position: int) -> None:
            self.calls.append((target, first_position))

        def extend(self, target: Target, messages: Sequence[bytes]) -> None:
            self.calls.append((target, len(messages)))

        def snapshot(self) -> list[OutboxRecord]:
            return [OutboxRecord("shop", 0, 9, [])]

    counted = Counted()
    written = replace(sample(), outbox=[OutboxRecord("shop", 0, 9, counted), OutboxRecord("town", 1, 4, [])])
    sections = payloads(written)
    assert next(kind for kind, *_ in sections if kind is Section.OUTBOX)
    assert counted.given == 3, "one beyond the group"
    chunks = list(encode(written))
    loader = Loader()
    shop, town = Target("shop", 0), Target("town", 1)
    assert decode(chunk_reader(chunks), loader).outbox == loader.snapshot()
    assert loader.calls == [(shop, 9), (shop, 2), (shop, 2), (shop, 1), (town, 4), (town, 0)]
