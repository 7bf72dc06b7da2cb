"""A row that a source brings to an input of a service: the arguments of its FORK.

    method     `input:` and the name of the input; no handler can be called so
    key        of the row, or empty where it has none that can be one
    arguments  msgpack map: row (bytes, as they stood outside), and why (text; left out: it may be run), which says why
               this can't be an input: then it is refused with that as the reason

The row stays as it stood, so that what is kept of a refused one is what its origin has. Whoever runs it decodes it.

Guarantees: what is decoded was encoded, or msgspec.MsgspecError. Does not: look at rows. Imports codec.
"""

from __future__ import annotations

from typing import Final

import msgspec

from deathless.codec.streams.records import encode_input

INPUT_PREFIX: Final = "input:"


class RowArguments(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True, gc=False):
    """See the module."""

    row: bytes
    why: str = ""


_encode: Final = msgspec.msgpack.Encoder().encode
decode_row: Final = msgspec.msgpack.Decoder(RowArguments).decode


def method_of(name: str) -> str:
    """Give the method of an input."""
    return INPUT_PREFIX + name


def encode_row(name: str, key: bytes, row: bytes, note: bytes = b"", why: str = "") -> bytes:
    """Give the FORK of a row.

    Args:
        name: of the input.
        key: whose entity it is for.
        row: as it stands outside.
        note: of the source; empty: as before.
        why: it is refused; empty: it is not.
    """
    return encode_input(method_of(name).encode(), key, _encode(RowArguments(row, why)), note)
