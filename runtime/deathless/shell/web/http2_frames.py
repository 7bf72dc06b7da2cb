"""What a client's bytes are in HTTP/2 before h2 reads them: frames, counted and measured (RFC 9113, 4.1).

h2 keeps a frame until it is whole, whatever length it announces, keeps a header block for up to 64 frames, and does
whatever it is asked for however often. So a client that only makes work would be served for ever. Here each frame that
brings nothing costs one of a store that requests, bodies and time fill up again:

- control frames, header frames without an end, DATA that is empty, tiny or padded: `IDLE_MAX`
- streams that end before their answer, whoever ended them (rapid reset): `RESETS_MAX`
- header blocks in many pieces, or larger than any head may be (CONTINUATION flood): `PIECES_MAX`, `block_bytes_max`

GOAWAY of the client is kept from h2, which would send no more answers behind it: it only means that nothing new comes.

Guarantees: what `take` gives is what came, but for GOAWAY; a client that asks for less than the above is never refused.
Does not: check frames (h2 does), or end anything. Imports nothing of ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from h2.errors import ErrorCodes

PREFACE_BYTES: Final = 24  # RFC 9113, 3.4
HEAD_BYTES: Final = 9
FRAME_BYTES_MAX: Final = 16384  # the least that a server must take
PIECES_MAX: Final = 16  # frames of one header block
TINY_BYTES: Final = 64  # DATA of fewer bytes is worth nothing, unless it is the last of a body
IDLE_MAX: Final = 1000
IDLE_PER_S: Final = 100  # what time gives back; requests and bodies give back more
IDLE_PER_REQUEST: Final = 16
BYTES_PER_IDLE: Final = 2048  # a client that takes or sends a body opens windows: one frame for so many bytes
RESETS_MAX: Final = 400  # callers give up together when a takeover takes longer than they wait
RESETS_PER_S: Final = 100

_DATA, _HEADERS, _GOAWAY, _CONTINUATION = 0x0, 0x1, 0x7, 0x9
_END_STREAM, _END_HEADERS, _PADDED = 0x1, 0x4, 0x8


class Refused(Exception):
    """The connection ends; `code` says why."""

    def __init__(self, code: ErrorCodes, why: str) -> None:
        super().__init__(why)
        self.code = code


class Frames:
    """The frames of one connection, as they come.

    Args:
        block_bytes_max: a compressed header block of more bytes ends the connection.
        now: when the connection began, in seconds.
    """

    def __init__(self, block_bytes_max: int, now: float) -> None:
        self.goodbye = False  # the client sent GOAWAY: nothing new comes
        self.in_data = False  # the frame that is open is of a body
        self._block_bytes_max = block_bytes_max
        self._preface = PREFACE_BYTES  # bytes of it still to come
        self._head = b""  # of a frame, as far as it came. Invariant: shorter than HEAD_BYTES
        self._rest = 0  # bytes of the present frame still to come
        self._kept = False  # they are kept from h2
        self._block = -1  # bytes of the header block that is open; -1: none is
        self._pieces = 0  # its frames
        self._since = now  # when what is open began
        self._idle = float(IDLE_MAX)
        self._resets = float(RESETS_MAX)
        self._filled = now  # when the stores were filled up last

    @property
    def open_since(self) -> float | None:
        """Since when a frame or header block stands open, or the preface; None: nothing does."""
        return self._since if self._preface or self._head or self._rest or self._block >= 0 else None

    def take(self, data: bytes, now: float) -> Iterator[bytes]:
        """Give what h2 may read of what came, of one frame at a time. Raises: Refused."""
        at = min(self._preface, len(data))
        self._preface -= at
        if at:
            yield data[:at]
        while at < len(data):
            head = b""
            if not self._rest:
                if not self._head and self._block < 0:
                    self._since = now
                more = data[at : at + HEAD_BYTES - len(self._head)]
                at += len(more)
                head, self._head = self._head + more, b""
                if len(head) < HEAD_BYTES:
                    self._head = head
                    return
                self._begin(head)
            body = data[at : at + self._rest]
            at += len(body)
            self._rest -= len(body)
            if not self._kept:
                yield head + body

    def _begin(self, head: bytes) -> None:
        """A frame begins. Raises: Refused."""
        length, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
        if length > FRAME_BYTES_MAX:
            raise Refused(ErrorCodes.FRAME_SIZE_ERROR, f"a frame of {length} bytes")
        self._rest = length
        self._kept = kind == _GOAWAY and self._block < 0
        self.goodbye = self.goodbye or self._kept
        self.in_data = kind == _DATA
        if kind in (_HEADERS, _CONTINUATION):
            self._begin_head(kind, flags, length)
        elif kind != _DATA or not (flags & _END_STREAM or (length >= TINY_BYTES and not flags & _PADDED)):
            self._spend_idle()

    def _begin_head(self, kind: int, flags: int, length: int) -> None:
        if kind == _HEADERS:
            self._block = self._pieces = 0
        self._block = max(self._block, 0) + length
        self._pieces += 1
        if self._block > self._block_bytes_max or self._pieces > PIECES_MAX:
            raise Refused(ErrorCodes.ENHANCE_YOUR_CALM, f"a head of {self._block} bytes in {self._pieces} frames")
        if flags & _END_HEADERS:
            self._block = -1
        else:
            self._spend_idle()

    def _spend_idle(self) -> None:
        self._idle -= 1
        if self._idle < 0:
            raise Refused(ErrorCodes.ENHANCE_YOUR_CALM, f"more than {IDLE_MAX} frames that bring nothing")

    def reset(self) -> None:
        """A stream ended before its answer. Raises: Refused."""
        self._resets -= 1
        if self._resets < 0:
            raise Refused(
                ErrorCodes.ENHANCE_YOUR_CALM, f"more than {RESETS_MAX} streams that ended before their answer"
            )

    def answered(self) -> None:
        """A request got its whole answer."""
        self._idle = min(self._idle + IDLE_PER_REQUEST, IDLE_MAX)
        self._resets = min(self._resets + 1, RESETS_MAX)

    def moved(self, size: int) -> None:
        """So many bytes of bodies came or went."""
        self._idle = min(self._idle + size / BYTES_PER_IDLE, IDLE_MAX)

    def pass_time(self, now: float) -> None:
        """Fill the stores up with time."""
        passed, self._filled = now - self._filled, now
        self._idle = min(self._idle + passed * IDLE_PER_S, IDLE_MAX)
        self._resets = min(self._resets + passed * RESETS_PER_S, RESETS_MAX)
