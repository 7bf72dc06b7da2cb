"""Messages between services and records of a shard's own work: the bytes, both ways, and what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.encoded import encode_cancel, encode_fork

from deathless.base.errors import CorruptFrame, TooLarge
from deathless.codec import peer_messages
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_messages import (
    SELF,
    SELF_SESSION,
    Adopt,
    Attempt,
    Order,
    Outcome,
    PeerHello,
    Reference,
    Request,
    Sender,
    Target,
    Trim,
    decode_body,
    encode_body,
    encode_record,
    is_service_name,
)

GOLDEN = Path(__file__).parents[3] / "golden"
CHAIN = ("bank/0/alice", "shop/0/cart")
ARGS = b"\x81\xa6amount\x05"
SERVICE_ID = bytes(range(16))
U64 = st.integers(0, 2**64 - 1)

RECORDS: dict[Kind, msgspec.Struct] = {
    Kind.PEER: PeerHello("shop", 0, SERVICE_ID, 77),
    Kind.TRIM: Trim("shop", 0, 12),
    Kind.OUTCOME: Outcome(41, 2, 1, b"\x00\x05"),
    Kind.ATTEMPT: Attempt(41, 2, 1),
    Kind.ADOPT: Adopt("shop", 0, SERVICE_ID, 78, True),
    Kind.ORDER: Order("resume", 41, 2, b"\x00\x05"),
}
MESSAGES: dict[Kind, bytes] = {
    Kind.FORK: encode_fork(method=b"deposit", key=b"alice", args=ARGS, chain=CHAIN),
    Kind.REQUEST: peer_messages.encode_request(
        Request(41, 2, 1_700_000_000_000_000, CHAIN), method=b"deposit", key=b"alice", args=ARGS
    ),
    Kind.RESPONSE: peer_messages.encode_response(Reference(41, 2), b"\x00\x05"),
    Kind.CANCEL: encode_cancel(Reference(41, 2)),
    **{kind: encode_record(body) for kind, body in RECORDS.items()},
}
ENVELOPES: dict[Kind, type[msgspec.Struct]] = {
    Kind.FORK: Sender,
    Kind.REQUEST: Request,
    Kind.RESPONSE: Reference,
    Kind.CANCEL: Reference,
}


def test_an_adopt_record_of_a_build_before_histories_is_read() -> None:
    record = (GOLDEN / "message_adopt_bare.bin").read_bytes()
    assert decode_body(Adopt, decode(record).args) == Adopt("shop", 0, SERVICE_ID, 78, False)


@pytest.mark.parametrize("kind", MESSAGES)
def test_the_bytes_of_messages_between_services_are_version_1(kind: Kind, golden: Callable[[str, bytes], None]) -> None:
    golden(f"message_{kind.name.lower()}", MESSAGES[kind])
    assert decode(MESSAGES[kind]).kind == kind


@pytest.mark.parametrize("kind", RECORDS)
def test_the_body_of_a_record_reads_back(kind: Kind) -> None:
    _, method, key, envelope, body = decode(MESSAGES[kind])
    assert (method, key, envelope) == (b"", b"", b"")
    assert decode_body(type(RECORDS[kind]), body) == RECORDS[kind]
    assert encode_body(RECORDS[kind]) == body


def test_a_record_takes_its_kind_from_its_body() -> None:
    assert {peer_messages.RECORD_KINDS[type(body)]: body for body in RECORDS.values()} == RECORDS


@given(chain=st.lists(st.text(max_size=9), max_size=4), method=st.binary(max_size=9), args=st.binary(max_size=9))
def test_a_fork_reads_back(chain: list[str], method: bytes, args: bytes) -> None:
    data = encode_fork(method=method, key=b"k", args=args, chain=tuple(chain))
    kind, found, key, envelope, rest = decode(data)
    assert (kind, found, key, rest) == (Kind.FORK, method, b"k", args)
    assert decode_body(Sender, envelope) == Sender(tuple(chain))


@given(invocation=U64, operation=U64, deadline_us=U64, chain=st.lists(st.text(max_size=9), max_size=4))
def test_a_request_reads_back(invocation: int, operation: int, deadline_us: int, chain: list[str]) -> None:
    request = Request(invocation, operation, deadline_us, tuple(chain))
    kind, method, key, envelope, rest = decode(peer_messages.encode_request(request, method=b"m", key=b"k", args=ARGS))
    assert (kind, method, key, rest) == (Kind.REQUEST, b"m", b"k", ARGS)
    assert decode_body(Request, envelope) == request


@given(invocation=U64, operation=U64, reply=st.binary(max_size=20))
def test_a_response_and_a_cancel_name_the_callers_operation(invocation: int, operation: int, reply: bytes) -> None:
    caller = Reference(invocation, operation)
    response, cancel = (
        decode(peer_messages.encode_response(caller, reply)),
        decode(encode_cancel(caller)),
    )
    assert (response.kind, response.args, cancel.kind, cancel.args) == (Kind.RESPONSE, reply, Kind.CANCEL, b"")
    assert [decode_body(Reference, m.idempotency_key) for m in (response, cancel)] == [caller, caller]


def test_a_chain_that_no_header_can_name_is_refused() -> None:
    with pytest.raises(TooLarge):
        encode_fork(method=b"m", key=b"k", args=b"", chain=("x" * 66_000,))


def test_an_older_or_newer_envelope_is_read() -> None:
    assert decode_body(Request, msgspec.msgpack.encode([41, 2])) == Request(41, 2, 0, ())
    assert decode_body(Reference, msgspec.msgpack.encode([41, 2, "more"])) == Reference(41, 2)
    assert decode_body(Sender, msgspec.msgpack.encode([])) == Sender()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x91\x01",
        b"\x92\x01\xa1a",
        b"\x92\xff\xff\x01\x01",
        b"\x94\x01\x02\x00\x91\xa1\xff",  # text that is no UTF-8
        b"\x95\x01\x02\x00\x90" + b"\x91" * 100_000 + b"\x00",  # nested until the stack ends
    ],
)
def test_an_envelope_that_does_not_fit_is_refused(data: bytes) -> None:
    with pytest.raises(CorruptFrame, match="Request"):
        decode_body(Request, data)


@given(data=st.binary(max_size=60), kind=st.sampled_from([*ENVELOPES.values(), *map(type, RECORDS.values())]))
def test_random_bytes_are_read_or_refused_cleanly(data: bytes, kind: type[msgspec.Struct]) -> None:
    try:
        body = decode_body(kind, data)
    except CorruptFrame:
        return
    assert decode_body(kind, encode_body(body)) == body


def test_our_own_session_is_no_lsn_and_our_own_target_has_no_name() -> None:
    assert SELF_SESSION == 2**63
    assert Target("", 0) == SELF


@pytest.mark.parametrize(
    ("name", "good"), [("shop", True), ("a-1", True), ("", False), ("Shop", False), ("-a", False), ("a" * 41, False)]
)
def test_name_of_a_service_is_a_dns_label(name: str, good: bool) -> None:
    assert is_service_name(name) is good
