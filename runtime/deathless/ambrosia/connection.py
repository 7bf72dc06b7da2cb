"""The two sockets of an application, and the loop that feeds it.

Why it exists: the binding's machine has no IO. Here are the connections, in the order that the coordinator wants, and
the loop: read, hand to the machine, call the author's method for each event, send what that emitted.

Guarantees: what an author's method raises ends the process, since the coordinator has the log and starts it again from
there; nothing is sent of a record whose handler raised. Does not: connect twice: whoever lost a connection ends, as the
protocol wants it. Imports the binding and its machine.
"""

from __future__ import annotations

import os
import socket
import threading
from typing import Final

from deathless.ambrosia.binding import Binding
from deathless.base.errors import InvalidConfig
from deathless.protocols.ambrosia_binding.binding import (
    BecamePrimary,
    Event,
    FirstStart,
    InitialCame,
    Phase,
    RestoreBegins,
    RestoreEnds,
    RestorePart,
    SaveDue,
    UpgradeNow,
)
from deathless.protocols.ambrosia_binding.binding import Binding as Machine
from deathless.protocols.ambrosia_binding.encoding import Answer, Call

HOST: Final = "127.0.0.1"
RECEIVE_PORT: Final = "DEATHLESS_RECEIVE_PORT"
SEND_PORT: Final = "DEATHLESS_SEND_PORT"
INSTANCE: Final = "DEATHLESS_INSTANCE"
READ_BYTES: Final = 1 << 18


def connect(
    application: Binding, *, name: str | None = None, receive_port: int | None = None, send_port: int | None = None
) -> Connection:
    """Connect to the coordinator that started this process.

    Args:
        application: that is to be run.
        name: of the service; None: DEATHLESS_INSTANCE.
        receive_port: None: DEATHLESS_RECEIVE_PORT.
        send_port: None: DEATHLESS_SEND_PORT.

    Raises:
        InvalidConfig: a port is named neither here nor there.
        OSError: nobody listens there.
    """
    receive = receive_port if receive_port is not None else _port(RECEIVE_PORT)
    send = send_port if send_port is not None else _port(SEND_PORT)
    outgoing = socket.create_connection((HOST, receive))
    try:
        incoming = socket.create_connection((HOST, send))
    except OSError:
        outgoing.close()
        raise
    outgoing.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Connection(application, name if name is not None else os.environ.get(INSTANCE, ""), outgoing, incoming)


def _port(variable: str) -> int:
    value = os.environ.get(variable, "")
    if not value.isdecimal():
        raise InvalidConfig(
            f"{variable} is {value!r}, and has to be a port",
            remedy="the coordinator sets it: start this program by `deathless ambrosia check`, or name the ports",
        )
    return int(value)


class Connection:
    """A connected application.

    Args:
        application: the author's.
        name: of the service.
        outgoing: the connection to the coordinator's receive port.
        incoming: that to its send port.
    """

    __slots__ = ("_application", "_incoming", "_lock", "_machine", "_outgoing", "_restored", "_told_primary")

    def __init__(self, application: Binding, name: str, outgoing: socket.socket, incoming: socket.socket) -> None:
        self._application = application
        self._outgoing = outgoing
        self._incoming = incoming
        self._machine = Machine(name, verify=False)  # over loopback; TCP has sums of its own
        self._lock = threading.RLock()
        self._restored: list[bytes] = []
        self._told_primary = False
        application._connect(self._machine, outgoing.sendall, self._lock)  # noqa: SLF001  the two are one

    def run(self) -> None:
        """Serve until the coordinator ends a connection.

        Raises:
            CoordinatorWrong: it broke the protocol.
            Exception: whatever a method of the application raised.
        """
        while data := self._receive():
            with self._lock:
                self._machine.receive(data)
                while (event := self._machine.next_event()) is not None:
                    self._dispatch(event)
                self._application.flush()
        self.close()

    def close(self) -> None:
        """Close both connections; `run` does so at its end, and leaves it to the process's end if a method raised.

        The coordinator kills a process whose connection ended: until then it can print what was raised.
        """
        self._outgoing.close()
        self._incoming.close()

    def _receive(self) -> bytes:
        try:
            return self._incoming.recv(READ_BYTES)
        except ConnectionResetError:
            return b""

    def _dispatch(self, event: Event) -> None:
        application = self._application
        match event:
            case Call() | Answer() | InitialCame():
                self._handle(event)
            case RestoreBegins():
                self._restored.clear()
            case RestorePart():
                self._restored.append(event.data)
            case RestoreEnds():
                application.load(b"".join(self._restored))
                self._restored.clear()
            case FirstStart():
                self._machine.initial(application.first())
                self._save()
            case SaveDue():
                self._save()
            case UpgradeNow():
                application.upgrade(test=event.test)
            case BecamePrimary():
                pass  # as every other way to become it, below
        if self._machine.primary and not self._told_primary and self._machine.phase is not Phase.SAVING:
            self._told_primary = True
            application.primary()

    def _handle(self, event: Call | Answer | InitialCame) -> None:
        application = self._application
        application._handling = True  # noqa: SLF001  as above
        try:
            match event:
                case Call():
                    application.handle(event)
                case Answer():
                    application.answered(event)
                case InitialCame():
                    application.initial(event.data)
        finally:
            application._handling = False  # noqa: SLF001  as above

    def _save(self) -> None:
        state = self._application.save()
        self._machine.begin_save(len(state))
        if state:
            self._machine.save(state)
        self._application.flush()
