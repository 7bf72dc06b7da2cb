"""When too much is suspended (I10)."""

from __future__ import annotations

import pytest
from tests.unit.deathless.core.messaging_world import B_AS_PEER, OTHER_PEER, PEER, Place
from tests.unit.deathless.core.primary_world import batch

from deathless.base.errors import Overloaded
from deathless.base.limits import Limits
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import Crowd
from deathless.core.primary.admission import HELD_RETRY_MS
from deathless.core.primary.overload import crowded

LIMITS = Limits(waiting_messages_max=3, invocations_max=10, suspended_bytes_max=100)


@pytest.mark.parametrize(
    ("crowd", "twice", "limit"),
    [
        (Crowd(3, 3, 0), Crowd(6, 6, 0), "waiting_messages_max"),
        (Crowd(13, 0, 0), Crowd(26, 0, 0), "invocations_max"),
        (Crowd(1, 1, 100), Crowd(1, 1, 200), "suspended_bytes_max"),
    ],
)
def test_i10_each_maximum_is_named_where_it_is_reached(crowd: Crowd, twice: Crowd, limit: str) -> None:
    assert f"limits.{limit}" in crowded(crowd, LIMITS)
    assert crowded(crowd, LIMITS, 2) == ""
    assert f"limits.{limit}" in crowded(twice, LIMITS, 2)
    assert crowded(Crowd(*(max(0, each - 1) for each in crowd)), LIMITS) == ""


CROWDED = Limits(
    clock_step_us=1 << 62, waiting_messages_max=10, invocations_max=20, key_queue_max=5, suspended_bytes_max=4 << 20
)


@pytest.mark.parametrize("crowd", [Crowd(10, 10, 0), Crowd(30, 9, 0), Crowd(1, 1, 4 << 20)])
def test_i10_forks_of_a_peer_are_held_back_where_too_much_is_suspended_and_nothing_is_lost(crowd: Crowd) -> None:
    place = Place(CROWDED)
    session = place.introduce()
    other = place.introduce(B_AS_PEER, OTHER_PEER)
    place.script.suspended_here = crowd
    answer, forked = encode(Kind.RESPONSE, args=b"1"), encode(Kind.FORK, args=b"2")
    place.do(place.primary.batches_received([(PEER, batch(session, 1, [answer, forked, answer]))]))
    place.drained()
    place.settle()
    [refused] = place.refusals()
    assert (refused.code, refused.first_seq, refused.retry_after_ms) == (Overloaded.code, 2, HELD_RETRY_MS)
    assert place.commits() == [1]
    assert place.primary.admission.held_back.why(session) == refused.text
    place.peer_sends(session, 2, b"2")
    assert [each.first_seq for each in place.refusals()] == [2, 2]
    place.peer_sends(other, 1, b"x", conn=OTHER_PEER, kind=Kind.RESPONSE)
    place.send(place.session, 1, b"completes a promise")
    place.settle()
    assert (place.commits(OTHER_PEER), len(place.replies(place.session))) == ([1], 1)
    assert place.primary.admission.held_back.why(other) == ""
    place.script.suspended_here = Crowd(9, 9, 0)
    assert place.primary.admission.held_back.why(session) == ""
    place.peer_sends(session, 2, b"2", b"3")
    place.settle()
    assert place.commits()[-1] == 3
    assert [text for _, text in place.script.got if text in b"123"] == [b"1", b"2", b"3"]


def test_i10_clients_are_not_admitted_at_twice_the_maximum_which_forks_to_ourselves_can_reach() -> None:
    place = Place(CROWDED)
    place.script.suspended_here = Crowd(20, 20, 0)
    place.send(place.session, 1, b"more")
    assert [refused.code for refused in place.refusals()] == [Overloaded.code]
    place.script.suspended_here = Crowd(19, 19, 0)
    place.send(place.session, 1, b"more")
    place.settle()
    assert [seq for seq, _ in place.replies(place.session)] == [1]
