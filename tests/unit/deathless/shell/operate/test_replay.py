"""Who is interrupted while a log is run again is kept by no process that runs it; tests/process runs real logs."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from deathless.base.config import ReplicaConfig
from deathless.shell.operate import replay as module
from deathless.shell.operate.replay import ReplayOrder, replay

STAYS = """
import json, os, subprocess, sys
work = json.load(os.fdopen(int(sys.argv[1])))
other = subprocess.Popen(["sleep", "60"], pass_fds=(work["result_fd"],))
with open(os.path.join(work["order"]["folder"], "new"), "w") as file: file.write(f"{os.getpid()} {other.pid}")
os.rename(file.name, os.path.join(work["order"]["folder"], "pid"))
other.wait()
"""
"""What runs the log, with a process that goes on holding the result's pipe when it is killed."""


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
