"""Process and connections of an application: which ends first, and what is done then."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from deathless.protocols.ambrosia.events import Socket
from deathless.protocols.ambrosia.life import (
    Cause,
    Connected,
    Disconnected,
    Drain,
    DrainOver,
    EndOrdered,
    Finish,
    KillGroup,
    Life,
    LifeEffect,
    LifeEvent,
    Open,
    Phase,
    ProcessEnded,
    Refuse,
)

RECEIVE, SEND = Socket.RECEIVE, Socket.SEND


def connected() -> Life:
    life = Life()
    accepted = [life.accepts]
    for socket in (RECEIVE, SEND):
        assert life.handle(Connected(socket)) == [Open(socket)]
        accepted.append(life.accepts)
    assert accepted == [RECEIVE, SEND, None]
    return life


def test_a_connection_of_another_user_is_refused_and_the_port_stays_open() -> None:
    life = Life()
    assert life.handle(Connected(RECEIVE, ours=False)) == [Refuse()]
    assert (life.phase, life.accepts) == (Phase.LISTENING, RECEIVE)
    assert life.handle(Connected(RECEIVE)) == [Open(RECEIVE)]


def test_a_process_that_ends_is_read_to_its_end_behind_the_kill() -> None:
    life = connected()
    assert life.handle(ProcessEnded()) == [KillGroup(), Drain()]
    assert life.handle(Disconnected(SEND)) == []
    assert life.handle(Disconnected(RECEIVE)) == [Finish(Cause.EXITED)]
    assert life.process_ended


def test_what_a_forked_child_keeps_open_is_read_for_so_long_and_no_longer() -> None:
    life = connected()
    life.handle(ProcessEnded())
    assert life.handle(DrainOver()) == [Finish(Cause.EXITED)]


def test_a_connection_that_ends_ends_the_process() -> None:
    life = connected()
    assert life.handle(Disconnected(SEND)) == [KillGroup(), Drain()]
    assert life.handle(ProcessEnded()) == []
    assert life.handle(Disconnected(RECEIVE)) == [Finish(Cause.DISCONNECTED)]
    assert connected().handle(Disconnected(RECEIVE)) == [KillGroup(), Finish(Cause.DISCONNECTED)]


def test_nothing_more_is_read_of_one_that_was_ended_on_purpose() -> None:
    for cause in (Cause.WRONG, Cause.STILL, Cause.STOPPED):
        assert connected().handle(EndOrdered(cause)) == [KillGroup(), Finish(cause)]
    assert Life().handle(EndOrdered(Cause.NOT_CONNECTED)) == [KillGroup(), Finish(Cause.NOT_CONNECTED)]


def test_an_order_to_end_cuts_the_reading_of_the_rest_short() -> None:
    life = connected()
    life.handle(ProcessEnded())
    assert life.handle(EndOrdered(Cause.WRONG)) == [Finish(Cause.EXITED)]


def test_a_process_that_never_connected_leaves_nothing_to_be_read() -> None:
    assert Life().handle(ProcessEnded()) == [KillGroup(), Finish(Cause.EXITED)]


def test_who_connects_while_it_dies_is_refused() -> None:
    life = Life()
    life.handle(Connected(RECEIVE))
    life.handle(ProcessEnded())
    assert life.handle(Connected(SEND)) == [Refuse()]


EVENTS: list[LifeEvent] = [
    Connected(RECEIVE),
    Connected(SEND),
    Connected(RECEIVE, ours=False),
    Disconnected(RECEIVE),
    Disconnected(SEND),
    ProcessEnded(),
    EndOrdered(Cause.WRONG),
    EndOrdered(Cause.STOPPED),
    DrainOver(),
]


@given(st.lists(st.sampled_from(EVENTS), max_size=12))
def test_whatever_happens_it_is_killed_once_and_finished_once_and_in_this_order(events: list[LifeEvent]) -> None:
    life = Life()
    effects: list[LifeEffect] = []
    for event in events:
        if isinstance(event, Connected) and life.accepts not in {None, event.socket}:
            continue
        if isinstance(event, Connected) and life.phase is Phase.CONNECTED:
            continue
        effects += life.handle(event)
    kinds = [type(effect) for effect in effects]
    assert kinds.count(KillGroup) == (life.phase in {Phase.DYING, Phase.OVER})
    assert kinds.count(Finish) == (life.phase is Phase.OVER)
    if Finish in kinds:
        assert kinds.index(KillGroup) < kinds.index(Finish)
        assert kinds.index(Finish) == len(kinds) - 1 or set(kinds[kinds.index(Finish) + 1 :]) == {Refuse}
