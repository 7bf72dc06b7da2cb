"""Ids cost nothing at run time: they are what they are made of."""

from __future__ import annotations

from deathless.base.ids import ChainHash, Epoch, Lsn


def test_ids_are_plain_values() -> None:
    assert (type(Epoch(1)), type(Lsn(2)), type(ChainHash(bytes(16)))) == (int, int, bytes)
