"""Two services whose programs call each other, with room for hardly anything: all of it ends, and comes once."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from tests.unit.deathless.foreign.world import Log, Node, Program

from deathless.foreign.rows import Given, What, encode_items
from deathless.protocols.ambrosia.messages import SELF, Kind, make_call
from deathless.protocols.ambrosia_binding.encoding import Call

DEPTH = 6


class Splitting(Program):
    """Calls the other service twice for each call, one less deep."""

    def _handle(self, call: Call) -> None:
        depth = int(call.arguments)
        self.total += 1
        for _ in range(2 if depth else 0):
            self.binding.fork(1, b"%d" % (depth - 1), to="bank/alice")


class Side(Log):
    """One of the services; what its program sends comes to the other one."""

    other: Side

    def pass_on(self) -> None:
        """Bring what was sent to the other service, as its rows."""
        while self.sent:
            item = make_call(SELF, 1, Kind.FORK, self.sent.pop(0))
            self.other.rows.append(Given(What.ITEMS, encode_items([item])))


def until(holds: Callable[[], bool], step: Callable[[], None], steps: int = 200_000) -> None:
    """Let things happen until this holds."""
    for _ in range(steps):
        if holds():
            return
        step()
    raise AssertionError("it never held")


@pytest.mark.parametrize("seed", range(4))
def test_ring_with_a_fan_out_and_little_room_ends(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call asks for two more at the other service, while programs that lead die."""
    monkeypatch.setattr("deathless.foreign.coordinator.UNLOGGED_BYTES_MAX", 1)
    monkeypatch.setattr("deathless.foreign.waiting.ROWS_BYTES_MAX", 1)
    chance = random.Random(seed)
    sides = [Side(), Side()]
    sides[0].other, sides[1].other = sides[1], sides[0]
    nodes = [begun(side, chance) for side in sides]

    def step() -> None:
        at = chance.randrange(2)
        nodes[at].step()
        sides[at].pass_on()
        if chance.random() < 0.0005:
            nodes[at] = begun(sides[at], chance)

    until(lambda: all(side.state.begun for side in sides), step)
    sides[0].rows.append(Given(What.ITEMS, encode_items([make_call(SELF, 1, Kind.FORK, b"%d" % DEPTH)])))
    until(lambda: sum(map(calls, sides)) == 2 ** (DEPTH + 1) - 1, step)
    until(
        lambda: all(node.coordinator.delivered == len(side.rows) for node, side in zip(nodes, sides, strict=True)), step
    )
    assert sum(map(calls, sides)) == 2 ** (DEPTH + 1) - 1


def begun(side: Side, chance: random.Random) -> Node:
    """A process of a program that leads."""
    node = Node(side, chance, Splitting())
    node.lead()
    return node


def calls(side: Side) -> int:
    """How many calls it was given, in all."""
    return sum(row.what == What.ITEMS and not row.upto for row in side.rows)
