"""How long `deathless switchover` waits; what it does is in tests/process."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.limits import Limits
from deathless.cli.change.switchover import SWITCH_S, switch_s
from deathless.shell.operate.target import Target


@pytest.mark.parametrize("wait_s", [None, 0, 60])
def test_the_primarys_wait_for_activities_comes_on_top(tmp_path: Path, wait_s: float | None) -> None:
    limits = {} if wait_s is None else {"handover_wait_s": wait_s}
    config = ReplicaConfig(service="bank", module="m:s", directory=str(tmp_path), replica="r0", limits=limits)
    wanted = Limits().handover_wait_s if wait_s is None else wait_s
    assert switch_s(Target(config, "service.yaml", None)) == SWITCH_S + wanted
