"""A client that lost its primary: whom it looks for, in which order, and how often it asks."""

from __future__ import annotations

from client_net import Net

from deathless.codec.wire import ok_reply
from deathless.core.client.link import GREET_S, SUSPECT_S, WAITING_S

OK = {name: ok_reply(name.encode()) for name in "ab"}


def test_replicas_that_moved_while_we_were_served_are_found_as_soon_as_the_primary_is_lost() -> None:
    net = Net("p", "s", "former")
    net.addresses = ("p", "former")
    net.cut.add("former")  # a pod that is gone: nobody is there to say no
    net.start()
    net.addresses = ("p", "s")
    net.kill("p")
    net.lead("s", 2)
    net.call("a")
    assert (net.done, net.now) == ({"a": OK["a"]}, 0.0)


def test_addresses_are_looked_up_when_a_primary_steps_down_or_falls_silent() -> None:
    net = Net("p", "s").start()
    net.trace.clear()
    net.replicas["p"].become("standby", 1, "")
    assert net.trace[0] == "Resolve()"
    net = Net("p", "s").start()
    net.replicas["p"].freeze()
    net.call("a")
    net.advance(SUSPECT_S + 0.001)
    assert net.resolved == 1


def test_primary_that_was_known_by_hearsay_is_forgotten_with_its_successor() -> None:
    net = Net("p", "s")
    net.addresses = ("s",)
    net.start()
    assert net.machine.connected == "p"
    net.kill("p")
    net.lead("s", 2)
    assert net.machine.connected == "s"
    net.dialed.clear()
    net.kill("s")
    net.advance(1.0)
    assert "p" not in net.dialed


def test_replica_that_did_not_answer_and_the_one_that_was_lost_are_asked_last() -> None:
    net = Net("p", "mute", "s", "t").start()
    net.cut.add("mute")
    net.kill("p")
    net.advance(2 * GREET_S)
    net.lead("s", 2)
    net.call("a")
    assert net.done
    net.dialed.clear()
    net.kill("s")
    net.lead("t", 3)
    net.call("b")
    assert net.done.keys() == {"a", "b"}
    assert net.dialed == ["t", "s", "p", "mute"]


def test_clients_do_not_hurry_while_a_replica_waits_with_them() -> None:
    net = Net("p", "s", "t").start()
    net.kill("p")
    net.advance(0.001)
    net.dialed.clear()
    net.advance(1.0)
    assert net.dialed.count("t") <= 1.0 / (WAITING_S / 2) + 1
    net.lead("s", 2)
    net.call("a")
    assert net.done == {"a": OK["a"]}
