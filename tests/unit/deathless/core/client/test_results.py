"""Results that a client waits for: asked of each primary anew, handed out once, never of another incarnation."""

from __future__ import annotations

from client_net import Net

from deathless.base.errors import Closed, OutcomeUnknown, SessionExpired
from deathless.codec.wire import Type, ok_reply
from deathless.core.client.events import CloseRequested, ResultsWanted
from deathless.core.client.link import PING_S, RESEND_MAX_S, RESEND_S, RESULTS_PATIENCE_S
from deathless.core.client.results import ResultWindow

DONE = ok_reply(b"\xc0")


def test_results_are_asked_for_once_until_in_doubt() -> None:
    window: ResultWindow[str] = ResultWindow()
    window.submit([30, 31, 30], ["a", "b", "c"])
    assert (len(window), window.in_flight) == (3, 0)
    assert window.take(2) == ([1, 2], [30, 31])
    assert window.take(2) == ([3], [30])
    assert window.take(2) is None
    assert window.in_flight == 3
    assert window.accept([2, 9, 2], [DONE, DONE, DONE]) == (["b"], [DONE])
    window.rewind()
    assert window.take(9) == ([1, 3], [30, 30])


def test_an_answer_that_comes_before_it_is_asked_again_counts() -> None:
    window: ResultWindow[str] = ResultWindow()
    window.submit([30], ["a"])
    window.take(1)
    window.rewind()
    assert window.accept([1], [DONE]) == (["a"], [DONE])
    assert window.take(1) is None
    assert not window._id_of, "who was answered is not kept"
    assert not window.withdraw("a")


def test_one_who_does_not_wait_any_more_is_forgotten() -> None:
    window: ResultWindow[str] = ResultWindow()
    window.submit([30, 31], ["a", "b"])
    assert [window.invocation_of(waiter) for waiter in ("a", "b", "c")] == [30, 31, 0]
    assert window.withdraw("b")
    assert window.invocation_of("b") == 0
    assert not window.withdraw("b")
    assert window.take(9) == ([1], [30])
    assert window.clear() == ["a"]
    assert (len(window), window.in_flight) == (0, 0)


def asked(net: Net, name: str) -> list[int]:
    """The invocations that a replica was asked for."""
    return [invocation for _, _, invocation in net.replicas[name].attached]


def test_a_result_is_asked_of_the_primary_and_handed_out() -> None:
    net = Net("p").start()
    net.tell(ResultsWanted(invocations=[30, 31], waiters=["a", "b"]))
    assert asked(net, "p") == [30, 31]
    net.replicas["p"].finish(31, DONE)
    assert net.done == {"b": DONE}
    net.replicas["p"].finish(30, DONE)
    net.advance(1.0)
    assert net.done == {"b": DONE, "a": DONE}
    assert net.machine.deadline is None


def test_a_result_is_asked_of_the_next_primary_too() -> None:
    net = Net("p", "s").start()
    net.tell(ResultsWanted(invocations=[30], waiters=["a"]))
    net.lead("s", 2)
    net.advance(0.5)
    assert asked(net, "s") == [30]
    net.replicas["s"].finish(30, DONE)
    assert net.done == {"a": DONE}


def test_a_result_is_asked_for_again_where_nothing_comes_of_it() -> None:
    net = Net("p").start()
    net.tell(ResultsWanted(invocations=[30], waiters=["a"]))
    net.advance(RESEND_MAX_S * 0.9)
    assert len(asked(net, "p")) == 1, "a hundred thousand may be waited for"
    net.advance(RESEND_MAX_S * 0.2)
    assert len(asked(net, "p")) == 2
    net.replicas["p"].finish(30, DONE)
    assert net.done == {"a": DONE}


def test_who_waits_for_results_alone_pings_seldom() -> None:
    net = Net("p").start()
    net.advance(1.0)
    net.tell(ResultsWanted(invocations=[30], waiters=["a"]))
    before = net.replicas["p"].packets.count(Type.PING)
    net.advance(10.0)
    assert 10 <= net.replicas["p"].packets.count(Type.PING) - before <= 10.0 / RESULTS_PATIENCE_S


def test_a_call_beside_results_finds_a_primary_that_was_rightly_silent_until_then() -> None:
    net = Net("p", "s").start()
    net.advance(1.0)
    net.tell(ResultsWanted(invocations=[30], waiters=["a"]))
    net.advance(RESULTS_PATIENCE_S)
    net.replicas["p"].freeze()
    dialed = len(net.dialed)
    net.call("x")
    net.advance(PING_S * 0.9)
    assert len(net.dialed) == dialed, "suspected before it had the time to answer"
    net.replicas["p"].thaw()
    net.advance(0.0)
    assert set(net.done) == {"x"}


def test_a_call_beside_results_is_sent_again_as_soon_as_any() -> None:
    net = Net("p").start()
    net.tell(ResultsWanted(invocations=[30], waiters=["a"]))
    net.advance(1.0)
    net.replicas["p"].dropping = True
    net.call("x")
    net.replicas["p"].dropping = False
    net.advance(RESEND_S * 1.1)
    assert set(net.done) == {"x"}


def test_a_frozen_primary_is_left_by_who_waits_for_results_alone() -> None:
    net = Net("p", "s").start()
    net.tell(ResultsWanted(invocations=[30], waiters=["a"]))
    net.replicas["p"].freeze()
    net.lead("s", 2)
    net.advance(2.0)
    assert asked(net, "s") == [30]


def test_a_result_of_another_incarnation_is_never_handed_out() -> None:
    net = Net("p").start()
    net.tell(ResultsWanted(invocations=[30], waiters=["a"]))
    net.kill("p")
    net.shard.incarnation += 1
    net.replicas["p"].become("primary", 1, "p")
    net.machine.epoch = 9  # its epochs begin anew too
    net.down.clear()
    net.advance(0.5)
    assert net.failed["a"][0] == SessionExpired.code


def test_a_result_that_is_not_waited_for_any_more_is_let_go() -> None:
    net = Net("p").start()
    net.tell(ResultsWanted(invocations=[30], waiters=["a"]))
    assert not net.machine.withdraw("a")
    net.replicas["p"].finish(30, DONE)
    assert not net.done


def test_a_client_that_ends_says_that_it_does_not_know_the_result() -> None:
    net = Net("p").start()
    net.tell(ResultsWanted(invocations=[30], waiters=["a"]))
    net.tell(CloseRequested())
    assert net.failed["a"][0] == OutcomeUnknown.code


def test_a_client_that_has_ended_asks_for_no_result() -> None:
    net = Net("p").start()
    net.tell(CloseRequested())
    net.tell(ResultsWanted(invocations=[30], waiters=["a"]))
    assert net.failed["a"][0] == Closed.code
