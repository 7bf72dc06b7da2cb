"""Whose a row is: the shard and the key of each record, and what makes a record no input.

    key: ""               of a single object: no key
    key: key              of the record, as Kafka has one
    key: value.origin     a field of the row; value.a.b: a field of an object in it

A key is a text, or a whole number, which stands as its digits. What has none that can be a key is refused by its name,
and goes to the shard of the empty key.

Guarantees: the same record with the same settings goes to the same shard, ever. `fingerprint` says of two settings
whether they agree in that. Does not: decode rows, whose input does. Imports base, codec and the port.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Final, NamedTuple, Self

import msgspec

from deathless.base.config import ReplicaConfig, SourceConfig
from deathless.base.limits import NESTING_MAX
from deathless.base.shards import shard_of
from deathless.codec.messages import HEADER_BYTES
from deathless.codec.nesting import is_json_too_deep
from deathless.codec.streams.records import NOTE_BYTES_MAX
from deathless.codec.streams.rows import encode_row, method_of
from deathless.codec.untrusted import UNREADABLE
from deathless.sources.port import Record

FINGERPRINT_BYTES: Final = 8
ROOM_BYTES: Final = NOTE_BYTES_MAX + 64
"""What a row's message has beside its row, key and method, at most."""
KEPT_BYTES: Final = 1000
"""Of a row that is too long so much is kept, to tell which it is."""
WHY_BYTES_MAX: Final = 500
"""Of why a row is refused so much is told."""
OF_RECORD: Final = "key"
OF_VALUE: Final = "value."


class Routed(NamedTuple):
    """A record on its way to an input."""

    shard: int
    key: bytes
    row: bytes
    why: str  # it can't be an input; empty: it may be one


class Routing:
    """Gives each record its place.

    Args:
        key: as the manifest says it.
        input_name: of the input.
        shards: of the service.
        key_bytes_max: of the service's limits.
        message_bytes_max: likewise.
    """

    def __init__(self, key: str, *, input_name: str, shards: int, key_bytes_max: int, message_bytes_max: int) -> None:
        # The limits say which rows are refused, and those go to the shard of the empty key.
        placing = f"{key}/{shards}/{key_bytes_max}/{message_bytes_max}"
        self.fingerprint = hashlib.blake2b(placing.encode(), digest_size=FINGERPRINT_BYTES).digest()
        self.shards = shards
        self._input = input_name
        self._key_bytes_max = key_bytes_max
        self._row_bytes_max = message_bytes_max - HEADER_BYTES - len(method_of(input_name)) - ROOM_BYTES
        self._key_of = _finder(key)

    @classmethod
    def of(cls, config: ReplicaConfig, source: SourceConfig) -> Self:
        """Give that of a source of a service, the same wherever it is needed: a mark names the fingerprint."""
        limits = config.make_limits()
        return cls(
            source.key,
            input_name=source.input,
            shards=config.shards,
            key_bytes_max=limits.key_bytes_max,
            message_bytes_max=limits.message_bytes_max,
        )

    def route(self, record: Record) -> Routed:
        """Say where a record goes."""
        key, why = self._key_of(record)
        row = record.value if record.value is not None else b""
        why = why or self._unfit(key)
        if record.value is None:
            why = "the record has no value"
        if len(row) + len(key) > self._row_bytes_max:
            why = f"the row has {len(row)} bytes, at most {self._row_bytes_max - len(key)}"
            row = row[:KEPT_BYTES]
        if why:
            key = b""
            why, row = self._fitted(why, row)
        return Routed(shard_of(key, self.shards), key, row, why)

    def message(self, routed: Routed, note: bytes) -> bytes:
        """Give the FORK of a record; `note`: to be logged with it, empty: as before."""
        return encode_row(self._input, routed.key, routed.row, note, routed.why)

    def _fitted(self, why: str, row: bytes) -> tuple[str, bytes]:
        """Cut a reason, and the row beside it: a message that is longer than its limit is taken by no shard, ever."""
        told = why.encode(errors="backslashreplace")[: min(WHY_BYTES_MAX, max(self._row_bytes_max, 0))]
        room = max(self._row_bytes_max - len(told), 0)
        return told.decode(errors="ignore"), row if len(row) <= room else row[: min(room, KEPT_BYTES)]

    def _unfit(self, key: bytes) -> str:
        if len(key) > self._key_bytes_max:
            return f"the key has {len(key)} bytes, at most {self._key_bytes_max}"
        if key[:1] == b"\0":
            return "a key that begins with a zero byte is not for users"
        return ""


_Found = tuple[bytes, str]  # key, and why there is none


def _finder(key: str) -> Callable[[Record], _Found]:
    if not key:
        return lambda _record: (b"", "")
    if key == OF_RECORD:
        return _of_record
    return _of_value(key.removeprefix(OF_VALUE).split("."))


def _of_record(record: Record) -> _Found:
    if not record.key:
        return b"", "the record has no key"
    try:
        record.key.decode()
    except UnicodeDecodeError as error:
        return b"", f"the key is not UTF-8: {error}"
    return record.key, ""


def _of_value(path: list[str]) -> Callable[[Record], _Found]:
    """Give what finds a field; nothing else of the row is decoded."""
    kind: type = object
    for name in reversed(path):
        kind = msgspec.defstruct("Row", [("found", kind, msgspec.UNSET)], rename={"found": name}, gc=False)
    decode: Callable[[bytes], object] = msgspec.json.Decoder(kind).decode
    shown = ".".join(path)

    def find(record: Record) -> _Found:
        if record.value is None:
            return b"", "the record has no value"
        if is_json_too_deep(record.value):
            return b"", f"the row is nested more than {NESTING_MAX} levels"
        try:
            found = decode(record.value)
        except UNREADABLE as error:
            return b"", f"the key can't be read of the row: {error}"
        for _ in path:
            found = getattr(found, "found", msgspec.UNSET) if isinstance(found, msgspec.Struct) else msgspec.UNSET
        if isinstance(found, str) and found:
            try:
                return found.encode(), ""
            except UnicodeEncodeError:
                return b"", f"the key, `{shown}` of the row, is not UTF-8"
        if isinstance(found, int) and not isinstance(found, bool):
            return str(found).encode(), ""
        said = "is missing" if found is msgspec.UNSET else "is empty" if found == "" else "is no text or whole number"
        return b"", f"the key, `{shown}` of the row, {said}"

    return find
