"""A refused registration names its nonce, to those who know it and to those who do not; pauses are bounded."""

from __future__ import annotations

import msgspec
import pytest

from deathless.codec.refusals import RegistrationRefused, pause_s
from deathless.codec.wire import BatchRefused, decode_struct

REFUSED = RegistrationRefused(0, 0, "DL1003", "no room", 500, bytes(range(16)))


def test_the_nonce_stands_behind_what_every_refusal_carries() -> None:
    body = msgspec.msgpack.encode(REFUSED)
    assert decode_struct(RegistrationRefused, body) == REFUSED
    assert decode_struct(BatchRefused, body) == BatchRefused(0, 0, "DL1003", "no room", 500)


def test_a_refusal_of_something_else_has_none() -> None:
    body = msgspec.msgpack.encode(BatchRefused(0, 3, "DL1002", "full", 50))
    assert decode_struct(RegistrationRefused, body) == RegistrationRefused(0, 3, "DL1002", "full", 50)


@pytest.mark.parametrize(("asked_ms", "told_s"), [(-1, 0.0), (0, 0.0), (20, 0.02), (5000, 5.0), (2**62, 5.0)])
def test_pause_is_what_is_asked_for_within_bounds(asked_ms: int, told_s: float) -> None:
    assert pause_s(BatchRefused(9, 1, "DL1002", "full", asked_ms)) == told_s
