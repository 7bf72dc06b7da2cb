"""etcd's records and their JSON: what goes over the gateway, typed on both sides.

Why: etcd answers every gRPC call also as JSON over HTTP (its gateway), which needs no protobuf at all;
see docs/design/0004-etcd-client.md. This module holds the records a caller sees (`KeyValue`,
`RangeResult`, ...), the building blocks of a transaction (`Compare`, `Put`, `Get`, `Delete`), and turns
requests into bytes and bytes into records.

In that JSON, bytes are base64, 64-bit integers are strings of decimal digits, and fields that are zero,
empty or false are left out; msgspec does the first two (`strict=False`), defaults do the third. Unknown
fields are ignored, so newer servers can be spoken to.

Guarantees: what decodes has the types declared here, nothing untyped passes. Does not: check that a
server's answer makes sense beyond its types, or do any IO. Imports msgspec only.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import msgspec

from deathless.codec.untrusted import JsonReader

# ---------------------------------------------------------------- what callers see


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """Which store answered, and when. Results inside a transaction carry the revision only."""

    cluster_id: int = 0  # drawn when the cluster is created; unsigned 64 bit
    member_id: int = 0  # member that answered; unsigned 64 bit
    revision: int = 0  # the store's revision at the answer; grows with every change of any key
    raft_term: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyValue:
    """One key as it stood at some revision; in a DELETE event only `key` and `mod_revision` are set."""

    key: bytes = b""
    value: bytes = b""
    create_revision: int = 0  # revision of the put that made the key; unchanged by later puts
    mod_revision: int = 0  # revision of the last change
    version: int = 0  # number of puts since creation
    lease: int = 0  # lease the key ends with, 0: none


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeResult:
    """Answer of a read: `kvs` in key order, as of `header.revision`."""

    header: Header = Header()
    kvs: tuple[KeyValue, ...] = ()
    more: bool = False  # `limit` cut the answer short
    count: int = 0  # keys in the range, whatever the limit

    @property
    def revision(self) -> int:
        """The store's revision when it answered."""
        return self.header.revision

    @property
    def cluster_id(self) -> int:
        """The store that answered; 0 inside a transaction."""
        return self.header.cluster_id

    def get(self, key: bytes) -> KeyValue | None:
        """Return the entry of `key`, or None where the answer has none."""
        return next((entry for entry in self.kvs if entry.key == key), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutResult:
    """Answer of a put."""

    header: Header = Header()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteResult:
    """Answer of a delete: how many keys went."""

    header: Header = Header()
    deleted: int = 0


OpResult: TypeAlias = RangeResult | PutResult | DeleteResult


@dataclass(frozen=True, slots=True, kw_only=True)
class TxnResult:
    """Answer of a transaction: did all comparisons hold, and the results of the branch that ran."""

    header: Header
    succeeded: bool
    results: tuple[OpResult, ...]

    def range(self, index: int) -> RangeResult:
        """Return result number `index` (0-based) of the branch that ran, which must be of a `Get`."""
        result = self.results[index]
        assert isinstance(result, RangeResult), "the operation at this index is not a Get"
        return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A lease as granted or renewed; `ttl_s` is what etcd gave, which may differ from what was asked."""

    id: int
    ttl_s: int


# ---------------------------------------------------------------- transactions


class Relation(enum.Enum):
    """How a comparison relates the stored to the given."""

    EQUAL = "EQUAL"
    NOT_EQUAL = "NOT_EQUAL"
    GREATER = "GREATER"
    LESS = "LESS"


class Target(enum.Enum):
    """What of a key a comparison looks at. Of a missing key all numbers are 0."""

    VERSION = "VERSION"
    CREATE = "CREATE"
    MOD = "MOD"
    VALUE = "VALUE"
    LEASE = "LEASE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """One condition of a transaction. Comparing the VALUE of a missing key never holds."""

    key: bytes
    target: Target
    operand: int | bytes  # bytes for VALUE, else int >= 0
    relation: Relation = Relation.EQUAL

    def __post_init__(self) -> None:
        assert isinstance(self.operand, bytes) == (self.target is Target.VALUE), "operand does not fit target"

    @classmethod
    def absent(cls, key: bytes) -> Compare:
        """`key` does not exist."""
        return cls(key=key, target=Target.CREATE, operand=0)

    @classmethod
    def present(cls, key: bytes) -> Compare:
        """`key` exists."""
        return cls(key=key, target=Target.CREATE, operand=0, relation=Relation.GREATER)

    @classmethod
    def value_is(cls, key: bytes, value: bytes) -> Compare:
        """`key` exists and holds `value`."""
        return cls(key=key, target=Target.VALUE, operand=value)

    @classmethod
    def unchanged(cls, key: bytes, mod_revision: int) -> Compare:
        """`key` was last changed at `mod_revision`; 0: it does not exist."""
        return cls(key=key, target=Target.MOD, operand=mod_revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Set a key, with a lease or (0) without."""

    key: bytes
    value: bytes
    lease: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Get:
    """Read a key, or with `prefix` all keys that begin with it."""

    key: bytes
    prefix: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Remove a key, or with `prefix` all keys that begin with it."""

    key: bytes
    prefix: bool = False


Op: TypeAlias = Put | Get | Delete


# ---------------------------------------------------------------- requests as JSON


class _Range(msgspec.Struct, omit_defaults=True):
    key: bytes
    range_end: bytes = b""
    limit: int = 0
    revision: int = 0
    serializable: bool = False


class _Put(msgspec.Struct, omit_defaults=True):
    key: bytes
    value: bytes = b""
    lease: int = 0


class _Delete(msgspec.Struct, omit_defaults=True):
    key: bytes
    range_end: bytes = b""


class _Op(msgspec.Struct, omit_defaults=True):
    request_range: _Range | None = None
    request_put: _Put | None = None
    request_delete_range: _Delete | None = None


class _Compare(msgspec.Struct, omit_defaults=True):
    # The operand's field is always sent, zero too: it says which one of the union is meant.
    key: bytes
    result: str
    target: str
    version: int | None = None
    create_revision: int | None = None
    mod_revision: int | None = None
    value: bytes | None = None
    lease: int | None = None


class _Txn(msgspec.Struct, omit_defaults=True):
    compare: list[_Compare]
    success: list[_Op]
    failure: list[_Op]


class _Lease(msgspec.Struct, omit_defaults=True):
    id: int = msgspec.field(default=0, name="ID")
    ttl: int = msgspec.field(default=0, name="TTL")


class _Login(msgspec.Struct):
    name: str
    password: str


_OPERAND_FIELD: Final = {
    Target.VERSION: "version",
    Target.CREATE: "create_revision",
    Target.MOD: "mod_revision",
    Target.VALUE: "value",
    Target.LEASE: "lease",
}


def prefix_end(prefix: bytes) -> bytes:
    """Return the end (exclusive) of the range of all keys that begin with `prefix`.

    A zero byte is etcd's word for "to the end": there is no key above a prefix of 0xff bytes alone.
    """
    head = prefix.rstrip(b"\xff")
    return head[:-1] + bytes([head[-1] + 1]) if head else b"\0"


def _bounds(key: bytes, *, prefix: bool) -> tuple[bytes, bytes]:
    """Return `key` and `range_end` as etcd wants them; the empty prefix means every key."""
    return (key or b"\0", prefix_end(key)) if prefix else (key, b"")


def encode_range(key: bytes, *, prefix: bool, limit: int, serializable: bool) -> bytes:
    """Return the body of a read."""
    start, end = _bounds(key, prefix=prefix)
    return msgspec.json.encode(_Range(start, end, limit, 0, serializable))


def encode_put(op: Put) -> bytes:
    """Return the body of a put."""
    return msgspec.json.encode(_Put(op.key, op.value, op.lease))


def encode_delete(op: Delete) -> bytes:
    """Return the body of a delete."""
    return msgspec.json.encode(_Delete(*_bounds(op.key, prefix=op.prefix)))


def encode_txn(compare: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op]) -> bytes:
    """Return the body of a transaction."""
    body = _Txn([_compare(one) for one in compare], [_op(one) for one in success], [_op(one) for one in failure])
    return msgspec.json.encode(body)


def encode_lease(*, lease_id: int = 0, ttl_s: int = 0) -> bytes:
    """Return the body of a lease's grant (TTL), renewal or end (id)."""
    return msgspec.json.encode(_Lease(lease_id, ttl_s))


def encode_login(username: str, password: str) -> bytes:
    """Return the body that asks for a token."""
    return msgspec.json.encode(_Login(username, password))


def _compare(one: Compare) -> _Compare:
    wire = _Compare(one.key, one.relation.value, one.target.value)
    setattr(wire, _OPERAND_FIELD[one.target], one.operand)
    return wire


def _op(op: Op) -> _Op:
    match op:
        case Put():
            return _Op(request_put=_Put(op.key, op.value, op.lease))
        case Get():
            return _Op(request_range=_Range(*_bounds(op.key, prefix=op.prefix)))
        case Delete():
            return _Op(request_delete_range=_Delete(*_bounds(op.key, prefix=op.prefix)))


# ---------------------------------------------------------------- answers from JSON


class _OpAnswer(msgspec.Struct):
    response_range: RangeResult | None = None
    response_put: PutResult | None = None
    response_delete_range: DeleteResult | None = None


class _TxnAnswer(msgspec.Struct):
    header: Header
    succeeded: bool = False
    responses: list[_OpAnswer] = []


class LeaseAnswer(msgspec.Struct):
    """Answer of a lease's grant, renewal (TTL 0: it is gone) or query (TTL -1: it is gone)."""

    header: Header = Header()
    id: int = msgspec.field(default=0, name="ID")
    ttl: int = msgspec.field(default=0, name="TTL")


class LoginAnswer(msgspec.Struct):
    """Answer of a login."""

    token: str


class StatusAnswer(msgspec.Struct):
    """Answer of a member about itself."""

    version: str


class HeaderAnswer(msgspec.Struct):
    """Answer of which only the header matters."""

    header: Header = Header()


class StreamError(msgspec.Struct):
    """The error object inside a stream; `code` or (servers before 3.6) `grpc_code` holds the gRPC code."""

    code: int = 0
    grpc_code: int = 0
    message: str = ""


class ErrorAnswer(msgspec.Struct):
    """Body of an answer that is not HTTP 200; `error` is an object where the call was a stream."""

    code: int = 0
    message: str = ""
    error: StreamError | str | None = None

    def reduced(self) -> tuple[int, str]:
        """Return (gRPC code, message), wherever the server put them."""
        if isinstance(self.error, StreamError):
            return self.error.code or self.error.grpc_code, self.error.message
        return self.code, self.message or self.error or ""


class KeepAliveLine(msgspec.Struct):
    """The one line that a renewal is answered with."""

    result: LeaseAnswer


RANGE: Final = JsonReader(RangeResult, strict=False)
PUT: Final = JsonReader(PutResult, strict=False)
DELETE: Final = JsonReader(DeleteResult, strict=False)
LEASE: Final = JsonReader(LeaseAnswer, strict=False)
KEEP_ALIVE: Final = JsonReader(KeepAliveLine, strict=False)
LOGIN: Final = JsonReader(LoginAnswer, strict=False)
STATUS: Final = JsonReader(StatusAnswer, strict=False)
HEADER: Final = JsonReader(HeaderAnswer, strict=False)
ERROR: Final = JsonReader(ErrorAnswer, strict=False)
TXN: Final = JsonReader(_TxnAnswer, strict=False)


def txn_result(answer: _TxnAnswer) -> TxnResult:
    """Return a transaction's answer as its caller sees it."""
    results = tuple(
        one.response_range or one.response_put or one.response_delete_range or PutResult() for one in answer.responses
    )
    return TxnResult(header=answer.header, succeeded=answer.succeeded, results=results)
