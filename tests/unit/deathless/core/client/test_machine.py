"""The client's machine against fake replicas: finds the primary, loses nothing, says what it does not know."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from client_net import Net, message
from hypothesis import given, settings
from hypothesis import strategies as st
from replica_fake import FakeShard

from deathless.codec.session_proof import nonce_of
from deathless.codec.wire import (
    PREFIX_BYTES,
    BatchRefused,
    Type,
    Welcome,
    decode_batch,
    encode_replies,
    ok_reply,
    packet,
    struct_packet,
)
from deathless.core.client.events import (
    AddressesFound,
    BytesReceived,
    Dial,
    LinkId,
    LinkOpened,
    Send,
    TimerFired,
)
from deathless.core.client.link import (
    BACKOFF_MAX_S,
    GREET_S,
    PING_S,
    RESEND_S,
    SUSPECT_S,
    WATCH_S,
    State,
)
from deathless.core.client.machine import ClientMachine

OK = {name: ok_reply(name.encode()) for name in "abcdefgh"}


def state(net: Net) -> State:
    """The machine's state, anew at each call (a type checker believes that an attribute stays what it was)."""
    return net.machine.state


# ---- finding the primary ---------------------------------------------------------------------------------------


def test_client_registers_with_the_primary_and_calls() -> None:
    net = Net("p", "s")
    assert state(net) is State.SEEKING
    net.start()
    assert state(net) is State.READY
    assert net.machine.session == 100
    assert net.machine.connected == "p"
    net.call("a", "b")
    assert net.done == {"a": OK["a"], "b": OK["b"]}
    assert net.texts() == ["a", "b"]
    assert len(net.machine.results) == 0  # nobody waits for one that comes later


def test_calls_made_before_the_primary_is_found_are_sent_in_order() -> None:
    net = Net("p")
    net.call("a")
    net.call("b", "c")
    net.start()
    assert net.texts() == ["a", "b", "c"]


def test_client_at_a_standby_is_told_the_primary_and_dials_it_next() -> None:
    net = Net("s1", "s2", "p")
    net.lead("p", 1)
    net.start()
    assert net.dialed == ["s1", "p"]
    assert state(net) is State.READY
    assert list(net.links.values()) == ["p"]


def test_client_waits_at_a_standby_and_is_served_when_it_takes_over() -> None:
    net = Net("p", "s")
    net.kill("p")
    net.replicas["s"].become("standby", 1, "p")
    net.start()
    net.call("a")
    net.advance(1.0)
    assert state(net) is State.SEEKING
    assert net.machine.connected == "s"
    net.lead("s", 2)
    assert net.done == {"a": OK["a"]}
    assert net.machine.epoch == 2


def test_client_follows_a_primary_whose_address_it_was_never_given() -> None:
    net = Net("p", "s")
    net.addresses = ("s",)
    net.start()
    net.call("a")
    assert net.done
    net.kill("p")
    net.advance(0.3)
    net.down.clear()
    net.advance(0.6)
    net.call("b")
    assert net.done.keys() == {"a", "b"}


def test_dialing_never_stops_and_never_spins_when_nobody_answers() -> None:
    net = Net("p", "s")
    net.down |= {"p", "s"}
    net.start()
    net.call("a")
    net.advance(10.0)
    assert 2 * 10 / BACKOFF_MAX_S <= len(net.dialed) <= 2 * 10 / (BACKOFF_MAX_S / 2) + 40
    assert net.resolved > 10
    net.down.clear()
    net.advance(BACKOFF_MAX_S)
    assert net.done == {"a": OK["a"]}


def test_addresses_are_looked_up_again_so_replicas_that_moved_are_found() -> None:
    net = Net("p")
    net.replicas["q"] = net.replicas.pop("p")
    net.start()
    net.advance(0.1)
    assert state(net) is State.SEEKING
    net.replicas["q"].send = net._from("q")
    net.addresses = ("q",)
    net.advance(1.0)
    assert state(net) is State.READY


def test_client_without_any_address_waits_for_one() -> None:
    net = Net("p")
    net.addresses = ()
    net.start()
    net.advance(1.0)
    net.addresses = ("p",)
    net.advance(1.0)
    assert state(net) is State.READY


def test_replica_that_takes_the_connection_and_says_nothing_is_left_after_the_greet_limit() -> None:
    net = Net("p", "s")
    net.replicas["p"].freeze()
    net.start()
    assert state(net) is State.SEEKING
    net.lead("s", 2)
    net.advance(GREET_S)
    assert state(net) is State.READY
    assert net.machine.connected == "s"


def test_clients_begin_at_different_replicas() -> None:
    assert Net("p", "s", "t", jitter=lambda: 0.7).start().dialed[0] == "t"


def test_replica_of_another_service_is_left() -> None:
    other = FakeShard(service="shop")
    net = Net("p", shard=other).start()
    net.advance(0.5)
    assert state(net) is State.SEEKING
    assert "service shop" in net.machine.last_problem


# ---- takeover --------------------------------------------------------------------------------------------------


def test_calls_without_a_reply_go_to_the_successor_and_are_applied_once() -> None:
    net = Net("p", "s").start()
    net.replicas["p"].muted = True
    net.call("a", "b")
    assert net.done == {}
    net.kill("p")
    net.call("c")
    net.lead("s", 2)
    net.advance(BACKOFF_MAX_S)
    assert net.done == {name: OK[name] for name in "abc"}
    assert net.texts() == ["a", "b", "c"]


def test_switchover_by_role_moves_the_client_without_a_lost_connection() -> None:
    net = Net("p", "s").start()
    net.call("a")
    net.replicas["p"].become("standby", 2, "s")
    net.replicas["s"].become("primary", 2, "s")
    net.call("b")
    net.advance(0.05)
    assert net.machine.connected == "s"
    assert net.done == {"a": OK["a"], "b": OK["b"]}


def test_frozen_primary_is_left_for_its_successor_without_a_lost_connection() -> None:
    net = Net("p", "s", "t").start()
    net.replicas["p"].freeze()
    net.call("a")
    net.advance(SUSPECT_S + 0.01)
    assert sorted(net.links.values()) == ["p", "s"]
    net.lead("s", 2)
    assert net.done == {"a": OK["a"]}
    assert list(net.links.values()) == ["s"]
    net.replicas["p"].thaw()
    assert net.texts() == ["a"]


def test_silence_alone_does_not_leave_a_primary_nobody_replaced() -> None:
    net = Net("p", "s").start()
    net.replicas["p"].freeze()
    net.call("a")
    net.advance(3.0)
    assert "p" in net.links.values()
    net.replicas["p"].thaw()
    assert net.done == {"a": OK["a"]}
    net.advance(0.1)
    assert list(net.links.values()) == ["p"]


def test_broken_connection_to_a_live_primary_is_replaced_by_a_fresh_one() -> None:
    net = Net("p").start()
    net.cut.add("p")
    net.call("a")
    net.advance(1.0)
    net.cut.clear()
    for link in list(net.links):
        del net.links[link]  # the old connection stays dead without a word
    net.advance(20.0)
    assert net.done == {"a": OK["a"]}


def test_primary_is_pinged_before_it_is_suspected() -> None:
    net = Net("p", "s").start()
    net.replicas["p"].muted = True
    net.call("a")
    net.advance(PING_S + 0.001)
    assert Type.PING in net.replicas["p"].packets
    net.advance(0.3)
    assert net.dialed == ["p"], "it answers pings, so nobody else is asked"


def test_watcher_that_says_nothing_new_gives_way_to_another() -> None:
    net = Net("p", "s", "t").start()
    net.replicas["p"].freeze()
    net.call("a")
    net.advance(SUSPECT_S + WATCH_S + 0.3)
    assert {"s", "t"} <= set(net.dialed)


def test_primary_of_an_older_epoch_is_not_believed() -> None:
    net = Net("p", "s")
    net.lead("s", 5)
    net.replicas["p"].become("primary", 4, "p")
    net.addresses = ("s", "p")
    net.start()
    assert net.machine.connected == "s"
    net.kill("s")
    net.advance(1.0)
    assert state(net) is State.SEEKING
    net.replicas["p"].become("primary", 6, "p")
    net.advance(1.0)
    assert state(net) is State.READY


def test_standby_with_newer_knowledge_replaces_the_one_at_hand() -> None:
    net = Net("p", "s", "t")
    net.kill("p")
    net.replicas["s"].become("standby", 1, "")
    net.replicas["t"].become("standby", 3, "")
    net.start()
    net.advance(0.5)
    assert net.machine.connected == "t"


def test_primary_that_hangs_up_again_and_again_is_not_dialed_in_a_hurry() -> None:
    net = Net("p")
    replica = net.replicas["p"]
    net.start()
    for _ in range(5):
        for link in list(net.links):
            net._lose(link)
    assert len(net.dialed) <= 3
    before = len(net.dialed)
    net.advance(0.0)
    for _ in range(50):
        net.advance(0.02)
        for link in list(net.links):
            net._lose(link)
    assert len(net.dialed) - before <= 50
    assert replica.role == "primary"


def test_probe_that_waits_with_us_takes_the_place_of_a_lost_primary() -> None:
    net = Net("p", "s", "t").start()
    net.replicas["p"].freeze()
    net.call("a")
    net.advance(SUSPECT_S + 0.01)
    net.kill("p")
    assert net.machine.connected == "s"
    net.lead("t", 2)
    net.advance(0.05)
    assert net.done == {"a": OK["a"]}


# ---- refusals --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", ["DL1002", "DL1003"])
def test_refused_calls_are_told_and_sent_again_after_the_time_given(code: str) -> None:
    net = Net("p").start()
    net.replicas["p"].refusals = [(code, 500)]
    net.call("a", "b")
    assert net.refused[0].waiters == ["a", "b"]
    assert net.refused[0].code == code
    told = net.machine.refusal(net.now)
    assert told is not None
    assert told[0] == code
    net.call("c")
    net.advance(0.4)
    assert net.texts() == []
    net.advance(0.2)
    assert net.machine.refusal(net.now) is None
    assert net.texts() == ["a", "b", "c"]
    assert net.done.keys() == {"a", "b", "c"}
    assert net.dialed == ["p"], "a primary that refuses is not silent"


def test_call_that_is_refused_for_good_fails_and_those_behind_it_go_on_in_a_new_session() -> None:
    net = Net("p").start()
    primary = net.replicas["p"]
    primary.muted = True
    net.call("a")
    primary.refusals = [("DL3006", -1)]
    net.call("b", "c", "d")
    net.call("e")
    assert net.failed == {"b": ("DL3006", "refused with DL3006")}
    assert net.texts() == ["a"], "nothing may take the refused seq in the old session"
    primary.muted = False
    net.advance(RESEND_S * 3)
    assert net.texts() == ["a", "c", "d", "e"]
    assert net.done.keys() == {"a", "c", "d", "e"}
    assert len(net.shard.sessions) == 2


def test_batch_refused_because_it_is_not_the_primary_sends_the_client_on() -> None:
    net = Net("p", "s").start()
    net.replicas["p"].refusals = [("DL1001", 10)]
    net.replicas["s"].become("primary", 2, "s")
    net.call("a")
    net.advance(0.1)
    assert net.machine.connected == "s"
    assert net.done == {"a": OK["a"]}


def test_sole_replica_that_said_it_is_not_the_primary_is_asked_again() -> None:
    net = Net("p").start()
    net.replicas["p"].refusals = [("DL1001", 10)]
    net.call("a")
    net.advance(3.0)
    assert net.done == {"a": OK["a"]}


def test_token_refused_everywhere_fails_calls_that_were_never_sent() -> None:
    net = Net("p", "s")
    for replica in net.replicas.values():
        replica.hello_refusal = ("DL3010", "token is wrong")
    net.start()
    net.call("a")
    net.query("b")
    net.advance(1.0)
    assert net.failed == {"a": ("DL3010", "token is wrong"), "b": ("DL3010", "token is wrong")}
    for replica in net.replicas.values():
        replica.hello_refusal = None
    net.call("c")
    net.advance(1.0)
    assert net.done.keys() == {"c"}


def test_token_refused_by_one_replica_fails_nobody() -> None:
    net = Net("p", "s")
    net.replicas["p"].hello_refusal = ("DL3010", "token is wrong")
    net.start()
    net.call("a")
    net.advance(1.0)
    assert net.failed == {}
    net.lead("s", 2)
    assert net.done.keys() == {"a"}


def test_replica_that_is_full_is_tried_again() -> None:
    net = Net("p")
    net.replicas["p"].hello_refusal = ("DL1002", "connections")
    net.start()
    net.call("a")
    net.advance(0.1)
    assert net.failed == {}
    net.replicas["p"].hello_refusal = None
    net.advance(0.5)
    assert net.done.keys() == {"a"}


def test_call_longer_than_the_server_takes_fails_and_takes_no_seq() -> None:
    net = Net("p", shard=FakeShard(message_bytes_max=40))
    net.call("x" * 100, "a")
    net.query("y" * 100, "b")
    net.start()
    assert net.machine.message_bytes_max == 40
    net.call("z" * 100, "c")
    net.query("q" * 100, "d")
    assert {waiter[0]: code for waiter, (code, _) in net.failed.items()} == {
        "x": "DL3006",
        "z": "DL3006",
        "q": "DL3006",
    } | ({} if "y" * 100 in net.done else {"y": "DL3006"})
    assert {"a", "b", "c", "d"} <= net.done.keys()
    assert net.machine.window.acked == 2


def test_registration_that_is_refused_for_now_is_asked_again() -> None:
    machine, link = greeted()
    refusal = struct_packet(Type.BATCH_REFUSED, BatchRefused(0, 0, "DL1002", "busy", 20))
    machine.handle(BytesReceived(link=link, data=refusal), 0.0)
    assert machine.state is State.REGISTERING
    deadline = machine.deadline
    assert deadline is not None
    assert sends(machine.handle(TimerFired(), deadline)) == packet(Type.REGISTER, nonce_of(bytes(16)))


# ---- by hand -----


def machine_() -> ClientMachine[str]:
    return ClientMachine(service="bank", name="c", jitter=lambda: 0.0, secret=lambda: bytes(16))


def greeted(role: str = "primary", epoch: int = 1) -> tuple[ClientMachine[str], LinkId]:
    """A machine whose first link was welcomed."""
    machine = machine_()
    dialed = machine.handle(AddressesFound(addresses=("p", "s")), 0.0)
    link = next(effect.link for effect in dialed if isinstance(effect, Dial))
    machine.handle(LinkOpened(link=link), 0.0)
    welcome = Welcome(1, "bank", "r0", role, epoch, 5, "", 0, 1000, 100)
    machine.handle(BytesReceived(link=link, data=struct_packet(Type.WELCOME, welcome)), 0.0)
    return machine, link


def sends(effects: Sequence[object]) -> bytes:
    return b"".join(effect.data for effect in effects if isinstance(effect, Send))


# ---- the short way of a call that is alone ------------------------------------------------------------------------


acts = st.one_of(
    st.tuples(st.just("call"), st.integers(1, 3)),
    st.tuples(st.just("query"), st.just(1)),
    st.tuples(st.just("advance"), st.sampled_from([0.01, 0.06, 0.2, 0.7])),
    st.tuples(st.just("kill"), st.sampled_from(["p", "s"])),
    st.tuples(st.just("cut"), st.sampled_from(["p", "s"])),
    st.tuples(st.just("lead"), st.sampled_from(["p", "s"])),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(acts, max_size=14))
def test_calls_that_take_the_short_way_are_sent_and_answered_as_all_others(drawn: list[tuple[str, Any]]) -> None:
    nets = [Net("p", "s", short_way=short) for short in (True, False)]
    for net in nets:
        net.start()
        epoch, number = 1, 0
        for act, value in drawn:
            if act in ("call", "query"):
                texts = [f"{act}{number + at}" for at in range(value)]
                number += value
                (net.call if act == "call" else net.query)(*texts)
            elif act == "advance":
                net.advance(value)
            elif act == "kill":
                net.kill(value)
            elif act == "cut":
                net.cut ^= {value}
            else:
                epoch += 1
                net.down.discard(value)
                net.lead(value, epoch)
    one, other = nets
    assert one.trace == other.trace
    assert (one.done, one.failed, one.texts()) == (other.done, other.failed, other.texts())
    assert one.machine.deadline == other.machine.deadline


def test_call_that_is_alone_takes_the_short_way_and_one_that_is_not_does_not() -> None:
    net = Net("p")
    net.start()
    machine = net.machine
    for text in ("a", "b"):
        sent = machine.call_alone(message(text), text, net.now)
        assert sent is not None
        assert machine.call_alone(message("c"), "c", net.now) is None  # one is in flight
        run = decode_batch(sent[1][PREFIX_BYTES:]).run
        reply = encode_replies(run.session, [run.first_seq], [OK[text]])
        assert machine.answered_alone(sent[0], reply + reply, net.now) is None  # more than that reply
        assert machine.answered_alone(LinkId(99), reply, net.now) is None
        assert machine.answered_alone(sent[0], reply[:-1], net.now) is None
        assert machine.answered_alone(sent[0], reply, net.now) == (text, OK[text])
        assert machine.answered_alone(sent[0], reply, net.now) is None  # it is answered
        machine.check_invariants()
