"""A method of a service by its number is a value, and says what its handler is called with."""

from __future__ import annotations

from deathless.execution.turn.method_address import MethodAddress


def test_equal_addresses_are_one_value_with_the_same_arguments() -> None:
    one, other = MethodAddress("bank", "alice", 7), MethodAddress("bank", "alice", 7)
    assert one == other
    assert len({one, other, MethodAddress("bank", "bob", 7)}) == 2
    assert one.arguments(b"x") == {"method": 7, "args": b"x"}
