"""Coordinator and binding through cuts, kills and restarts from checkpoint and log: nothing lost, doubled, diverged."""

from __future__ import annotations

import pytest
from tests.unit.deathless.protocols.ambrosia_service import Service

SEEDS = range(3000)


def run(seed: int, steps: int = 500) -> Service:
    service = Service()
    service.run(seed, steps)
    return service


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_doubled_or_diverged(seed: int) -> None:
    service = run(seed)
    assert service.faults() == []
    assert service.errors == ["None"] * len(service.errors)
    assert service.differences == []
