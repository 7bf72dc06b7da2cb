"""A log whose files are filled ahead of time, under load and kill -9: of the worker, and of the process that fills."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import cast

from replica_set import Load, ReplicaSet, check_exactly_once, children_of, client_of, wait_for

from deathless.base.errors import DeathlessError
from deathless.shell.directory.members import read_members
from deathless.shell.net import admin_call
from deathless.shell.worker.helpers.segment_maker import PROGRAM


def counters(replicas: ReplicaSet) -> dict[str, float] | None:
    """What the primary's worker counts; None: nobody leads at the moment."""
    member = read_members(str(replicas.directory)).get(replicas.role_of("primary") or "")
    if member is None:
        return None
    try:
        answer = asyncio.run(admin_call.ask(member.client, "status", replicas._access()))
    except (DeathlessError, OSError):
        return None
    return cast("dict[str, float]", answer["counters"])


def measured(replicas: ReplicaSet) -> dict[str, float] | None:
    """The same, once the epoch has written enough for a file to be made ahead of time."""
    found = counters(replicas)
    return found if found and found.get("log_growing_sync_seconds") else None


def write_log(replicas: ReplicaSet) -> None:
    """Have some 20 MiB written: calls of a handler that there is not are in the log as all others."""

    async def write() -> None:
        async with client_of(replicas) as client:
            for _ in range(40):
                calls = [client.request("nobody", "k0", {"filler": "x" * 65_536}, timeout=None) for _ in range(8)]
                await asyncio.gather(*calls, return_exceptions=True)

    asyncio.run(write())


def rolls(replicas: ReplicaSet) -> set[tuple[str, str]]:
    """(epoch, roll) of each file of the log."""
    names = (path.name for path in (Path(replicas.directory) / "log").iterdir())
    return {(name[1:13], name[15:21]) for name in names}


def test_log_rolls_to_files_that_were_filled_and_goes_on_when_who_fills_or_leads_is_killed(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        with Load(replicas) as load:
            for _ in range(2):
                write_log(replicas)
                gains = wait_for(lambda: measured(replicas), "16 MiB of log", replicas.describe)["log_filled_ahead"]
                if gains:
                    wait_for(lambda: max(rolls(replicas))[1] > "000000", "a roll", replicas.describe)
                primary = replicas.primary()
                worker = replicas.signal_worker(primary, 0)
                for pid in children_of(worker, str(PROGRAM)):
                    os.kill(pid, signal.SIGKILL)
                load.wait_more(200)
                replicas.kill_worker(primary)
                replicas.primary(besides=primary)
                load.wait_more()
                replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        check_exactly_once(load, replicas)
        replicas.wait_same_lsn()
