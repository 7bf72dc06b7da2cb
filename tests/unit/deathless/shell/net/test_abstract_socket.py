"""Where a primary and a driver beside it meet: found by name, gone with its owner, nobody else's."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from deathless.shell.net.abstract_socket import connect_local, driver_socket, listen_local


class Said(asyncio.Protocol):
    """What arrives."""

    def __init__(self) -> None:
        self.data: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self.transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data.set_result(data)


def test_each_driver_of_each_replica_has_its_own_name_which_a_link_to_the_folder_does_not_change(
    tmp_path: Path,
) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "log")
    name = driver_socket(str(tmp_path / "log"), "r0", "ledger")
    assert name == driver_socket(str(tmp_path / "link"), "r0", "ledger")
    others = {
        driver_socket(str(tmp_path / "log"), "r1", "ledger"),
        driver_socket(str(tmp_path / "log"), "r0", "mail"),
        driver_socket(str(tmp_path), "r0", "ledger"),
    }
    assert len({name} | others) == 4
    assert len(driver_socket("/" + "d" * 4000, "r0." + "u" * 36, "n" * 40)) <= 85, "what an address holds is 107"


def test_it_is_there_while_its_owner_lives_and_one_process_has_it(tmp_path: Path) -> None:
    async def main() -> None:
        name = driver_socket(str(tmp_path), "r0", "ledger")
        accepted: list[Said] = []
        came = asyncio.Event()

        def accept() -> Said:
            accepted.append(Said())
            came.set()
            return accepted[-1]

        with pytest.raises(ConnectionRefusedError):
            await connect_local(Said, name)
        server = await listen_local(accept, name)
        with pytest.raises(OSError, match="in use"):
            await listen_local(accept, name)
        near = await connect_local(Said, name)
        assert near.transport is not None
        near.transport.write(b"hello")
        await came.wait()
        assert await accepted[0].data == b"hello"
        near.transport.abort()
        for each in accepted:
            assert each.transport is not None
            each.transport.abort()
        server.close()
        for _ in range(5):
            await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            await connect_local(Said, name)

    asyncio.run(asyncio.wait_for(main(), 60))


def test_a_process_of_another_user_is_told_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        name = driver_socket(str(tmp_path), "r0", "ledger")
        server = await listen_local(Said, name)
        monkeypatch.setattr(os, "geteuid", lambda: 4242)
        with pytest.raises(PermissionError):
            await connect_local(Said, name)
        server.close()
        await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(main(), 60))
