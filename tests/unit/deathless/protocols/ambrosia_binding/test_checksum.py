"""The binding's xxHash64; more stands in the tests of the coordinator's."""

from __future__ import annotations

from deathless.protocols.ambrosia_binding.checksum import xxh64


def test_published_values_are_met_here_too() -> None:
    assert xxh64(b"") == 0xEF46DB3751D8E999
    assert xxh64(b"Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1
