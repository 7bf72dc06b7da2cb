"""Each error of the storage, at each kind of file, for a primary that runs and for replicas that start: it passes.

The table of `deathless.base.storage` says what an error leads to. Here every call on one kind of file fails with one
number for a while, at the primary or at all replicas from their start on. Whatever a replica does meanwhile, nobody has
to act: afterwards somebody serves, all replicas come to one place, and the checkers find nothing lost or doubled.
Members, the place file, the page, the spool and the witness's file are not on the simulated disk; their tests are
below tests/unit/deathless/shell.
"""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from tests.sim.stage import SECOND_US, SMALL_FILES, end, make, primary_of

from deathless.base.safeguards import ALL_SAFEGUARDS
from deathless.simulation.nodes.cluster import Cluster

pytestmark = pytest.mark.sim
FILES = ("log/", "seal", "lock", "checkpoints", "replicas")
CHANGES = ("create", "write", "sync", "allocate", "truncate", "link", "rename", "unlink", "make_folder", "sync_folder")
LOOKS = ("open", "read", "size", "exists", "listing")
EVERY_CALL = {
    errno.ENOSPC: ("create", "write", "allocate", "link", "make_folder"),
    errno.EDQUOT: ("create", "write", "allocate", "link", "make_folder"),
    errno.EROFS: tuple(each for each in CHANGES if not each.startswith("sync")),
    errno.EIO: CHANGES + LOOKS,
    errno.ESTALE: CHANGES + LOOKS,
    errno.EMFILE: ("create", "open", "listing"),
}
"""Error number -> the calls that may give it."""

CASES = [
    pytest.param(path, number, id=f"{path.strip('/')} {errno.errorcode[number]}")
    for path in FILES
    for number in EVERY_CALL
]
FOR_EVER = 1 << 30


def fail(cluster: Cluster, path: str, number: int, views: tuple[str | None, ...]) -> None:
    for view in views:
        for operation in EVERY_CALL[number]:
            cluster.disk.fail(operation, path, number=number, count=FOR_EVER, view=view)


@pytest.mark.parametrize(("path", "number"), CASES)
def test_error_that_a_running_primary_meets_passes_by_itself(path: str, number: int) -> None:
    cluster = make(ALL_SAFEGUARDS, limits=replace(SMALL_FILES, checkpoint_every_messages=12))
    fail(cluster, path, number, (primary_of(cluster).view_name(),))
    cluster.run_for(SECOND_US)
    cluster.disk.heal()
    assert not end(cluster)


@pytest.mark.parametrize(("path", "number"), CASES)
def test_error_that_all_replicas_meet_at_their_start_passes_by_itself(path: str, number: int) -> None:
    cluster = make(ALL_SAFEGUARDS, limits=replace(SMALL_FILES, checkpoint_every_messages=12))
    for node in cluster.replicas.values():
        node.kill_both()
    fail(cluster, path, number, (None,))
    for node in cluster.replicas.values():
        node.start()
    cluster.run_for(2 * SECOND_US)
    cluster.disk.heal()
    assert not end(cluster)
