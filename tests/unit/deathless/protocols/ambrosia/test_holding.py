"""Outputs that are held: whole, in order, and bounded by who reads."""

from __future__ import annotations

from deathless.protocols.ambrosia.events import Emitted, ImpulseEmitted, OutputRefused
from deathless.protocols.ambrosia.holding import Holding
from deathless.protocols.ambrosia.messages import Kind, Oversized, make_call

RPC = make_call("b", 1, Kind.FORK, bytes(50))
TOMB = Oversized(destination="b", kind=Kind.FORK, method=1, name="", sequence=0, size=1 << 30)


def test_what_is_not_held_goes_at_once() -> None:
    effect = ImpulseEmitted(rpc=RPC)
    assert Holding(100).pass_on(effect) == [effect]


def test_what_was_held_comes_whole_and_in_order() -> None:
    holding = Holding(64 + 64 + 64 + len(RPC.body))
    holding.on = True
    effects: list[Emitted | ImpulseEmitted | OutputRefused] = [
        Emitted(target="b", position=1, item=TOMB),
        OutputRefused(target="b", position=1, item=TOMB, reason="too long"),
        ImpulseEmitted(rpc=RPC),
    ]
    fullness = []
    for effect in effects:
        assert holding.pass_on(effect) == []
        fullness.append(holding.is_full)
    assert fullness == [False, False, True]
    assert holding.release() == effects
    assert not holding.is_full and not holding.on and holding.release() == []
