"""An operator decides where a stream goes on: a mark in every shard's log, with the note of that place.

    take the stream at every shard --> the highest id that any has --> reader.adopt --> MARK everywhere --> committed

The source's process, if one is at work, is fenced by that and begins anew behind the mark. It may take the stream back
before all shards have the mark: then it is tried again.

Guarantees: when it returns, all shards have the mark, confirmed; when it raises, some may have it, and to do it again
is right. Does not: decide what the place is. Imports the shell.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Final

from deathless.base.config import ReplicaConfig, SourceConfig
from deathless.base.errors import InputRefused, InvalidArgument, PeerUnreachable, StreamFenced
from deathless.codec.streams.packets import StreamCommit, StreamRefused, StreamWelcome
from deathless.codec.streams.records import NONCE_BYTES, OnRefusal, StreamKey, encode_mark
from deathless.codec.wire import Type, decode_struct
from deathless.core.client.stream_sender import State, StreamSender
from deathless.sources.keys import Routing
from deathless.sources.link import Packets, ShardLink
from deathless.sources.port import Partition, Point, Reader

ATTEMPTS_MAX: Final = 10
PATIENCE_S: Final = 30.0  # for all shards to answer


class _Taking:
    """One attempt: the stream at every shard."""

    def __init__(self, config: ReplicaConfig, key: StreamKey, on_refusal: OnRefusal) -> None:
        self.changed = asyncio.Event()
        self.refusal = ""  # an input at which a shard stands
        self.senders = [StreamSender(key, os.urandom(NONCE_BYTES), on_refusal) for _ in range(config.shards)]
        self._links = [
            ShardLink(config, shard, f"tool/{key.source}", up=self._up, received=self._received, down=self._down)
            for shard in range(config.shards)
        ]

    def close(self) -> None:
        """Let go."""
        for link in self._links:
            link.close()

    def send(self) -> None:
        """Send what is offered."""
        for link, sender in zip(self._links, self.senders, strict=True):
            for data in sender.packets(time.monotonic()):
                link.send(data)

    @property
    def problem(self) -> str:
        """Why a shard does not answer; empty: all do."""
        return next((link.problem for link in self._links if link.problem), "")

    @property
    def fenced(self) -> bool:
        """Has another process taken it?"""
        return any(each.state is State.FENCED for each in self.senders)

    def _up(self, shard: int) -> None:
        if self.senders[shard].state is State.CLOSED:
            self._links[shard].send(self.senders[shard].hello())

    def _down(self, shard: int) -> None:
        self.senders[shard].lost()
        self.changed.set()

    def _received(self, shard: int, packets: Packets) -> None:
        sender = self.senders[shard]
        for kind, body in packets:
            match kind:
                case Type.STREAM_WELCOME:
                    sender.welcomed(decode_struct(StreamWelcome, body))
                case Type.STREAM_COMMIT:
                    sender.committed(decode_struct(StreamCommit, body))
                case Type.STREAM_REFUSED:
                    refused = decode_struct(StreamRefused, body)
                    wait_s = sender.refused(refused, time.monotonic())
                    if refused.code == InputRefused.code:
                        self.refusal = refused.text
                    elif wait_s is not None:
                        asyncio.get_running_loop().call_later(wait_s, self._up, shard)
                case _:
                    pass
        self.send()
        self.changed.set()


async def adopt(config: ReplicaConfig, source: SourceConfig, reader: Reader, stream: int, at: str) -> Point:
    """Have a stream go on at a place.

    Args:
        config: of a replica of the service.
        source: which.
        reader: of it.
        stream: number of the partition.
        at: the place, as `Reader.adopt` says.

    Returns: the point that is logged.

    Raises: InvalidArgument for a stream or a place that is not there; InputRefused when a shard stands at an input;
        PeerUnreachable when not all shards answer; StreamFenced when another process takes the stream each time.
    """
    partition = next((each for each in await reader.partitions() if each.number == stream), None)
    if partition is None:
        raise InvalidArgument(f"source {source.name} has no stream {stream}")
    for _ in range(ATTEMPTS_MAX):
        taking = _Taking(config, StreamKey(source.name, stream), OnRefusal(source.on_refusal))
        try:
            async with asyncio.timeout(PATIENCE_S):
                point = await _attempt(config, source, reader, partition, at, taking)
        except TimeoutError:
            raise PeerUnreachable(taking.problem or "not all shards answer") from None
        finally:
            taking.close()
        if point is not None:
            return point
    raise StreamFenced(f"stream {source.name}/{stream} was taken back {ATTEMPTS_MAX} times", remedy="try again")


async def _attempt(
    config: ReplicaConfig, source: SourceConfig, reader: Reader, partition: Partition, at: str, taking: _Taking
) -> Point | None:
    """Take, and mark; None: another process took the stream."""
    while not all(each.state is State.OPEN for each in taking.senders):
        if taking.fenced:
            return None
        if taking.refusal:
            raise InputRefused(taking.refusal, remedy="have that row tried again, or pass it over, first")
        await taking.changed.wait()
        taking.changed.clear()
    far = max(each.next_id - 1 for each in taking.senders)
    point = await reader.adopt(partition, far, at)
    routing = Routing.of(config, source)
    for sender in taking.senders:
        sender.offer(point.last_id, encode_mark(routing.fingerprint + point.note))
    taking.send()
    while any(len(each) for each in taking.senders):
        if taking.fenced:
            return None
        await taking.changed.wait()
        taking.changed.clear()
    return point
