"""Blocks of rows: what a driver stages, and what is sent to the service that the rows are for.

    block = msgpack [service, method, policy, [[key, {argument: value}], ...]]

Guarantees: `decode_rows` is the inverse of `encode_rows`. Does not: know Spark. Imports base.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

import msgspec

from deathless.base.errors import InvalidArgument
from deathless.codec.untrusted import MsgpackReader
from deathless.pipelines.ledger import BLOCK_BYTES_MAX, ROWS_MAX

Policy = Literal["stop", "deadLetter", "skip"]
"""What becomes of a query when a handler refuses a row; the row is kept and listed but with `skip`."""

POLICIES: Final[tuple[Policy, ...]] = ("stop", "deadLetter", "skip")
ROW_BYTES_MAX: Final = BLOCK_BYTES_MAX - 1024  # with its key; what is around the rows of a block has room beside it

Row = tuple[str, dict[str, Any]]
"""Its key, and the arguments of the handler by name."""


class Rows(NamedTuple):
    """Rows for one handler."""

    service: str
    method: str
    policy: Policy
    rows: list[Row]


_encode: Final = msgspec.msgpack.Encoder(decimal_format="string").encode
_decode: Final = MsgpackReader(tuple[str, str, Policy, list[Row]]).decode


def blocks_of(service: str, method: str, policy: Policy, rows: Iterable[Row]) -> Iterator[tuple[int, bytes]]:
    """Give (rows, bytes) of blocks that hold these rows in their order.

    Raises: InvalidArgument for a row that is too large, or holds what no message can.
    """
    head = _encode([service, method, policy])[1:]  # an array of four with the rows behind these three
    held: list[bytes] = []
    size = 0
    for key, arguments in rows:
        row = _encoded(key, arguments)
        if held and (len(held) == ROWS_MAX or size + len(row) > ROW_BYTES_MAX):
            yield len(held), _block(head, held)
            held, size = [], 0
        held.append(row)
        size += len(row)
    if held:
        yield len(held), _block(head, held)


def decode_rows(block: bytes) -> Rows:
    """Read a block. Raises: InvalidArgument."""
    try:
        return Rows(*_decode(block))
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"the block holds no rows: {error}") from None


def _encoded(key: str, arguments: dict[str, object]) -> bytes:
    try:
        row = _encode([key, arguments])
    except (TypeError, OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise InvalidArgument(f"the row of key {key[:100]!r} holds what no message can: {error}") from None
    if len(row) > ROW_BYTES_MAX:
        raise InvalidArgument(f"the row of key {key[:100]!r} has {len(row)} bytes, at most {ROW_BYTES_MAX}")
    return row


def _block(head: bytes, rows: list[bytes]) -> bytes:
    return b"\x94" + head + b"\xdd" + len(rows).to_bytes(4, "big") + b"".join(rows)
