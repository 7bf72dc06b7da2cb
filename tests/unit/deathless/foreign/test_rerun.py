"""A program that is run again is compared with what was logged, and the first message that differs is named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from tests.unit.deathless.foreign.world import Program, World

from deathless.foreign.rerun import ITEMS_SHOWN, Parting, Rerun
from deathless.foreign.rows import Given, What, decode_items, encode_items
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.messages import SELF, Kind, Rpc, make_call
from deathless.protocols.ambrosia.states import State
from deathless.protocols.ambrosia_binding.binding import Binding

CALLS = 8


def recorded(seed: int) -> World:
    """A service that was called a few times, while processes were killed, and is idle now."""
    world = World(seed)
    asked = 0
    for _ in range(40_000):
        if world.log.state.begun and asked < CALLS and world.chance.random() < 0.02:
            world.log.rows.append(Given(What.ITEMS, encode_items([make_call(SELF, 5, Kind.FORK, b"3")])))
            asked += 1
        if world.kills < 3 and world.chance.random() < 0.002:
            world.kill()
        world.step()
        if len(world.log.sent) == 3 * CALLS and logged_to(world, SELF) == 3 * CALLS:
            break
    assert len(world.log.sent) == 3 * CALLS
    return world


def logged_to(world: World, target: str) -> int:
    """How many messages to a target are logged."""
    return max((row.upto for row in world.log.rows if row.target == target), default=0)


class Again:
    """One run of a program over it, in this process; what passes between the two is cut by chance."""

    def __init__(self, world: World, program: Program | None = None, start: int | None = None) -> None:
        self.machine = ApplicationMachine(name="counter", committer=1)
        checkpoints = world.log.checkpoints
        head, blob = checkpoints[min(checkpoints) if start is None else start]
        self.rerun = Rerun(self.machine, head)
        self._world, self._program, self._blob = world, program or Program(more=0), blob
        self._in = bytearray()

    def run(self, *, upgraded: bool = False) -> Parting | None:
        """Run it to its end; gives where it parts from the log."""
        self._order(on.SocketOpened(socket=on.Socket.RECEIVE))
        self._order(on.SocketOpened(socket=on.Socket.SEND))
        self._order(self.rerun.load())
        self._order(on.LoadPart(data=self._blob))
        if upgraded:
            self._order(on.TestUpgrade())
        rows = list(enumerate(self._world.log.rows, 1))[self.rerun.delivered :]
        while rows and self.machine.state is not State.GONE:
            count = self._world.chance.randint(1, 5)
            for event in self.rerun.deliver(rows[:count]):
                self._order(event)
            del rows[:count]
            if self._world.chance.random() < 0.5:
                self._pump()
        self._order(on.TakeCheckpoint())
        self._pump()
        self.rerun.ended()
        return self.rerun.parting

    def _order(self, event: on.Event) -> None:
        effects = self.machine.handle(event)
        for effect in effects:
            if isinstance(effect, on.Send):
                self._in += effect.data
        for each in self.rerun.took(effects):
            self._order(each)

    def _pump(self) -> None:
        self._program.binding.receive(bytes(self._in))
        self._in.clear()
        self._program.run()
        data = self._program.binding.outgoing()
        if self.machine.state is not State.GONE:
            self._order(on.BytesReceived(data=data))


@pytest.mark.parametrize("upgraded", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_same_program_repeats_itself_from_each_checkpoint(seed: int, upgraded: bool) -> None:
    """All that the log tells of lanes is compared, and nothing is left over."""
    world = recorded(seed)
    for start in world.log.checkpoints:
        again = Again(world, start=start)
        assert again.run(upgraded=upgraded) is None
        assert again.rerun.beyond == 0
        assert again.rerun.counted.rows == len(world.log.rows) - start
        assert not any(again.rerun._waiting(target) for target in again.rerun._logged)


Change = Callable[[str, int, bytes], bytes | None]


class Changed:
    """The binding of a program that sends other arguments, or nothing.

    Args:
        change: told target, number of the message for it, and its arguments; gives others, or None: it is not sent.
    """

    def __init__(self, binding: Binding, change: Change) -> None:
        self._binding = binding
        self._change = change
        self._sent = Counter[str]()

    def fork(self, method: int, arguments: bytes, to: str = "") -> None:
        """Send."""
        self._sent[to] += 1
        changed = self._change(to, self._sent[to], arguments)
        if changed is not None:
            self._binding.fork(method, changed, to=to)

    def __getattr__(self, name: str) -> object:
        return getattr(self._binding, name)


def changed(change: Change) -> Program:
    """A program that sends something else."""
    program = Program()
    program.binding = Changed(program.binding, change)  # type: ignore[assignment]  # stands for it
    return program


@pytest.mark.parametrize("seed", range(4))
def test_the_first_message_that_differs_lies_where_it_is_said(seed: int) -> None:
    """The log has the chain alone of what was sent to others, so there it is a range."""
    found = Again(recorded(seed), changed(lambda to, at, told: b"77" if to and at >= 9 else told)).run()
    assert found is not None
    assert (found.target, found.fewer, found.expected) == ("bank/alice", False, ())
    assert found.first <= 9 <= found.last
    texts = [each.arguments for each in found.got if isinstance(each, Rpc)]
    assert len(texts) == min(ITEMS_SHOWN, found.last - found.first + 1)
    assert dict(enumerate(texts, found.first)).get(9, b"77") == b"77"


def test_a_call_to_itself_that_differs_is_named_with_what_was_logged() -> None:
    """The log has it as an input."""
    world = recorded(3)
    found = Again(world, changed(lambda to, at, told: b"9" if (to, at) == ("", 5) else told)).run()
    assert found is not None
    assert (found.target, found.first, found.last) == (SELF, 5, 5)
    logged = [item for row in world.log.rows if row.upto and not row.target for item in decode_items(row.items)]
    assert list(found.expected) == logged[4:5]
    assert [each.arguments for each in found.got if isinstance(each, Rpc)] == [b"9"]


def test_messages_that_do_not_come_are_found_at_the_end() -> None:
    """Behind the checkpoint that it gives then, nothing comes any more."""
    found = Again(recorded(4), changed(lambda to, at, told: None if to and at > 3 else told)).run()
    assert found is not None
    assert (found.target, found.fewer) == ("bank/alice", True)
    assert found.first <= 4 <= found.last
