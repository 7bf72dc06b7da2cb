"""The shop's chaos run, short: three services, a real PostgreSQL and customers, while each kind of process is killed.

`DEATHLESS_CHAOS_SEED=n` chooses other victims and orders; without it they are the same in each run.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from examples.shop.chaos import ALL, Run, Settings, Shop
from postgresql_server import started

SEED_VARIABLE = "DEATHLESS_CHAOS_SEED"
KILLS = 12  # each kind of process at least once
WHOLE_S = 400.0  # `make processes` gives a test 600: enough before and behind this to start and end all processes


def test_books_are_exactly_what_customers_were_told_whatever_process_is_killed(tmp_path: Path) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or 1)
    print(f"{SEED_VARIABLE}={seed}")
    settings = Settings(
        seconds=WHOLE_S, seed=seed, kills=KILLS, every_s=0.5, clients=4, as_json=True, record=None
    )  # fmt: skip
    with started(fsync="off") as server:
        shop = Shop(tmp_path, server, replicas=2)
        try:
            shop.start()
            run = Run(shop, settings)
            wrong = asyncio.run(asyncio.wait_for(run.run(), WHOLE_S))
        finally:
            shop.close()
    assert not wrong, "\n".join(wrong)
    report = run.report(wrong)
    assert run.kills.total() == KILLS
    assert set(run.kills) == ALL, "each kind of process was killed"
    assert not run.history.under_way
    assert sum(order.outcome == "sent" for order in run.history.orders) > 0, report
