"""Messages: bytes derived by hand, what the binding reads of what the coordinator writes, and what is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.errors import ProtocolViolated
from deathless.protocols.ambrosia.messages import (
    FROM_APPLICATION,
    SELF,
    AttachTo,
    CheckpointStarts,
    Kind,
    MessageType,
    Rpc,
    decode_length,
    decode_name,
    decode_oversized,
    decode_rpc,
    encode_batch,
    encode_checkpoint,
    encode_message,
    head_bytes,
    make_call,
    make_return,
)
from deathless.protocols.ambrosia_binding import encoding
from deathless.protocols.ambrosia_binding.encoding import Answer, Call, CallType, Outcome, Tag

BOUNDS = Bounds()
NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
SEQUENCES = st.integers(0, 2**63 - 1)
METHODS = st.integers(-(2**31), 2**31 - 1)


def test_a_fork_has_the_bytes_of_the_page() -> None:
    message = encoding.outgoing_call("ab", Call(5, CallType.FORKED, b"hi"))
    assert message.hex() == "12" + "00" + "04" + "6162" + "00" + "0a" + "01" + "6869"
    rpc = decode_rpc(MessageType.RPC, message[2:], BOUNDS)
    assert (rpc.destination, rpc.kind, rpc.method, rpc.arguments) == ("ab", Kind.FORK, 5, b"hi")
    assert encode_message(rpc.type, rpc.body).hex() == "0c" + "00" + "00" + "0a" + "01" + "6869"


def test_a_call_to_oneself_names_nobody() -> None:
    message = encoding.outgoing_call("", Call(-1, CallType.IMPULSE, b""))
    assert message.hex() == "0a" + "00" + "00" + "00" + "01" + "02"
    assert decode_rpc(MessageType.RPC, message[2:], BOUNDS).destination == SELF


def test_a_call_that_is_awaited_says_where_its_return_goes() -> None:
    made = make_call("b", 1, Kind.ASYNC, b"x", name="me", sequence=64)
    assert made.body.hex() == "00" + "02" + "00" + "04" + "6d65" + "8001" + "78"
    assert encoding.arrived(made.body) == Call(1, CallType.AWAITED, b"x", "me", 64)


@pytest.mark.parametrize("outcome", Outcome)
def test_a_return_names_who_returns_and_the_call(outcome: Outcome) -> None:
    message = encoding.outgoing_answer("b", Answer(outcome, "me", 3, b"v"))
    assert message[2:].hex() == "02" + "62" + f"0{int(outcome)}" + "04" + "6d65" + "06" + "76"
    rpc = decode_rpc(MessageType.RPC, message[2:], BOUNDS)
    assert (rpc.kind - 16, rpc.name, rpc.sequence, rpc.arguments) == (outcome, "me", 3, b"v")
    assert rpc == make_return("b", rpc.kind, b"v", name="me", sequence=3)


@given(NAMES, METHODS, st.sampled_from(CallType), NAMES, SEQUENCES, st.binary(max_size=80))
def test_any_call_goes_through_as_it_was_sent(
    to: str, method: int, kind: CallType, name: str, sequence: int, arguments: bytes
) -> None:
    awaited = kind is CallType.AWAITED
    sent = Call(method, kind, arguments, name if awaited else "", sequence if awaited else 0)
    [(tag, data)] = encoding.messages_of(encoding.outgoing_call(to, sent))
    rpc = decode_rpc(MessageType(tag), data, BOUNDS)
    assert (rpc.destination, rpc.method, int(rpc.kind), rpc.arguments) == (to, method, int(kind), arguments)
    assert rpc == make_call(to, method, rpc.kind, arguments, name=sent.answer_to, sequence=sent.number)
    assert [encoding.arrived(d) for _, d in encoding.messages_of(encode_message(rpc.type, rpc.body))] == [sent]


def test_a_batch_holds_messages_with_their_sizes() -> None:
    one, two = encode_message(MessageType.RPC, b"\0\2\1a"), encode_message(MessageType.PING, b"\0\2\1b")
    batch = encode_batch([one, two])
    assert batch.hex() == "1c" + "05" + "04" + one.hex() + two.hex()
    assert list(encoding.messages_of(batch)) == [(Tag.RPC, b"\0\2\1a"), (Tag.PING, b"\0\2\1b")]
    assert list(encoding.messages_of(encode_batch([]))) == []


def test_a_checkpoint_is_announced_by_a_long() -> None:
    assert encode_checkpoint(2 << 30).hex() == "0c" + "08" + "8080808010"
    assert decode_length(b"\x80\x80\x80\x80\x10", BOUNDS) == CheckpointStarts(2 << 30)
    assert decode_name("größe".encode(), BOUNDS) == AttachTo("größe")


WRONG = [
    ("", "ends within its length of the destination"),
    ("01", "destination has -1 bytes"),
    ("feffffff0f", "ends within the destination, 2147483647 bytes"),
    ("04ff", "ends within the destination, 2 bytes"),
    ("04ffff04", "return byte is 4.*the destination before it is no UTF-8: its length counts bytes"),
    ("00", "ends before its return byte"),
    ("0004", "return byte is 4"),
    ("0000", "ends within its method id"),
    ("000002", "ends before its RPC type"),
    ("00000203", "RPC type is 3"),
    ("00000200", "ends within its length of the name of the caller"),
    ("0000020002", "ends within the name of the caller"),
    ("000002000261", "ends within its sequence of the call"),
    ("00000200026101", "sequence of the call is -1"),
    ("0001", "length of the name of the responder"),
    ("000102ff02", "name of the responder is no UTF-8"),
]


@pytest.mark.parametrize(("data", "match"), WRONG)
def test_what_is_no_rpc_is_refused_with_its_field(data: str, match: str) -> None:
    with pytest.raises(ProtocolViolated, match=match):
        decode_rpc(MessageType.RPC, bytes.fromhex(data), BOUNDS)


def test_a_return_is_told_by_its_first_byte_alone() -> None:
    # Read as a call, these bytes would be an impulse: method id 1 and type 2.
    rpc = decode_rpc(MessageType.RPC, b"\0\1\2\x02\0", BOUNDS)
    assert rpc.kind is Kind.VALUE


def test_lengths_of_checkpoints_are_bounded() -> None:
    for data, match in [(b"\x01", "is -1"), (b"\x82\x80\x80\x80\x10", "at most"), (b"\0\0", "1 bytes stand behind")]:
        with pytest.raises(ProtocolViolated, match=match):
            decode_length(data, BOUNDS)
    with pytest.raises(ProtocolViolated, match="has 513 bytes"):
        decode_name(b"a" * 513, BOUNDS)


def test_the_head_of_an_rpc_is_never_longer_than_it_is_said_to_be() -> None:
    longest = "n" * BOUNDS.name_bytes_max
    made = make_call(longest, -(2**31), Kind.ASYNC, b"", name=longest, sequence=2**63 - 1)
    outgoing = encoding.named(longest) + made.body
    assert len(outgoing) <= head_bytes(BOUNDS)
    found = decode_oversized(outgoing + bytes(10), 1 << 30, BOUNDS)
    assert (found.name, found.sequence, found.size) == (longest, 2**63 - 1, 1 << 30)


def test_types_that_coordinators_alone_speak_come_from_no_application() -> None:
    assert {int(kind) for kind in MessageType} - {int(kind) for kind in FROM_APPLICATION} == {
        3,
        4,
        10,
        11,
        12,
        13,
        14,
        15,
    }


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_an_rpc_or_an_error_of_ours(data: bytes) -> None:
    try:
        rpc = decode_rpc(MessageType.RPC, data, BOUNDS)
    except ProtocolViolated:
        return
    assert isinstance(rpc, Rpc)
    assert data.endswith(rpc.body)
    assert encoding.arrived(rpc.body)
