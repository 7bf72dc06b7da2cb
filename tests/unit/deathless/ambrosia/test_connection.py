"""A program in Python over two real sockets, against the coordinator's machine."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from deathless.ambrosia import Answer, Binding, Call, connect
from deathless.base.errors import InvalidConfig
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.events import Effect, Socket
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.messages import SELF, Kind, make_call


class Echo(Binding):
    """Forks back what it gets, and notes everything."""

    def __init__(self) -> None:
        self.seen: list[object] = []

    def handle(self, call: Call) -> None:
        self.seen.append(call.arguments)
        if call.method == 9:
            raise ValueError(call.arguments)
        self.fork(call.method + 1, call.arguments, to="other")

    def answered(self, answer: Answer) -> None:
        self.seen.append(answer.payload)

    def save(self) -> bytes:
        return b"state"

    def load(self, state: bytes) -> None:
        self.seen.append(state)

    def first(self) -> bytes:
        return b"hello"

    def initial(self, data: bytes) -> None:
        self.seen.append(data)
        self.call(5, b"?", to="other", number=3)

    def upgrade(self, *, test: bool) -> None:
        self.seen.append(("upgrade", test))

    def primary(self) -> None:
        self.seen.append("primary")
        self.impulse(8, b"led")


class Coordinator:
    """The other end: one machine, two sockets, blocking."""

    def __init__(self, application: Binding, monkeypatch: pytest.MonkeyPatch) -> None:
        self.machine = ApplicationMachine(name="me", committer=1)
        self.effects: list[Effect] = []
        listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        for name, listener in zip(("RECEIVE", "SEND"), listeners, strict=True):
            monkeypatch.setenv(f"DEATHLESS_{name}_PORT", str(listener.getsockname()[1]))
        monkeypatch.setenv("DEATHLESS_INSTANCE", "me")
        self.connection = connect(application)
        self.receive, self.send = (listener.accept()[0] for listener in listeners)
        for listener in listeners:
            listener.close()
        for each in Socket:
            self.machine.handle(on.SocketOpened(socket=each))
        self.raised: list[BaseException] = []
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.connection.run()
        except BaseException as error:  # noqa: BLE001  the test looks at it
            self.raised.append(error)
            self.connection.close()

    def order(self, *events: on.Event) -> None:
        for event in events:
            for effect in self.machine.handle(event):
                if isinstance(effect, on.Send):
                    self.send.sendall(effect.data)

    def until(self, kind: type[Effect]) -> Effect:
        while not any(isinstance(effect, kind) for effect in self.effects):
            data = self.receive.recv(1 << 16)
            assert data, self.effects
            self.effects += self.machine.handle(on.BytesReceived(data=data))
        found = next(effect for effect in self.effects if isinstance(effect, kind))
        self.effects.remove(found)
        return found

    def close(self) -> None:
        self.send.close()
        self.thread.join()
        self.receive.close()


@contextmanager
def coordinated(application: Binding, monkeypatch: pytest.MonkeyPatch) -> Iterator[Coordinator]:
    coordinator = Coordinator(application, monkeypatch)
    try:
        yield coordinator
    finally:
        coordinator.close()


def call(method: int, arguments: bytes) -> on.Deliver:
    return on.Deliver(lsn=arguments[0], rpcs=(make_call(SELF, method, Kind.FORK, arguments),))


def test_a_first_start_leads_and_its_handlers_are_called_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    application = Echo()
    with coordinated(application, monkeypatch) as coordinator:
        coordinator.order(on.Begin())
        assert coordinator.until(on.InitialMade) == on.InitialMade(data=b"hello")
        coordinator.until(on.CheckpointEnded)
        impulse = coordinator.until(on.ImpulseEmitted)
        assert isinstance(impulse, on.ImpulseEmitted)
        assert impulse.rpc.arguments == b"led"
        coordinator.order(on.Confirmed(lsn=9), on.DeliverInitial(lsn=1, data=b"hello"), call(1, b"\x02"))
        emitted = [coordinator.until(on.Emitted) for _ in range(2)]
        assert [each.item.method for each in emitted if isinstance(each, on.Emitted)] == [5, 2]
        coordinator.order(on.TakeCheckpoint())
        coordinator.until(on.CheckpointEnded)
    assert application.seen == ["primary", b"hello", b"\x02"]
    assert coordinator.raised == []


def test_a_restored_one_leads_when_it_is_told_and_not_before(monkeypatch: pytest.MonkeyPatch) -> None:
    application = Echo()
    with coordinated(application, monkeypatch) as coordinator:
        coordinator.order(on.Load(length=5, lsn=1, records=1), on.LoadPart(data=b"st"), on.LoadPart(data=b"ate"))
        coordinator.order(on.Confirmed(lsn=9), call(1, b"\x02"), on.Lead())
        coordinator.until(on.ImpulseEmitted)
    assert application.seen == [b"state", b"\x02", "primary"]


def test_one_that_goes_over_to_new_code_leads_behind_its_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    application = Echo()
    with coordinated(application, monkeypatch) as coordinator:
        coordinator.order(on.Load(length=0, lsn=1, records=1), on.Confirmed(lsn=9), on.Upgrade())
        coordinator.until(on.CheckpointEnded)
        coordinator.order(on.Commit())
    assert application.seen == [b"", ("upgrade", False), "primary"]


def test_what_a_handler_raises_ends_the_loop_and_nothing_of_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    application = Echo()
    with coordinated(application, monkeypatch) as coordinator:
        coordinator.order(on.Load(length=0, lsn=1, records=1), on.Confirmed(lsn=9))
        both = (make_call(SELF, 1, Kind.FORK, b"a"), make_call(SELF, 9, Kind.FORK, b"b"))
        coordinator.order(on.Deliver(lsn=3, rpcs=both))
        assert coordinator.receive.recv(1) == b""
    assert [str(error) for error in coordinator.raised] == ["b'b'"]


def test_ports_that_nobody_named_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DEATHLESS_RECEIVE_PORT", raising=False)
    with pytest.raises(InvalidConfig, match="DEATHLESS_RECEIVE_PORT"):
        connect(Echo())


def test_a_coordinator_that_is_not_there_is_an_error_of_the_system() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(OSError):  # noqa: PT011  whichever the system gives
        connect(Echo(), name="me", receive_port=port, send_port=port)
