"""Storage that is full, slow to answer or gone, under real processes (I1, I8). Needs root: it mounts file systems."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from replica_set import Load, ReplicaSet, check_exactly_once, client_of, wait_for

from deathless.base.errors import OutOfSpace

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small or failing file system needs root"),
]

MIB = 1 << 20
SMALL = {
    "segment_bytes_max": 4 * MIB,
    "frame_bytes_max": MIB,
    "spare_bytes": 2 * MIB,
    "allocate_bytes": MIB,
    "message_bytes_max": MIB // 2,
}


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of `size` bytes at `folder`."""
    folder.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"this machine does not let root mount: {done.stderr.decode().strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_i8_full_disk_refuses_calls_and_loses_nothing_and_goes_on_with_room(tmp_path: Path) -> None:
    with small_disk(tmp_path / "data", 24 * MIB) as disk, ReplicaSet(tmp_path, limits=SMALL) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        with Load(replicas) as load:
            load.wait_more()
        ballast = disk / "ballast"

        def fill() -> None:
            with ballast.open("wb") as file:
                try:
                    while True:
                        file.write(bytes(64 << 10))
                        file.flush()
                except OSError:
                    pass

        async def call_until_full() -> None:
            async with client_of(replicas) as client:
                with pytest.raises((OutOfSpace, TimeoutError)):
                    for count in range(100_000):
                        load.sent.append(f"full.{count}")
                        await client.call("note", "k0", tag=f"full.{count}", timeout=3)
                        load.acknowledged.append(f"full.{count}")

        fill()
        replicas.wait_roles(primary=1)
        try:
            asyncio.run(call_until_full())
        finally:
            ballast.unlink(missing_ok=True)
        with Load(replicas) as later:
            later.wait_more()


def mounted_through_bindfs(real: Path, mount: Path) -> subprocess.Popen[bytes]:
    """A view of `real` with kernel caches of its own, which can be frozen and killed."""
    mount.mkdir()
    options = "attr_timeout=1,entry_timeout=1,negative_timeout=30,kernel_cache"
    process = subprocess.Popen(
        ["bindfs", "--no-allow-other", "-f", "-o", options, str(real), str(mount)], stderr=subprocess.DEVNULL
    )
    wait_for(lambda: os.path.ismount(mount), "the mount")
    return process


class MountedSet(ReplicaSet):
    """Each replica sees the shared directory through a mount of its own, as on a node of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, allow_any_file_system=True)
        self.directory.mkdir()
        self.mounts = {name: mounted_through_bindfs(self.directory, folder / f"mount-{name}") for name in self.names}

    def config(self, name: str):  # noqa: ANN201 the base class's type
        """The replica's own mount is its directory."""
        import msgspec

        return msgspec.structs.replace(super().config(name), directory=str(self.folder / f"mount-{name}"))

    def unmount(self) -> None:
        """End every mount."""
        for name, process in self.mounts.items():
            process.send_signal(signal.SIGCONT)
            subprocess.run(["umount", "-l", str(self.folder / f"mount-{name}")], check=False)
            process.kill()
            process.wait()


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[MountedSet]:
    """A set over FUSE mounts."""
    if shutil.which("bindfs") is None:
        pytest.skip("bindfs is missing: apt-get install bindfs")
    replicas = MountedSet(tmp_path)
    try:
        yield replicas
    finally:
        replicas.unmount()
