"""Syncs that take long for every replica: calls are answered, and replicas do not depose each other.

The syncs are made slow by a small library that is loaded before the C library's own, which a C compiler makes here.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import cast

import pytest
from replica_set import ALL, ReplicaSet, called

COMPILER = shutil.which("cc")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="slow syncs need a C compiler (cc) to be made")

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
static void be_slow(void) {
    const char *flag = getenv("SLOW_SYNC_FLAG");
    if (flag == 0 || access(flag, F_OK) != 0) return;
    long ms = atol(getenv("SLOW_SYNC_MS"));
    struct timespec left = {ms / 1000, ms % 1000 * 1000000L};
    while (nanosleep(&left, &left) != 0) {}
}
int fdatasync(int fd) { be_slow(); return ((int (*)(int)) dlsym(RTLD_NEXT, "fdatasync"))(fd); }
int fsync(int fd) { be_slow(); return ((int (*)(int)) dlsym(RTLD_NEXT, "fsync"))(fd); }
"""


def made_slow(folder: Path, ms: int) -> tuple[dict[str, str], Path]:
    """Make the library; gives the environment to run under, and the file that makes syncs slow while it stands."""
    assert COMPILER is not None
    source, library, flag = folder / "slow.c", folder / "slow.so", folder / "slow"
    source.write_text(SOURCE)
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"], check=True)
    preload = " ".join(filter(None, (str(library), os.environ.get("LD_PRELOAD"))))
    return {"LD_PRELOAD": preload, "SLOW_SYNC_FLAG": str(flag), "SLOW_SYNC_MS": str(ms)}, flag


def test_a_first_start_and_a_later_one_on_a_slow_disk_serve(tmp_path: Path) -> None:
    replicas = ReplicaSet(tmp_path)
    replicas.environment, flag = made_slow(tmp_path, 200)
    flag.touch()
    with replicas:
        replicas.wait_roles(**ALL)
        replicas.stop()
        for name in replicas.names:
            replicas.start(name)
        with called(replicas) as load:
            load.wait_more(1)
        assert all(not one["condition"] for one in replicas.status().values())


def epoch_of(replicas: ReplicaSet) -> int:
    """The highest epoch that a replica speaks of."""
    return max(cast("int", one["epoch"]) for one in replicas.status().values())


@pytest.mark.parametrize("ms", [500, 2300])
def test_syncs_that_are_slow_for_everybody_cost_one_takeover_at_most_and_calls_are_answered(
    tmp_path: Path, ms: int
) -> None:
    """The longer ones take more than `log_call_max_s`, after which a call counts as hung on a storage that is fast."""
    replicas = ReplicaSet(tmp_path)
    replicas.environment, flag = made_slow(tmp_path, ms)
    with replicas, called(replicas) as load:
        before = epoch_of(replicas)
        flag.touch()
        for _ in range(4):
            load.wait_more(1)
        assert epoch_of(replicas) <= before + 1
        flag.unlink()
        replicas.wait_roles(**ALL)
