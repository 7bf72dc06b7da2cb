"""The runner's parts that need no replica; tests/process/test_cli_up.py runs it over real ones."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig, OtherSupervisor, PortTaken, ShardsFixed, UpgradeRequired
from deathless.base.pipelines.agents import AgentConfig
from deathless.shell.net.listening import refuse_taken_port
from deathless.shell.operate import runner as module
from deathless.shell.operate.agents import DriverAgent
from deathless.shell.operate.programs import Program
from deathless.shell.operate.runner import (
    Change,
    Runner,
    RunnerEvent,
    running_runner,
)
from deathless.shell.operate.status import ReplicaView, ServiceView


def make_runner(folder: Path, events: list[RunnerEvent] | None = None) -> Runner:
    """A runner of one replica, not started."""
    config = ReplicaConfig(service="bank", module="m:a", directory=str(folder), replica="r0")
    return Runner([config], tell=(events if events is not None else []).append)


def test_second_runner_of_a_folder_is_refused_and_names_the_first(tmp_path: Path) -> None:
    async def work() -> None:
        first, second = make_runner(tmp_path / "d"), make_runner(tmp_path / "d")
        first.open()
        assert running_runner(tmp_path / "d") == os.getpid()
        with pytest.raises(OtherSupervisor, match=str(os.getpid())):
            second.open()
        second.close()
        first.close()
        assert running_runner(tmp_path / "d") == 0
        third = make_runner(tmp_path / "d")
        third.open()
        third.close()

    asyncio.run(work())


def test_folder_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "d").write_text("")
    with pytest.raises(InvalidConfig, match=r"spec\.logStorage\.path"):
        make_runner(tmp_path / "d" / "x").open()


def test_port_that_is_taken_is_told_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = ReplicaConfig(
            service="bank", module="m:a", directory=str(tmp_path), replica="r0", ingress_listen=address
        )
        runner = Runner([config], tell=lambda _: None)
        with pytest.raises(PortTaken, match=address):
            runner.open()
    refuse_taken_port(config)
    refuse_taken_port(msgspec.structs.replace(config, ingress_listen="127.0.0.1:0"))


def test_replica_that_can_not_be_started_now_is_started_later_and_does_not_end_its_runner(tmp_path: Path) -> None:
    events: list[RunnerEvent] = []
    folder = tmp_path / "replicas" / "r0"

    async def work() -> None:
        runner = make_runner(tmp_path, events)
        runner.open()
        running = asyncio.create_task(runner.run())
        async with asyncio.timeout(30):
            while not events:  # noqa: ASYNC110  nothing there can be waited on
                await asyncio.sleep(0)
            delayed = next(iter(runner.replicas.values()))
            assert delayed.start_at is not None
            (folder / "replica.log").rmdir()  # the storage is back
            while len(events) == 1:  # noqa: ASYNC110
                await asyncio.sleep(0)
        runner.kill()
        await running
        runner.close()

    (folder / "replica.log").mkdir(parents=True)
    asyncio.run(work())
    assert [event.change for event in events[:2]] == [Change.DELAYED, Change.STARTED]
    assert str(folder / "replica.log") in events[0].text


def test_refusal_of_all_replicas_is_the_error_that_they_logged(tmp_path: Path) -> None:
    runner = make_runner(tmp_path)
    folder = tmp_path / "replicas" / "r0"
    folder.mkdir(parents=True)
    why = f"DL4009 other code ({UpgradeRequired.remedy})"
    (folder / "replica.log").write_bytes(msgspec.json.encode({"text": "ends", "code": "DL4009", "why": why}))
    dead = ReplicaView(replica="r0", state="dead", role="dead", condition="DL4009")
    error = runner.refusal(ServiceView("bank", str(tmp_path), "", 0, [dead]))
    assert isinstance(error, UpgradeRequired)
    assert error.message == "other code"
    assert runner.refusal(ServiceView("bank", str(tmp_path), "", 0, [])) is None


def test_replicas_of_several_shards_are_run_together_and_named_by_shard(tmp_path: Path) -> None:
    configs = [
        ReplicaConfig(
            service="bank", module="m:a", directory=str(tmp_path / "shards" / str(shard)), replica=name, shard=shard,
            shards=2,
        )
        for shard in (0, 1)
        for name in ("r0", "r1")
    ]  # fmt: skip
    runner = Runner(configs, tell=lambda _: None)
    assert runner.directory == tmp_path
    assert list(runner.replicas) == ["0/r0", "0/r1", "1/r0", "1/r1"]
    assert runner.replicas["1/r0"].folder == tmp_path / "shards" / "1" / "replicas" / "r0"


def test_a_runner_with_another_number_of_shards_starts_nothing(tmp_path: Path) -> None:
    (tmp_path / "service.json").write_text('{"name": "bank", "shards": 2}')
    runner = make_runner(tmp_path)

    async def work() -> None:
        with pytest.raises(ShardsFixed, match="shards: 2"):
            runner.open()
        runner.close()

    asyncio.run(work())
    assert not (tmp_path / "replicas").exists()


def test_agents_whose_replicas_all_ended_for_good_do_not_hold_their_runner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[RunnerEvent] = []
    config = ReplicaConfig(service="bank", module="m:a", directory=str(tmp_path), replica="r0")
    agent = AgentConfig(pipeline="bank", name="d0", module="m:b", directory=str(tmp_path))
    started: list[str] = []

    def start(program: Program, _environment: object) -> subprocess.Popen[bytes]:
        started.append(program.name)
        code = "raise SystemExit(78)" if program.name == "r0" else "__import__('signal').pause()"
        return subprocess.Popen([sys.executable, "-c", code])

    async def work() -> int:
        runner = Runner([config], tell=events.append, agents=[agent])
        runner.open()
        try:
            return await asyncio.wait_for(runner.run(), 60)
        finally:
            runner.close()

    for kind in (module._Replica, DriverAgent):
        monkeypatch.setattr(kind, "start", start)
    assert asyncio.run(work()) == 78
    assert started == ["r0", "d0"]
    assert [event.change for event in events if event.replica == "d0"][-1] == Change.STOPPED


def test_supervisor_that_even_a_kill_does_not_end_is_told_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[RunnerEvent] = []
    processes: list[subprocess.Popen[bytes] | None] = []

    async def work() -> None:
        runner = make_runner(tmp_path, events)
        runner.open()
        running = asyncio.create_task(runner.run())
        async with asyncio.timeout(30):
            while not events:  # noqa: ASYNC110  nothing there can be waited on
                await asyncio.sleep(0)
            processes.extend(replica.process for replica in runner.replicas.values())
            runner.kill()
            await running
        runner.close()

    monkeypatch.setattr(module, "END_S", 0.0)
    monkeypatch.setattr(Runner, "_signal", staticmethod(lambda *_: None))
    asyncio.run(work())
    started, left = events
    (process,) = processes
    assert process is not None
    os.kill(left.pid, signal.SIGKILL)
    process.wait()
    assert (started.pid, left.change) == (left.pid, Change.LEFT)
    assert "kernel" in left.text
