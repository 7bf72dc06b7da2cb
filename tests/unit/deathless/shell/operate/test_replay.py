"""Who is interrupted while a log is run again is kept by no process that runs it; tests/process runs real logs."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from replica_set import children_of
from tests.unit.deathless.core.primary_world import Echo
from tests.unit.deathless.engine.replica_world import World

from deathless.base.config import ReplicaConfig
from deathless.base.errors import ImportNotEnded
from deathless.engine.shard.assembly import shard_around
from deathless.shell.lock_stores.inspection import Inspection
from deathless.shell.operate import replay as module
from deathless.shell.operate.replay import IMPORTED, ReplayEnded, ReplayOrder, _Plan, _read_all, _run_all, replay
from deathless.shell.service_code import separate_process
from deathless.shell.service_code.separate_process import import_wait

ENDED = """
import os, signal
os.kill(os.getpid(), signal.SIGALRM)
"""
"""What the kernel ends in the middle of a turn."""
HANGS = """
import sys
from deathless.shell.operate.replay import _end_after
_end_after(int(sys.argv[1]))
try:
    while True: pass
except BaseException: pass
"""
STAYS = """
import json, os, subprocess, sys
work = json.load(os.fdopen(int(sys.argv[1])))
other = subprocess.Popen(["sleep", "60"], pass_fds=(work["result_fd"],))
with open(os.path.join(work["order"]["folder"], "new"), "w") as file: file.write(f"{os.getpid()} {other.pid}")
os.rename(file.name, os.path.join(work["order"]["folder"], "pid"))
other.wait()
"""
"""What runs the log, with a process that goes on holding the result's pipe when it is killed."""

CONFIG = ReplicaConfig(service="bank", module="m:a", directory="nowhere", replica="r0")


def test_interrupted_replay_waits_for_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stays.py").write_text(STAYS)

    async def look(_: ReplicaConfig) -> SimpleNamespace:
        return SimpleNamespace(record=SimpleNamespace(hash_seed=0))

    monkeypatch.setattr(module, "inspect", look)  # there is no log
    monkeypatch.setattr(module, "MODULE", "stays")
    config = ReplicaConfig(service="bank", module="m:a", directory=str(tmp_path), replica="r0")

    async def main() -> list[str]:
        running = asyncio.create_task(replay(config, ReplayOrder(folder=str(tmp_path))))
        async with asyncio.timeout(30):
            while not (tmp_path / "pid").exists():  # noqa: ASYNC110  nothing there can be waited on
                await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        # One of the loop's own would be joined at its end.
        left = [thread.name for thread in threading.enumerate() if thread.name.startswith("asyncio_")]
        process, other = map(int, (tmp_path / "pid").read_text().split())
        os.kill(other, signal.SIGKILL)

        def reaped() -> bool:
            threads = [thread.name for thread in threading.enumerate()]
            return not Path(f"/proc/{process}").exists() and not any("asyncio-waitpid" in each for each in threads)

        while not reaped():  # noqa: ASYNC110  nothing there can be waited on
            await asyncio.sleep(0)
        await asyncio.sleep(0)
        return left

    assert asyncio.run(main()) == []


@pytest.mark.parametrize(
    ("turns_s", "said"), [(30, "have not ended within 30 s"), (None, "that ran m:a ended by signal 14")]
)
def test_a_turn_that_does_not_end_is_told_as_such(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns_s: int | None, said: str
) -> None:
    (tmp_path / "ended.py").write_text(ENDED)

    async def look(_: ReplicaConfig) -> SimpleNamespace:
        return SimpleNamespace(record=SimpleNamespace(hash_seed=0))

    monkeypatch.setattr(module, "inspect", look)  # there is no log
    monkeypatch.setattr(module, "MODULE", "ended")
    config = ReplicaConfig(service="bank", module="m:a", directory=str(tmp_path), replica="r0")
    with pytest.raises(ReplayEnded, match=said):
        asyncio.run(replay(config, ReplayOrder(folder=str(tmp_path), turns_s=turns_s)))


def test_an_import_that_never_ends_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "imports.py").write_text("import signal\nsignal.pause()\n")

    async def look(_: ReplicaConfig) -> SimpleNamespace:
        return SimpleNamespace(record=SimpleNamespace(hash_seed=0))

    monkeypatch.setattr(module, "inspect", look)  # there is no log
    monkeypatch.setattr(module, "MODULE", "imports")
    monkeypatch.setattr(separate_process, "IMPORT_TOLD_S", 0.0)
    monkeypatch.setattr(separate_process, "IMPORT_MAX_S", 0.1)
    with pytest.raises(ImportNotEnded, match="the import of m:a has not ended"):
        asyncio.run(replay(CONFIG, ReplayOrder(folder=str(tmp_path))))
    assert "waiting for the import of m:a" in capfd.readouterr().err
    assert not children_of(os.getpid(), "imports")


@pytest.mark.asyncio
async def test_what_follows_an_import_may_take_any_time() -> None:
    reader, writer = os.pipe()
    importing = import_wait("m:a")
    reading = asyncio.create_task(_read_all(reader, importing))
    os.write(writer, IMPORTED)
    while importing.left_s is not None:  # noqa: ASYNC110  nothing there can be waited on
        await asyncio.sleep(0)
    os.write(writer, b"result")
    os.close(writer)
    assert await reading == b"result"


def test_a_turn_that_catches_everything_is_ended_by_the_kernel() -> None:
    done = subprocess.run([sys.executable, "-c", HANGS, "1"], check=False)
    assert done.returncode == -signal.SIGALRM


@pytest.mark.parametrize(("until", "all_run"), [(None, True), (math.inf, True), (-math.inf, False)])
def test_no_frame_is_begun_when_the_time_is_over(until: float | None, *, all_run: bool) -> None:
    node = World().primary()
    session = node.register()
    node.call(session, 1, b"one")
    world = node.world
    look = Inspection(CONFIG, world.disk.view(node.name), node.lock_store.view(), node.engine.service)
    plan = _Plan(None, 0, node.engine.place.lsn, until=until)
    ran, _ = _run_all(look, shard_around(Echo(), world.limits), plan, None, None, lambda: None)
    assert (ran, plan.to > 0) == (plan.to if all_run else 0, True)
