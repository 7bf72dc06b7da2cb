"""Services joined by bad connections, each taken over from again and again: exactly once, in order, for every pair.

What was sent is what a replay of the sender's log gives, what was got what a replay of the receiver's gives; whatever
left any primary, deposed ones included, stands in its service's log at the position that it had (I2).
"""

from __future__ import annotations

import pytest
from tests.unit.deathless.core.peer_net import Net, rough_run

ASKS = {
    "a": [b"b>a%d" % number for number in range(6)] + [b"b>c>x;self>b>y;b>a>z"],
    "b": [b"a>b%d;a>bb%d" % (number, number) for number in range(5)] + [b"c>q"],
    "c": [b"a>b>c>a>r%d" % number for number in range(4)],
}


def test_messages_go_around_where_nothing_breaks() -> None:
    net = Net(ASKS)
    net.settle()
    assert net.verdict() == []
    assert len(net.services["b"].life.executor.got) == 13


def test_a_service_may_send_to_itself_alone() -> None:
    net = Net({"a": [b"self>self>self>x;self>y"]})
    net.settle()
    assert [text for _, text in net.services["a"].life.executor.got] == [b"self>self>x", b"y", b"self>x", b"x"]


@pytest.mark.parametrize("seed", range(40))
def test_messages_arrive_once_and_in_order_whatever_breaks(seed: int) -> None:
    net = rough_run(seed, ASKS)
    assert net.verdict() == []
    assert all(service.life.executor.got for service in net.services.values())


def test_the_rough_runs_are_rough() -> None:
    nets = [rough_run(seed, ASKS) for seed in range(10)]
    assert sum(service.life.epoch - 1 for net in nets for service in net.services.values()) > 40
    assert sum(net.conns - 10 for net in nets) > 150
    repeated = sum(len(net.wire) - len({entry[:3] for entry in net.wire}) for net in nets)
    assert repeated > 20
