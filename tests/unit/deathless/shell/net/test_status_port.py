"""A process beside a replica says how it is to whoever is of its user, and one that says nothing is not waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from deathless.shell.net import status_port
from deathless.shell.net.abstract_socket import driver_socket, listen_local
from deathless.shell.net.status_port import StatusPort, ask_status


class Said(msgspec.Struct):
    """A status."""

    text: str


def asked(port: Callable[[], asyncio.Protocol] | None, bytes_max: int = 100) -> Said | None:
    """Ask a process that has this port; None: there is none."""
    name = driver_socket("/nowhere", "me", "sink/facts")

    async def ask() -> Said | None:
        server = await listen_local(port, name) if port is not None else None
        try:
            return await ask_status(name, Said, bytes_max)
        finally:
            if server is not None:
                server.close()

    return asyncio.run(ask())


def test_what_it_says_is_heard() -> None:
    assert asked(lambda: StatusPort(Said("well"))) == Said("well")


def test_who_says_nothing_or_no_status_or_too_much_is_silent() -> None:
    assert asked(None) is None
    assert asked(lambda: StatusPort(msgspec.defstruct("Other", [("number", int)])(1))) is None
    assert asked(lambda: StatusPort(Said("x" * 100))) is None


def test_one_that_is_frozen_keeps_no_connection_of_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked with every scrape, for as long as it is frozen."""
    monkeypatch.setattr(status_port, "TIMEOUT_S", 0.01)
    name = driver_socket("/nowhere", "me", "sink/facts")

    made: list[Frozen] = []

    class Frozen(asyncio.Protocol):
        def __init__(self) -> None:
            self.lost = asyncio.get_running_loop().create_future()
            made.append(self)

        def connection_lost(self, exc: Exception | None) -> None:
            self.lost.set_result(None)

    async def ask() -> None:
        server = await listen_local(Frozen, name)
        assert await ask_status(name, Said, 100) is None
        while not made:  # noqa: ASYNC110  its loop is this one
            await asyncio.sleep(0)
        await asyncio.wait_for(made[0].lost, 30)
        server.close()

    asyncio.run(ask())


def test_who_is_of_another_user_is_told_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_port, "is_own", lambda _socket: False)
    assert asked(lambda: StatusPort(Said("well"))) is None
