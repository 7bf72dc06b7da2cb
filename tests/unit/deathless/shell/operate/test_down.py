"""A service of which nothing runs is told at once (DL1005); one that may yet answer is waited for."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

import msgspec
import pytest
from lab.ports import free_ports

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError
from deathless.shell.directory.members import Member, write_member
from deathless.shell.link.config_file import config_path
from deathless.shell.net.reachable import any_may_listen
from deathless.shell.operate import down
from deathless.shell.operate.down import why_down
from deathless.shell.operate.status import Part, ReplicaView, ServiceView
from deathless.shell.operate.target import Target

pytestmark = pytest.mark.asyncio


def bank(folder: Path) -> Target:
    """A service of one replica that was started once."""
    config = ReplicaConfig(service="bank", module="m:a", directory=str(folder), replica="r0")
    path = config_path(folder, "r0")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.encode(config))
    return Target(config, "service.yaml", None)


def closed_port() -> str:
    """An address at which nobody listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


async def test_nothing_was_started(tmp_path: Path) -> None:
    told = await why_down(bank(tmp_path))
    assert told is not None
    assert (told.code, str(tmp_path) in told.message) == ("DL1005", True)
    assert "no replica is announced" in told.message
    assert "deathless up" in told.advice


async def test_all_were_killed(tmp_path: Path) -> None:
    write_member(str(tmp_path), Member("r0", closed_port(), closed_port()))
    told = await why_down(bank(tmp_path))
    assert told is not None
    assert "announced there answers" in told.message


@pytest.mark.parametrize("which", ["client", "control"])
async def test_one_who_accepts_a_connection_may_answer(tmp_path: Path, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        control, client = (closed_port(), address) if which == "client" else (address, closed_port())
        write_member(str(tmp_path), Member("r0", closed_port(), closed_port()))
        write_member(str(tmp_path), Member("r1", control, client))
        if which == "client":
            assert await why_down(bank(tmp_path)) is None
        else:
            assert await any_may_listen([closed_port(), address])


@pytest.mark.parametrize("file", ["up.lock", "replicas/r0/supervisor.lock", "replicas/r0/supervisor.pod-1.lock"])
async def test_one_that_is_starting_is_waited_for(tmp_path: Path, file: str) -> None:
    found = bank(tmp_path)
    path = tmp_path / file
    path.write_text(f"{os.getpid()}\n")
    with path.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert await why_down(found) is None
    assert await why_down(found) is not None


async def test_files_that_can_not_be_looked_at_prove_nothing(tmp_path: Path) -> None:
    found = bank(tmp_path)
    (tmp_path / "up.lock").mkdir()
    assert await why_down(found) is None


async def test_replicas_that_stay_stopped_are_told_with_their_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look(_parts: list[Part]) -> ServiceView:
        one = ReplicaView(replica="r0", state="dead", role="-", condition="DL4009")
        return ServiceView("bank", str(tmp_path), "", 0, [one])

    monkeypatch.setattr(down, "look_at_all", look)
    monkeypatch.setattr(down, "_at_work", lambda *_: True)
    told = await why_down(bank(tmp_path))
    assert isinstance(told, DeathlessError)
    assert "DL4009" in told.message
    assert "deathless logs" in told.advice
