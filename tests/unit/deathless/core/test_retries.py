"""An operator's order to run a parked message: logged, and answered with what became of it once that is confirmed."""

from __future__ import annotations

import msgspec
from tests.unit.deathless.core.messaging_world import TOOL, Place

from deathless.base.errors import NotParked, NotPrimary
from deathless.codec.messages import Kind
from deathless.codec.peer_messages import RETRY, Order
from deathless.codec.snapshot import ParkedRecord
from deathless.codec.wire import AdminReply, Type, decode_struct
from deathless.core import events as ev
from deathless.core.primary.messaging import Tables

PARKED = 40


def place() -> Place:
    """A primary whose shard holds one parked message."""
    found = Place()
    found.shard.parked = [ParkedRecord(PARKED, 9, 1, b"poison")]
    return found


def order(place: Place, request: int = 1, parked: int = PARKED) -> None:
    place.tell(ev.OrderReceived(TOOL, request, Order(RETRY, parked)))


def answers(place: Place) -> list[tuple[int, str, dict[str, object]]]:
    replies = [
        decode_struct(AdminReply, body) for conn, kind, body in place.sent if (conn, kind) == (TOOL, Type.ADMIN_REPLY)
    ]
    return [(each.id, each.code, msgspec.json.decode(each.result)) for each in replies]


def test_it_is_answered_with_the_new_invocation_once_that_is_confirmed() -> None:
    world = place()
    order(world)
    assert world.records() == [Kind.ORDER]
    world.sync()
    lsn = world.place.lsn
    assert answers(world) == []
    world.prove()
    assert answers(world) == [(1, "", {"done": True, "invocation": lsn})]
    assert b"retry" in world.script.ran


def test_what_is_not_parked_is_answered_so() -> None:
    world = place()
    order(world, parked=41)
    world.settle()
    ((_, code, told),) = answers(world)
    assert code == NotParked.code
    assert "41" in str(told["error"])
    assert b"retry" not in world.script.ran


def test_a_second_order_for_it_is_refused_before_and_after_the_first_is_confirmed() -> None:
    world = place()
    order(world)
    order(world, 2)
    assert [(number, code) for number, code, _ in answers(world)] == [(2, NotParked.code)]
    world.settle()
    order(world, 3)
    world.settle()
    assert [(number, code) for number, code, _ in answers(world)] == [(2, NotParked.code), (1, ""), (3, NotParked.code)]
    assert world.script.ran.count(b"retry") == 1


def test_a_primary_that_lets_go_takes_no_order() -> None:
    world = place()
    world.do(world.primary.stop_ordered(world.now, world.wall_us))
    order(world)
    assert [code for _, code, _ in answers(world)] == [NotPrimary.code]


def test_without_a_shard_nothing_is_parked() -> None:
    told = Tables().retried(PARKED)
    assert told.invocation == 0
    assert told.reason
