"""More peers than there is room for introduce themselves before the first record is logged (I10)."""

from __future__ import annotations

from tests.unit.deathless.core.primary.test_receiving import Door

from deathless.codec.peer_messages import PeerHello
from deathless.core.events import Conn


def test_i10_no_more_records_wait_than_there_may_be_peers() -> None:
    door = Door(peers_max=2)
    hellos = [PeerHello(f"a{number}", 0, bytes(16), 1) for number in range(3)]
    assert door.hello(Conn(1), hellos[0]) == []
    assert door.hello(Conn(1), hellos[1]) == []
    assert door.hello(Conn(1), hellos[2]) == ["1 refused DL1002"]
    assert len(door.records.take(10, 1000)) == 2
    assert len(door.peering._epochs) == 2
