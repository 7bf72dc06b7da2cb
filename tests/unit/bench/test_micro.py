"""The benchmarks of parts alone still fit the parts."""

from __future__ import annotations

import pytest
from bench.micro import primary as micro_primary


@pytest.mark.parametrize("shape", ["64x1", "1x500"])
def test_primary_and_follower_take_every_call_of_a_frame(shape: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_primary, "ROUNDS", 1)
    monkeypatch.setattr(micro_primary, "CALLS", 2000)
    took = micro_primary.measure(shape)
    assert took.keys() == {"primary", "follower"}
    assert min(took.values()) > 0
