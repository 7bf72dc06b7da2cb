"""Results that a frame gave which ran and is not known to be synced yet: told to nobody before its proof (I1)."""

from __future__ import annotations

from tests.unit.deathless.core.messaging_world import Place

from deathless.codec.peer_messages import Outputs
from deathless.codec.wire import Type, decode_results, ok_reply
from deathless.core import events as ev

WAITER = ev.Conn(51)


def told(place: Place) -> list[tuple[int, bytes]]:
    found: list[tuple[int, bytes]] = []
    for conn, kind, body in place.sent:
        if (conn, kind) == (WAITER, Type.RESULTS):
            found += zip(*decode_results(body), strict=True)
    return found


def test_i1_a_result_of_the_frame_on_its_way_waits_for_its_proof() -> None:
    place = Place()
    place.script.held = {7}
    place.script.give = Outputs([], [(7, ok_reply(b"\x2a"))], [], [], [])
    place.send(place.session, 1, b"x")
    place.drained()
    frame = place.run_frame()
    place.script.held = set()
    assert place.shard.results.get(7) == ok_reply(b"\x2a")
    place.tell(ev.AttachReceived(WAITER, [1], [7]))
    assert told(place) == [], "no proof covers it"
    place.written(*frame)
    assert told(place) == []
    place.settle()
    assert told(place) == [(1, ok_reply(b"\x2a"))]
