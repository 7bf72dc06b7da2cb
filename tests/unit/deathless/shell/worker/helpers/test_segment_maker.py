"""Orders to the process that fills segments: each is answered once, whatever becomes of the process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from deathless.shell.worker.helpers.segment_maker import PROGRAM, ZeroFilled

SIZE = 64 << 10
P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Run a test in an event loop of its own."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def program(folder: Path, text: str) -> Path:
    """One that stands in for the writer of zeros."""
    path = folder / "program.py"
    path.write_text(f"import os\n{text}\n")
    return path


@contextlib.asynccontextmanager
async def filling(directory: Path, program: Path = PROGRAM) -> AsyncIterator[ZeroFilled]:
    """One that is closed behind the test."""
    maker = ZeroFilled(str(directory), "measured", asyncio.get_running_loop(), program=program)
    try:
        yield maker
    finally:
        maker.close()


async def order(maker: ZeroFilled, path: str) -> bool:
    """Have a file made; gives what was told."""
    done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    maker.make(path, SIZE, done.set_result)
    return await asyncio.wait_for(done, 30)


FAST = "os.write(0, b'200 100\\n')\n"


@in_loop
async def test_files_are_made_one_after_the_other_where_that_gains(tmp_path: Path) -> None:
    text = f"{FAST}while (line := os.read(0, 999)):\n size, _, path = line[:-1].partition(b' ')\n"
    text += " open(path, 'xb').write(bytes(int(size)))\n os.write(0, b'1\\n')"
    async with filling(tmp_path, program(tmp_path, text)) as maker:
        assert [await order(maker, name) for name in ("a", "b")] == [True, True]
        assert (tmp_path / "b").read_bytes() == bytes(SIZE)
        assert maker.status() == {
            "log_filled_ahead": True,
            "log_growing_sync_seconds": 200e-6,
            "log_filled_sync_seconds": 100e-6,
        }


@in_loop
async def test_the_real_process_is_asked_and_what_it_measured_is_told(tmp_path: Path) -> None:
    async with filling(tmp_path) as maker:
        found = await order(maker, "a")
        assert found == maker.gains == (tmp_path / "a").exists()
        assert maker.growing_us > 0 < maker.filled_us


@pytest.mark.parametrize("measured", ["0 0", "100 100", "100 95", "100 300"])
@in_loop
async def test_where_it_gains_nothing_no_file_is_made(tmp_path: Path, measured: str) -> None:
    async with filling(tmp_path, program(tmp_path, f"os.write(0, b'{measured}\\n')\nos.read(0, 9)")) as maker:
        assert [await order(maker, "a"), await order(maker, "a")] == [False, False]
        assert maker.status()["log_filled_ahead"] is False


@pytest.mark.parametrize("text", ["", FAST, f"{FAST}os.read(0, 999)"], ids=["at once", "measured", "ordered"])
@in_loop
async def test_order_is_answered_where_the_process_ends(tmp_path: Path, text: str) -> None:
    async with filling(tmp_path, program(tmp_path, text)) as maker:
        assert [await order(maker, "a"), await order(maker, "a")] == [False, False]


@in_loop
async def test_order_is_answered_where_the_process_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "none"))
    async with filling(tmp_path) as maker:
        assert not await order(maker, "a")


@in_loop
async def test_order_under_way_is_answered_when_it_is_closed(tmp_path: Path) -> None:
    told: list[bool] = []
    async with filling(tmp_path) as maker:
        maker.make("a", SIZE, told.append)
        maker.close()
    assert told == [False]
