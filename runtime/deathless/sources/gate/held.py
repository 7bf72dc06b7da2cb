"""One stream that a client has at the gate: its way into the shards, and what its connection is told of that; pure.

    asked --every shard has welcomed us--> admitted --EOS_MESSAGE--> ending --every shard has the end--> over
                                              '---------------- a shard has another owner --------------> over

Guarantees: what is told is true of all shards; nothing is told twice. Does not: know bytes of the connector protocol,
or send. Imports the machine of partitions, and words of the protocol.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from deathless.base.errors import InvalidArgument, ServiceRolledBack
from deathless.codec.streams.packets import StreamWelcome
from deathless.codec.streams.records import ID_MAX
from deathless.codec.wire import Type, decode_struct
from deathless.protocols.connector.frames import Message, MessageId, StreamId
from deathless.protocols.connector.source_events import (
    EndConfirmed,
    MessagesConfirmed,
    MessagesSettled,
    StreamAdmitted,
    StreamFenced,
)
from deathless.sources.machine import PartitionMachine, State
from deathless.sources.port import NOTE_BYTES_MAX, Batch, Record

Told: TypeAlias = StreamAdmitted | StreamFenced | MessagesConfirmed | MessagesSettled | EndConfirmed


class HeldStream:
    """One stream of one connection.

    Args:
        machine: its way into the shards, new.
        conn: number of the connection.
        name: as the client calls it; so much of it as a note has room for is logged.
    """

    __slots__ = ("_admitted", "_confirmed", "_ending", "_note", "_settled", "at", "conn", "machine", "over", "sessions")

    def __init__(self, machine: PartitionMachine, conn: int, name: bytes) -> None:
        self.machine = machine
        self.conn = conn
        self.at: float | None = None  # when it is to be looked at though nothing comes, in seconds of the gate's clock
        self.over = False  # nothing more becomes of it
        self.sessions: set[tuple[int, int]] = set()  # shard, and session of the stream there
        self._note = name[:NOTE_BYTES_MAX]
        self._admitted = False
        self._confirmed = self._settled = -1  # ids that were told as such
        self._ending = False

    @property
    def stream(self) -> StreamId:
        """Its number."""
        return StreamId(self.machine.partition.number)

    @property
    def state(self) -> str:
        """For operators."""
        return "opening" if not self._admitted else "ending" if self._ending else "open"

    def take(self, messages: Sequence[Message], now: float) -> None:
        """Messages came: those with new ids go to their shards.

        Raises: InvalidArgument for an id that no stream of ours can have; those before it were taken.
        """
        records = []
        last = self.machine.read_id
        wrong = None
        for message in messages:
            if message.id > ID_MAX:
                wrong = InvalidArgument(f"MESSAGE {message.id} of stream {self.stream}: ids go up to {ID_MAX} here")
                break
            if message.id > last:  # else it came before, and is on its way
                last = message.id
                records.append(Record(message.id, message.payload, message.key, self._note))
        if records:
            self.machine.take(Batch(records, last, self._note), now)
        if wrong is not None:
            raise wrong

    def end(self) -> None:
        """The client says that the stream has ended."""
        self._ending = True
        self.machine.finish()

    def received(self, shard: int, kind: int, body: bytes, now: float) -> list[bytes]:
        """A packet about it came from a shard: what is to be sent there.

        Raises: CorruptFrame; ServiceRolledBack when the shard lacks what it had confirmed.
        """
        before = self.machine.views()[shard].taken_in
        packets = self.machine.received(shard, kind, body, now)
        if kind == Type.STREAM_WELCOME:
            welcome = decode_struct(StreamWelcome, body)
            if welcome.last_id < before:
                raise ServiceRolledBack(
                    f"stream {self.stream}: shard {shard} had confirmed message {before}, and knows {welcome.last_id} "
                    "as the last"
                )
            self.sessions.add((shard, welcome.session))
        return packets

    def news(self) -> list[Told]:
        """Give what its connection is to be told now. Raises: SourceKeyChanged."""
        machine, stream = self.machine, self.stream
        if self.over:
            return []
        if machine.state is State.FENCED:
            self.over = True
            return [StreamFenced(stream=stream)]
        if not self._admitted:
            if machine.state is not State.READING:
                return []
            last = machine.points()[0].last_id
            self._admitted = True
            self._confirmed = self._settled = last
            return [StreamAdmitted(stream=stream, last=None if last < 0 else MessageId(last), ended=machine.ended)]
        found: list[Told] = []
        settled, taken_in = machine.settled, machine.taken_in
        if settled > max(self._settled, taken_in):
            self._settled = settled
            found.append(MessagesSettled(stream=stream, through=MessageId(settled)))
        if taken_in > self._confirmed:
            self._confirmed = taken_in
            found.append(MessagesConfirmed(stream=stream, through=MessageId(taken_in)))
        if self._ending and machine.ended:
            self.over = True
            found.append(EndConfirmed(stream=stream))
        return found

    def refusal(self) -> str:
        """Why a shard takes nothing of it, code first; empty: none refuses."""
        return next((view.problem for view in self.machine.views() if view.problem), "")
