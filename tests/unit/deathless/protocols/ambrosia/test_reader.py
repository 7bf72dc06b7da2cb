"""An application's stream: every item, cut anywhere; lengths that lie; what is too long; checkpoints in pieces."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.errors import ProtocolViolated
from deathless.protocols.ambrosia.messages import (
    AskCheckpoint,
    AttachTo,
    CheckpointEnds,
    CheckpointPart,
    CheckpointStarts,
    Initial,
    Item,
    Kind,
    MessageType,
    Oversized,
    Rpc,
    encode_batch,
    encode_message,
    head_bytes,
    nobody_of,
    unreadable_of,
)
from deathless.protocols.ambrosia.reader import StreamReader
from deathless.protocols.ambrosia_binding.encoding import (
    Answer,
    Call,
    CallType,
    Outcome,
    Tag,
    message,
    number,
    outgoing_answer,
    outgoing_call,
)

CUTS = st.lists(st.integers(0, 6000), max_size=8)
SMALL = Bounds(message_bytes_max=1200, name_bytes_max=16, checkpoint_bytes_max=1 << 20)
RPCS = [
    outgoing_call("", Call(1, CallType.FORKED, b"self")),
    outgoing_call("größe", Call(-1, CallType.FORKED, b'{"a":1}')),
    outgoing_call("bank", Call(2, CallType.AWAITED, b"asks", "me", 5)),
    outgoing_call("bank", Call(3, CallType.IMPULSE, b"")),
    outgoing_answer("bank", Answer(Outcome.VALUE, "me", 6, b"v")),
    outgoing_answer("bank", Answer(Outcome.NOTHING, "me", 7, b"")),
    outgoing_answer("bank", Answer(Outcome.EXCEPTION, "me", 8, b"e")),
]
STREAM = b"".join(
    [
        message(Tag.INITIAL_MESSAGE, b"hello"),
        message(Tag.CHECKPOINT, number(5)) + b"state",
        message(Tag.ATTACH_TO, b"bank"),
        *RPCS[:3],
        message(Tag.RPC_BATCH, number(len(RPCS)), *RPCS),
        message(Tag.TAKE_CHECKPOINT),
        message(Tag.RPC_BATCH, number(0)),
        message(Tag.PING, *[RPCS[0][2:]]),
        message(Tag.PING_RETURN, *[RPCS[0][2:]]),
        message(Tag.CHECKPOINT, number(0)),
        message(Tag.TAKE_CHECKPOINT),
    ]
)


def read(data: bytes, cuts: Iterable[int] = (), bounds: Bounds = SMALL) -> list[Item]:
    """All items of a stream that comes in pieces; parts of a checkpoint are put together."""
    reader = StreamReader(bounds)
    places = [0, *sorted(cut for cut in cuts if cut < len(data)), len(data)]
    items: list[Item] = []
    for start, end in pairwise(places):
        for item in reader.feed(data[start:end]):
            if isinstance(item, CheckpointPart) and isinstance(items[-1], CheckpointPart):
                items[-1] = CheckpointPart(items[-1].data + item.data)
            else:
                items.append(item)
    return items


def test_the_bytes_from_an_application_are_version_1(golden: Callable[[str, bytes], None]) -> None:
    golden("ambrosia_from_application", STREAM)


def test_every_item_of_a_stream_is_read() -> None:
    items = read(STREAM)
    rpcs = [item for item in items if isinstance(item, Rpc)]
    assert items[:5] == [
        Initial(b"hello"),
        CheckpointStarts(5),
        CheckpointPart(b"state"),
        CheckpointEnds(),
        AttachTo("bank"),
    ]
    assert rpcs[:3] == rpcs[3:6]
    assert [rpc.kind for rpc in rpcs[3:10]] == [1, 1, 0, 2, Kind.VALUE, Kind.VOID, Kind.EXCEPTION]
    assert [rpc.type for rpc in rpcs[10:]] == [MessageType.PING, MessageType.PING_RETURN]
    assert rpcs[1].destination == "größe"
    assert items[-3:] == [CheckpointStarts(0), CheckpointEnds(), AskCheckpoint()]


@given(st.lists(st.integers(0, len(STREAM)), max_size=12))
def test_a_stream_is_read_alike_however_it_is_cut(cuts: list[int]) -> None:
    assert read(STREAM, cuts) == read(STREAM)


def test_a_stream_is_read_alike_byte_by_byte() -> None:
    assert read(STREAM, range(len(STREAM))) == read(STREAM)


def long_rpc(size: int, to: str = "bank") -> bytes:
    return outgoing_call(to, Call(4, CallType.AWAITED, bytes(size), "me", 9))


@pytest.mark.parametrize("wrap", [False, True])
@given(cuts=st.lists(st.integers(0, 6000), max_size=8))
def test_an_rpc_that_is_too_long_costs_itself_alone(wrap: bool, cuts: list[int]) -> None:
    parts = [RPCS[0], long_rpc(5000), RPCS[2], long_rpc(1300), RPCS[2]]
    data = message(Tag.RPC_BATCH, number(len(parts)), *parts) if wrap else b"".join(parts)
    one, two, three, four, five = read(data + RPCS[3], cuts)[:5]
    assert isinstance(one, Rpc)
    assert two == Oversized(destination="bank", kind=Kind.ASYNC, method=4, name="me", sequence=9, size=5013)
    assert isinstance(three, Rpc)
    assert isinstance(four, Oversized)
    assert five == three


@given(size=st.sampled_from([17, 600, 1190, 2400]), arguments=st.sampled_from([0, 900]), cuts=CUTS)
def test_a_call_to_a_name_that_is_too_long_goes_to_nobody_and_costs_itself_alone(
    size: int, arguments: int, cuts: list[int]
) -> None:
    """Whether the message is too long as well, and whoever is told of the name before."""
    called = outgoing_call("n" * size, Call(4, CallType.AWAITED, bytes(arguments), "me", 9))
    data = RPCS[0] + message(Tag.ATTACH_TO, b"n" * size) + called + RPCS[2]
    first, attached, item, last = read(data, cuts)
    assert [first, last] == [*read(RPCS[0]), *read(RPCS[2])]
    assert attached == AttachTo(nobody_of(size))
    assert isinstance(item, Rpc | Oversized)
    assert isinstance(item, Rpc) is (len(called) - 3 <= SMALL.message_bytes_max)
    assert (item.destination, item.kind, item.method) == (nobody_of(size), Kind.ASYNC, 4)
    assert (item.name, item.sequence) == ("me", 9)


def test_forks_to_a_name_that_is_too_long_are_read_one_by_one() -> None:
    """To compare heads of that length costs more than to read them."""
    fork = outgoing_call("n" * 1100, Call(4, CallType.FORKED, b"x"))
    found = list(StreamReader(SMALL).feed_together(fork * 3))
    assert [each.destination for each in found if isinstance(each, Rpc)] == [nobody_of(1100)] * 3


@given(cuts=CUTS)
def test_a_call_to_a_name_that_is_too_long_stands_in_a_batch_as_others_do(cuts: list[int]) -> None:
    parts = [RPCS[0], outgoing_call("n" * 1500, Call(4, CallType.FORKED, b"x")), RPCS[2]]
    one, two, three = read(message(Tag.RPC_BATCH, number(3), *parts), cuts)
    assert isinstance(two, Oversized)
    assert (two.destination, [one, three]) == (nobody_of(1500), [*read(RPCS[0]), *read(RPCS[2])])


def test_the_longest_message_that_is_allowed_is_read() -> None:
    rpc = outgoing_call("", Call(1, CallType.FORKED, bytes(SMALL.message_bytes_max - 5)))
    [item] = read(rpc)
    assert isinstance(item, Rpc)
    [item] = read(outgoing_call("", Call(1, CallType.FORKED, bytes(SMALL.message_bytes_max - 4))))
    assert isinstance(item, Oversized)
    assert head_bytes(SMALL) < SMALL.message_bytes_max


WRONG = [
    ("0000", "size of a message is 0"),
    ("0100", "size of a message is -1"),
    ("feffffff1f", "size has more than 32 bits"),
    ("02" + "10", "type of a message is 16, which is none"),
    ("02" + "ff", "type of a message is 255"),
    *((f"02{code:02x}", "never comes from an application") for code in (3, 4, 10, 11, 12, 13, 14, 15)),
    ("04" + "02" + "00", "TAKE_CHECKPOINT has 2 bytes, at most 1"),
    (number(1300).hex() + "00" + number(2401).hex(), "destination has 2401 bytes, at most 2400 are gone through"),
    ("feffffff0f" + "09", "INITIAL has 2147483647 bytes, at most 1200"),
    ("18" + "08", "CHECKPOINT has 12 bytes, at most 11"),
    ("04" + "08" + "01", "length of the checkpoint is -1"),
    ("0c" + "08" + "8080808001", "length of the checkpoint is 134217728, at most 1048576"),
    ("04" + "05" + "01", "count of a batch is -1"),
    ("06" + "05" + "0000", "count of a batch is 0, and 1 bytes follow"),
    ("0a" + "05" + "04" + "0200", "count of a batch is 2, and 3 bytes follow"),
    ("0a" + "05" + "02" + "0202" + "00", "TAKE_CHECKPOINT stands in a batch"),
    ("0a" + "05" + "02" + "0405" + "00", "RPC_BATCH stands in a batch"),
    ("0a" + "05" + "02" + "0a00" + "00", "of 5 bytes in a batch with 3 bytes left"),
    ("12" + "05" + "02" + "0a0000000201" + "00", "1 bytes stand behind the last message"),
]


@pytest.mark.parametrize(("data", "match"), WRONG)
def test_what_is_no_message_is_refused_before_it_is_kept(data: str, match: str) -> None:
    good = outgoing_call("", Call(1, CallType.FORKED, b"a"))
    reader = StreamReader(SMALL)
    assert len(list(reader.feed(good))) == 1
    with pytest.raises(ProtocolViolated, match=match) as caught:
        list(reader.feed(bytes.fromhex(data)))
    assert caught.value.offset >= len(good)
    assert "byte " in str(caught.value)
    with pytest.raises(ProtocolViolated, match=match):
        list(reader.feed(good))


@given(target=st.sampled_from([b"\xff", b"bank/\xe4", b"\xed\xa0\x80" * 5]), long=st.booleans(), cuts=CUTS)
def test_a_call_to_a_name_that_is_no_utf8_goes_to_nobody_and_costs_itself_alone(
    target: bytes, long: bool, cuts: list[int]
) -> None:
    """Whether the message is too long as well, in a batch or not, and whoever is told of the name before."""
    body = outgoing_call("", Call(4, CallType.AWAITED, bytes(1300 if long else 5), "me", 9))
    start = body.index(b"\0\0\x08\0") + 1  # behind the length of the destination, which is 0
    called = message(Tag.RPC, number(len(target)), target, body[start:])
    wrapped = message(Tag.RPC_BATCH, number(2), RPCS[0], called)
    first, attached, item, *rest = read(RPCS[0] + message(Tag.ATTACH_TO, target) + called + wrapped + RPCS[2], cuts)
    assert [first, *rest] == [*read(RPCS[0]), *read(RPCS[0]), item, *read(RPCS[2])]
    assert attached == AttachTo(unreadable_of(len(target)))
    assert isinstance(item, Oversized if long else Rpc)
    assert (item.destination, item.kind, item.method) == (unreadable_of(len(target)), Kind.ASYNC, 4)
    assert (item.name, item.sequence) == ("me", 9)


@given(st.binary(max_size=200), st.lists(st.integers(0, 200), max_size=6))
def test_arbitrary_bytes_are_items_or_an_error_of_ours(data: bytes, cuts: list[int]) -> None:
    try:
        items = read(data, cuts)
    except ProtocolViolated:
        with pytest.raises(ProtocolViolated):
            read(data)
        return
    assert items == read(data)


@given(st.integers(0, len(STREAM) - 1), st.integers(0, 255), st.lists(st.integers(0, len(STREAM)), max_size=4))
def test_a_changed_byte_gives_items_or_an_error_of_ours(at: int, byte: int, cuts: list[int]) -> None:
    data = STREAM[:at] + bytes([byte]) + STREAM[at + 1 :]
    with suppress(ProtocolViolated):
        read(data, cuts)


def test_a_length_that_lies_keeps_nothing() -> None:
    reader = StreamReader(Bounds())
    tracemalloc.start()
    try:
        rpc_of_two_gigabytes = bytes.fromhex("feffffff0f") + b"\0" + number(0) + b"\0" + number(1) + b"\1"
        list(reader.feed(rpc_of_two_gigabytes))
        for _ in range(64):
            list(reader.feed(bytes(1 << 16)))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        assert reader.buffered == 0
    finally:
        tracemalloc.stop()


def test_two_gigabytes_of_state_pass_with_flat_memory() -> None:
    reader = StreamReader(Bounds())
    piece, length, taken = bytes(1 << 20), 2 << 30, 0
    assert list(reader.feed(message(Tag.CHECKPOINT, number(length)))) == [CheckpointStarts(length)]
    tracemalloc.start()
    try:
        for _ in range(length // len(piece)):
            for part in reader.feed(piece):
                assert isinstance(part, CheckpointPart | CheckpointEnds)
                taken += len(part.data) if isinstance(part, CheckpointPart) else 0
        assert taken == length
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_a_batch_is_passed_on_message_by_message() -> None:
    reader = StreamReader(Bounds())
    one = encode_message(MessageType.RPC, b"\0" + bytes.fromhex("000201") + bytes(1 << 10))
    whole = encode_batch([one] * 4000)
    found = 0
    for at in range(0, len(whole), 4096):
        found += len(list(reader.feed(whole[at : at + 4096])))
        assert reader.buffered < 8192
    assert found == 4000


def forks_in_batches(sizes: list[int], batch: int) -> bytes:
    """Forks of these sizes, so many in a batch; 1: each by itself."""
    forks = [outgoing_call("bank", Call(1, CallType.FORKED, bytes([at % 250]) * size)) for at, size in enumerate(sizes)]
    groups = [forks[at : at + batch] for at in range(0, len(forks), batch)]
    return b"".join(each[0] if len(each) == 1 else encode_batch(each) for each in groups)


@given(
    st.lists(st.sampled_from([3, 3, 3, 3, 70, 1300]), min_size=1, max_size=300),
    st.sampled_from([1, 2, 50, 400]),
    st.integers(1, 9000),
)
def test_forks_that_are_alike_are_read_as_one_by_one(sizes: list[int], batch: int, cut: int) -> None:
    """A byte at a time, nothing is ever read together."""
    data = forks_in_batches(sizes, batch)
    singly, together = StreamReader(SMALL), StreamReader(SMALL)
    expected = [item for byte in data for item in singly.feed(bytes((byte,)))]
    found = [item for at in range(0, len(data), cut) for item in together.feed(data[at : at + cut])]
    assert found == expected
    assert len(found) == len(sizes) and together.buffered == 0


def test_many_forks_that_are_alike_come_together() -> None:
    """All but the first, and the last of a batch."""
    reader = StreamReader(SMALL)
    lists = [each for each in reader.feed_together(forks_in_batches([3] * 2000, 1000)) if isinstance(each, list)]
    assert [len(each) for each in lists] == [998, 998]


@pytest.mark.parametrize("count", [50, 1000])
def test_batch_that_lies_is_refused_wherever_its_messages_are_alike(count: int) -> None:
    """It says that it holds more bytes, or more messages, than it does."""
    forks = [outgoing_call("bank", Call(1, CallType.FORKED, b"abc"))] * 100
    for lie in (number(count), number(99)):
        data = message(Tag.RPC_BATCH, lie, *forks) + message(Tag.ATTACH_TO, b"bank")
        with pytest.raises(ProtocolViolated):
            list(StreamReader(SMALL).feed(data))


def test_piece_of_a_checkpoint_that_nothing_waits_before_is_not_copied() -> None:
    """It is passed on as it came; what stands behind the checkpoint is read as ever."""
    reader = StreamReader(SMALL)
    list(reader.feed(message(Tag.CHECKPOINT, number(900))))
    piece, last = bytes(500), bytes(400) + message(Tag.ATTACH_TO, b"bank")
    (part,) = reader.feed(piece)
    assert isinstance(part, CheckpointPart) and part.data is piece
    assert list(reader.feed(last)) == [CheckpointPart(bytes(400)), CheckpointEnds(), AttachTo("bank")]
    assert reader.buffered == 0
