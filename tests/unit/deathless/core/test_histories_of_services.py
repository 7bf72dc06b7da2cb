"""Two services of which one is put back to an older state: what it sends from there is never taken for a repetition.

Real primaries over logs in memory (peer_net). Service a sends to b; then a's log is cut, as if its storage had been put
back from a copy, and a goes on differently.
"""

from __future__ import annotations

import pytest
from tests.unit.deathless.core.peer_net import CLIENT, Life, Net

from deathless.base.errors import HistoryDiffers
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.peer_messages import Adopt, Target
from deathless.core import events as ev

A, B = Target("a", 0), Target("b", 0)
STEPS = 120  # in which connections are made, refused and made again, more than once


def served(*asks: bytes, safeguards: Safeguards = ALL_SAFEGUARDS) -> Net:
    net = Net({"a": [], "b": []}, safeguards=safeguards)
    for ask in asks:  # each in a frame of its own
        net.services["a"].asks.append(ask)
        net.settle()
    return net


def put_back(net: Net, name: str, messages: int, *asks: bytes) -> None:
    """Start a service again from the state in which it had sent, or got, so many messages, and ask for others."""
    service = net.services[name]
    old = service.life
    old.end()
    lives = (Life(net, service, old.epoch + 1, old.frames[:kept]) for kept in range(1, len(old.frames) + 1))
    life = next(each for each in lives if len(each.executor.sent) + len(each.executor.got) >= messages)
    service.life, service.proved = life, 0
    service.answers = len(life.executor.sent) if name == "a" else service.answers
    service.asks = service.asks[: service.answers] + list(asks)
    life.begin()


def spin(net: Net) -> None:
    """Let time pass; whether it comes to an end is not asked."""
    net.settle(STEPS, must=False)


def got(net: Net) -> list[bytes]:
    return [text for _, text in net.services["b"].life.executor.got]


def problem(net: Net) -> str:
    """What a's operators see of b."""
    return {view.target: view.problem for view in net.services["a"].life.primary.messaging.outreach.views()}[B]


def adopt(net: Net, name: str, other: str) -> None:
    who = net.services[other].hello
    life = net.services[name].life
    anew = Target(other, 0) in life.primary.messaging.differing()
    life.tell(ev.OrderReceived(CLIENT, 1, Adopt(who.service, who.shard, who.service_id, who.incarnation, anew)))


@pytest.mark.parametrize("others", [(b"b>2'",), (b"b>2'", b"b>3'"), (b"b>2'", b"b>3'", b"b>4'", b"b>5'")])
def test_a_sender_that_was_put_back_sends_nothing_and_both_sides_say_why(others: tuple[bytes, ...]) -> None:
    """Whether it is still behind what the receiver has, or its numbers have passed that meanwhile."""
    net = served(b"b>1", b"b>2", b"b>3")
    put_back(net, "a", 1, *others)
    spin(net)
    assert got(net) == [b"1", b"2", b"3"]
    assert HistoryDiffers.code in problem(net)
    assert HistoryDiffers.code in net.services["b"].life.primary.messaging.peering.refused()[A]
    assert net.services["a"].life.shard.outbox.next_position(B) == 2 + len(others), "and nothing of it is lost"


def test_without_peer_history_the_first_messages_of_a_sender_that_was_put_back_are_swallowed() -> None:
    """What this is against: the receiver takes 2' and 3' for repetitions, and everything looks fine."""
    net = served(b"b>1", b"b>2", b"b>3", safeguards=Safeguards(peer_history=False))
    put_back(net, "a", 1, b"b>2'", b"b>3'", b"b>4'")
    net.settle()
    assert got(net) == [b"1", b"2", b"3", b"4'"]


def test_a_receiver_that_was_put_back_is_told_apart_too() -> None:
    net = served(b"b>1", b"b>2", b"b>3")
    put_back(net, "b", 1)
    net.services["a"].asks.append(b"b>4")
    spin(net)
    assert got(net) == [b"1"]
    assert "DL4010" in problem(net)
    assert "DL4010" in net.services["b"].life.primary.messaging.peering.refused()[A]


@pytest.mark.parametrize("first", ["a", "b"])
def test_adopting_on_each_side_that_shows_it_ends_it(first: str) -> None:
    """Begun at the sender, what it had not got rid of is dropped; begun at the receiver, it comes again."""
    net = served(b"b>1", b"b>2", b"b>3")
    put_back(net, "a", 1, b"b>2'")
    spin(net)
    second = "b" if first == "a" else "a"
    adopt(net, first, second)
    spin(net)
    assert got(net) == ([b"1", b"2", b"3"] if first == "a" else [b"1", b"2", b"3", b"1", b"2'"])
    if net.services[second].life.primary.messaging.differing():
        adopt(net, second, first)
    net.services["a"].asks.append(b"b>3'")
    net.settle()
    assert got(net)[-1] == b"3'"
    assert problem(net) == ""
    assert net.services["b"].life.primary.messaging.peering.refused() == {}


def test_services_that_only_lose_connections_and_primaries_are_never_told_apart() -> None:
    net = served(b"b>1", b"b>2")
    service = net.services["a"]
    for number in range(3, 9):
        old = service.life
        service.life = Life(net, service, old.epoch + 1, old.frames)
        old.end()
        service.life.begin()
        service.asks.append(b"b>%d" % number)
        net.settle()
    assert got(net) == [b"%d" % number for number in range(1, 9)]
    assert net.verdict() == []
