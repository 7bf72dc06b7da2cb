"""A replica whose settings change under it: one that has not served takes the new ones, one that has goes on."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest
from tests.unit.deathless.shell.supervisor_bench import (
    TICKING,
    ScriptedSupervisor,
    config_in,
    supervised,
    until,
)

from deathless.base.errors import SettingsChanged
from deathless.shell.link.settings_file import SettingsFile
from deathless.shell.supervisor import starting as module

WAITING = 'role("recovering")\nwhile True: time.sleep(60)'


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SettingsFile:
    """Settings that are looked at at every turn of a supervisor's loop."""
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    path = tmp_path / "replica.json"
    path.write_text('{"etcd":1}')
    return SettingsFile(str(path))


def change(shared: SettingsFile) -> None:
    """Other settings stand in the file."""
    Path(shared.path).write_text('{"etcd":2}')


@pytest.mark.parametrize("worker", [WAITING, 'stopping("DL4007"); os._exit(65)'], ids=["asks a lock store", "refused"])
def test_replica_that_has_not_served_ends_to_start_with_other_settings(
    tmp_path: Path, shared: SettingsFile, worker: str
) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "recovering" or supervisor.report.condition)
        assert supervisor._standing().settings == shared.hash
        change(shared)
        await asyncio.Event().wait()

    async def main() -> None:
        supervisor = ScriptedSupervisor(config_in(tmp_path / "log"), "unused", settings=shared)
        supervisor.worker_script = worker
        looking = asyncio.create_task(look(supervisor))
        async with asyncio.timeout(15):
            with pytest.raises(SettingsChanged, match=r"replica\.json"):
                await supervisor.run()
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)

    asyncio.run(main())


def test_replica_that_has_served_goes_on_with_its_own(tmp_path: Path, shared: SettingsFile) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "standby")
        change(shared)
        supervisor._restart_worker()
        await until(lambda: (supervisor.folder / "starts").read_text() == "xx" and supervisor.report.role == "standby")

    supervised(tmp_path / "log", TICKING.format(told='[stopping(""), os._exit(0)]'), look, shared=shared)


def test_replica_whose_settings_stay_waits_on(tmp_path: Path, shared: SettingsFile) -> None:
    async def look(supervisor: ScriptedSupervisor) -> None:
        await until(lambda: supervisor.report.role == "recovering")
        looked = supervisor._start.looked_at
        await until(lambda: supervisor._start.looked_at > looked)

    waiting = WAITING.replace("time.sleep(60)", 'b"stop" in line.recv(4096) and os._exit(0)')
    supervised(tmp_path / "log", waiting, look, shared=shared)


def test_replica_that_finds_no_lock_store_at_its_start_takes_other_settings(
    tmp_path: Path, shared: SettingsFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:  # it is bound and does not listen: nobody answers there
        taken.bind(("127.0.0.1", 0))
        etcd = {"endpoints": [f"http://127.0.0.1:{taken.getsockname()[1]}"]}
        config = config_in(tmp_path / "log", lock="etcd", fence="etcd", etcd=etcd)

        async def main() -> None:
            supervisor = ScriptedSupervisor(config, "unused", settings=shared)
            change(shared)
            async with asyncio.timeout(30):
                with pytest.raises(SettingsChanged):
                    await supervisor.run()

        asyncio.run(main())
