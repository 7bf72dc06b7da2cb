"""The process of one sink beside one replica: it carries out what the machine decides.

    supervisor --(socket pair: Standing)--> here   primary or not, and of which epoch
    topic's files --look, block-----------> here --open, write--> store
                  <--hold------------------

It is at work while its replica is the primary and may reach the outside. That is a hint alone: two processes that both
think so are told apart by the store, of which the later epoch has the tip.

Guarantees: holds no truth and may be killed or frozen at any time; what the store does is waited for in a task of its
own, so that holds are minded while it hangs; the files of the status are written at most each STATUS_S unless the state
changes. Does not: decide anything (`machine` does). Imports stores when they are needed, topics and the shell.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import time
from collections.abc import Coroutine
from typing import Final, assert_never

import msgspec

from deathless.base.config import ReplicaConfig, SinkConfig
from deathless.base.errors import DeathlessError, Internal, InvalidConfig, PortTaken, SinkUnavailable
from deathless.shell.link.side_process import PRIMARY, keep_beside, led_epoch, run_beside
from deathless.shell.link.sink_status import PROBLEM_MAX, SinkStatus, write_status
from deathless.shell.link.standing import Standing
from deathless.shell.net.abstract_socket import listen_local
from deathless.shell.net.status_port import StatusPort
from deathless.shell.process.output import never_wait
from deathless.shell.web.sink_metrics import sink_socket
from deathless.sinks.machine import (
    Ceased,
    Close,
    DropHold,
    Effect,
    Event,
    Failed,
    GiveUp,
    Hold,
    Led,
    Looked,
    Open,
    Policy,
    SinkMachine,
    State,
    StoreOpened,
    Write,
    WriteRefused,
    Written,
)
from deathless.sinks.port import BlockRefused, Claim, KeepsRefused, Key, Store
from deathless.sinks.rows import TopicRows, source_of
from deathless.sinks.stores import make_store
from deathless.topics.source import TopicSource

_LOG: Final = logging.getLogger("deathless.sinks")
LOOK_S: Final = 0.5
STATUS_S: Final = 1.0
KEEP_S: Final = 10.0  # a status that does not change is written again after this, so that its time says it is fresh


class Counts:
    """What a process has done since it began."""

    def __init__(self) -> None:
        self.rows = 0
        self.blocks = 0
        self.errors = 0


class Work:
    """One source of a topic, and the store that its rows go to.

    Args:
        config: of the replica.
        sink: of the sink.
        source: whose rows.
        counts: of the process.
        store: not open yet; None: as the sink says.
    """

    def __init__(
        self, config: ReplicaConfig, sink: SinkConfig, source: TopicSource, counts: Counts, store: Store | None = None
    ) -> None:
        self.rows = TopicRows(sink.topic_directory, source, sink.name)
        policy = Policy(sink.block_rows, sink.block_s, sink.hold_bytes_max, sink.on_refusal == "deadLetter")
        self.machine = SinkMachine(sink.name, policy, source.incarnation)
        self.done = asyncio.Event()  # the store has done what it was told
        self._key = Key(sink.name, config.service, config.shard, source.service_id)
        self._store = store or make_store(sink)
        self._counts = counts
        self._schema = ""  # of rows that the store was opened for
        self._task: asyncio.Task[Event] | None = None  # what the store, or the rows for it, are doing

    async def take(self, event: Event | None) -> None:
        """Let the machine take an event, and do what it says."""
        before = str(self.machine.problem)
        for effect in self.machine.step(event, time.monotonic()):
            await self._do(effect)
        problem = self.machine.problem
        if problem is not None and str(problem) != before:
            _LOG.error("sink stores nothing", extra={"sink": self._key.sink, "code": problem.code, "why": str(problem)})

    async def turn(self) -> None:
        """Take what the store has done, and look at the topic."""
        self.done.clear()
        await self._collect()
        await self._look()

    async def close(self) -> None:
        """Let go of everything."""
        await self.take(Ceased())
        await self._let_go()

    async def _look(self) -> None:
        try:
            event: Event = Looked(self.rows.look(self.machine.position))
        except DeathlessError as error:
            event = Failed(error)
        await self.take(event)

    async def _collect(self) -> None:
        task = self._task
        if task is None or not task.done():
            return
        self._task = None
        event = _result(task)
        if isinstance(event, Failed | WriteRefused):
            self._counts.errors += 1
        if isinstance(event, StoreOpened):
            await self._look()  # the sink before us may have stored rows, and moved its hold, since the last one
        await self.take(event)

    # ---- effects ---------------------------------------------------------------------------------------------

    async def _do(self, effect: Effect) -> None:
        match effect:
            case Open():
                self._begin(self._open(effect))
            case Write():
                self._begin(self._write(effect))
            case GiveUp():
                self._begin(self._give_up(effect))
            case Hold():
                self._hold(effect)
            case DropHold():
                self._drop_hold(effect)
            case Close():
                await self._let_go()
            case _:
                assert_never(effect)

    def _begin(self, work: Coroutine[None, None, Event]) -> None:
        assert self._task is None, "one thing at a time"
        self._task = asyncio.get_running_loop().create_task(work, name="sink")
        self._task.add_done_callback(lambda _: self.done.set())

    async def _open(self, effect: Open) -> Event:
        self._schema = effect.schema
        claim = Claim(self._key, self.rows.source.incarnation, effect.epoch, os.urandom(8).hex())
        return StoreOpened(await self._store.open(claim, effect.schema))

    async def _write(self, effect: Write) -> Event:
        # In a thread: rows that are missed are looked for again for seconds, and holds are minded meanwhile.
        block = await asyncio.to_thread(self.rows.block, effect.start, effect.end, self._schema)
        try:
            await self._store.write(block, effect.expected)
        except BlockRefused as error:
            return WriteRefused(block.end, str(error))
        self._counts.blocks += 1
        self._counts.rows += sum(batch.num_rows for batch in block.batches)
        return Written(block.end)

    async def _give_up(self, effect: GiveUp) -> Event:
        store = self._store
        assert isinstance(store, KeepsRefused), "stores are asked when they are made"
        block = await asyncio.to_thread(self.rows.block, effect.position, effect.position + 1, self._schema)
        await store.give_up(block, effect.expected, effect.why)
        told = {"sink": self._key.sink, "position": effect.position, "why": effect.why}
        _LOG.warning("a row is refused, and kept as such", extra=told)
        return Written(block.end)

    def _hold(self, effect: Hold) -> None:
        """Hold rows; a hold that comes too late, or can't be written, is tried again with the next look."""
        try:
            held = self.rows.hold(effect.hold)
        except SinkUnavailable as error:
            _LOG.warning("a hold can't be moved", extra={"sink": self._key.sink, "why": str(error)})
            return
        if not held:
            _LOG.warning("rows may be gone, none are held", extra={"sink": self._key.sink})

    def _drop_hold(self, effect: DropHold) -> None:
        _LOG.error(
            "sink lets go of rows that it has not stored: there are more than holdBytesMax",
            extra={"sink": self._key.sink, "position": self.machine.position, "bytes": effect.held_bytes},
        )
        try:
            self.rows.drop_hold()
        except SinkUnavailable as error:
            _LOG.warning("a hold can't be dropped", extra={"sink": self._key.sink, "why": str(error)})

    async def _let_go(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # it is of no account any more
        await self._store.close()


def _result(task: asyncio.Task[Event]) -> Event:
    try:
        return task.result()
    except DeathlessError as error:
        return Failed(error)
    except asyncio.CancelledError:
        return Failed(SinkUnavailable("cut off"))
    except Exception as error:  # noqa: BLE001 - a bug of a store stops its sink, and is told by name
        _LOG.exception("sink fails")
        return Failed(Internal(f"{type(error).__name__}: {error}"))


class SinkProcess:
    """One sink beside one replica.

    Args:
        config: the replica's.
        sink: which of its sinks.
    """

    def __init__(self, config: ReplicaConfig, sink: SinkConfig) -> None:
        self.work: Work | None = None  # None: not beside a primary, or nothing was published yet
        self._config = config
        self._sink = sink
        self._counts = Counts()
        self._standing: Standing | None = None  # None: not told yet
        self._told = asyncio.Event()
        self._kept: tuple[SinkStatus | None, float] = (None, 0.0)  # last written to the file, and when
        self._port: asyncio.Server | None = None
        make_store(sink)  # what is wrong with the options is told at once

    async def start(self) -> None:
        """Listen for who asks how it is. Raises: PortTaken when another process is this sink."""
        name = sink_socket(self._config.directory, self._config.owner, self._sink.name)
        try:
            self._port = await listen_local(lambda: StatusPort(self.status()), name)
        except OSError as error:
            raise PortTaken(f"sink {self._sink.name}: {error.strerror or error}") from None

    def told(self, record: object) -> None:
        """The supervisor says how the replica stands."""
        if isinstance(record, Standing):
            changed = led_epoch(record) != led_epoch(self._standing)
            self._standing = record
            if changed:
                self._told.set()

    async def run(self) -> None:
        """Work until it is cancelled."""
        try:
            while True:
                self._told.clear()
                await self.turn()
                await self._wait()
        finally:
            await self._leave()
            if self._port is not None:
                self._port.close()

    async def turn(self) -> None:
        """Follow the replica's role, and work while it leads."""
        standing = self._standing
        if standing is None or not led_epoch(standing):
            await self._leave()
        else:
            await self._lead(standing)
        self._keep_status()

    async def _lead(self, standing: Standing) -> None:
        try:
            source = source_of(self._sink.topic_directory, standing.service_id)
        except OSError as error:
            _LOG.warning("can't look at the topic", extra={"sink": self._sink.name, "why": str(error)})
            return
        if self.work is not None and self.work.rows.source != source:
            await self._leave()
        if self.work is None and source is not None:
            self.work = Work(self._config, self._sink, source, self._counts)
        if self.work is not None:
            await self.work.take(Led(standing.epoch))
            await self.work.turn()

    async def _leave(self) -> None:
        work, self.work = self.work, None
        if work is not None:
            await work.close()

    async def _wait(self) -> None:
        """Pause until there is something to do."""
        pause_s, waits = LOOK_S, [self._told.wait()]
        if self.work is not None:
            waits.append(self.work.done.wait())
            deadline = self.work.machine.deadline
            if deadline is not None:
                pause_s = min(max(deadline - time.monotonic(), 0.0), LOOK_S)
        tasks = [asyncio.ensure_future(each) for each in waits]
        await asyncio.wait(tasks, timeout=pause_s, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()

    # ---- what it says ------------------------------------------------------------------------------------------

    def status(self) -> SinkStatus:
        """Give how the sink is now."""
        standing, work = self._standing, self.work
        held = standing is not None and standing.role == PRIMARY and standing.outside_held
        status = SinkStatus(
            sink=self._sink.name,
            topic=self._sink.topic,
            state="held" if held else State.IDLE.name.lower(),
            replica=self._config.replica,
            epoch=standing.epoch if standing is not None else 0,
            rows=self._counts.rows,
            blocks=self._counts.blocks,
            errors=self._counts.errors,
            at_us=time.time_ns() // 1000,
        )
        if work is None:
            leads = standing is not None and led_epoch(standing)
            return msgspec.structs.replace(status, state=State.WAITING.name.lower()) if leads else status
        machine, look = work.machine, work.machine.look
        position, following = machine.position, look.next if look is not None else 0
        hold = look.hold.position if look is not None and look.hold is not None else 0
        problem = machine.problem
        return msgspec.structs.replace(
            status,
            state=machine.state.name.lower(),
            source=work.rows.source.folder,
            position=position,
            next=following,
            oldest_us=work.rows.oldest_us(position or hold, following) if position or hold else 0,
            hold=hold,
            hold_dropped=machine.hold_dropped,
            held_bytes=look.held_bytes if look is not None else 0,
            code=problem.code if problem is not None else "",
            problem=str(problem)[:PROBLEM_MAX] if problem is not None else "",
        )

    def _keep_status(self) -> None:
        """Write the status to its file while at work: others read it where no process answers."""
        standing = self._standing
        if standing is None or standing.role != PRIMARY:
            return
        status, (kept, kept_at), now = self.status(), self._kept, time.monotonic()
        changed = kept is None or (status.state, status.code, status.epoch) != (kept.state, kept.code, kept.epoch)
        same = kept is not None and msgspec.structs.replace(status, at_us=kept.at_us) == kept
        if not changed and (now - kept_at < STATUS_S or (same and now - kept_at < KEEP_S)):
            return
        self._kept = (status, now)
        try:
            write_status(self._config.directory, status)
        except OSError as error:
            _LOG.warning("can't keep the status", extra={"sink": self._sink.name, "why": str(error)})


async def serve(config: ReplicaConfig, name: str, pair: socket.socket) -> None:
    """Run one sink until the supervisor is gone, or SIGTERM. Raises: InvalidConfig, PortTaken."""
    sink = next((each for each in config.sinks if each.name == name), None)
    if sink is None:
        known = ", ".join(each.name for each in config.sinks) or "none"
        raise InvalidConfig(f"service {config.service} has no sink {name!r}", remedy=f"its sinks: {known}")
    told = {"sink": name, "topic": sink.topic}
    await keep_beside(SinkProcess(config, sink), pair, lambda: _LOG.info("sink starts", extra=told))


def main(arguments: list[str]) -> int:
    """`python -m deathless.sinks.host CONFIG.json NAME DESCRIPTOR PARENT`; ends with its parent."""
    return run_beside(arguments, "sink", _LOG, serve)


if __name__ == "__main__":
    never_wait()
    sys.exit(main(sys.argv[1:]))
