"""A program that sends without an end, or reads nothing, costs its coordinator a bounded room, and others nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.unit.deathless.foreign.test_coordinator import call as ask
from tests.unit.deathless.foreign.world import Node, Program, World

from deathless.foreign.coordinator import Coordinator, Tell
from deathless.foreign.rows import Given, What, encode_items
from deathless.foreign.waiting import size_of
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.messages import SELF, Kind, make_call
from deathless.protocols.ambrosia_binding.encoding import Call

ROOM = 4096
IMPULSE = make_call(SELF, 3, Kind.IMPULSE, b"0")


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for little."""
    monkeypatch.setattr("deathless.foreign.coordinator.FLOOD_BYTES_MAX", ROOM)
    monkeypatch.setattr("deathless.foreign.coordinator.UNREAD_BYTES_MAX", ROOM)
    monkeypatch.setattr("deathless.foreign.coordinator.OFFERED_IMPULSES_MAX", 1)
    monkeypatch.setattr("deathless.foreign.coordinator.GROUP_BYTES", 1)
    monkeypatch.setattr("deathless.foreign.coordinator.DELIVERED_BYTES", 1)


def until(world: World, holds: Callable[[], bool], steps: int = 20_000) -> None:
    """Let things happen until this holds."""
    for _ in range(steps):
        if holds():
            return
        world.step()
    raise AssertionError("it never held")


def leading(seed: int) -> tuple[World, Node]:
    """One replica, whose program leads."""
    world = World(seed, replicas=1)
    node = world.nodes[0]
    until(world, lambda: node.coordinator.delivered > 0 and node.program.binding.primary)
    return world, node


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("seed", range(5))
def test_program_with_impulses_without_an_end_is_not_read_until_they_are_logged(seed: int) -> None:
    """Each is logged once, in order."""
    world, node = leading(seed)
    sent = 0
    while not node.coordinator.is_flooded:
        node.program.binding.impulse(3, b"0")
        node.do([Tell(on.BytesReceived(data=node.program.binding.outgoing()))])
        sent += 1
    assert sent <= ROOM // size_of(IMPULSE) + 2
    until(world, lambda: not node.coordinator.is_flooded)
    until(world, lambda: sum(row.what == What.ITEMS and not row.upto for row in world.log.rows) == sent)


@pytest.mark.usefixtures("narrow")
def test_program_that_reads_nothing_gets_no_more_rows_and_is_served_once_it_reads() -> None:
    """A start with many rows would copy all of them into memory otherwise."""
    world, node = leading(1)
    row = Given(What.ITEMS, encode_items([make_call(SELF, 1, Kind.FORK, b"0" * 100)]))
    start = node.coordinator.delivered
    node.do(node.coordinator.unread(ROOM, 0.0))
    world.log.rows += [row] * 100
    for _ in range(3000):
        node._read()
    assert node.coordinator.delivered == start
    node.do(node.coordinator.unread(0, 0.0))
    assert start < node.coordinator.delivered <= start + ROOM // len(row.items) + 1
    node.do(node.coordinator.unread(0, 0.0))

    def reads_on() -> bool:
        node.do(node.coordinator.unread(0, 0.0))
        return node.coordinator.delivered > start + 50

    until(world, reads_on)


@pytest.mark.usefixtures("narrow")
def test_one_that_follows_is_read_however_much_it_emits() -> None:
    """What tells of room for it may stand behind rows that it has not read."""
    world, node = leading(1)
    follower = Node(world.log, world.chance)
    world.nodes.append(follower)
    ask(world, 40)
    until(world, lambda: len(world.log.sent) == 40)
    assert not follower.coordinator.is_flooded
    assert not node.coordinator.is_flooded


class Doubling(Program):
    """Calls itself twice for each call, for ever."""

    def _handle(self, call: Call) -> None:
        if call.number:
            super()._handle(call)
            return
        self.total += 1
        for _ in range(2):
            self.binding.fork(1, b"0")


def test_program_that_calls_itself_for_ever_takes_checkpoints_and_answers_others() -> None:
    """With two calls to itself for each: what waits beside the log stays bounded, and whoever calls is served."""
    world = World(3, replicas=1)
    world.nodes[0] = world.newest = node = Node(world.log, world.chance, Doubling())
    node.lead()
    until(world, lambda: node.coordinator.delivered > 0)
    world.log.rows.append(Given(What.ITEMS, encode_items([make_call(SELF, 1, Kind.FORK, b"0")])))
    until(world, lambda: len(world.log.rows) > 10)
    ask(world, 0)
    until(world, lambda: len(world.log.answers) == 1 and len(world.log.checkpoints) > 3, 40_000)
    assert isinstance(node.coordinator, Coordinator)
    assert node.coordinator.unlogged_bytes < 8 << 20
