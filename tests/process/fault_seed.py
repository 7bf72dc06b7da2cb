"""Seeds of tests whose faults are drawn: one each developer's run, always the same in CI, as hypothesis does there."""

from __future__ import annotations

import os
import random
from typing import Final

SEED_IN_CI: Final = 20_261


def seed_of(variable: str) -> int:
    """The seed that an environment variable names, else a new one; printed, so that a failing run can be repeated."""
    drawn = SEED_IN_CI if os.environ.get("CI") else random.SystemRandom().randrange(1 << 32)
    seed = int(os.environ.get(variable) or drawn)
    print(f"{variable}={seed}")
    return seed
