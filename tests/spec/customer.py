"""The customer of the town: knows nothing but to ask again what has no answer.

It is a component of the outside that runs at-least-once delivery. It keeps every reply that ever came, so that a test
can see whether two of them differ.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from struct import pack

import msgspec

from deathless.codec.frames import Run
from deathless.codec.messages import Kind, encode
from deathless.codec.session_proof import nonce_of
from deathless.codec.wire import (
    PacketReader,
    Registered,
    Type,
    accepted_invocation,
    decode_replies,
    decode_results,
    decode_struct,
    encode_attach,
    encode_batch,
    packet,
)

Calls = Sequence[tuple[str, dict[str, int]]]
WINDOW = 2  # calls under way
SECRET = b"c" * 16


class Customer:
    """One session; `send` takes packets to whoever leads."""

    def __init__(self, calls: Calls, send: Callable[[int, bytes], None], secret: bytes = SECRET) -> None:
        self.calls = calls
        self.nonce = nonce_of(secret)
        self.idempotency_key = b""  # of each call, followed by its seq; empty: none
        self.asks_again = True
        self._send = send
        self.session = 0
        self.replies: dict[int, set[bytes]] = {}  # every reply that ever came, by seq
        self.results: dict[int, set[bytes]] = {}  # the same, of handlers that waited, by seq
        self.invocations: dict[int, int] = {}  # invocation -> seq

    @property
    def answered(self) -> int:
        """Replies in a row."""
        return next((seq - 1 for seq in range(1, len(self.calls) + 1) if seq not in self.replies), len(self.calls))

    @property
    def served(self) -> bool:
        return self.answered == len(self.calls) and len(self.results) == len(self.invocations)

    def ask(self) -> None:
        """Send, or send again, what has no answer."""
        packets: list[bytes] = []
        if not self.session:
            packets.append(packet(Type.REGISTER, self.nonce))
        elif self.answered < len(self.calls):
            packets.append(self._batch(self.answered + 1, self.answered))
        owed = [number for number, seq in self.invocations.items() if seq not in self.results]
        if owed:
            packets.append(encode_attach([self.invocations[number] for number in owed], owed))
        for data in packets:
            for kind, body in PacketReader(1 << 30).feed(data):
                self._send(kind, body)

    def _batch(self, first: int, acked: int) -> bytes:
        items = [
            encode(
                Kind.CALL,
                method=method.encode(),
                key=b"cart",
                idempotency_key=self.idempotency_key and self.idempotency_key + bytes([seq]),
                args=msgspec.msgpack.encode(arguments),
            )
            for seq, (method, arguments) in enumerate(self.calls[first - 1 : first - 1 + WINDOW], first)
        ]
        ends = list(accumulate(map(len, items)))
        return encode_batch(Run(self.session, first, acked, len(items)), pack(f"<{len(ends)}I", *ends), b"".join(items))

    def arrived(self, kind: int, body: bytes) -> None:
        if kind == Type.REGISTERED:
            self.session = decode_struct(Registered, body).session
        elif kind == Type.REPLIES:
            for seq, reply in zip(*decode_replies(body)[1:], strict=True):
                self.replies.setdefault(seq, set()).add(reply)
                invocation = accepted_invocation(reply)
                if invocation is not None:
                    self.invocations[invocation] = seq
        elif kind == Type.RESULTS:
            for seq, reply in zip(*decode_results(body), strict=True):
                self.results.setdefault(seq, set()).add(reply)
