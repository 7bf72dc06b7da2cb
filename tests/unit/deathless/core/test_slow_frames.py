"""Turns that take long: frames hold few of them, and others are heard in between."""

from __future__ import annotations

from tests.unit.deathless.core.primary_world import World

from deathless.base.times import Due
from deathless.core import effects as fx
from deathless.core.primary.frame_size import RUN_S


def sizes_of_frames(world: World) -> list[int]:
    """Write, sync and prove until nothing is left; gives how many messages of clients each frame held."""
    sizes = []
    world.drained()
    while world.owes(fx.RunFrame):
        due = world.take(fx.RunFrame)
        world.todo.append(due)
        sizes.append(sum(run.count for run, _ in due.runs if run.session))
        world.sync()
        world.prove()
        world.drained()
    return sizes


def test_slow_messages_go_a_few_at_a_time() -> None:
    """What their turns ask for leaves with their frame: whoever gets it works meanwhile."""
    world = World()
    session, other = world.register(), world.register(nonce=bytes(range(16)))
    world.run_s = RUN_S / 3
    world.send(session, 1, b"first")
    world.settle()
    world.send(session, 2, *[b"%d" % i for i in range(5)])
    world.send(other, 1, b"x", b"y")
    assert sizes_of_frames(world) == [3, 3, 1]
    assert world.replies(session)[1:] == [(i + 2, b"%d" % i) for i in range(5)]
    assert world.replies(other) == [(1, b"x"), (2, b"y")]


def test_behind_a_slow_frame_sockets_are_read_before_the_next_one() -> None:
    """What peers confirm, and what others send, is heard between two of many slow frames."""
    world = World()
    session = world.register()
    world.run_s = RUN_S
    world.send(session, 1, b"a")
    world.settle()
    world.send(session, 2, b"b", b"c")
    world.drained()
    world.sync()
    world.prove()
    assert not world.owes(fx.RunFrame)
    assert world.primary.deadline() == world.now, "at once, where nothing comes"
    world.fire()
    assert world.owes(fx.RunFrame)


def test_slow_timers_do_not_shrink_what_clients_get_of_a_frame() -> None:
    """No frame can leave due timers out, so smaller ones would make clients wait, and nobody's turn come earlier."""
    world = World()
    session = world.register()
    world.run_s = 3 * RUN_S
    for seq in range(1, 4):
        world.place.due = Due(world.wall_us)  # a timer is due in each frame
        world.send(session, seq, b"x")
        world.settle()
    world.place.due = Due(world.wall_us)
    world.send(session, 4, *[b"y"] * 5)
    assert sizes_of_frames(world) == [5]


def test_a_slow_disk_does_not_shrink_what_clients_get_of_a_frame() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, *[b"a"] * 512)
    world.drained()
    world.now += 512 * RUN_S  # its sync takes so long
    world.settle()
    world.send(session, 513, *[b"b"] * 512)
    assert sizes_of_frames(world) == [512]
