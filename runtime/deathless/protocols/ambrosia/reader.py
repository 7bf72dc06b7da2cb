"""Takes an application's stream apart as it comes in, cut anywhere.

Why it exists: what an application sends is not trusted, and a checkpoint is far larger than memory. So a length is
judged before anything of that length is kept, a checkpoint's bytes are passed on as they come, and so are the messages
of a batch, however long that is.

Guarantees: holds at most one message and one piece of the input; ProtocolViolated is all that it raises, with the
offset of the message and its first bytes, and from then on nothing is read any more; equal bytes give equal items
however they are cut, but for the cuts of checkpoints. An RPC above `message_bytes_max` becomes Oversized, and one to
a destination above `name_bytes_max`, or that is no UTF-8, goes to nobody: replicas go on past it in the same way. Does
not: judge when a message is legal. Imports base.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from deathless.protocols.ambrosia.alike import alike
from deathless.protocols.ambrosia.bounds import Bounds
from deathless.protocols.ambrosia.errors import ProtocolViolated
from deathless.protocols.ambrosia.integers import INT_BYTES_MAX, LONG_BYTES_MAX, find_int
from deathless.protocols.ambrosia.messages import (
    FROM_APPLICATION,
    RPC_TYPES,
    AskCheckpoint,
    AttachTo,
    CheckpointEnds,
    CheckpointPart,
    CheckpointStarts,
    Initial,
    Item,
    Kind,
    MessageType,
    Rpc,
    decode_length,
    decode_name,
    decode_oversized,
    decode_rpc,
    head_bytes,
    nobody_of,
)
from deathless.protocols.ambrosia.runs import may_run

NEAR_BYTES: Final = 32
NAME_MESSAGES_MAX: Final = 2
"""A destination that has more bytes than so many of the longest messages ends the application."""
_BY_CODE: Final = {int(kind): kind for kind in MessageType}


class _Like(NamedTuple):
    """A fork that was read."""

    fork: Rpc
    head: bytes  # of its message, before the arguments
    length: int  # of the message


class StreamReader:
    """Reads one connection of one application.

    Args:
        bounds: how long things may be.
    """

    __slots__ = (
        "_at",
        "_batch_bytes",
        "_batch_count",
        "_bounds",
        "_broken",
        "_buffer",
        "_checkpoint",
        "_like",
        "_offset",
        "_skip",
    )

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._buffer = bytearray()
        self._at = 0  # in the buffer: what was taken of it
        self._offset = 0  # of the buffer in the stream
        self._batch_count = 0  # messages of the present batch that are still to come
        self._batch_bytes = 0  # their bytes, as the batch states them
        self._checkpoint = -1  # bytes of the present checkpoint that are still to come; -1: there is none
        self._skip = 0  # bytes of a message that are thrown away
        self._broken: ProtocolViolated | None = None
        self._like: _Like | None = None  # the fork that was read last, if the next ones may be like it

    @property
    def buffered(self) -> int:
        """Bytes that wait for more: less than a message."""
        return len(self._buffer) - self._at

    def feed(self, data: bytes) -> Iterator[Item]:
        """Give what is whole now; to be run to its end before the next call.

        Raises: ProtocolViolated.
        """
        for found in self.feed_together(data):
            if isinstance(found, list):
                yield from found
            else:
                yield found

    def feed_together(self, data: bytes) -> Iterator[Item | list[Rpc]]:
        """Give the same, and forks to one destination that are alike as lists, where they are found to be.

        Raises: ProtocolViolated.
        """
        if self._broken is not None:
            raise self._broken
        self._offset += self._at
        del self._buffer[: self._at]
        self._at = 0
        if self._checkpoint > 0 and not self._buffer:  # nothing waits: what is here of a checkpoint is not copied
            part, data = data[: self._checkpoint], data[self._checkpoint :]
            self._checkpoint -= len(part)
            self._offset += len(part)
            yield CheckpointPart(part)
        self._buffer += data
        try:
            while (item := self._next()) is not None:
                yield item
                if self._like is not None and (same := self._next_alike(self._like)):
                    yield same
        except ProtocolViolated as error:
            near = bytes(self._buffer[self._at : self._at + NEAR_BYTES])
            self._broken = error.at(self._offset + self._at, near)
            self._buffer, self._at = bytearray(), 0
            raise self._broken from None

    def _next_alike(self, like: _Like) -> list[Rpc]:
        """Give forks that follow and are like the last one; the last of a batch is never among them."""
        self._like = None
        buffer, at, length = self._buffer, self._at, like.length
        most = (len(buffer) - at) // length
        if self._batch_count:
            most = min(most, self._batch_count - 1, self._batch_bytes // length)
        if most < 1 or not buffer.startswith(like.head, at):
            return []
        count = alike(buffer, at, length, len(like.head), most)
        size = count * length
        data = bytes(memoryview(buffer)[at : at + size])
        self._at += size
        if self._batch_count:
            self._batch_count -= count
            self._batch_bytes -= size
        destination, method, arguments_at = like.fork.destination, like.fork.method, like.fork.arguments_at
        kind, begins = Kind.FORK, range(len(like.head) - arguments_at, size, length)
        rest = length - begins.start
        return [
            Rpc(
                destination=destination,
                kind=kind,
                body=data[start : start + rest],
                method=method,
                arguments_at=arguments_at,
            )
            for start in begins
        ]

    def _next(self) -> Item | None:
        """Give one item; None: more bytes are needed."""
        if self._checkpoint >= 0:
            return self._piece()
        if self._skip:
            skipped = min(self._skip, self.buffered)
            self._at += skipped
            self._skip -= skipped
            if self._skip:
                return None
        while (found := find_int(self._buffer, self._at, "size")) is not None:
            size, start = found
            if len(self._buffer) == start:
                return None
            kind = self._judge(size, self._buffer[start], start)
            if kind is not MessageType.RPC_BATCH:
                return self._message(kind, size, start)
            count = find_int(self._buffer, start + 1, "count of the batch")
            if count is None:
                return None
            self._open_batch(start + size - count[1], count[0])
            self._at = count[1]
        return None

    def _piece(self) -> Item | None:
        """Pass on what is there of a checkpoint."""
        if not self._checkpoint:
            self._checkpoint = -1
            return CheckpointEnds()
        end = min(self._at + self._checkpoint, len(self._buffer))
        if end == self._at:
            return None
        part = bytes(self._buffer[self._at : end])
        self._at = end
        self._checkpoint -= len(part)
        return CheckpointPart(part)

    def _judge(self, size: int, code: int, start: int) -> MessageType:
        """Look at type and size before anything of that size is kept."""
        if size < 1:
            raise ProtocolViolated(f"the size of a message is {size}: it counts the type, so at least 1 is right")
        kind = _BY_CODE.get(code)
        if kind is None:
            raise ProtocolViolated(f"the type of a message is {code}, which is none")
        if kind not in FROM_APPLICATION:
            raise ProtocolViolated(f"a message of type {kind.name} never comes from an application")
        if self._batch_count:
            if kind not in RPC_TYPES:
                raise ProtocolViolated(f"a message of type {kind.name} stands in a batch, which holds RPCs alone")
            if start + size - self._at > self._batch_bytes:
                raise ProtocolViolated(f"a message of {size} bytes in a batch with {self._batch_bytes} bytes left")
        if kind not in RPC_TYPES and size - 1 > (most := self._most(kind)):
            raise ProtocolViolated(f"a message of type {kind.name} has {size} bytes, at most {most + 1} are right")
        return kind

    def _most(self, kind: MessageType) -> int:
        """Give how much data such a message may have."""
        match kind:
            case MessageType.TAKE_CHECKPOINT:
                return 0
            case MessageType.CHECKPOINT:
                return LONG_BYTES_MAX
            case MessageType.INITIAL:
                return self._bounds.message_bytes_max - 1
            case _:
                return 1 << 31  # a batch is gone through, not kept, and so is a name that is too long

    def _open_batch(self, size: int, count: int) -> None:
        if count < 0 or size < 2 * count or (size and not count):
            raise ProtocolViolated(f"the count of a batch is {count}, and {size} bytes follow")
        self._batch_count, self._batch_bytes = count, size

    def _message(self, kind: MessageType, size: int, start: int) -> Item | None:
        """Give a message that is no batch; None: it is not whole yet."""
        end = start + size
        if kind is MessageType.ATTACH_TO and size - 1 > self._bounds.name_bytes_max:
            self._at, self._skip = start + 1, size - 1
            return AttachTo(nobody_of(size - 1))
        if size > self._bounds.message_bytes_max:
            return self._oversized(size, start)
        if len(self._buffer) < end:
            return None
        data = bytes(self._buffer[start + 1 : end])
        item = self._decoded(kind, data)
        if isinstance(item, Rpc) and may_run(item):
            head = end - self._at - (len(item.body) - item.arguments_at)
            if head <= head_bytes(self._bounds):
                self._like = _Like(item, bytes(self._buffer[self._at : self._at + head]), end - self._at)
        self._count_in_batch(end - self._at)
        self._at = end
        if isinstance(item, CheckpointStarts):
            self._checkpoint = item.length
        return item

    def _oversized(self, size: int, start: int) -> Item | None:
        named = find_int(self._buffer, start + 1, "length of the destination")
        if named is None:
            return None
        too_much = max(0, named[0] - self._bounds.name_bytes_max)
        if named[0] > (most := NAME_MESSAGES_MAX * self._bounds.message_bytes_max):
            raise ProtocolViolated(f"the destination has {named[0]} bytes, at most {most} are gone through")
        head = min(size - 1, head_bytes(self._bounds) + too_much)
        end = start + 1 + head
        if len(self._buffer) < end:
            return None
        item = decode_oversized(bytes(self._buffer[start + 1 : end]), size, self._bounds)
        self._count_in_batch(start + size - self._at)
        self._at = end
        self._skip = size - 1 - head
        return item

    def _decoded(self, kind: MessageType, data: bytes) -> Item:
        match kind:
            case _ if kind in RPC_TYPES:
                return decode_rpc(kind, data, self._bounds)
            case MessageType.ATTACH_TO:
                return decode_name(data, self._bounds)
            case MessageType.TAKE_CHECKPOINT:
                return AskCheckpoint()
            case MessageType.CHECKPOINT:
                return decode_length(data, self._bounds)
            case _:
                return Initial(data)

    def _count_in_batch(self, size: int) -> None:
        if self._batch_count:
            self._batch_count -= 1
            self._batch_bytes -= size
            if self._batch_bytes and not self._batch_count:
                raise ProtocolViolated(f"{self._batch_bytes} bytes stand behind the last message of a batch")


assert INT_BYTES_MAX < NEAR_BYTES
