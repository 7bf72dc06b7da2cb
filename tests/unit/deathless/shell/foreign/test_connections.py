"""Ports of an application, whose process connects them, and what waits for it."""

from __future__ import annotations

import asyncio
import hashlib
import os
import socket
from collections.abc import Iterator

import pytest

from deathless.base.errors import PortTaken
from deathless.shell.foreign import connections
from deathless.shell.foreign.connections import Unsent, is_ours, listen, port_of, until_read
from deathless.shell.foreign.tcp_table import End


@pytest.fixture(name="pair")
def connected_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Our end, and the application's."""
    with listen(0) as listener, socket.create_connection(("127.0.0.1", port_of(listener))) as theirs:
        ours, _ = listener.accept()
        ours.setblocking(False)
        with ours:
            yield ours, theirs


def test_any_free_port_is_bound_on_loopback_alone() -> None:
    with listen(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"
        assert port_of(listener) > 0


def test_a_port_that_is_taken_is_named() -> None:
    with listen(0) as listener, pytest.raises(PortTaken, match=f"127.0.0.1:{port_of(listener)}"):
        listen(port_of(listener))


def test_a_process_of_another_user_is_found_out(
    pair: tuple[socket.socket, socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_ours(pair[0])
    stranger: list[End | None] = [End(uid=os.geteuid() + 1, unread=0), None]
    for end in stranger:
        monkeypatch.setattr(connections, "end_of_peer", lambda connection, end=end: end)
        assert not is_ours(pair[0])


def test_looks_at_what_was_read_become_seldom_while_nothing_is(pair: tuple[socket.socket, socket.socket]) -> None:
    """Each of them reads the kernel's whole table."""
    ours, theirs = pair
    unsent, pauses = Unsent(ours), list[float]()
    unsent.give(bytes(50_000))
    assert unsent.send()

    async def pause(pause_s: float) -> None:
        pauses.append(pause_s)
        if len(pauses) == 6:
            theirs.recv(20_000, socket.MSG_WAITALL)

    asyncio.run(until_read(unsent.waiting, 30_000, first_s=0.002, most_s=0.05, pause=pause))
    assert pauses == [0.002, 0.004, 0.008, 0.016, 0.032, 0.05]


def test_what_the_kernel_does_not_take_waits_in_order(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    unsent = Unsent(ours)
    data = os.urandom(8 << 20)  # more than both sockets hold
    unsent.give(b"")
    unsent.give(data[:100])
    unsent.give(data[100:])
    assert not unsent.send()
    assert (unsent.total, unsent.waiting()) == (len(data), len(data))
    got = bytearray()
    while len(got) < len(data):
        got += theirs.recv(1 << 20)
        unsent.send()
    assert hashlib.sha256(got).digest() == hashlib.sha256(data).digest()
    assert (unsent.send(), unsent.size, unsent.waiting()) == (True, 0, 0)
