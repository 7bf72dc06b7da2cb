"""What people do to a service's folder, machine or image on purpose: it starts and serves, or says what to type.

| what was done | test |
| --- | --- |
| a kubelet starts containers again | `test_pod_replica.py` |
| a volume is moved, or put back on purpose | here; `test_rollback.py` |
| a folder goes to another laptop and comes back | here; `test_copies.py` |
| a folder comes out of the cache of a CI | here |
| a container has no folder for state, home or memory | here |
| the home and the code are read-only | here |
| the disk is slow | `test_slow_storage.py` |
| the storage of another service hangs | `test_storage_faults.py` |
| replicas of two versions in a roll | here |
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from cli_tool import PROGRAM, Bank, Done
from etcd_server import EtcdCluster
from replica_set import DEADLINE_S, Load, ReplicaSet, called, check_exactly_once

from deathless.base.errors import CopiedDirectory, InvalidConfig
from deathless.shell.directory.place import LENIENT
from deathless.shell.disk.filesystem import LOCAL_TYPES, filesystem_type
from deathless.shell.link.status_page import page_path

ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="mounting read-only file systems needs root")
NUMBERED = pytest.mark.skipif(
    filesystem_type("/tmp") not in LOCAL_TYPES - LENIENT,
    reason="/tmp lies on a file system that numbers inodes as it likes, where a copy is only warned of",
)


def deposit(bank: Bank, amount: int) -> int:
    """Put money into one account; gives its balance."""
    return int(bank.run("call", "deposit", "--key", "alice", "--arg", f"amount={amount}").stdout)


def typed(bank: Bank, *words: str, **variables: str) -> Done:
    """Run a command in another environment than ours; fails unless it succeeds."""
    done = subprocess.run(
        [*PROGRAM, *words],
        cwd=bank.folder,
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE_S,
        check=False,
        env={**os.environ, **variables},
    )
    assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
    return done


def other_machine(bank: Bank) -> None:
    """What lies in a machine's memory does not go with a folder."""
    for folder in (bank.directory / "replicas").iterdir():
        Path(page_path(str(bank.directory), folder.name)).unlink(missing_ok=True)


@NUMBERED
def test_a_folder_that_goes_to_another_laptop_and_comes_back_goes_on_there(tmp_path: Path) -> None:
    with Bank(tmp_path / "here", replicas=1) as here:
        here.up()
        assert deposit(here, 5) == 5
        here.down()
        with Bank(tmp_path / "there", replicas=1) as there:
            subprocess.run(["cp", "-a", f"{here.folder}/.", str(there.folder)], check=True)
            here.folder.rename(tmp_path / "closed")  # the other laptop can't see this one
            typed(there, "up", "--detach", "--if-copied", "moved")
            assert deposit(there, 1) == 6
            there.down()
            (tmp_path / "closed").rename(here.folder)
            shutil.rmtree(here.directory)
            subprocess.run(["cp", "-a", str(there.directory), str(here.directory.parent)], check=True)
            there.folder.rename(tmp_path / "closed")
        refused = here.run("up", "--detach", code=CopiedDirectory.exit_code).stderr
        assert "deathless adopt --moved" in " ".join(refused.split())
        here.run("adopt", "--moved", "--yes")
        here.up()
        assert deposit(here, 1) == 7


def test_a_folder_that_comes_back_to_its_own_path_needs_no_word(tmp_path: Path) -> None:
    """So does one that is synced to a laptop on which it has the same path."""
    with Bank(tmp_path / "bank", replicas=1) as bank:
        bank.up()
        assert deposit(bank, 5) == 5
        bank.down()
        subprocess.run(["cp", "-a", str(bank.folder), str(tmp_path / "stick")], check=True)
        other_machine(bank)
        shutil.rmtree(bank.folder)
        subprocess.run(["cp", "-r", str(tmp_path / "stick"), str(bank.folder)], check=True)
        bank.up()
        assert deposit(bank, 5) == 10


@NUMBERED
def test_a_folder_out_of_the_cache_of_a_ci_serves_in_each_checkout(tmp_path: Path) -> None:
    """Each job has a path of its own, says once for all that copies were moved, and caches the folder again."""
    cache = tmp_path / "cache.tar"
    for job in range(3):
        with Bank(tmp_path / f"job{job}", replicas=1) as bank:
            if cache.exists():
                subprocess.run(["tar", "-xf", str(cache), "-C", str(bank.folder)], check=True)
            typed(bank, "up", "--detach", DEATHLESS_IF_COPIED="moved")
            assert deposit(bank, 5) == 5 * (job + 1)
            bank.down()
            subprocess.run(["tar", "-cf", str(cache), "-C", str(bank.folder), ".deathless"], check=True)
        shutil.rmtree(bank.folder)


class Contained(ReplicaSet):
    """Replicas in a container without a home, a folder for temporary files or memory to share."""

    def command(self, name: str, config: Path) -> list[str]:
        """See the base class."""
        bare = 'mount -t tmpfs -o ro tmpfs /dev/shm && exec env -i PATH=$PATH TMPDIR=/nonexistent "$@"'
        return ["unshare", "-m", "sh", "-c", bare, "sh", *super().command(name, config)]


@pytest.mark.root
@ROOT
def test_a_container_without_any_folder_for_state_serves(tmp_path: Path) -> None:
    with Contained(tmp_path) as replicas, called(replicas) as load:
        replicas.kill_worker(replicas.primary())
        load.wait_more()
        assert list(replicas.directory.glob("replicas/*/page"))


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Nothing in a folder can be written meanwhile."""
    subprocess.run(["mount", "--bind", str(folder), str(folder)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.mark.root
@ROOT
def test_with_a_home_and_code_that_are_read_only_the_state_has_its_place_or_is_asked_for_one(tmp_path: Path) -> None:
    bank = Bank(tmp_path / "home", replicas=1)
    with read_only(bank.folder):
        refused = bank.run("up", "--detach", code=InvalidConfig.exit_code).stderr
        assert "Read-only file system" in refused
        assert "name a writable folder with spec.logStorage.path" in refused
    bank.write_manifest(1, f"  logStorage: {{path: {tmp_path}/state}}\n")
    bank.directory = tmp_path / "state"
    with read_only(bank.folder), bank:
        typed(bank, "up", "--detach", HOME=str(bank.folder), XDG_CACHE_HOME=str(bank.folder))
        assert deposit(bank, 5) == 5
        bank.down()


@pytest.mark.etcd
def test_a_volume_that_was_moved_file_by_file_serves_with_the_same_lock_store(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd", members=1) as cluster:
        lock = f"  lock: {{type: etcd, etcd: {{endpoints: [{', '.join(cluster.urls)}]}}}}\n"
        with Bank(tmp_path / "bank", replicas=1, more=lock) as bank:
            bank.up()
            assert deposit(bank, 5) == 5
            bank.down()
            moved = tmp_path / "volume"
            subprocess.run(["cp", "-r", str(bank.directory), str(moved)], check=True)
            shutil.rmtree(bank.directory)
            bank.write_manifest(1, f"{lock}  logStorage: {{path: {moved}}}\n")
            bank.directory = moved
            bank.up()
            assert deposit(bank, 5) == 10
            bank.down()


def test_a_directory_without_the_files_that_earlier_versions_did_not_write_serves(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, replicas=1) as replicas:
        replicas.primary()
        replicas.stop()
        for name in ("place", "service.json", "code", *(f"replicas/{each}/confirmed" for each in replicas.names)):
            path = replicas.directory / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        for name in replicas.names:
            Path(page_path(str(replicas.directory), name)).unlink(missing_ok=True)
            replicas.start(name)
        with Load(replicas) as load:
            load.wait_more()
            load.stop()
            check_exactly_once(load, replicas)


def test_a_setting_of_a_later_version_is_named_and_the_others_serve(tmp_path: Path) -> None:
    """In a roll the settings may be newer than an image: its replica says so, and the rest does not wait for it."""
    with ReplicaSet(tmp_path) as replicas:
        later = tmp_path / "later.json"
        settings = msgspec.to_builtins(replicas.config("r3")) | {"orbit": 7}
        later.write_bytes(msgspec.json.encode(settings))
        command = [sys.executable, "-m", "deathless.shell.supervisor.supervisor", str(later)]
        done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == InvalidConfig.exit_code
        assert b"orbit" in done.stderr
        assert b"Traceback" not in done.stderr
        with called(replicas) as load:
            load.wait_more()
