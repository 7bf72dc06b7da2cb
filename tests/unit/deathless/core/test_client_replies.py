"""The client's machine against fake replicas: sessions, replies, queries and the end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from client_net import Net

from deathless.base.errors import ServiceRolledBack
from deathless.codec.wire import (
    Registered,
    Type,
    Welcome,
    encode_replies,
    error_reply,
    ok_reply,
    packet,
    struct_packet,
)
from deathless.core.client.events import (
    AddressesFound,
    BytesReceived,
    CallsSubmitted,
    CloseRequested,
    Dial,
    FailCalls,
    LinkId,
    LinkOpened,
    QueriesSubmitted,
    Send,
    TimerFired,
)
from deathless.core.client.link import (
    ACK_S,
    GREET_S,
    RESEND_S,
    WATCH_S,
    State,
)
from deathless.core.client.machine import ClientMachine

OK = {name: ok_reply(name.encode()) for name in "abcdefgh"}


def state(net: Net) -> State:
    """The machine's state, anew at each call (a type checker believes that an attribute stays what it was)."""
    return net.machine.state


# ---- sessions --------------------------------------------------------------------------------------------------


def test_expired_session_says_the_outcome_is_unknown_and_a_new_one_goes_on() -> None:
    net = Net("p").start()
    net.replicas["p"].muted = True
    net.call("a")
    net.replicas["p"].muted = False
    net.shard.sessions.clear()
    net.call("b")
    assert {waiter: code for waiter, (code, _) in net.failed.items()} == {"a": "DL3009", "b": "DL3009"}
    net.call("c")
    assert net.done == {"c": OK["c"]}
    assert net.machine.session == 101


def test_session_unknown_to_the_primary_at_the_welcome_has_expired() -> None:
    net = Net("p").start()
    net.replicas["p"].muted = True
    net.call("a")
    net.kill("p")
    net.shard.sessions.clear()
    net.call("b")
    net.down.clear()
    net.replicas["p"].muted = False
    net.advance(0.5)
    assert net.failed["a"][0] == "DL3009"
    assert net.done == {"b": OK["b"]}


def test_service_that_lost_messages_of_the_session_is_told_from_a_good_one() -> None:
    net = Net("p").start()
    net.call("a", "b", "c")
    net.kill("p")
    net.shard.sessions[100].next_seq = 2
    net.down.clear()
    net.call("d")
    net.advance(0.5)
    assert net.machine.session != 100
    assert net.done.keys() == {"a", "b", "c"}
    assert net.failed["d"][0] == ServiceRolledBack.code
    net.call("e")
    net.advance(0.5)
    assert net.done.keys() == {"a", "b", "c", "e"}


def test_service_that_forgot_what_it_answered_is_told_to_the_next_call_where_none_waits() -> None:
    net = Net("p").start()
    net.call("a", "b", "c")
    net.kill("p")
    net.shard.sessions[100].next_seq = 3
    net.down.clear()
    net.advance(1.0)
    assert net.machine.session != 100
    net.call("d", "e")
    assert {waiter: code for waiter, (code, _) in net.failed.items()} == dict.fromkeys("de", ServiceRolledBack.code)
    net.call("f")
    net.advance(0.5)
    assert net.done.keys() == {"a", "b", "c", "f"}


def test_service_created_anew_ends_the_session() -> None:
    net = Net("p").start()
    net.replicas["p"].muted = True
    net.call("a")
    net.kill("p")
    net.shard.incarnation += 1
    net.replicas["p"].become("primary", 1, "p")
    net.machine.epoch = 9  # its epochs begin anew too
    net.down.clear()
    net.replicas["p"].muted = False
    net.advance(0.5)
    assert net.failed["a"][0] == "DL3009"
    net.call("b")
    assert net.done.keys() == {"b"}


@pytest.mark.parametrize("code", ["DL3009", "DL4005"])
def test_replica_that_refuses_our_session_does_not_end_it_the_primary_does(code: str) -> None:
    net = Net("p", "s").start()
    net.replicas["s"].hello_refusal = (code, "not mine")
    net.kill("p")
    net.call("a")
    net.advance(0.05)
    assert net.failed == {}
    assert net.machine.session == 100
    net.replicas["s"].hello_refusal = None
    net.lead("s", 2)
    net.advance(0.5)
    assert net.done.keys() == {"a"}
    assert net.machine.session == 100


def test_registration_lost_on_the_way_is_asked_again_under_the_same_nonce() -> None:
    net = Net("p", "s")
    net.replicas["p"].dropping = True
    net.start()
    net.advance(0.05)
    net.replicas["p"].dropping = False
    net.advance(2.0)
    assert state(net) is State.READY
    assert len(net.shard.nonces) == 1


# ---- replies and acknowledgements ------------------------------------------------------------------------------


def test_acknowledgement_rides_on_the_next_batch() -> None:
    net = Net("p").start()
    net.call("a")
    net.call("b")
    assert net.replicas["p"].acks == [0, 1]


def test_acknowledgement_goes_alone_when_nothing_else_does() -> None:
    net = Net("p").start()
    net.call("a")
    net.advance(ACK_S + 0.001)
    assert net.replicas["p"].acks == [0, 1]
    net.advance(10.0)
    assert net.replicas["p"].acks == [0, 1], "once is enough"
    assert net.shard.sessions[100].replies == {}


def test_calls_dropped_without_a_word_are_sent_again() -> None:
    net = Net("p").start()
    net.replicas["p"].dropping = True
    net.call("a")
    net.query("q")
    net.advance(0.2)
    net.replicas["p"].dropping = False
    net.advance(2 * RESEND_S)
    assert net.done.keys() == {"a", "q"}
    assert net.texts() == ["a"]


def test_replies_of_another_session_or_connection_are_not_taken() -> None:
    net = Net("p").start()
    net.replicas["p"].muted = True
    net.call("a")
    link = next(iter(net.links))
    net.tell(BytesReceived(link=link, data=encode_replies(99, [1], [OK["b"]])))
    net.tell(BytesReceived(link=LinkId(77), data=encode_replies(100, [1], [OK["b"]])))
    assert net.done == {}


@pytest.mark.parametrize(
    "junk", [b"\0\0\0\0\0", b"\xff\xff\xff\xff\x13", struct_packet(Type.REPLIES, Registered(b"", 1))]
)
def test_broken_stream_ends_the_connection_and_the_call_goes_on(junk: bytes) -> None:
    net = Net("p").start()
    net.replicas["p"].muted = True
    net.call("a")
    net.replicas["p"].muted = False
    net.tell(BytesReceived(link=next(iter(net.links)), data=junk))
    net.advance(0.5)
    assert net.done == {"a": OK["a"]}


def test_packet_before_the_welcome_ends_the_connection() -> None:
    machine = machine_()
    dialed = machine.handle(AddressesFound(addresses=("p",)), 0.0)
    link = next(effect.link for effect in dialed if isinstance(effect, Dial))
    machine.handle(LinkOpened(link=link), 0.0)
    machine.handle(BytesReceived(link=link, data=packet(Type.PONG)), 0.0)
    assert "before WELCOME" in machine.last_problem


def test_ping_of_the_server_is_answered() -> None:
    net = Net("p").start()
    link = next(iter(net.links))
    effects = net.machine.handle(BytesReceived(link=link, data=packet(Type.PING)), net.now)
    assert effects == [Send(link=link, data=packet(Type.PONG))]


# ---- queries ---------------------------------------------------------------------------------------------------


def test_queries_need_no_session_and_are_answered() -> None:
    net = Net("p").start()
    net.query("a", "b")
    assert net.done == {"a": OK["a"], "b": OK["b"]}
    assert net.done.keys() == {"a", "b"}


def test_stale_query_is_answered_by_a_standby() -> None:
    net = Net("p", "s")
    net.kill("p")
    net.start()
    net.advance(0.1)
    net.query("a", stale=True)
    net.query("b")
    assert net.done == {"a": OK["a"]}
    net.lead("s", 2)
    assert net.done.keys() == {"a", "b"}


def test_query_refused_for_now_is_asked_again() -> None:
    net = Net("p").start()
    net.replicas["p"].query_refusals = [50]
    net.query("a", "b")
    assert net.done == {}
    net.advance(0.2)
    assert net.done.keys() == {"a", "b"}


def test_query_without_an_answer_is_asked_the_successor() -> None:
    net = Net("p", "s").start()
    net.replicas["p"].dropping = True
    net.query("a")
    net.kill("p")
    net.lead("s", 2)
    net.advance(0.5)
    assert net.done == {"a": OK["a"]}


def test_query_answered_with_not_primary_is_asked_somebody_else() -> None:
    net = Net("p", "s").start()
    net.shard.run = lambda _: error_reply("DL1001", "NotPrimary", "no")
    net.replicas["s"].become("primary", 2, "s")
    net.query("a")
    assert net.done == {}
    net.shard.run = lambda _: OK["a"]
    net.advance(1.0)
    assert net.done == {"a": OK["a"]}
    assert net.machine.connected == "s"


def test_error_of_a_query_reaches_the_caller() -> None:
    net = Net("p").start()
    net.shard.run = lambda _: error_reply("DL3004", "UnknownHandler", "no such query")
    net.query("a")
    assert net.done["a"][0] == 1


def test_silent_standby_that_owes_a_stale_answer_is_left() -> None:
    net = Net("p", "s", "t")
    net.kill("p")
    net.start()
    net.advance(0.1)
    first = net.machine.connected
    net.replicas[first].freeze()
    net.query("a", stale=True)
    net.advance(WATCH_S + GREET_S * 2)
    assert net.done == {"a": OK["a"]}


# ---- end -------------------------------------------------------------------------------------------------------


def test_close_acknowledges_hangs_up_and_says_what_is_known() -> None:
    net = Net("p").start()
    net.call("a")
    net.replicas["p"].muted = True
    net.replicas["p"].refusals = [("DL1003", 60_000)]
    net.call("b")
    net.call("c")
    net.query("q")
    net.tell(CloseRequested())
    assert net.replicas["p"].acks[-1] == 1
    assert net.links == {}
    assert {waiter: code for waiter, (code, _) in net.failed.items()} == {"b": "DL1006", "c": "DL5001"}
    assert state(net) is State.CLOSED
    assert net.machine.deadline is None


def test_closed_client_refuses_and_does_nothing() -> None:
    machine = machine_()
    machine.handle(CloseRequested(), 0.0)
    failed = machine.handle(CallsSubmitted(messages=[b""], waiters=["w"]), 0.0)
    assert failed == [FailCalls(waiters=["w"], code="DL5001", text="the client is closed")]
    assert machine.handle(QueriesSubmitted(messages=[b""], waiters=["w"], stale=True), 0.0) != []
    assert machine.handle(TimerFired(), 1.0) == []


def test_close_while_a_replica_is_dialed_ends_the_attempt() -> None:
    net = Net("p")
    net.cut.add("p")
    net.start()
    net.call("a")
    net.tell(CloseRequested())
    assert net.failed["a"][0] == "DL5001"


def test_call_that_was_never_sent_can_be_withdrawn() -> None:
    net = Net("p")
    net.down.add("p")
    net.call("a")
    net.query("b")
    assert net.machine.withdraw("a")
    assert net.machine.withdraw("b")
    assert not net.machine.withdraw("c")
    net.down.clear()
    net.advance(1.0)
    assert state(net) is State.READY
    assert net.texts() == []


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
