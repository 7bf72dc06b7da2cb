"""Queries of a primary: no answer leaves before what it saw can't vanish any more (I1), and they are bounded (I10)."""

from __future__ import annotations

from dataclasses import replace

from tests.unit.deathless.core.primary_world import SMALL, World

from deathless.base.errors import Overloaded
from deathless.base.safeguards import Safeguards
from deathless.core import effects as fx


def test_i1_query_is_answered_only_with_a_proof_begun_after_it_arrived() -> None:
    world = World()
    world.query(7)
    assert world.answers() == []
    world.drained()
    world.prove()
    assert world.answers() == [7]


def test_i1_query_that_comes_during_a_proof_waits_for_the_next_one() -> None:
    world = World()
    world.query(1)
    world.drained()
    world.query(2)
    world.prove()
    assert world.answers() == [1]
    world.prove()
    assert world.answers() == [1, 2]


def test_i1_one_proof_serves_all_queries_that_waited_when_it_began() -> None:
    world = World()
    world.query(1, 2)
    world.query(3, conn=2)
    world.drained()
    assert world.owes(fx.Prove) == 1
    world.prove()
    assert world.answers() == [1, 2, 3]


def test_i1_query_that_saw_an_unsynced_frame_waits_until_that_is_proved() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.drained()
    world.do(world.primary.queries_received(1, False, [5], [b"q"]))  # type: ignore[arg-type]  # a Conn
    run = world.take(fx.RunFrame)
    world.todo.append(run)
    world.place.lsn += 1  # the frame has run, its sync has not returned
    world.answer_queries()
    world.place.lsn -= 1
    assert world.owes(fx.Prove) == 0
    world.settle()
    assert world.answers() == [5]


def test_i2_queries_of_a_deposed_primary_are_never_answered() -> None:
    world = World()
    world.query(1)
    world.drained()
    world.prove(owned=False)
    assert world.answers() == []
    world.query(2)
    world.drained()
    assert world.owes(fx.Prove) == 0


def test_without_proof_for_query_a_deposed_primary_answers_with_an_old_state() -> None:
    world = World(safeguards=Safeguards(proof_for_query=False))
    world.query(1)
    assert world.answers() == [1]  # though its successor may have served for hours


def test_stale_query_is_answered_at_once_when_all_it_saw_is_confirmed() -> None:
    world = World()
    world.query(1, stale=True)
    assert world.answers() == [1]


def test_i1_stale_query_waits_until_all_it_saw_is_confirmed() -> None:
    world = World()
    session = world.register()
    world.send(session, 1, b"a")
    world.drained()
    world.sync()
    world.query(1, stale=True)
    assert world.answers() == []
    world.send(session, 2, b"b")
    world.drained()
    world.sync()
    world.query(2, stale=True)
    world.prove()
    assert world.answers() == [1]
    world.prove()
    assert world.answers() == [1, 2]


def test_i10_pending_queries_max_refuses_and_frees_its_room_with_the_answers() -> None:
    world = World(replace(SMALL, pending_queries_max=2))
    world.query(1, 2)
    world.query(3)
    (refused,) = world.refusals()
    assert (refused.session, refused.first_seq, refused.code) == (0, 3, Overloaded.code)
    world.settle()
    world.query(3)
    world.settle()
    assert world.answers() == [1, 2, 3]
    assert (world.primary.counters.queries, world.primary.counters.refused) == (3, 1)


def test_packet_without_queries_is_nothing() -> None:
    world = World(replace(SMALL, pending_queries_max=1))
    world.query(1)
    world.query()
    assert world.refusals() == []


def test_query_whose_answer_comes_after_the_buffers_were_drained_asks_for_its_proof_itself() -> None:
    world = World()
    for number in (1, 2):
        world.do(world.primary.queries_received(1, False, [number], [b"q"]))  # type: ignore[arg-type]  # a Conn
    world.drained()
    world.answer_queries()
    assert world.owes(fx.Prove) == 0
    world.answer_queries()
    assert world.owes(fx.Prove) == 1
