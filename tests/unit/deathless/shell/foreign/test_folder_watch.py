"""Whoever waits for rows is woken by what is written, and by nobody where the kernel tells nothing."""

import asyncio
import ctypes
import errno
from pathlib import Path

import pytest

from deathless.shell.foreign import folder_watch
from deathless.shell.foreign.folder_watch import FolderWatch

LONG_S = 60.0


@pytest.mark.asyncio
async def test_what_is_written_wakes_wherever_it_is(tmp_path: Path) -> None:
    """In the folder and in one of its folders, which may come into being later, and one that is there no more."""
    root = tmp_path / "topics"
    watch = FolderWatch([root, tmp_path])
    try:
        await watch.wait(LONG_S)  # it began with a look
        root.mkdir()
        await watch.wait(LONG_S)
        (root / "source").mkdir()
        await watch.wait(LONG_S)
        with (root / "source" / "file").open("wb", buffering=0) as file:
            await watch.wait(LONG_S)
            for _ in range(3):
                file.write(b"row")
                await watch.wait(LONG_S)
    finally:
        watch.close()
        watch.close()


@pytest.mark.asyncio
async def test_nothing_that_is_written_is_overlooked(tmp_path: Path) -> None:
    """What came before somebody waits wakes at once."""
    watch = FolderWatch([tmp_path])
    try:
        await watch.wait(LONG_S)
        (tmp_path / "file").write_bytes(b"row")
        await asyncio.sleep(0)
        await watch.wait(LONG_S)
    finally:
        watch.close()


@pytest.mark.asyncio
@pytest.mark.parametrize("failing", ["inotify_init1", "inotify_add_watch"])
async def test_kernel_that_gives_no_watch_leaves_the_clock(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a user has as many as are allowed."""
    real = folder_watch._libc

    class Full:
        """The C library, of which one function fails."""

        def __getattr__(self, name: str) -> object:
            return (lambda *_: -1) if name == failing else getattr(real, name)

    monkeypatch.setattr(folder_watch, "_libc", Full())
    monkeypatch.setattr(ctypes, "get_errno", lambda: errno.ENOSPC)
    watch = FolderWatch([tmp_path])
    (tmp_path / "file").write_bytes(b"row")
    assert not await watch.wait(0.01)
    watch.close()
