"""What goes to the outside waits in a service made of a copy, and goes once when it is let go."""

from __future__ import annotations

from deathless.base.safeguards import Safeguards
from deathless.codec.peer_messages import ActivityStart, Reference, Target
from deathless.shell.worker.outward import Outward

STOCK, SHARD = Target("stock", 0), Target("shop", 1)


class Recorder:
    """Both sides of the outside; says what was asked of it."""

    def __init__(self) -> None:
        self.asked: list[object] = []
        self.links = self.activities = self

    def dial(self, target: Target) -> None:
        self.asked.append(("dial", target))

    def send(self, target: Target, data: bytes) -> None:
        self.asked.append(("send", target, data))

    def drop(self, target: Target) -> None:
        self.asked.append(("drop", target))

    def start(self, start: ActivityStart) -> None:
        self.asked.append(("start", start.invocation))

    def stop(self, reference: Reference) -> None:
        self.asked.append(("stop", reference.invocation))


def activity(invocation: int) -> ActivityStart:
    return ActivityStart(invocation, 1, 1, "charge", b"", "key", at_most_once=False, attempted=False)


def test_what_is_held_goes_once_when_it_is_let_go() -> None:
    there = Recorder()
    outward = Outward(there, "shop", held=True)
    outward.dial(STOCK)
    outward.drop(STOCK)
    outward.start(activity(1))
    outward.start(activity(2))
    outward.stop(Reference(2, 1))
    outward.dial(SHARD)
    assert there.asked == [("dial", SHARD)], "another shard of the same service is not outside"
    outward.let_go()
    outward.let_go()
    assert there.asked[1:] == [("dial", STOCK), ("start", 1)]


def test_what_was_forked_together_is_not_outside() -> None:
    there = Recorder()
    outward = Outward(there, "shop", held=True, inside=["stock"])
    outward.dial(STOCK)
    outward.dial(Target("mail", 0))
    assert there.asked == [("dial", STOCK)]


def test_nothing_is_held_otherwise() -> None:
    there = Recorder()
    outward = Outward(there, "shop", held=False)
    outward.let_go()
    outward.dial(STOCK)
    outward.send(STOCK, b"x")
    outward.drop(STOCK)
    outward.start(activity(1))
    outward.stop(Reference(1, 1))
    assert there.asked == [("dial", STOCK), ("send", STOCK, b"x"), ("drop", STOCK), ("start", 1), ("stop", 1)]


def test_without_the_safeguard_a_copy_charges_a_second_time() -> None:
    there = Recorder()
    Outward(there, "shop", held=True, safeguards=Safeguards(hold_outside_as_new=False)).start(activity(1))
    assert there.asked == [("start", 1)]
