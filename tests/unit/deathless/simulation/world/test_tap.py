"""What peers are told on the wire: a complaint is answered, and moves no sender's place."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from deathless.codec.peer_messages import PeerHello
from deathless.codec.wire import PeerIntroduction, PeerWelcome, Type, encode_peer_commit, struct_packet
from deathless.simulation.checkers.peers import check_told
from deathless.simulation.world.tap import Tap

HELLO = PeerHello("bee", 0, bytes(16), 1)


class Wire:
    """A connection that a replica accepted."""

    def __init__(self, tap: Tap, number: int) -> None:
        self._tap = tap
        replica = SimpleNamespace(name="r0")
        self.near: Any = SimpleNamespace(name=f"r0<bee#{number}", owner=replica, ends=1)
        self.far: Any = SimpleNamespace(name=f"bee>r0#{number}", owner=None, peer=self.near)

    def introduce(self, complaint: str = "") -> None:
        """The peer says who it is, and is told from where to send."""
        said = PeerIntroduction(HELLO, 1, 14, b"", complaint)
        self._tap(self.far, struct_packet(Type.PEER_HELLO, said))
        self._tap(self.near, struct_packet(Type.PEER_WELCOME, PeerWelcome(5, 6, b"")))

    def commit(self) -> None:
        """The peer is told what was taken in."""
        self._tap(self.near, encode_peer_commit(5, 9))


def told(*, complaint: str) -> int:
    """How often what is taken in is told where it must not be, once somebody came after the true one."""
    tap = Tap(SimpleNamespace(now_us=1, note=lambda *_: None), ("r0",))  # type: ignore[arg-type]  # all that it asks
    true, later = Wire(tap, 1), Wire(tap, 2)
    true.introduce()
    later.introduce(complaint)
    true.commit()
    return len(check_told(tap.told))


def test_who_complains_takes_nobodys_place_and_who_does_not_takes_it() -> None:
    assert told(complaint="you ask for message 6, and confirmed all up to 13") == 0
    assert told(complaint="") == 1
