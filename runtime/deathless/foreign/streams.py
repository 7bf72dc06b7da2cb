"""The streams that one application's outputs are logged by: one for each lane, and the control stream; pure.

    lane       its positions are the ids
    control    what is in no lane: the first message, id 0, and impulses, numbered as they come

Guarantees: as `core.client.stream_sender`. Does not: compare or group outputs (`coordinator` does), know clocks but for
the `now` of its calls. Imports core, codec and this package.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Final

from deathless.base.foreign.binding import SOURCE
from deathless.codec.streams.packets import StreamCommit, StreamRefused, StreamWelcome
from deathless.codec.streams.records import StreamKey
from deathless.codec.streams.rows import encode_row
from deathless.codec.wire import Type, decode_struct
from deathless.core.client.stream_connection import StreamConnection
from deathless.core.client.stream_sender import State, StreamSender
from deathless.foreign.rows import INPUT, Emitted, encode_emitted

CONTROL: Final = 0
"""Number of the control stream."""


def number_of(target: str) -> int:
    """Give the number of a lane's stream, in [1, 2**63): the same on all replicas, for ever."""
    digest = hashlib.blake2b(target.encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "big") >> 1) or 1


class Stream:
    """One of them.

    Args:
        target: of the lane; None: it is the control stream.
        nonce: 16 bytes by chance.
    """

    __slots__ = ("connection", "sent", "target", "welcome")

    def __init__(self, target: str | None, nonce: bytes) -> None:
        number = CONTROL if target is None else number_of(target)
        self.target = target
        self.connection = StreamConnection(StreamSender(StreamKey(SOURCE, number), nonce))
        self.welcome: StreamWelcome | None = None  # the first one: what the log had then
        self.sent = 0  # position up to which items were offered

    @property
    def next_id(self) -> int:
        """The next id to offer; -1: nobody has said yet."""
        return self.connection.sender.next_id if self.welcome is not None else -1

    @property
    def level(self) -> int:
        """Format level of the log when it was opened; 0: nobody has said yet."""
        return self.welcome.level if self.welcome is not None else 0

    def offer(self, number: int, row: Emitted, note: bytes = b"") -> None:
        """Have a row logged under this id."""
        self.connection.sender.offer(number, encode_row(INPUT, b"", encode_emitted(row), note))


class Streams:
    """All of one application.

    Args:
        nonces: gives 16 bytes by chance.
    """

    __slots__ = ("_nonces", "_up", "control", "lanes")

    def __init__(self, nonces: Callable[[], bytes]) -> None:
        self.control: Stream | None = None  # None: it was not opened yet
        self.lanes: dict[str, Stream] = {}  # by target
        self._nonces = nonces
        self._up = False  # a connection to the primary stands

    def __iter__(self) -> Iterator[Stream]:
        """Give those that were opened."""
        if self.control is not None:
            yield self.control
        yield from self.lanes.values()

    @property
    def is_fenced(self) -> bool:
        """Whether another owner has one of them."""
        return any(each.connection.sender.state is State.FENCED for each in self)

    @property
    def problem(self) -> str:
        """Why one does not go on, code first; empty: nothing is told."""
        return next((each.connection.sender.why for each in self if each.connection.sender.why), "")

    def open_control(self) -> list[bytes]:
        """Open the control stream: what is to be sent."""
        assert self.control is None
        self.control = Stream(None, self._nonces())
        return self._opened(self.control)

    def open(self, target: str) -> list[bytes]:
        """Open a lane's stream: what is to be sent."""
        assert target not in self.lanes
        self.lanes[target] = Stream(target, self._nonces())
        return self._opened(self.lanes[target])

    def connected(self) -> list[bytes]:
        """A connection to the primary stands: what is to be sent."""
        self._up = True
        return [packet for each in self for packet in each.connection.connected()]

    def lost(self) -> None:
        """It ended."""
        self._up = False
        for each in self:
            each.connection.lost()

    def received(self, kind: int, body: bytes, now: float) -> Stream | None:
        """A packet about streams came; gives the one that was welcomed by it for the first time.

        Raises: CorruptFrame.
        """
        match kind:
            case Type.STREAM_WELCOME:
                welcome = decode_struct(StreamWelcome, body)
                for each in filter(lambda one: one.connection.is_about(welcome), self):
                    each.connection.sender.welcomed(welcome)
                    if each.welcome is None and each.connection.sender.state is State.OPEN:
                        each.welcome = welcome
                        return each
            case Type.STREAM_COMMIT:
                commit = decode_struct(StreamCommit, body)
                for each in self:
                    each.connection.sender.committed(commit)
            case Type.STREAM_REFUSED:
                refused = decode_struct(StreamRefused, body)
                for each in self:
                    each.connection.refused(refused, now)
            case _:
                pass
        return None

    def packets(self, now: float) -> list[bytes]:
        """Give what is to be sent now."""
        found: list[bytes] = []
        for each in self:
            found += each.connection.reopened(now)
            found += each.connection.sender.packets(now)
        return found

    def deadline(self, now: float) -> float | None:
        """When `packets` may give more though nothing came; None: never."""
        return min((at for each in self if (at := each.connection.deadline(now)) is not None), default=None)

    def _opened(self, stream: Stream) -> list[bytes]:
        return stream.connection.connected() if self._up else []
