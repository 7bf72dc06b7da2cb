"""One application: a process of a few lines, its sockets and its end, without the binding of another language.

The programs below speak just as much of the protocol as their test needs.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import struct
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from deathless.base.errors import (
    ApplicationEnded,
    ApplicationNotConnected,
    ApplicationNotStarted,
    ApplicationStalled,
    PortTaken,
)
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.errors import ProtocolViolated
from deathless.protocols.ambrosia.events import Effect
from deathless.protocols.ambrosia.life import Cause
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.messages import SELF, Kind, MessageType, encode_message, make_call
from deathless.protocols.ambrosia.patience import Patience
from deathless.protocols.ambrosia.states import State
from deathless.shell.foreign import application as application_module
from deathless.shell.foreign import connections
from deathless.shell.foreign.application import Application, ApplicationSettings, Death

CONNECT = """
import os, socket, sys, time
out = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
read = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
"""
FIRST = (
    CONNECT
    + """
read.recv(26)
out.sendall(bytes([2, 9, 4, 8, 6]) + b"abc")  # InitialMessage without data, Checkpoint of 3 bytes
"""
)
FOREVER = "while data := read.recv(1 << 16): pass\n"


class Owner:
    """Remembers what it hears."""

    def __init__(self) -> None:
        self.connected = False
        self.effects: list[Effect] = []
        self.death: Death | None = None
        self.changed = asyncio.Event()

    def application_connected(self) -> None:
        self.connected = True
        self.changed.set()

    def carry_out(self, effects: list[Effect]) -> None:
        assert self.death is None
        self.effects += effects
        self.changed.set()

    def application_ended(self, death: Death) -> None:
        assert self.death is None
        self.death = death
        self.changed.set()

    async def until(self, holds: Callable[[], object]) -> None:
        while not holds():
            assert self.death is None, self.death
            self.changed.clear()
            await self.changed.wait()

    async def dead(self) -> Death:
        await self.until(lambda: self.death is not None)
        assert self.death is not None
        return self.death


def kill_and_wait(pid: int) -> None:
    """Kill a process; it is gone behind this, and the loop has not seen it."""
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


@asynccontextmanager
async def started(script: str, **settings: object) -> AsyncIterator[tuple[Application, ApplicationMachine, Owner]]:
    owner, machine = Owner(), ApplicationMachine(name="pti", committer=1)
    command = (sys.executable, "-I", "-S", "-c", script, "{receivePort}", "{sendPort}")
    chosen = {"command": command, "instance": "pti", **settings}
    application = Application(ApplicationSettings(**chosen), machine, owner)  # type: ignore[arg-type]  # as named
    application.start()
    try:
        yield application, machine, owner
    finally:
        application.stop()
        await owner.dead()


@pytest.mark.asyncio
async def test_a_first_start_goes_through_and_what_it_sent_before_its_end_counts() -> None:
    async with started(FIRST + "sys.exit(7)") as (application, machine, owner):
        await owner.until(lambda: owner.connected)
        application.order(on.Begin())
        death = await owner.dead()
    kinds = [type(effect) for effect in owner.effects]
    assert kinds == [on.InitialMade, on.CheckpointBegan, on.CheckpointPart, on.CheckpointEnded]
    assert machine.state is State.GONE
    assert isinstance(death.error, ApplicationEnded)
    assert death.cause in {Cause.EXITED, Cause.DISCONNECTED}


@pytest.mark.asyncio
async def test_a_process_that_is_killed_while_a_child_keeps_its_connections_is_over() -> None:
    attach = bytes(encode_message(MessageType.ATTACH_TO, b"bank"))
    script = CONNECT + f"os.fork() or time.sleep(1000)\nout.sendall({attach!r})\n" + FOREVER
    async with started(script) as (application, _, owner):
        await owner.until(lambda: owner.effects)  # it has forked
        os.kill(application.pid, signal.SIGKILL)
        death = await owner.dead()
    assert (death.cause, death.exit_code) == (Cause.EXITED, -signal.SIGKILL)


@pytest.mark.asyncio
async def test_what_waits_for_one_that_died_with_something_unread_is_asked_without_harm() -> None:
    """Its connection was reset, which the loop has not seen yet: whoever gives it a checkpoint asks just then."""
    async with started(CONNECT + "time.sleep(1000)") as (application, _, owner):
        await owner.until(lambda: owner.connected)
        application.order(on.Load(length=1 << 16, lsn=5, records=1, lanes=()))
        application.order(on.LoadPart(data=bytes(1 << 15)))
        kill_and_wait(application.pid)
        application.order(on.LoadPart(data=bytes(1 << 15)))
        assert application.waiting >= 0
        death = await owner.dead()
    assert isinstance(death.error, ApplicationEnded)


@pytest.mark.asyncio
async def test_one_that_resets_a_connection_leaves_the_port_to_the_next_one() -> None:
    """It came and went before anybody looked whose it was."""
    failed: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: failed.append(context))
    async with started("", command=()) as (application, _, owner):
        receive, send = application.ports
        with socket.create_connection(("127.0.0.1", receive)) as reset:
            reset.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        _, outgoing = await asyncio.open_connection("127.0.0.1", receive)
        _, kept = await asyncio.open_connection("127.0.0.1", send)
        await owner.until(lambda: owner.connected)
        for each in (outgoing, kept):
            each.close()
    assert failed == []


@pytest.mark.asyncio
async def test_bytes_that_are_none_of_the_protocol_end_it_and_are_shown() -> None:
    async with started(CONNECT + "out.sendall(bytes([2, 99]))\n" + FOREVER) as (_, machine, owner):
        death = await owner.dead()
    assert death.cause is Cause.WRONG
    assert isinstance(death.error, ProtocolViolated)
    assert "99" in death.error.message
    assert machine.state is State.GONE


@pytest.mark.asyncio
async def test_one_that_writes_to_the_port_that_it_should_read_from_is_told_so() -> None:
    async with started(CONNECT + "read.sendall(bytes([2, 9]))\n" + FOREVER) as (_, _, owner):
        death = await owner.dead()
    assert isinstance(death.error, ProtocolViolated)
    assert "send port" in death.error.message


@pytest.mark.asyncio
async def test_one_that_never_connects_is_ended() -> None:
    async with started("import time; time.sleep(1000)", patience=Patience(connect_s=1)) as (_, _, owner):
        death = await owner.dead()
    assert (death.cause, death.exit_code) == (Cause.NOT_CONNECTED, -signal.SIGKILL)
    assert isinstance(death.error, ApplicationNotConnected)


@pytest.mark.asyncio
@pytest.mark.parametrize("held", [False, True])
async def test_one_that_reads_nothing_is_ended_unless_we_hold_it_back(
    held: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(application_module, "LOOK_S", 0.02)
    script = FIRST + "time.sleep(1000)"
    async with started(script, patience=Patience(handler_s=0.1)) as (application, machine, owner):
        await owner.until(lambda: owner.connected)
        application.order(on.Begin())
        await owner.until(lambda: machine.state is State.LEADING)
        application.hold(held)
        application.order(on.Confirmed(lsn=2))
        application.order(on.DeliverInitial(lsn=1, data=b""))
        call = make_call(SELF, 1, Kind.FORK, bytes(100))
        application.order(on.Deliver(lsn=2, rpcs=(call,)))
        assert application.waiting > 100
        if held:
            looked = asyncio.Event()
            asyncio.get_running_loop().call_later(0.5, looked.set)
            await looked.wait()
            assert owner.death is None
            application.hold(False)
        death = await owner.dead()
    assert death.cause is Cause.STILL
    assert isinstance(death.error, ApplicationStalled)


@pytest.mark.asyncio
async def test_a_strangers_connection_is_closed_and_the_port_stays_open(monkeypatch: pytest.MonkeyPatch) -> None:
    script = """
import socket, sys
port = int(sys.argv[1])
stranger = socket.create_connection(("127.0.0.1", port))
assert stranger.recv(1) == b""
out = socket.create_connection(("127.0.0.1", port))
read = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
read.recv(1)
"""
    answers = iter([False, True, True])
    monkeypatch.setattr(application_module, "is_ours", lambda connection: next(answers))
    async with started(script) as (_, _, owner):
        await owner.until(lambda: owner.connected)
    assert next(answers, None) is None


@pytest.mark.asyncio
async def test_what_an_application_is_told_and_what_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "s3cret")
    script = "import os\nfor name in sorted(os.environ): print(name, os.environ[name])"
    async with started(script, replica="r1", purpose="check", environment={"MODE": "x"}) as (application, _, owner):
        ports = application.ports
        death = await owner.dead()
    told = dict(line.split(" ", 1) for line in death.last_lines)
    assert told["DEATHLESS_INSTANCE"] == "pti"
    assert (told["DEATHLESS_RECEIVE_PORT"], told["DEATHLESS_SEND_PORT"]) == (str(ports[0]), str(ports[1]))
    assert (told["DEATHLESS_REPLICA"], told["DEATHLESS_PURPOSE"], told["MODE"]) == ("r1", "check", "x")
    assert "SECRET_TOKEN" not in told


@pytest.mark.asyncio
async def test_a_command_or_a_port_that_cannot_be_had_is_told() -> None:
    async with started("", command=("no-such-program-anywhere",)) as (_, _, owner):
        death = await owner.dead()
    assert isinstance(death.error, ApplicationNotStarted)
    assert "no-such-program-anywhere" in death.error.message
    with connections.listen(0) as listener:
        owner, port = Owner(), connections.port_of(listener)
        settings = ApplicationSettings(command=("true",), instance="pti", send_port=port)
        application = Application(settings, ApplicationMachine(name="pti", committer=1), owner)
        with pytest.raises(PortTaken):
            application.start()


@pytest.mark.asyncio
async def test_connections_that_are_closed_leave_the_process_its_own_end() -> None:
    async with started(CONNECT + FOREVER + "print('over')") as (application, _, owner):
        await owner.until(lambda: owner.connected)
        application.disconnect()
        death = await owner.dead()
    assert (death.cause, death.exit_code, death.last_lines) == (Cause.EXITED, 0, ("over",))


@pytest.mark.asyncio
async def test_a_program_that_somebody_else_starts_lives_as_long_as_its_connections() -> None:
    async with started("", command=()) as (application, machine, owner):
        receive, send = application.ports
        _, outgoing = await asyncio.open_connection("127.0.0.1", receive)
        incoming, kept = await asyncio.open_connection("127.0.0.1", send)
        await owner.until(lambda: owner.connected)
        assert (application.pid, machine.state) == (0, State.WAITING)
        application.order(on.Begin())
        assert len(await incoming.readexactly(26)) == 26
        outgoing.close()
        death = await owner.dead()
        assert await incoming.read() == b""
        kept.close()
    assert (death.cause, death.exit_code) == (Cause.DISCONNECTED, None)
    assert isinstance(death.error, ApplicationEnded)
