"""One stream at its source's end over connections that come and go: opened, and opened again; pure.

    connected --> hello --> welcomed --> refused --> hello, after a while --> ...
        lost: nothing is sent until the next connection; fenced: the stream is never opened again

Guarantees: at most one hello is on its way; whoever was refused waits for as long as it was told, and for AGAIN_S at
least. Does not: dial, read packets, know clocks but for the `now` of its calls. Imports codec and this folder.
"""

from __future__ import annotations

from typing import Final

from deathless.codec.streams.packets import StreamRefused, StreamWelcome
from deathless.core.client.stream_sender import State, StreamSender

AGAIN_S: Final = 0.05


class StreamConnection:
    """One stream's.

    Args:
        sender: of the stream, closed.
    """

    __slots__ = ("_again_at", "_up", "sender")

    def __init__(self, sender: StreamSender) -> None:
        self.sender = sender
        self._up = False  # a connection to its primary stands
        self._again_at: float | None = None  # when to open it again, in seconds of the caller's clock

    def is_about(self, packet: StreamWelcome | StreamRefused) -> bool:
        """Is the packet about this stream?"""
        return (packet.source, packet.stream) == self.sender.key

    def connected(self) -> list[bytes]:
        """A connection stands: what is to be sent on it."""
        self._up = True
        return self._open()

    def lost(self) -> None:
        """It ended."""
        self._up, self._again_at = False, None
        self.sender.lost()

    def refused(self, refused: StreamRefused, now: float) -> None:
        """What was sent was not admitted, or the stream was not opened."""
        if self.is_about(refused):
            wait_s = self.sender.refused(refused, now)
            self._again_at = None if wait_s is None else now + max(wait_s, AGAIN_S)

    def reopened(self, now: float) -> list[bytes]:
        """Give what opens it again, if the time for that has come."""
        if not self._up or self._again_at is None or now < self._again_at:
            return []
        self._again_at = None
        return self._open()

    def deadline(self, now: float) -> float | None:
        """When `reopened`, or the sender, may give something though nothing came; None: never."""
        found = [at for at in (self._again_at, self.sender.deadline(now)) if at is not None]
        return min(found, default=None)

    def _open(self) -> list[bytes]:
        return [self.sender.hello()] if self.sender.state is State.CLOSED else []
