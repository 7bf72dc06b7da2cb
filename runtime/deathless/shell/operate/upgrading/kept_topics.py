"""Which drivers every replica of a set has that is to go on with new code.

Why: a replica goes on with other code as it was started, so a topic that only the manifest has by now would be kept by
the upgraders alone, and no other replica could begin again.

Guarantees: reads what replicas that run were started with. Does not: look at code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from deathless.base.config import DriverConfig
from deathless.base.errors import DeathlessError
from deathless.shell.link.config_file import read_config
from deathless.shell.operate.runner import running_supervisor


def kept_by_all(directory: str, drivers: Sequence[DriverConfig]) -> tuple[DriverConfig, ...]:
    """Give those drivers that each replica has which runs, apart from upgraders.

    Args:
        directory: of the shard.
        drivers: that the manifest has.
    """
    kept = tuple(drivers)
    for path in sorted((Path(directory) / "replicas").glob("*/config.json")):
        with contextlib.suppress(DeathlessError, OSError):
            config = read_config(str(path))
            if config.upgrade is None and running_supervisor(path.parent):
                theirs = {driver.name for driver in config.drivers}
                kept = tuple(driver for driver in kept if driver.name in theirs)
    return kept
