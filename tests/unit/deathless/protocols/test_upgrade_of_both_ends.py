"""An upgrade with both ends: killed anywhere it leaves nothing behind; committed, the service goes on with new code."""

from __future__ import annotations

import random

import pytest
from tests.unit.deathless.protocols.ambrosia_service import Entry, Process, Service

from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.holding import Holding
from deathless.protocols.ambrosia.messages import Rpc
from deathless.protocols.ambrosia.states import State

PIECE = 61  # bytes that are moved before the upgrader may be killed


def served() -> Service:
    """A service that has done something, and has a checkpoint behind some of it."""
    service = Service()
    chance = random.Random(5)
    for _ in range(200):
        service.step(chance)
    service.settle()
    service.take_checkpoint(service.primary)
    service.settle()
    for what in (1, 2, 39, 6):
        service.call(what)
    service.settle()
    assert service.faults() == [] and service.checkpoint is not None and len(service.log) > service.checkpoint.lsn
    return service


def upgrader_of(service: Service, *, unconfirmed: bool = False) -> Process:
    """A process that runs the log with the old code, and is told to go over to the new one."""
    upgrader = Process(service, "")
    assert service.checkpoint is not None
    upgrader.load(service.checkpoint)
    if unconfirmed:
        upgrader.order(on.HoldOutputs())
        service.confirmed = service.checkpoint.lsn
        service.delivers_early = True
    for _ in range(20):
        upgrader.deliver(3)
    upgrader.order(on.Upgrade())
    return upgrader


def move(process: Process, size: int) -> bool:
    """Move a piece of whichever way has something; False: nothing is on its way."""
    if process.to_application:
        process.move(size, back=False)
    elif process.to_machine:
        process.move(size, back=True)
    else:
        return False
    return True


def move_everything(process: Process) -> None:
    """Move all that is on its way."""
    while move(process, PIECE):
        pass


def everything_of(service: Service) -> tuple[list[Entry], list[Rpc], list[Rpc]]:
    """All that an upgrade which is called off must leave as it was."""
    return service.log[:], service.bank.items[:], service.selves.items[:]


def pieces_of_an_upgrade() -> int:
    upgrader = upgrader_of(served())
    return sum(1 for _ in iter(lambda: move(upgrader, PIECE), False))


@pytest.mark.parametrize("unconfirmed", [False, True])
def test_an_upgrader_that_is_killed_anywhere_leaves_nothing_behind(unconfirmed: bool) -> None:
    service = served()
    for count in range(0, pieces_of_an_upgrade() + 1, 2):
        upgrader = upgrader_of(service, unconfirmed=unconfirmed)
        service.confirmed = len(service.log)
        before, checkpoint = everything_of(service), service.checkpoint
        for _ in range(count):
            move(upgrader, PIECE)
        upgrader.order(on.SocketEnded(socket=on.Socket.RECEIVE))
        assert everything_of(service) == before
        service.checkpoint = checkpoint  # that of an upgrade counts once it is committed
    service.delivers_early = False
    service.call(7)
    service.settle()
    assert service.faults() == []


def committed(*, unconfirmed: bool) -> tuple[Service, int]:
    """A service that was upgraded, and the place in the log from which the new code handled it."""
    service = served()
    for index in (0, 1):  # the old primary and its standby end
        service.processes[index].order(on.Stop())
    upgrader = upgrader_of(service, unconfirmed=unconfirmed)
    move_everything(upgrader)
    assert upgrader.machine.state is State.SWITCHED
    at = len(service.log)
    service.delivers_early, service.confirmed = False, at
    service.processes = [upgrader, Process(service, "")]
    service.primary = upgrader
    upgrader.hear()
    upgrader.order(on.Commit())
    for what in (3, 7, 39):
        service.call(what)
    service.settle()
    return service, at


@pytest.mark.parametrize("unconfirmed", [False, True])
def test_what_was_held_leaves_once_and_the_new_code_goes_on(unconfirmed: bool) -> None:
    service, at = committed(unconfirmed=unconfirmed)
    assert service.faults(at) == []
    impulses = [entry for entry in service.log if entry.rpc is not None and b"of the new code" in entry.rpc.body]
    assert len(impulses) == 1
    assert any(item.body.endswith(b"v2") for item in service.bank.items)
    assert service.errors == ["None"] * len(service.errors) and service.differences == []


def test_outputs_that_are_not_held_leave_an_upgrade_that_is_called_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Holding, "pass_on", lambda self, effect: [effect])
    upgrader = upgrader_of(served())
    with pytest.raises(AssertionError):  # the owner of this service takes an impulse from who leads alone
        move_everything(upgrader)
