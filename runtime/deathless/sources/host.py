"""The process of one source beside one replica: it reads partitions, and carries out what their machines decide.

    supervisor --(socket pair: Standing)--> here      primary or not, and of which epoch
    reader     --records------------------> here --STREAM_BATCH--> primaries of all shards
                                                 <--STREAM_COMMIT-

It is at work while its replica is the primary of its shard and may reach the outside, and reads the partitions whose
number modulo the count of shards is its shard's: so each partition is read beside one primary. That is a hint alone:
two processes that both think so are told apart by the primaries, of which each has one owner for a stream.

A source of a kind at which clients connect reads nothing: its work is a gate (`gate.work`), beside the primary of
shard 0.

Guarantees: holds no truth and may be killed or frozen at any time; a stream that can't go on is named, and tried again
at most AGAIN_MAX_S apart; other streams and sources go on. Does not: decide anything about streams (`machine` does).
Imports readers when they are needed, and the shell.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Final, Protocol

import msgspec

from deathless.base.config import ReplicaConfig, SourceConfig
from deathless.base.errors import (
    DeathlessError,
    InputRefused,
    Internal,
    InvalidArgument,
    InvalidConfig,
    PortTaken,
    StreamFenced,
)
from deathless.base.source_kinds import SOURCE_KINDS
from deathless.codec.streams.records import NONCE_BYTES, OnRefusal
from deathless.shell.link.side_process import PRIMARY, keep_beside, led_epoch, run_beside
from deathless.shell.link.source_status import (
    PROBLEM_MAX,
    ShardStatus,
    SourceStatus,
    StreamStatus,
    write_status,
)
from deathless.shell.link.standing import Standing
from deathless.shell.net.abstract_socket import listen_local
from deathless.shell.net.status_port import StatusPort
from deathless.shell.process.output import never_wait
from deathless.shell.web.source_metrics import source_socket
from deathless.sources.gate.work import GateWork, check_options
from deathless.sources.keys import Routing
from deathless.sources.link import Packets, ShardLink
from deathless.sources.machine import PartitionMachine, State
from deathless.sources.port import Factory, Partition, Reader, Settings
from deathless.sources.trouble import Trouble, code_of

_LOG: Final = logging.getLogger("deathless.sources")
POLL_S: Final = 0.05  # between two reads of which the first gave nothing
READ_BYTES_MAX: Final = 1 << 20
PARTITIONS_S: Final = 10.0  # between two looks at which partitions there are
TAKEN_IN_S: Final = 1.0  # between two words to the reader about how far it is
STATUS_S: Final = 1.0
KEEP_S: Final = 10.0  # a status that does not change is written again after this, so that its time says it is fresh
_TAKEN_ELSEWHERE: Final = "another process took the stream over"


def make_reader(source: SourceConfig) -> Reader:
    """Make a reader, which connects nothing yet.

    Raises: InvalidConfig naming source and field; InvalidArgument for a kind that has no readers.
    """
    kind = SOURCE_KINDS.get(source.kind)
    if kind is None:
        raise InvalidConfig(
            f"source {source.name}: there is no kind {source.kind!r}", remedy=f"kinds: {', '.join(SOURCE_KINDS)}"
        )
    if kind.gate:
        raise InvalidArgument(
            f"source {source.name}: kind {kind.name} has no place to go on at: its clients send what they are asked for"
        )
    module, _, name = kind.factory.partition(":")
    try:
        factory: Factory = getattr(import_module(module), name)
    except ImportError as error:
        remedy = f"pip install deathless[{kind.extra}]" if kind.extra else ""
        raise InvalidConfig(f"source {source.name}: kind {kind.name}: {error}", remedy=remedy) from None
    return factory(Settings(source.name, source.options, source.folder))


class Stream:
    """One partition that is read here."""

    def __init__(self, machine: PartitionMachine) -> None:
        self.machine = machine
        self.is_open = False  # the reader is
        self.trouble = Trouble()
        self.told = -1  # the reader knows that so much was taken in
        self.told_at = float("-inf")
        self.stood = ""  # the refusal that was logged last


class Life(Protocol):
    """One life of a source beside a primary."""

    trouble: Trouble  # with all of it
    address: str  # at which clients connect; empty: none do

    @property
    def rows(self) -> int:
        """What was sent to shards."""
        ...

    @property
    def errors(self) -> int:
        """Attempts to read, or connections, that failed."""
        ...

    @property
    def connections(self) -> int:
        """Of clients."""
        ...

    async def turn(self) -> float:
        """Do what is due; gives for how long there is nothing to do, seconds."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...

    def statuses(self) -> tuple[StreamStatus, ...]:
        """Give how its streams are."""
        ...


class Work:
    """One life of a source that is read.

    Args:
        config: of the replica.
        source: of the source.
        reader: its own.
        changed: set when there is something to do.
    """

    def __init__(self, config: ReplicaConfig, source: SourceConfig, reader: Reader, changed: asyncio.Event) -> None:
        self.address = ""
        self.connections = 0
        self.rows = 0
        self.errors = 0
        self.trouble = Trouble()
        self.streams: dict[int, Stream] = {}  # by number
        self._config = config
        self._source = source
        self._reader = reader
        self._changed = changed
        self._routing = Routing.of(config, source)
        self._links: list[ShardLink] = []  # of all shards, once there is a partition
        self._partitions: list[Partition] = []  # that are to be read here, as they were looked at last
        self._look_at = 0.0
        self._fenced: dict[int, Trouble] = {}  # partitions that another process took, by number

    async def turn(self) -> float:
        """Do what is due; gives for how long there is nothing to do, seconds, unless `changed` is set."""
        for link in self._links:
            link.check()
        await self._look()
        busy = False
        for number, stream in list(self.streams.items()):
            if stream.machine.state is State.FENCED:
                self._let_go(number)
                await self._reader.leave(stream.machine.partition)
                continue
            busy |= await self._read(stream)
            self._send(stream)
            await self._tell(stream)
        if busy:
            return 0.0
        now = time.monotonic()
        deadlines = [at for each in self.streams.values() if (at := each.machine.deadline(now)) is not None]
        return min([POLL_S, *(max(at - now, 0.0) for at in deadlines)])

    async def close(self) -> None:
        """Let go of everything."""
        for link in self._links:
            link.close()
        await self._reader.close()

    # ---- partitions --------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """See which partitions are to be read here, and begin with those that are not."""
        now = time.monotonic()
        if now >= max(self._look_at, self.trouble.again_at if self.trouble.error else 0.0):
            try:
                found = await self._reader.partitions()
            except Exception as error:  # noqa: BLE001 - a bug of a reader stops its source, and is told by name
                self._met(self.trouble, error, "")
                return
            self.trouble.over(now)
            self._look_at = now + PARTITIONS_S
            self._partitions = [each for each in found if each.number % self._config.shards == self._config.shard]
        for partition in self._partitions:
            fenced = self._fenced.get(partition.number)
            if partition.number not in self.streams and (fenced is None or now >= fenced.again_at):
                self._begin(partition)

    def _begin(self, partition: Partition) -> None:
        nonces = [os.urandom(NONCE_BYTES) for _ in range(self._config.shards)]
        on_refusal = OnRefusal(self._source.on_refusal)
        machine = PartitionMachine(self._source.name, partition, self._routing, nonces, on_refusal)
        self.streams[partition.number] = Stream(machine)
        if not self._links:
            name = f"{self._config.replica}/{self._source.name}"
            self._links = [
                ShardLink(self._config, shard, name, up=self._up, received=self._received, down=self._down)
                for shard in range(self._config.shards)
            ]
        for link in self._links:
            if not link.problem:
                self._send_all(link, machine.connected(link.shard))

    def _let_go(self, number: int) -> None:
        """Another process has taken a stream: it is read here again after a pause, if we are still to read it."""
        del self.streams[number]
        trouble = self._fenced.setdefault(number, Trouble())
        trouble.met(StreamFenced(_TAKEN_ELSEWHERE), time.monotonic())
        trouble.over(time.monotonic())
        _LOG.warning(_TAKEN_ELSEWHERE, extra={"source": self._source.name, "stream": number})

    # ---- reading -----------------------------------------------------------------------------------------------

    async def _read(self, stream: Stream) -> bool:
        """Read on, if there is room for it; says whether anything came."""
        machine, now = stream.machine, time.monotonic()
        if machine.state is not State.READING or (stream.trouble.error is not None and now < stream.trouble.again_at):
            return False
        try:
            if not stream.is_open:
                await self._reader.open(machine.partition, machine.points())
                stream.is_open = True
            room = machine.room
            if not room:
                return False
            batch = await self._reader.read(machine.partition, room, READ_BYTES_MAX)
            before = machine.rows
            machine.take(batch, time.monotonic())
        except Exception as error:  # noqa: BLE001 - a bug of a reader stops its stream, and is told by name
            stream.is_open = False  # what was not offered of the batch is read again
            self._met(stream.trouble, error, machine.partition.name)
            return False
        stream.trouble.over(time.monotonic())
        self.rows += machine.rows - before
        return bool(batch.records)

    def _met(self, trouble: Trouble, error: Exception, name: str) -> None:
        self.errors += 1
        known = error if isinstance(error, DeathlessError) else Internal(f"{type(error).__name__}: {error}")
        if not trouble.met(known, time.monotonic()):
            return
        extra = {"source": self._source.name, "stream": name, "code": known.code, "why": str(known)}
        _LOG.error("source can't be read", extra=extra, exc_info=error if known is not error else None)

    async def _tell(self, stream: Stream) -> None:
        taken_in, now = stream.machine.taken_in, time.monotonic()
        if stream.is_open and taken_in > stream.told and now >= stream.told_at + TAKEN_IN_S:
            stream.told, stream.told_at = taken_in, now
            await self._reader.taken_in(stream.machine.partition, taken_in)

    # ---- connections -------------------------------------------------------------------------------------------

    def _up(self, shard: int) -> None:
        for stream in self.streams.values():
            self._send_all(self._links[shard], stream.machine.connected(shard))
        self._changed.set()

    def _down(self, shard: int) -> None:
        for stream in self.streams.values():
            stream.machine.lost(shard)
        self._changed.set()

    def _received(self, shard: int, packets: Packets) -> None:
        now = time.monotonic()
        for stream in self.streams.values():
            for kind, body in packets:
                self._send_all(self._links[shard], stream.machine.received(shard, kind, body, now))
            self._note_refusal(stream)
        self._changed.set()

    def _send(self, stream: Stream) -> None:
        for shard, packets in stream.machine.due(time.monotonic()):
            self._send_all(self._links[shard], packets)

    @staticmethod
    def _send_all(link: ShardLink, packets: list[bytes]) -> None:
        for data in packets:
            link.send(data)

    def _note_refusal(self, stream: Stream) -> None:
        why = next((each.problem for each in stream.machine.views() if _stands(each.problem)), "")
        if why and why != stream.stood:
            _LOG.error("an input was refused, and the source stands", extra={"source": self._source.name, "why": why})
        stream.stood = why

    # ---- what it says ------------------------------------------------------------------------------------------

    def statuses(self) -> tuple[StreamStatus, ...]:
        """Give how its streams are."""
        return tuple(self._status(stream) for _, stream in sorted(self.streams.items()))

    def _status(self, stream: Stream) -> StreamStatus:
        machine = stream.machine
        shards = tuple(
            ShardStatus(
                shard=view.shard,
                taken_in=view.taken_in,
                waiting=view.waiting,
                problem=(view.problem or self._links[view.shard].problem)[:PROBLEM_MAX],
            )
            for view in machine.views()
        )
        error, problem = stream.trouble.error, next((each.problem for each in shards if each.problem), "")
        return StreamStatus(
            stream=machine.partition.number,
            name=machine.partition.name,
            state=machine.state.value,
            taken_in=machine.taken_in,
            end=machine.end,
            shards=shards,
            code=error.code if error is not None else code_of(problem),
            problem=str(error)[:PROBLEM_MAX] if error is not None else problem,
        )


def _stands(problem: str) -> bool:
    return problem.startswith(InputRefused.code)


class SourceProcess:
    """One source beside one replica.

    Args:
        config: the replica's.
        source: which of its sources.
        make: makes its reader.
    """

    def __init__(
        self, config: ReplicaConfig, source: SourceConfig, make: Callable[[SourceConfig], Reader] = make_reader
    ) -> None:
        self.work: Life | None = None  # None: not beside a primary
        self._config = config
        self._source = source
        self._make = make
        self._epoch = 0  # that the work is of
        self._done = (0, 0)  # rows and errors of former lives
        self._standing: Standing | None = None  # None: not told yet
        self._changed = asyncio.Event()
        self._kept: tuple[SourceStatus | None, float] = (None, 0.0)  # last written to the file, and when
        self._port: asyncio.Server | None = None
        self._is_gate = source.kind in SOURCE_KINDS and SOURCE_KINDS[source.kind].gate
        if self._is_gate:
            check_options(config, source)  # what is wrong with the options is told at once
        else:
            make(source)

    async def start(self) -> None:
        """Listen for who asks how it is. Raises: PortTaken when another process is this source."""
        name = source_socket(self._config.directory, self._config.owner, self._source.name)
        try:
            self._port = await listen_local(lambda: StatusPort(self.status()), name)
        except OSError as error:
            raise PortTaken(f"source {self._source.name}: {error.strerror or error}") from None

    def told(self, record: object) -> None:
        """The supervisor says how the replica stands."""
        if isinstance(record, Standing):
            changed = led_epoch(record) != led_epoch(self._standing)
            self._standing = record
            if changed:
                self._changed.set()

    async def run(self) -> None:
        """Work until it is cancelled."""
        try:
            while True:
                self._changed.clear()
                pause_s = await self.turn()
                if not pause_s:
                    await asyncio.sleep(0)
                    continue
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause_s):
                        await self._changed.wait()
        finally:
            await self._leave()
            if self._port is not None:
                self._port.close()

    async def turn(self) -> float:
        """Follow the replica's role, and work while it leads; gives for how long there is nothing to do, seconds."""
        led = led_epoch(self._standing)
        if led != self._epoch:
            await self._leave()
            self._epoch = led
            if led and not self._is_gate:
                self.work = Work(self._config, self._source, self._make(self._source), self._changed)
            elif led and self._config.shard == 0:
                self.work = GateWork(self._config, self._source, self._changed)
        pause_s = STATUS_S
        if self.work is not None:
            pause_s = await self.work.turn()
        self._keep_status()
        return pause_s

    async def _leave(self) -> None:
        work, self.work = self.work, None
        if work is not None:
            self._done = (self._done[0] + work.rows, self._done[1] + work.errors)
            await work.close()

    # ---- what it says ------------------------------------------------------------------------------------------

    def status(self) -> SourceStatus:
        """Give how the source is now."""
        standing, work = self._standing, self.work
        held = standing is not None and standing.role == PRIMARY and standing.outside_held
        status = SourceStatus(
            source=self._source.name,
            kind=self._source.kind,
            input=self._source.input,
            state="held" if held else "idle",
            replica=self._config.replica,
            epoch=standing.epoch if standing is not None else 0,
            rows=self._done[0],
            errors=self._done[1],
            at_us=time.time_ns() // 1000,
        )
        if work is None:
            return status
        streams, error = work.statuses(), work.trouble.error
        stopped = error is not None or any(each.code for each in streams)
        return msgspec.structs.replace(
            status,
            state="stopped" if stopped else "reading",
            streams=streams,
            rows=status.rows + work.rows,
            errors=status.errors + work.errors,
            code=error.code if error is not None else "",
            problem=str(error)[:PROBLEM_MAX] if error is not None else "",
            connections=work.connections,
            listens=work.address,
        )

    def _keep_status(self) -> None:
        """Write the status to its file while at work: others read it where no process answers."""
        standing, now = self._standing, time.monotonic()
        (kept, kept_at) = self._kept
        if standing is None or standing.role != PRIMARY:
            return
        status = self.status()
        same = kept is not None and msgspec.structs.replace(status, at_us=kept.at_us) == kept
        changed = kept is None or _said(status) != _said(kept)
        if not changed and (now - kept_at < STATUS_S or (same and now - kept_at < KEEP_S)):
            return
        self._kept = (status, now)
        try:
            write_status(self._config.directory, status)
        except OSError as error:
            _LOG.warning("can't keep the status", extra={"source": self._source.name, "why": str(error)})


def _said(status: SourceStatus) -> object:
    """Give what of a status is news at once."""
    return status.state, status.epoch, status.code, [each.code for each in status.streams]


async def serve(config: ReplicaConfig, name: str, pair: socket.socket) -> None:
    """Run one source until the supervisor is gone, or SIGTERM. Raises: InvalidConfig, PortTaken."""
    source = next((each for each in config.sources if each.name == name), None)
    if source is None:
        known = ", ".join(each.name for each in config.sources) or "none"
        raise InvalidConfig(f"service {config.service} has no source {name!r}", remedy=f"its sources: {known}")
    told = {"source": name, "kind": source.kind, "input": source.input}
    await keep_beside(SourceProcess(config, source), pair, lambda: _LOG.info("source starts", extra=told))


def main(arguments: list[str]) -> int:
    """`python -m deathless.sources.host CONFIG.json NAME DESCRIPTOR PARENT`; ends with its parent."""
    return run_beside(arguments, "source", _LOG, serve)


if __name__ == "__main__":
    never_wait()
    sys.exit(main(sys.argv[1:]))
