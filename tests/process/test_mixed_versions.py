"""A set whose replicas speak different ranges of protocol versions serves, and hands over among them.

What a build speaks is changed from outside, as no setting does: `sitecustomize`, which Python imports before anything
else, changes the range in the processes of a replica.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from replica_set import Load, ReplicaSet, check_exactly_once, wait_for

from deathless.base.errors import NoCommonVersion
from deathless.shell.directory.members import read_members
from deathless.shell.net.admin_call import Access, ask

SPEAKS = """
from deathless.codec import versions
versions.SPOKEN = versions.Versions({oldest}, {newest})
"""


class MixedSet(ReplicaSet):
    """Replicas by the versions that they speak."""

    def __init__(self, folder: Path, spoken: dict[str, tuple[int, int]]) -> None:
        super().__init__(folder, replicas=len(spoken))
        self.spoken = spoken

    def start(self, name: str) -> None:
        """See the base class."""
        oldest, newest = self.spoken[name]
        site = self.folder / f"speaks-{oldest}-{newest}"
        site.mkdir(exist_ok=True)
        (site / "sitecustomize.py").write_text(SPEAKS.format(oldest=oldest, newest=newest))
        self.environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
        super().start(name)


def test_replicas_of_mixed_versions_serve_and_take_over_from_each_other(tmp_path: Path) -> None:
    with MixedSet(tmp_path, {"r0": (1, 2), "r1": (1, 1), "r2": (1, 3)}) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        with Load(replicas) as load:
            for _ in range(3):
                load.wait_more()
                old = replicas.primary()
                replicas.kill_replica(old)
                replicas.primary(besides=old)
                load.wait_more()
                replicas.start(old)
                replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        check_exactly_once(load, replicas)
        replicas.wait_same_lsn()


def test_set_is_upgraded_to_newer_versions_one_replica_after_the_other(tmp_path: Path) -> None:
    """One replica after the other, twice; each time their range has the version of the others."""
    with MixedSet(tmp_path, dict.fromkeys(("r0", "r1", "r2"), (1, 1))) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        with Load(replicas) as load:
            for spoken in ((1, 2), (1, 3)):
                for name in replicas.names:
                    load.wait_more()
                    replicas.kill_replica(name)
                    replicas.spoken[name] = spoken
                    replicas.start(name)
                    replicas.wait_roles(primary=1, checkpointer=1, standby=1)
            load.wait_more()
        check_exactly_once(load, replicas)


def announced(replicas: ReplicaSet) -> str:
    """Address of the control port; empty: it is not announced yet."""
    member = read_members(str(replicas.directory)).get("r0")
    return member.control if member is not None else ""


def test_who_has_no_version_in_common_is_told_so(tmp_path: Path) -> None:
    with MixedSet(tmp_path, {"r0": (3, 4)}) as replicas:
        address = wait_for(lambda: announced(replicas), "the announcement", replicas.describe)
        with pytest.raises(NoCommonVersion, match="speaks protocol version 1, this replica 3 to 4: it is older"):
            asyncio.run(ask(address, "status", Access("ledger", directory=str(replicas.directory))))
