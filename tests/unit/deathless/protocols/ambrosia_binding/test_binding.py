"""The binding's machine: what it takes of a coordinator in each phase, and what it lets an application do."""

from __future__ import annotations

import struct
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.protocols.ambrosia_binding.binding import (
    BecamePrimary,
    Binding,
    Event,
    FirstStart,
    InitialCame,
    Phase,
    RestoreBegins,
    RestoreEnds,
    RestorePart,
    SaveDue,
    UpgradeNow,
)
from deathless.protocols.ambrosia_binding.checksum import xxh64
from deathless.protocols.ambrosia_binding.encoding import Call, CallType, Outcome, Tag, message, number
from deathless.protocols.ambrosia_binding.errors import CoordinatorWrong, NotAllowedNow

FORK = message(Tag.RPC, b"\0\2\1a")
CALLED = Call(1, CallType.FORKED, b"a")


def record(payload: bytes, sequence: int, committer: int = 7, check: int | None = None) -> bytes:
    found = xxh64(payload) if check is None else check
    return struct.pack("<iiQq", committer, 24 + len(payload), found, sequence) + payload


def control(tag: Tag) -> bytes:
    return record(message(tag), -1)


RESTORE = record(message(Tag.CHECKPOINT, number(3)), -2, check=0) + b"abc"
REPLAYING = RESTORE + record(FORK, 4)
PRIMARY = REPLAYING + control(Tag.BECOMING_PRIMARY)


def after(data: bytes, *, verify: bool = True) -> tuple[Binding, list[Event]]:
    binding = Binding("me", verify=verify)
    return binding, take(binding, data)


def take(binding: Binding, data: bytes) -> list[Event]:
    binding.receive(data)
    events = []
    while (event := binding.next_event()) is not None:
        events.append(event)
    return events


def saved(binding: Binding, data: bytes = b"s") -> bytes:
    binding.begin_save(len(data))
    binding.save(data)
    return binding.outgoing()


def test_the_first_start_asks_for_the_first_message_then_for_the_state() -> None:
    binding, events = after(
        control(Tag.TAKE_BECOMING_PRIMARY_CHECKPOINT) + record(message(Tag.INITIAL_MESSAGE, b"hello"), 0)
    )
    assert events == [FirstStart()]
    with pytest.raises(NotAllowedNow):
        binding.begin_save(0)
    binding.initial(b"hello")
    with pytest.raises(NotAllowedNow, match="InitialMessage"):
        binding.initial(b"hello")
    assert saved(binding) == message(Tag.INITIAL_MESSAGE, b"hello") + message(Tag.CHECKPOINT, number(1)) + b"s"
    assert binding.primary
    with pytest.raises(NotAllowedNow, match="before the first message"):
        binding.fork(1, b"")
    assert binding.next_event() == InitialCame(b"hello")
    binding.fork(1, b"")


def test_a_checkpoint_is_restored_before_anything_else_comes() -> None:
    binding, events = after(PRIMARY)
    assert events == [RestoreBegins(3), RestorePart(b"abc"), RestoreEnds(), CALLED, BecamePrimary()]
    assert binding.phase is Phase.PRIMARY


def test_a_state_of_no_bytes_is_restored_and_saved() -> None:
    binding, events = after(record(message(Tag.CHECKPOINT, number(0)), -2, check=0) + control(Tag.TAKE_CHECKPOINT))
    assert events == [RestoreBegins(0), RestoreEnds(), SaveDue()]
    binding.begin_save(0)
    assert binding.outgoing() == message(Tag.CHECKPOINT, number(0))
    assert binding.phase is Phase.REPLAYING


@given(st.lists(st.integers(0, len(PRIMARY)), max_size=8))
def test_events_are_the_same_however_the_bytes_are_cut(cuts: list[int]) -> None:
    binding = Binding("me")
    events: list[Event] = []
    places = [0, *sorted(cuts), len(PRIMARY)]
    for start, end in pairwise(places):
        events += take(binding, PRIMARY[start:end])
    state = b"".join(event.data for event in events if isinstance(event, RestorePart))
    assert state == b"abc"
    assert [type(event) for event in events if not isinstance(event, RestorePart)] == [
        RestoreBegins,
        RestoreEnds,
        Call,
        BecamePrimary,
    ]


@pytest.mark.parametrize(
    ("tag", "events"),
    [
        (Tag.TAKE_CHECKPOINT, [SaveDue()]),
        (Tag.UPGRADE_TAKE_CHECKPOINT, [UpgradeNow(test=False), SaveDue()]),
        (Tag.TAKE_BECOMING_PRIMARY_CHECKPOINT, [SaveDue()]),
    ],
)
def test_nothing_comes_while_the_state_is_being_saved(tag: Tag, events: list[Event]) -> None:
    binding, found = after(REPLAYING + control(tag) + record(FORK, 5))
    assert found[-len(events) :] == events
    binding.fork(2, b"before", to="bank")
    binding.begin_save(2)
    with pytest.raises(NotAllowedNow):
        binding.fork(1, b"")
    with pytest.raises(NotAllowedNow):
        binding.ask_save()
    with pytest.raises(NotAllowedNow):
        binding.begin_save(1)
    binding.save(b"s")
    assert binding.next_event() is None
    with pytest.raises(NotAllowedNow, match="2 bytes of a checkpoint, 1 are left"):
        binding.save(b"st")
    binding.save(b"t")
    sent = binding.outgoing()
    assert sent.endswith(message(Tag.CHECKPOINT, number(2)) + b"st") and b"before" in sent
    assert binding.next_event() == CALLED
    assert binding.primary == (tag is not Tag.TAKE_CHECKPOINT)


def test_a_test_of_an_upgrade_comes_before_the_past_alone() -> None:
    binding, events = after(RESTORE + control(Tag.UPGRADE_SERVICE) + record(FORK, 0))
    assert events[-2:] == [UpgradeNow(test=True), CALLED]
    assert not binding.primary
    with pytest.raises(CoordinatorWrong, match="before the past"):
        after(REPLAYING + control(Tag.UPGRADE_SERVICE))


def test_an_impulse_is_for_primaries_alone() -> None:
    binding, _ = after(REPLAYING)
    with pytest.raises(NotAllowedNow, match="not primary"):
        binding.impulse(1, b"")
    with pytest.raises(NotAllowedNow, match="only a primary"):
        binding.ask_save()
    take(binding, control(Tag.BECOMING_PRIMARY))
    binding.impulse(1, b"x")
    binding.ask_save()
    assert binding.outgoing() == bytes.fromhex("0c000000020278" + "0202")


def test_outputs_leave_as_one_batch_and_a_destination_is_attached_once() -> None:
    binding, _ = after(REPLAYING)
    binding.fork(1, b"a", to="bank")
    binding.call(1, b"b", to="bank", number_of_call=3)
    binding.answer(Call(1, CallType.AWAITED, b"", "bank", 9), Outcome.VALUE, b"c")
    binding.fork(1, b"d", to="me")
    sent = binding.outgoing()
    assert sent.startswith(message(Tag.ATTACH_TO, b"bank") + b"\x60\x05\x08")
    binding.fork(1, b"e", to="bank")
    assert binding.outgoing() == bytes.fromhex("1400086261" + "6e6b00020165")
    assert binding.outgoing() == b""


WRONG = [
    (control(Tag.BECOMING_PRIMARY), "BECOMING_PRIMARY in phase FRESH"),
    (record(FORK, 0), "RPC in phase FRESH"),
    (PRIMARY + control(Tag.BECOMING_PRIMARY), "BECOMING_PRIMARY in phase PRIMARY"),
    (REPLAYING + RESTORE, "CHECKPOINT in phase REPLAYING"),
    (REPLAYING + record(FORK, 6), "record 6 comes, 5 is next"),
    (REPLAYING + record(FORK, 5, committer=8), "committer id was 7, and is 8"),
    (REPLAYING + record(FORK, -3), "sequence -3"),
    (REPLAYING + record(FORK, 5, check=1), "check bytes of record 5"),
    (REPLAYING + record(FORK, -1), "record -1 holds"),
    (REPLAYING + record(message(Tag.TAKE_CHECKPOINT), 5), "record 5 holds"),
    (record(message(Tag.CHECKPOINT, number(3)), 0), "record 0 holds"),
    (record(message(Tag.TAKE_CHECKPOINT), -2), "record -2 holds"),
    (record(message(Tag.CHECKPOINT, number(-1)), -2), "a checkpoint of -1 bytes"),
    (REPLAYING + record(message(Tag.TAKE_CHECKPOINT, b"x"), -1), "TAKE_CHECKPOINT with 1 bytes"),
    (struct.pack("<iiQq", 1, 23, 0, 0), "a record of 23 bytes"),
    (struct.pack("<iiQq", 1, (256 << 20) + 1, 0, 0), "a record of 268435457 bytes"),
]


@pytest.mark.parametrize(("data", "match"), WRONG)
def test_a_coordinator_that_breaks_the_protocol_is_found(data: bytes, match: str) -> None:
    with pytest.raises(CoordinatorWrong, match=match):
        after(data)


def test_check_bytes_are_left_alone_where_that_is_wanted() -> None:
    binding, events = after(REPLAYING + record(FORK, 5, check=1), verify=False)
    assert events[-1] == CALLED
    assert take(binding, record(b"", 6) + record(message(Tag.INITIAL_MESSAGE, b"x"), 7)) == [InitialCame(b"x")]


@given(st.integers(0, len(PRIMARY) - 1), st.integers(0, 255))
def test_a_changed_byte_gives_events_or_an_error_of_ours(at: int, byte: int) -> None:
    with suppress(CoordinatorWrong):
        after(PRIMARY[:at] + bytes([byte]) + PRIMARY[at + 1 :])
