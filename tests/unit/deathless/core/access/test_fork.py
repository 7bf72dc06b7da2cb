"""Forked services know each other by who they are now, in the sessions of before, and everybody else as before."""

from __future__ import annotations

from deathless.codec.snapshot import PeerRecord
from deathless.core.access.fork import ForkedService, peers_in_fork

STOCK = ForkedService(b"s" * 16, 7, b"S" * 16, 70)


def test_peers_of_the_fork_are_the_forked_ones_and_keep_their_sessions() -> None:
    mail = PeerRecord("mail", 0, b"m" * 16, 3, 12)
    stock = PeerRecord("stock", 0, STOCK.service_id, STOCK.incarnation, 34)
    assert peers_in_fork([mail, stock], {"stock": STOCK}) == [mail, PeerRecord("stock", 0, b"S" * 16, 70, 34)]


def test_one_that_was_created_anew_and_not_adopted_stays_refused() -> None:
    former = PeerRecord("stock", 0, STOCK.service_id, STOCK.incarnation - 1, 34)
    assert peers_in_fork([former], {"stock": STOCK}) == [former]
