"""The client's machine against fake replicas: finds the primary, loses nothing, says what it does not know."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from client_net import Net, message
from hypothesis import given
from hypothesis import strategies as st
from replica_fake import FakeShard

from deathless.codec.wire import (
    BatchRefused,
    Registered,
    ReplyError,
    Role,
    Type,
    Welcome,
    encode_queries,
    encode_replies,
    error_reply,
    ok_reply,
    packet,
    struct_packet,
)
from deathless.core.client import ClientMachine
from deathless.core.client_events import (
    AddressesFound,
    BytesReceived,
    CallsSubmitted,
    CloseRequested,
    CompleteCalls,
    Dial,
    FailCalls,
    LinkId,
    LinkLost,
    LinkOpened,
    QueriesSubmitted,
    Send,
    TimerFired,
)
from deathless.core.client_link import (
    ACK_S,
    BACKOFF_MAX_S,
    GREET_S,
    PING_S,
    RESEND_S,
    SUSPECT_S,
    WATCH_S,
    State,
)

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
    assert sends(machine.handle(TimerFired(), deadline)) == packet(Type.REGISTER, bytes(16))


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
    assert net.done.keys() == {"a", "b", "c", "d"}


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


# ---- small cases by hand ---------------------------------------------------------------------------------------


def machine_() -> ClientMachine[str]:
    return ClientMachine(service="bank", name="c", jitter=lambda: 0.0, nonce=lambda: bytes(16))


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


def test_events_of_links_that_are_gone_change_nothing() -> None:
    machine, _ = greeted()
    for event in (
        LinkOpened(link=LinkId(99)),
        LinkLost(link=LinkId(99), reason=""),
        BytesReceived(link=LinkId(99), data=b"x"),
    ):
        assert machine.handle(event, 0.0) == []
    machine.check_invariants()


def test_link_that_opens_twice_greets_once() -> None:
    machine, link = greeted()
    assert machine.handle(LinkOpened(link=link), 0.0) == []


def test_same_role_told_again_does_not_send_everything_again() -> None:
    machine, link = greeted()
    machine.handle(BytesReceived(link=link, data=struct_packet(Type.REGISTERED, Registered(bytes(16), 9))), 0.0)
    machine.handle(CallsSubmitted(messages=[message("a")], waiters=["a"]), 0.0)
    role = struct_packet(Type.ROLE, Role("primary", 1, "p"))
    assert machine.handle(BytesReceived(link=link, data=role), 0.0) == []


def test_registration_of_another_nonce_is_not_ours() -> None:
    machine, link = greeted()
    machine.handle(BytesReceived(link=link, data=struct_packet(Type.REGISTERED, Registered(b"x" * 16, 9))), 0.0)
    assert machine.session == 0


def test_refusal_of_another_session_is_not_ours() -> None:
    machine, link = greeted()
    refused = struct_packet(Type.BATCH_REFUSED, BatchRefused(77, 1, "DL3009", "", -1))
    assert machine.handle(BytesReceived(link=link, data=refused), 0.0) == []


def test_calls_and_packets_of_an_unknown_type_are_passed_over() -> None:
    machine, link = greeted()
    assert machine.handle(BytesReceived(link=link, data=packet(200, b"new")), 0.0) == []
    assert machine.handle(CallsSubmitted(messages=[], waiters=[]), 0.0) == []


def test_standby_at_hand_told_of_a_primary_twice_dials_it_once() -> None:
    machine, link = greeted("standby", 1)
    role = struct_packet(Type.ROLE, Role("standby", 2, "z"))
    dials = [e for e in machine.handle(BytesReceived(link=link, data=role + role), 0.0) if isinstance(e, Dial)]
    assert [dial.address for dial in dials] == ["z"]


def test_answers_and_replies_of_a_probe_wait_until_it_leads() -> None:
    net = Net("p", "s").start()
    net.replicas["p"].freeze()
    net.call("a")
    net.advance(SUSPECT_S + 0.01)
    probe = next(link for link, name in net.links.items() if name == "s")
    net.tell(BytesReceived(link=probe, data=encode_queries([1], [OK["a"]], stale=False, answers=True)))
    net.tell(BytesReceived(link=probe, data=encode_replies(100, [1], [OK["a"]])))
    assert net.done == {}


def test_hint_to_the_replica_being_dialed_keeps_that_attempt() -> None:
    machine, link = greeted("standby", 1)
    address = "s"  # the other candidate, dialed at once
    role = struct_packet(Type.ROLE, Role("standby", 2, address))
    effects = machine.handle(BytesReceived(link=link, data=role), 0.0)
    assert not any(isinstance(effect, Dial) for effect in effects)


def test_unreadable_error_in_an_answer_ends_the_connection() -> None:
    machine, link = greeted()
    machine.handle(QueriesSubmitted(messages=[b"q"], waiters=["q"], stale=False), 0.0)
    data = encode_queries([1], [b"\x01junk"], stale=False, answers=True)
    machine.handle(BytesReceived(link=link, data=data), 0.0)
    assert ReplyError.__name__ in machine.last_problem


def test_equal_histories_give_equal_effects() -> None:
    def run() -> list[str]:
        net = Net("p", "s", "t", jitter=random.Random(3).random)
        net.start()
        net.call("a", "b")
        net.replicas["p"].freeze()
        net.call("c")
        net.advance(1.0)
        net.kill("p")
        net.lead("t", 2)
        net.advance(1.0)
        assert net.done.keys() == {"a", "b", "c"}
        return net.trace

    assert run() == run()


def test_completion_is_per_batch_not_per_call() -> None:
    machine, link = greeted()
    machine.handle(BytesReceived(link=link, data=struct_packet(Type.REGISTERED, Registered(bytes(16), 9))), 0.0)
    machine.handle(CallsSubmitted(messages=[b"m"] * 3, waiters=["a", "b", "c"]), 0.0)
    replies = encode_replies(9, [1, 2, 3], [b"\0"] * 3)
    effects = machine.handle(BytesReceived(link=link, data=replies), 0.0)
    assert effects == [CompleteCalls(waiters=["a", "b", "c"], replies=[b"\0"] * 3)]


# ---- everything at random --------------------------------------------------------------------------------------


class Chaos:
    """Takeovers, freezes, cuts, refusals and lost connections, then peace."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.net = Net("r0", "r1", "r2", jitter=self.chance.random)
        self.epoch = 1
        self.calls = 0
        self.leader = "r0"

    def step(self) -> None:
        net, chance = self.net, self.chance
        name = chance.choice(list(net.replicas))
        replica = net.replicas[name]
        action = chance.randrange(12)
        if action <= 4:
            texts = [f"{self.calls + i}" for i in range(chance.randint(1, 6))]
            self.calls += len(texts)
            net.call(*texts)
        elif action == 5:
            net.query(f"q{self.calls}", stale=chance.random() < 0.5)
            self.calls += 1
        elif action == 6:
            net.kill(name)
        elif action == 7:
            net.down.discard(name)
        elif action == 8:
            replica.freeze() if replica.held is None else replica.thaw()
        elif action == 9:
            net.replicas[self.leader].refusals = [(chance.choice(["DL1002", "DL1003"]), chance.randint(0, 300))]
        elif action == 10:
            replica.muted, replica.dropping = chance.random() < 0.5, chance.random() < 0.3
        else:
            self.take_over()
        net.advance(chance.random() * chance.choice([0.01, 0.2, 1.0]))

    def take_over(self) -> None:
        up = [n for n, r in self.net.replicas.items() if n not in self.net.down and r.held is None]
        if up:
            self.leader = self.chance.choice(up)
            self.epoch += 1
            # A frozen or dead predecessor is deposed: what it still holds never reaches the log (I2).
            old = [r for n, r in self.net.replicas.items() if r.role == "primary" and n != self.leader]
            for replica in old:
                replica.role = "standby"
            self.net.lead(self.leader, self.epoch)

    def heal(self) -> None:
        net = self.net
        net.down.clear()
        for replica in net.replicas.values():
            replica.muted = replica.dropping = False
            replica.refusals.clear()
            if replica.held is not None:
                replica.thaw()
        self.take_over()
        net.advance(60.0)


@given(st.integers(0, 2**32))
def test_after_any_faults_every_call_is_applied_once_in_order_and_answered(seed: int) -> None:
    chaos = Chaos(seed)
    chaos.net.start()
    for _ in range(60):
        chaos.step()
    chaos.heal()
    net = chaos.net
    assert net.failed == {}
    assert sorted(net.done) == sorted({*net.texts(), *(name for name in net.done if name.startswith("q"))})
    assert net.texts() == sorted(set(net.texts()), key=int), "once each, in the order of submission"
    assert len(net.done) == chaos.calls or all(name in net.done for name in net.texts())
    assert net.machine.window.in_flight == 0
    assert net.machine.window.queued == 0
    assert len(net.machine.queries) == 0


def test_close_acknowledges_replies_that_nothing_else_acknowledged() -> None:
    net = Net("p").start()
    net.call("a")
    net.tell(CloseRequested())
    assert net.replicas["p"].acks == [0, 1]
