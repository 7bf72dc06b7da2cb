"""The simulated spool: it keeps what it takes, and takes nothing now and then."""

from __future__ import annotations

from random import Random

from deathless.simulation.world.spool import SimSpool


def test_pieces_read_back_and_some_are_refused_as_the_seed_says() -> None:
    def taken(seed: int) -> list[bool]:
        spool = SimSpool(Random(seed))
        pieces = [spool.append(b"%d" % number) for number in range(200)]
        assert all(piece is None or piece.read() == b"%d" % number for number, piece in enumerate(pieces))
        return [piece is not None for piece in pieces]

    assert taken(1) == taken(1)
    assert 0 < taken(1).count(False) < 60
