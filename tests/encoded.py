"""Bytes that tests make by hand: no process of Deathless encodes these, it only reads them."""

from __future__ import annotations

from collections.abc import Sequence

from deathless.codec.checkpoint import Read
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import Reference, Sender, encode_body


def chunk_reader(chunks: Sequence[bytes]) -> Read:
    """Give a `Read` over bytes in memory, such as what `checkpoint.encode` gave."""
    data = b"".join(chunks)
    return lambda offset, size: data[offset : offset + size]


def encode_fork(*, method: bytes, key: bytes, args: bytes, chain: tuple[str, ...] = ()) -> bytes:
    """Give a FORK of a sender without schedule and trace."""
    return encode(Kind.FORK, method=method, key=key, idempotency_key=encode_body(Sender(chain)), args=args)


def encode_cancel(caller: Reference) -> bytes:
    """Give the CANCEL of a REQUEST of `caller`."""
    return encode(Kind.CANCEL, idempotency_key=encode_body(caller))
