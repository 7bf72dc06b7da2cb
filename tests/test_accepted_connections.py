"""What a test's server has accepted, or a client has closed, ends with the server or loop, and fails no other test."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
import warnings
from pathlib import Path
from typing import Any, cast

import pytest
from etcd_server import TlsFiles

HELD: list[asyncio.StreamWriter] = []  # a writer that nobody holds any more closes by itself


def _accept_at_once(server: asyncio.Server) -> None:
    """Have the loop accept what the kernel holds, as it does when it looks at its sockets next."""
    selector = cast("Any", server.get_loop())._selector
    for each in server.sockets:
        selector.get_key(each.fileno()).data[0]._run()


def test_connection_whose_server_is_closed_while_it_is_accepted_is_ended() -> None:
    async def main() -> bytes:
        server = await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", 0)
        with socket.create_connection(server.sockets[0].getsockname()) as client:
            _accept_at_once(server)
            server.close()
            client.setblocking(False)
            return await asyncio.wait_for(asyncio.get_running_loop().sock_recv(client, 1), 20)

    assert asyncio.run(main()) == b""
    gc.collect()  # what nobody had closed would fail this test here


def _connected(address: tuple[str, int], *, secured: bool) -> socket.socket:
    """A client that is no part of the server's loop."""
    client = socket.create_connection(address)
    return ssl._create_unverified_context().wrap_socket(client) if secured else client


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "TLS"])
def test_connection_that_stands_as_the_loop_ends_is_ended(secured: bool, tmp_path: Path) -> None:
    context = None
    if secured:
        files = TlsFiles.create(tmp_path)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(files.server_cert, files.server_key)

    async def main() -> socket.socket:
        came: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()
        server = await asyncio.start_server(lambda _, writer: came.put_nowait(writer), "127.0.0.1", 0, ssl=context)
        client = await asyncio.to_thread(_connected, server.sockets[0].getsockname(), secured=secured)
        HELD.append(await came.get())
        server.close()
        return client

    asyncio.run(main()).close()
    HELD.clear()
    gc.collect()


@pytest.mark.parametrize("secured", [False, True], ids=["plain", "TLS"])
def test_connection_whose_other_end_does_not_see_that_it_is_closed_is_ended(secured: bool, tmp_path: Path) -> None:
    files = TlsFiles.create(tmp_path)
    theirs = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    theirs.load_cert_chain(files.server_cert, files.server_key)
    ours = ssl._create_unverified_context() if secured else None

    def accepted(listener: socket.socket) -> socket.socket:
        connection, _ = listener.accept()
        return theirs.wrap_socket(connection, server_side=True) if secured else connection

    async def main(listener: socket.socket) -> socket.socket:
        other = asyncio.create_task(asyncio.to_thread(accepted, listener))
        address = listener.getsockname()
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, *address, ssl=ours)
        transport.write(bytes(0 if secured else 1 << 25))  # more than the kernel takes
        transport.close()
        return await other

    with socket.create_server(("127.0.0.1", 0)) as listener:
        asyncio.run(main(listener)).close()
    gc.collect()


def test_client_that_forgets_its_connection_is_still_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, warnings.catch_warnings(record=True) as told:

        async def main() -> None:
            await asyncio.get_running_loop().create_connection(asyncio.Protocol, *listener.getsockname())

        warnings.simplefilter("always")
        asyncio.run(main())
        gc.collect()
    assert "unclosed transport" in " ".join(str(each.message) for each in told)
