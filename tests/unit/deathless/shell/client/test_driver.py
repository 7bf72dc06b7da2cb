"""The shell of the client's machine: connections, TLS, one timer."""

from __future__ import annotations

import asyncio
import socket
import threading
from pathlib import Path

import pytest
import trustme
from replica_fake import FakeShard, ReplicaServer

from deathless.base.config import TlsConfig
from deathless.base.errors import InvalidConfig, PeerUnreachable
from deathless.shell.client import driver as client_driver
from deathless.shell.client.driver import resolve
from deathless.shell.client.shard_client import Client
from deathless.shell.directory.members import Member, write_member
from deathless.shell.net.tls import server_context

pytestmark = pytest.mark.asyncio


async def lone() -> ReplicaServer:
    server = ReplicaServer(FakeShard())
    await server.start()
    server.replica.become("primary", 1, server.address)
    return server


async def test_addresses_are_taken_as_given_or_from_the_directory(tmp_path: Path) -> None:
    write_member(str(tmp_path), Member("r1", "h:1", "h:2"))
    write_member(str(tmp_path), Member("r0", "h:3"))
    assert resolve(["a:1", f"dir:{tmp_path}", "a:1"]) == ("a:1", "h:2")
    with pytest.raises(InvalidConfig):
        resolve(["a:99999"])


async def test_connection_that_breaks_is_replaced() -> None:
    server = await lone()
    async with Client("bank", [server.address]) as client:
        assert await client.call("deposit", "alice", n=1) == {"n": 1}
        for transport in list(server.transports.values()):
            transport.abort()
        assert await client.call("deposit", "alice", n=2) == {"n": 2}
    server.kill()


async def test_folder_whose_storage_hangs_keeps_nobody_from_the_replicas_it_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await lone()
    write_member(str(tmp_path), Member("r0", "", server.address))
    thawed = threading.Event()
    async with Client("bank", [f"dir:{tmp_path}"]) as client:
        await client.ready()
        asked = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hang(_: tuple[str, ...]) -> tuple[str, ...]:
            loop.call_soon_threadsafe(asked.set)
            thawed.wait()
            raise OSError("stale")

        monkeypatch.setattr(client_driver, "resolve", hang)
        try:
            for transport in list(server.transports.values()):
                transport.abort()
            await asked.wait()
            assert await client.call("deposit", "alice", n=1) == {"n": 1}
        finally:
            thawed.set()
        assert await client.call("deposit", "alice", n=2) == {"n": 2}
    server.kill()


async def test_client_that_is_closed_while_it_dials_leaves_nothing_behind() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(1)
        client = Client("bank", [f"127.0.0.1:{listener.getsockname()[1]}"])
        client.start()
        await asyncio.sleep(0)
        await client.close()
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_replica_that_never_greets_is_given_up_and_dialed_again() -> None:
    server = await lone()
    server.replica.freeze()
    async with Client("bank", [server.address]) as client:
        pending = asyncio.ensure_future(client.call("deposit", "alice", n=1))
        for _ in range(2):
            server.opened.clear()
            await server.opened.wait()
        server.replica.held = None
        server.opened.clear()
        assert await pending == {"n": 1}
    server.kill()


async def test_close_cuts_a_peer_that_does_not_read() -> None:
    server = await lone()
    async with Client("bank", [server.address], window_max=100) as client:
        await client.ready()
        for transport in server.transports.values():
            transport.pause_reading()
        pending = [client.submit("deposit", "alice", {"text": "x" * 500_000}) for _ in range(30)]
        await asyncio.sleep(0)
    assert all(future.exception() is not None for future in pending)
    server.kill()


# ---- TLS -------------------------------------------------------------------------------------------------------


def files(folder: Path, authority: trustme.CA, *names: str) -> TlsConfig:
    folder.mkdir()
    certificate = authority.issue_cert(*names)
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "key.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(folder / "cert.pem"))
    return TlsConfig(
        ca=str(folder / "ca.pem"),
        certificate=str(folder / "cert.pem"),
        key=str(folder / "key.pem"),
        require_client_certificate=True,
    )


async def test_client_and_replica_show_each_other_certificates(tmp_path: Path) -> None:
    authority = trustme.CA()
    server = ReplicaServer(FakeShard())
    await server.start(server_context(files(tmp_path / "server", authority, "127.0.0.1")))
    server.replica.become("primary", 1, server.address)
    tls = files(tmp_path / "client", authority, "client")
    async with Client("bank", [server.address], tls=tls) as client:
        assert await client.call("deposit", "alice", n=1) == {"n": 1}
    for stranger in (None, files(tmp_path / "stranger", trustme.CA(), "client")):
        async with Client("bank", [server.address], tls=stranger) as client:
            with pytest.raises(PeerUnreachable):
                await client.call("deposit", "alice", timeout=0.2)
    server.kill()


async def test_missing_certificate_is_told_as_the_reason(tmp_path: Path) -> None:
    server = await lone()
    async with Client("bank", [server.address], tls=TlsConfig(ca=str(tmp_path / "none.pem"))) as client:
        with pytest.raises(PeerUnreachable, match=r"none\.pem"):
            await client.call("deposit", "alice", timeout=0.05)
    server.kill()
