"""Every named trace of the design that a simulation can show, and every failure that was found and mended."""

import pytest
from tests.sim.scenarios import SCENARIOS, run


@pytest.mark.parametrize("name", SCENARIOS)
def test_nothing_is_lost_or_done_twice(name: str) -> None:
    violations = run(name)
    assert not violations, "\n".join(map(str, violations[:5]))
