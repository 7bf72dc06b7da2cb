"""Whether somebody listens is found out by a connection, and silence is no answer."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import msgspec
import pytest
from lab.ports import free_ports

from deathless.base.config import ReplicaConfig
from deathless.shell.directory.members import ingress_address_path
from deathless.shell.net import reachable
from deathless.shell.net.reachable import any_may_listen, closed_doors, listens

pytestmark = pytest.mark.asyncio


def closed_port() -> str:
    """An address at which nobody listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


async def test_a_port_listens_or_does_not() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert await listens(f"127.0.0.1:{server.getsockname()[1]}") is True
    assert await listens(closed_port()) is False
    assert await listens("nowhere") is False


async def test_an_address_that_gives_no_sign_may_be_a_frozen_one(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(asyncio, "open_connection", never)
    monkeypatch.setattr(reachable, "CONNECT_S", 0.01)
    assert await listens("127.0.0.1:1") is None
    assert await any_may_listen(["127.0.0.1:1"])
    assert not await any_may_listen([""])


async def test_http_ports_that_do_not_listen_yet_are_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        at, away = f"127.0.0.1:{server.getsockname()[1]}", closed_port()
        listen = {"r0": at, "r1": away, "r2": "127.0.0.1:0", "r3": "127.0.0.1:0", "r4": ""}
        one = ReplicaConfig(service="bank", module="m:a", directory=str(tmp_path), replica="r0")
        address = ingress_address_path(str(tmp_path), "r3")
        address.parent.mkdir(parents=True)
        address.write_text(at)
        configs = [msgspec.structs.replace(one, replica=r, ingress_listen=door) for r, door in listen.items()]
        assert await closed_doors(configs) == [away, "127.0.0.1:0"]
