"""What a peer says of itself is within what logs and checkpoints can hold, or is not taken."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.errors import CorruptFrame
from deathless.codec.peer_messages import Adopt, PeerHello, decode_body
from deathless.codec.wire import PeerIntroduction, PeerWelcome, decode_struct

GOOD = ("a", 0, bytes(16), 1)


@pytest.mark.parametrize(
    "bad",
    [
        ("a", -1, bytes(16), 1), ("a", 1 << 32, bytes(16), 1), ("a", 0, bytes(15), 1), ("a", 0, bytes(17), 1),
        ("a", 0, bytes(16), -1), ("x" * 300, 0, bytes(16), 1),
    ],
    ids=["shard below 0", "shard above u32", "short id", "long id", "incarnation below 0", "long name"],
)  # fmt: skip
def test_an_introduction_that_no_checkpoint_could_hold_is_malformed(bad: tuple[object, ...]) -> None:
    assert decode_struct(PeerIntroduction, msgspec.msgpack.encode((GOOD, 1, 9))).hello == PeerHello(*GOOD)
    with pytest.raises(CorruptFrame):
        decode_struct(PeerIntroduction, msgspec.msgpack.encode((bad, 1)))
    for kind in (PeerHello, Adopt):
        assert decode_body(kind, msgspec.msgpack.encode(GOOD)) == kind(*GOOD)
        with pytest.raises(CorruptFrame):
            decode_body(kind, msgspec.msgpack.encode(bad))


@pytest.mark.parametrize("bad", [(-1, 1), (1, -1)], ids=["session", "position"])
def test_a_welcome_with_a_number_below_zero_is_malformed(bad: tuple[int, int]) -> None:
    with pytest.raises(CorruptFrame):
        decode_struct(PeerWelcome, msgspec.msgpack.encode(bad))
