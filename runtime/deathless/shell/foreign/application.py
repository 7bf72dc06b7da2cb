"""One application: its process and its two sockets, driven for one machine, from its start to its end.

    owner --order, hold, stop--> Application --records--> process
      ^                               |  ^
      '---what the machine wants------'  '------messages, death, time

Why it exists: the machine of `deathless.protocols.ambrosia` says what may be sent and what was received; this is where
bytes, a process and time come from. What to log, when to deliver and who leads is the owner's.

Guarantees: both ports are bound before the process is started. Effects of the machine come to the owner in their order,
each list behind the bytes that it sends. The end is told once, when nothing of the process is left and nothing more of
it is read. An application that stands still for longer than its patience is ended; time in which the owner holds its
connection back does not count.

Does not: start it again; know a log. Imports base, protocols and this folder.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from deathless.base.errors import (
    ApplicationEnded,
    ApplicationNotConnected,
    ApplicationNotStarted,
    ApplicationStalled,
    DeathlessError,
)
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.errors import ProtocolViolated
from deathless.protocols.ambrosia.events import Effect, Event, Socket
from deathless.protocols.ambrosia.life import (
    DRAIN_S,
    Cause,
    Connected,
    Disconnected,
    Drain,
    DrainOver,
    EndOrdered,
    Finish,
    KillGroup,
    Life,
    LifeEffect,
    LifeEvent,
    Open,
    Phase,
    ProcessEnded,
    Refuse,
)
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.patience import Patience, Seen, Watch, Work, work_of
from deathless.shell.foreign.child import Child, environment_of, fill_in
from deathless.shell.foreign.connections import Unsent, is_ours, listen, port_of
from deathless.shell.foreign.exec_shim import NOT_FOUND

LOOK_S: Final = 1.0
READ_BYTES: Final = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationSettings:
    """How an application is started.

    Attributes:
        command: a program and its arguments; {receivePort}, {sendPort} and {replica} in it are replaced. Empty: no
            process is started, and one that somebody else starts connects the ports; its connections are its life.
        instance: name of the service, as the application knows it.
        replica: that it belongs to.
        purpose: what it is started for: serve, check, replay, rehearsal.
        folder: that it runs in.
        environment: beside what every application gets.
        receive_port: that it connects to send, 0: any.
        send_port: that it connects to receive, 0: any.
        message_bytes_max: what it is told of that.
        patience: how long it may take for what.
    """

    command: tuple[str, ...]
    instance: str
    replica: str = ""
    purpose: str = "serve"
    folder: str = "."
    environment: Mapping[str, str] = field(default_factory=dict)
    receive_port: int = 0
    send_port: int = 0
    message_bytes_max: int = 1 << 20
    patience: Patience = field(default_factory=Patience)


@dataclass(frozen=True, slots=True, kw_only=True)
class Death:
    """How an application ended.

    Attributes:
        cause: why.
        error: with code, text and remedy; None: its owner stopped it.
        exit_code: of the process; negative: of a signal; None: not known.
        last_lines: that it printed.
    """

    cause: Cause
    error: DeathlessError | None
    exit_code: int | None
    last_lines: tuple[str, ...]


class Owner(Protocol):
    """Who has an application."""

    def application_connected(self) -> None:
        """Both connections are there: it may be told what it goes on from."""
        ...

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what the machine wants; bytes are sent already."""
        ...

    def application_ended(self, death: Death) -> None:
        """It is over; the last call."""
        ...


class _Incoming:
    """What is read of the application."""

    __slots__ = ("held", "received", "registered", "was_held")

    def __init__(self) -> None:
        self.received = 0  # bytes
        self.held = False  # by the owner, or since the machine holds enough
        self.was_held = False  # since the last look
        self.registered = False  # the loop looks at the connection


class Application:
    """One process of an application.

    Args:
        settings: how it is started.
        machine: of its protocol, new.
        owner: hears of everything.
    """

    def __init__(self, settings: ApplicationSettings, machine: ApplicationMachine, owner: Owner) -> None:
        self.replaying = False  # it runs a log that nobody waits for; the owner's to set
        self._settings = settings
        self._machine = machine
        self._owner = owner
        self._loop = asyncio.get_running_loop()
        self._life = Life()
        self._watch = Watch(settings.patience)
        self._child = Child(self._loop, lambda: self._live(ProcessEnded()))
        self._listeners: dict[Socket, socket.socket] = {}
        self._sockets: dict[Socket, socket.socket] = {}
        self._unsent: Unsent | None = None
        self._incoming = _Incoming()
        self._loaded_at = 0  # of the bytes sent: where its checkpoint ends
        self._error: DeathlessError | None = None
        self._timers: list[asyncio.TimerHandle] = []

    @property
    def pid(self) -> int:
        """Process id; 0: it was not started, or not by us."""
        return self._child.pid

    @property
    def ports(self) -> tuple[int, int]:
        """Receive port and send port, while both are listened at."""
        return port_of(self._listeners[Socket.RECEIVE]), port_of(self._listeners[Socket.SEND])

    @property
    def waiting(self) -> int:
        """Bytes that were sent to it and that it has not read."""
        return self._unsent.waiting() if self._unsent is not None else 0

    @property
    def unsent(self) -> int:
        """Bytes for it that the kernel did not take yet, since it does not read."""
        return self._unsent.size if self._unsent is not None else 0

    def start(self) -> None:
        """Bind the ports and start the process; from the main thread.

        Raises: PortTaken, ApplicationNotStarted; nothing is left of it.
        """
        settings = self._settings
        try:
            self._listeners[Socket.RECEIVE] = listen(settings.receive_port)
            self._listeners[Socket.SEND] = listen(settings.send_port)
            ports = dict(zip(("receivePort", "sendPort"), self.ports, strict=True))
            command = fill_in(settings.command, {**ports, "replica": settings.replica})
            told = {
                "DEATHLESS_INSTANCE": settings.instance,
                "DEATHLESS_MESSAGE_BYTES_MAX": str(settings.message_bytes_max),
                "DEATHLESS_PURPOSE": settings.purpose,
                "DEATHLESS_RECEIVE_PORT": str(ports["receivePort"]),
                "DEATHLESS_REPLICA": settings.replica,
                "DEATHLESS_SEND_PORT": str(ports["sendPort"]),
            }
            if command:
                environment = environment_of({**settings.environment, **told}, os.environ)
                self._child.start(command, environment, settings.folder)
        except BaseException:
            self._close()
            raise
        self._accept_next()
        self._look()

    def order(self, event: Event) -> None:
        """Have the machine take an order, or what became known. Raises: Internal: it may not be given now."""
        self._carry_out(self._machine.handle(event))

    def hold(self, on: bool) -> None:
        """Read no more of the application, or go on."""
        self._incoming.held = on
        self._regulate()

    def stop(self) -> None:
        """End it at once; nothing more of it is read."""
        self._live(EndOrdered(Cause.STOPPED))

    def disconnect(self) -> None:
        """Close both connections, as a coordinator does that dies; what the process does then is its own."""
        for which in list(self._sockets):
            self._close_socket(which)

    # ------------------------------------------------------------ process and connections

    def _live(self, event: LifeEvent) -> None:
        for effect in self._life.handle(event):
            self._obey(effect)

    def _obey(self, effect: LifeEffect) -> None:
        match effect:
            case Refuse():
                pass  # whoever accepted it closes it
            case Open():
                self._opened(effect.socket)
            case KillGroup():
                self._child.kill()
                for which in list(self._listeners):
                    self._close_listener(which)
            case Drain():
                self._timers.append(self._loop.call_later(DRAIN_S, self._live, DrainOver()))
                self._regulate()
            case Finish():
                self._finish(effect.cause)

    def _accept_next(self) -> None:
        which = self._life.accepts
        if which is not None:
            self._loop.add_reader(self._listeners[which], self._accept, which)

    def _accept(self, which: Socket) -> None:
        try:
            connection, _ = self._listeners[which].accept()
        except OSError:  # it went away before it was accepted
            return
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        effects = self._life.handle(Connected(which, is_ours(connection)))
        if Refuse() in effects:
            connection.close()
        else:
            self._sockets[which] = connection
        for effect in effects:
            self._obey(effect)

    def _opened(self, which: Socket) -> None:
        self._close_listener(which)
        if which is Socket.SEND:
            self._unsent = Unsent(self._sockets[which])
            self._loop.add_reader(self._sockets[which], self._read_wrong_way)
        self._accept_next()
        self.order(on.SocketOpened(socket=which))
        if which is Socket.SEND:
            self._owner.application_connected()

    def _close_listener(self, which: Socket) -> None:
        listener = self._listeners.pop(which, None)
        if listener is not None:
            self._loop.remove_reader(listener)
            listener.close()

    def _close_socket(self, which: Socket) -> None:
        connection = self._sockets.pop(which)
        self._loop.remove_reader(connection)
        self._loop.remove_writer(connection)
        connection.close()
        if which is Socket.SEND:
            self._unsent = None

    def _read(self) -> None:
        try:
            data = self._sockets[Socket.RECEIVE].recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._live(Disconnected(Socket.RECEIVE))
            return
        self._incoming.received += len(data)
        self.order(on.BytesReceived(data=data))

    def _read_wrong_way(self) -> None:
        """The send connection brings its end, and nothing else."""
        try:
            data = self._sockets[Socket.SEND].recv(READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self._violated(
                ProtocolViolated(
                    f"{len(data)} bytes came over the send port: {data[:32].hex()}",
                    remedy="connect the receive port first and write to it; the send port is read from alone",
                )
            )
        else:
            self._loop.remove_reader(self._sockets[Socket.SEND])
            self._live(Disconnected(Socket.SEND))

    def _write(self) -> None:
        connection = self._sockets.get(Socket.SEND)
        if connection is None or self._unsent is None or self._life.phase is not Phase.CONNECTED:
            return
        try:
            done = self._unsent.send()
        except OSError:
            self._live(Disconnected(Socket.SEND))
            return
        if done:
            self._loop.remove_writer(connection)
        else:
            self._loop.add_writer(connection, self._write)

    def _regulate(self) -> None:
        """Read from it or not."""
        connection = self._sockets.get(Socket.RECEIVE)
        draining = self._life.phase is Phase.DYING
        held = not draining and (self._incoming.held or not self._machine.may_read)
        self._incoming.was_held |= held
        wanted = connection is not None and not held
        if connection is None or wanted is self._incoming.registered:
            return
        self._incoming.registered = wanted
        if wanted:
            self._loop.add_reader(connection, self._read)
        else:
            self._loop.remove_reader(connection)

    # ------------------------------------------------------------ what the machine wants

    def _carry_out(self, effects: list[Effect]) -> None:
        passed: list[Effect] = []
        end: on.End | None = None
        for effect in effects:
            match effect:
                case on.Send():
                    assert self._unsent is not None, "the machine sends to who is connected"
                    self._unsent.give(effect.data)
                case on.End():
                    end = effect
                case _:
                    passed.append(effect)
            if isinstance(effect, on.Loaded) and self._unsent is not None:
                self._loaded_at = self._unsent.total
        self._write()
        if passed:
            self._owner.carry_out(passed)
        if end is not None and end.error is not None:
            self._violated(end.error)
        elif end is not None:
            self._live(EndOrdered(Cause.STOPPED))
        self._regulate()

    def _violated(self, error: ProtocolViolated) -> None:
        self._error = self._error or error
        self._live(EndOrdered(Cause.WRONG))

    # ------------------------------------------------------------ time

    def _look(self) -> None:
        if self._life.phase not in _LIVES:
            return
        self._timers = [self._loop.call_later(LOOK_S, self._look)]
        waiting, sent = self.waiting, self._unsent.total if self._unsent is not None else 0
        work = work_of(
            self._machine.state,
            loading=sent - waiting < self._loaded_at,
            replaying=self.replaying,
        )
        seen = Seen(
            now=time.monotonic(),
            work=work,
            waiting=waiting,
            moved=sent - waiting + self._incoming.received,
            held=self._incoming.was_held,
        )
        self._incoming.was_held = self._incoming.held or not self._machine.may_read
        overdue = self._watch.look(seen)
        if overdue:
            connecting = work is Work.CONNECTING
            self._error = (ApplicationNotConnected if connecting else ApplicationStalled)(overdue)
            self._live(EndOrdered(Cause.NOT_CONNECTED if connecting else Cause.STILL))

    # ------------------------------------------------------------ its end

    def _finish(self, cause: Cause) -> None:
        self._carry_out(self._machine.handle(on.SocketEnded(socket=Socket.RECEIVE)))
        self._close()
        code, lines = self._child.exit_code, tuple(self._child.last_lines)
        if self._error is None and cause in {Cause.EXITED, Cause.DISCONNECTED}:
            self._error = _why(cause, code, lines)
        self._owner.application_ended(Death(cause=cause, error=self._error, exit_code=code, last_lines=lines))

    def _close(self) -> None:
        for timer in self._timers:
            timer.cancel()
        for which in list(self._listeners):
            self._close_listener(which)
        self.disconnect()
        self._child.close()


_LIVES: Final = frozenset({Phase.LISTENING, Phase.HALF, Phase.CONNECTED})


def _why(cause: Cause, code: int | None, lines: tuple[str, ...]) -> DeathlessError:
    """Say how a process ended that nobody ended."""
    printed = f"; its last line: {lines[-1]}" if lines else ""
    if cause is Cause.EXITED and code == NOT_FOUND:
        return ApplicationNotStarted(f"exit code {code}{printed}")
    how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
    if cause is Cause.DISCONNECTED and code in {None, -signal.SIGKILL}:  # it is not ours, or killed by us or before
        return ApplicationEnded(f"a connection of it ended{printed}")
    return ApplicationEnded(f"{Cause.EXITED.value} ({how}){printed}")
