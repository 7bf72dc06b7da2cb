"""Storage that is full, hung or gone, under real processes (I1, I8). Needs root: it mounts file systems.

Each replica sees the shared directory through a FUSE mount of its own (bindfs), with kernel caches of its own, as on a
node of its own: stopping the mount's process hangs that node's storage, killing it makes every call fail.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from cli_tool import Bank
from replica_set import ALL, DEADLINE_S, PATIENT, Load, ReplicaSet, called, check_exactly_once, client_of, wait_for

from deathless.base.config import ReplicaConfig
from deathless.base.errors import OutOfSpace, StorageFailed, VolumeTooSmall
from deathless.base.limits import Limits
from deathless.base.manifest_parts import LimitsSpec
from deathless.shell.directory.members import read_members

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting small or failing file systems needs root"),
]

MIB = 1 << 20
SMALL = {
    "segment_bytes_max": 4 * MIB,
    "frame_bytes_max": MIB,
    "spare_bytes": 2 * MIB,
    "allocate_bytes": MIB,
    "message_bytes_max": MIB // 2,
}
FRESH = "attr_timeout=0,entry_timeout=0,negative_timeout=0"
"""Each look-up asks the real directory, as the seal fence needs it."""


# ---------------------------------------------------------------- full


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of `size` bytes at `folder`."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine does not let root mount: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(disk: Path) -> Path:
    """Take all room; gives the file to remove."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (64 << 10, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass
    return ballast


def is_full(replicas: ReplicaSet) -> bool:
    """Does a running primary say that its log has no room?"""
    return any(s["role"] == "primary" and s["state"] == "running" and s["full"] for s in replicas.status().values())


def ingress_of(replicas: ReplicaSet, name: str) -> str:
    """Wait for a replica's ingress; gives its address."""

    def announced() -> str:
        address = read_members(str(replicas.directory))[name].ingress
        return "" if address.endswith(":0") else address

    return wait_for(announced, "an ingress", replicas.describe)


def post(address: str, tag: str) -> tuple[int, str]:
    """Call over HTTP; gives status and Retry-After."""
    connection = http.client.HTTPConnection(address, timeout=DEADLINE_S)
    try:
        body = msgspec.json.encode({"tag": tag})
        connection.request("POST", "/ledger/k0/note", body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
        return answer.status, answer.getheader("Retry-After") or ""
    finally:
        connection.close()


def moved(replicas: ReplicaSet, name: str, before: str) -> bool:
    """Does the replica's ingress listen elsewhere than before?"""
    return ingress_of(replicas, name) != before


async def refused_with(replicas: ReplicaSet) -> type[Exception] | None:
    """What a call would be refused with now."""
    async with client_of(replicas) as client:
        call = asyncio.ensure_future(client.call("note", "k0", tag="never waited for"))
        async with asyncio.timeout(DEADLINE_S):
            while client.refusal() is None and not call.done():  # noqa: ASYNC110 - there is no event for a refusal
                await asyncio.sleep(0)
        call.cancel()
        refusal = client.refusal()
        return None if refusal is None else type(refusal)


def test_i8_full_disk_refuses_calls_answers_queries_and_goes_on_with_room(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "data", 32 * MIB) as disk,
        ReplicaSet(tmp_path, limits=SMALL, ingress_listen="127.0.0.1:0") as replicas,
    ):
        replicas.wait_roles(**ALL)
        address = ingress_of(replicas, replicas.primary())
        with Load(replicas) as load:
            load.wait_more()
            ballast = fill(disk)
            wait_for(lambda: is_full(replicas), "a full log", replicas.describe)
            load.sent += ["never waited for", "over http"]
            assert asyncio.run(refused_with(replicas)) is OutOfSpace
            status, retry_after = post(address, "over http")
            assert status == 507
            assert int(retry_after) >= 1
            held = asyncio.run(notes_of(replicas))
            assert held
            ballast.unlink()
            load.wait_more()
        wait_for(lambda: not is_full(replicas), "room", replicas.describe)
        check_exactly_once(load, replicas)


async def notes_of(replicas: ReplicaSet) -> list[str]:
    """Ask a linearizable query."""
    async with client_of(replicas) as client:
        return cast("list[str]", await client.query("notes", "k1", timeout=DEADLINE_S))


def test_volume_below_the_least_is_refused_before_anything_is_begun_and_told_afterwards(tmp_path: Path) -> None:
    least = replace(Limits(), **SMALL).least_volume_bytes(3)
    changed = {name: size for name, size in msgspec.to_builtins(LimitsSpec(**SMALL)).items() if size is not None}
    limits = msgspec.json.encode(changed).decode()
    place = tmp_path / "data"
    with small_disk(place, least - MIB):
        bank = Bank(tmp_path / "bank", more=f"  logStorage: {{path: {place}/bank}}\n  limits: {limits}\n")
        refused = bank.run("up", "--detach", "service.yaml", code=VolumeTooSmall.exit_code)
        assert "error DL3050 VolumeTooSmall" in refused.stderr
        assert f"the least for 3 replicas with these limits is {least // MIB}Mi" in refused.stderr
        assert not (place / "bank").exists()
        subprocess.run(["mount", "-o", f"remount,size={least}", str(place)], check=True)
        bank.directory = place / "bank"
        with bank:
            bank.run("up", "--detach", "service.yaml")
            bank.down()
            subprocess.run(["mount", "-o", f"remount,size={least - MIB}", str(place)], check=True)
            told = bank.run("up", "--detach", "service.yaml")
            assert "the least for 3 replicas" in told.stdout + told.stderr
            bank.down()


def test_i8_takeover_and_checkpoint_find_room_on_a_full_disk(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", 32 * MIB) as disk, ReplicaSet(tmp_path, limits=SMALL) as replicas:
        with called(replicas) as load:
            ballast = fill(disk)
            wait_for(lambda: is_full(replicas), "a full log", replicas.describe)
            old = replicas.primary()
            replicas.kill_worker(old)
            replicas.primary(besides=old)
            asyncio.run(notes_of(replicas))
            replicas.wait_roles(**ALL)  # a worker starts on a full disk
            folder = replicas.directory / "checkpoints"
            wait_for(lambda: list(folder.glob("*.verified")), "a checkpoint, taken for want of room", replicas.describe)
            ballast.unlink()
            load.wait_more()
        replicas.wait_same_lsn()


def test_log_that_fills_its_volume_before_a_checkpoint_is_due_takes_one_and_goes_on(tmp_path: Path) -> None:
    """As delivered a checkpoint is due each 256 MiB; this volume has 24."""
    with (
        small_disk(tmp_path / "data", 24 * MIB),
        ReplicaSet(tmp_path, limits=SMALL) as replicas,
        called(replicas) as load,
    ):
        asyncio.run(write_much(replicas, 2 * 24 * MIB))
        replicas.kill_worker(replicas.primary())
        asyncio.run(write_much(replicas, 24 * MIB))
        load.wait_more()


async def write_much(replicas: ReplicaSet, size: int) -> None:
    """Have so many bytes logged, whatever is refused meanwhile."""
    async with client_of(replicas) as client:
        for _ in range(size // (MIB // 4)):
            await client.call("weigh", "k1", blob="b" * (MIB // 4), timeout=DEADLINE_S)


def test_supervisors_start_on_a_full_disk(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path / "data", 32 * MIB) as disk,
        ReplicaSet(tmp_path, limits=SMALL, ingress_listen="127.0.0.1:0") as replicas,
    ):
        replicas.wait_roles(**ALL)
        before = {name: ingress_of(replicas, name) for name in replicas.names}
        with Load(replicas) as load:
            load.wait_more()
            ballast = fill(disk)
            wait_for(lambda: is_full(replicas), "a full log", replicas.describe)
            for name in replicas.names:
                replicas.kill_replica(name)
            for name in replicas.names:
                replicas.start(name)
            replicas.wait_roles(**ALL)
            for name in replicas.names:  # its new address found room too
                wait_for(partial(moved, replicas, name, before[name]), "an ingress", replicas.describe)
            load.sent.append("over http")
            # A log that freed itself by a checkpoint has room again; one that could not says so.
            assert post(ingress_of(replicas, replicas.primary()), "over http")[0] in (200, 507)
            ballast.unlink()
            load.wait_more()
        check_exactly_once(load, replicas)


# ---------------------------------------------------------------- read-only


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Lay a read-only mount of the directory over it: whatever is opened or made from now on meets EROFS."""
    subprocess.run(["mount", "--bind", str(disk), str(disk)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


def test_volume_that_is_read_only_for_a_while_ends_no_replica_for_good(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", 32 * MIB) as disk, ReplicaSet(tmp_path, limits=SMALL) as replicas:
        with called(replicas) as load:
            with read_only(disk):
                first, second, third = replicas.names
                for name in (first, second):
                    replicas.kill_worker(name)
                replicas.kill_replica(third)
                replicas.start(third)
                wait_for(lambda: is_leaderless(replicas), "a set without a primary", replicas.describe)
            replicas.wait_roles(**ALL)
            load.wait_more()
        check_exactly_once(load, replicas)


def is_leaderless(replicas: ReplicaSet) -> bool:
    """Have the replicas that still say something met the volume, and does none lead?"""
    said = replicas.status().values()
    return bool(said) and not any(one["role"] == "primary" and one["state"] == "running" for one in said)


# ---------------------------------------------------------------- hung, dead


class MountedSet(ReplicaSet):
    """Each replica sees the shared directory through a mount of its own, as on a node of its own."""

    def __init__(self, folder: Path, options: str = FRESH, **settings: Any) -> None:
        super().__init__(folder, allow_any_file_system=True, **settings)
        self.directory.mkdir()
        self._options = options
        self.mounts = {name: self._mount(name) for name in self.names}

    def mount_point(self, name: str) -> Path:
        """Where a replica has the directory."""
        return self.folder / f"mount-{name}"

    def config(self, name: str) -> ReplicaConfig:
        """The replica's own mount is its directory."""
        return msgspec.structs.replace(super().config(name), directory=str(self.mount_point(name)))

    def _mount(self, name: str) -> subprocess.Popen[bytes]:
        point = self.mount_point(name)
        point.mkdir(exist_ok=True)
        command = ["bindfs", "--no-allow-other", "-f", "-o", self._options, str(self.directory), str(point)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for(lambda: os.path.ismount(point), "a mount")
        return process

    def hang(self, name: str) -> None:
        """From now on every call on this replica's storage waits."""
        self.mounts[name].send_signal(signal.SIGSTOP)

    def go_on(self, name: str) -> None:
        """Let the calls that wait go on."""
        self.mounts[name].send_signal(signal.SIGCONT)

    def lose(self, name: str) -> None:
        """From now on every call on this replica's storage fails."""
        self.mounts[name].kill()
        self.mounts[name].wait()

    def bring_back(self, name: str) -> None:
        """Mount it again."""
        subprocess.run(["umount", "-l", str(self.mount_point(name))], check=True)
        self.mounts[name] = self._mount(name)

    def unmount(self) -> None:
        """End every mount."""
        for name, process in self.mounts.items():
            process.send_signal(signal.SIGCONT)
            subprocess.run(["umount", "-l", str(self.mount_point(name))], check=False, capture_output=True)
            process.kill()
            process.wait()


@contextmanager
def mounted_set(folder: Path, options: str = FRESH, **settings: Any) -> Iterator[MountedSet]:
    """A running set over FUSE mounts, with all roles taken."""
    if shutil.which("bindfs") is None:
        pytest.skip("bindfs is missing: apt-get install bindfs")
    with ExitStack() as stack:
        replicas = MountedSet(folder, options, **settings)
        stack.callback(replicas.unmount)
        stack.enter_context(replicas)
        # Calls that hang can't be killed: let them go on before the processes are ended.
        for name in replicas.names:
            stack.callback(replicas.go_on, name)
        replicas.wait_roles(**ALL)
        yield replicas


def state_of(replicas: ReplicaSet, name: str) -> object:
    """What a replica's supervisor says of its worker."""
    return replicas.status().get(name, {}).get("state")


def test_i1_primary_whose_log_hangs_is_replaced_and_releases_nothing_afterwards(tmp_path: Path) -> None:
    with mounted_set(tmp_path) as replicas, Load(replicas) as load:
        load.wait_more()
        old = replicas.primary()
        replicas.hang(old)
        wait_for(lambda: state_of(replicas, old) == "stuck", "the word of a stuck worker", replicas.describe)
        replicas.primary(besides=old)
        load.wait_more()
        replicas.go_on(old)
        load.wait_more()
        replicas.wait_roles(**ALL)
        load.stop()
        check_exactly_once(load, replicas)


def test_storage_of_another_service_that_hangs_keeps_nobody_from_starting(tmp_path: Path) -> None:
    with mounted_set(tmp_path) as replicas:
        replicas.hang("r0")
        (tmp_path / "other").mkdir()
        with ReplicaSet(tmp_path / "other", replicas=1) as other:
            assert other.primary() == "r0"


def test_i8_primary_whose_log_is_gone_stops_and_comes_back_with_it(tmp_path: Path) -> None:
    with mounted_set(tmp_path) as replicas, Load(replicas) as load:
        load.wait_more()
        old = replicas.primary()
        replicas.lose(old)
        replicas.primary(besides=old)
        load.wait_more()
        told = wait_for(lambda: replicas.status()[old].get("problem"), "why it is down", replicas.describe)
        assert told == StorageFailed.code
        replicas.bring_back(old)
        replicas.wait_roles(**ALL)
        load.stop()
        check_exactly_once(load, replicas)


@pytest.mark.parametrize("role", ["checkpointer", "standby"])
def test_follower_whose_log_hangs_costs_nobody_anything(tmp_path: Path, role: str) -> None:
    with mounted_set(tmp_path, limits=PATIENT) as replicas, Load(replicas) as load:
        load.wait_more()
        primary, epoch = replicas.primary(), replicas.status()[replicas.primary()]["epoch"]
        name = wait_for(lambda: replicas.role_of(role), role, replicas.describe)
        replicas.hang(name)
        load.wait_more(100)
        replicas.go_on(name)
        replicas.wait_roles(**ALL)
        assert (replicas.primary(), replicas.status()[primary]["epoch"]) == (primary, epoch)
        load.stop()
        check_exactly_once(load, replicas)
