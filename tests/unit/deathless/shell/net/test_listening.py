"""Ports: addresses as texts, and how many connections fit."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator

import pytest

from deathless.base.errors import InvalidConfig, PortTaken
from deathless.shell.net.listening import DESCRIPTORS_KEPT, announced, descriptors_for, listen, split_address


@contextlib.contextmanager
def limit(soft: int) -> Iterator[None]:
    """Let this process have so many descriptors until it asks for more."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize(
    ("address", "host", "told"),
    [
        ("0.0.0.0:7401", "10.1.2.3", "10.1.2.3:7401"),
        ("[::]:7401", "fd00::7", "[fd00::7]:7401"),
        ("127.0.0.1:9", "", "127.0.0.1:9"),
    ],
)
def test_address_is_announced_at_the_host_that_others_reach(address: str, host: str, told: str) -> None:
    assert announced(address, host) == told
    assert split_address(told)[0] == (host or "127.0.0.1")


@pytest.mark.parametrize("address", ["", "127.0.0.1", "127.0.0.1:", "127.0.0.1:http", "127.0.0.1:65536", "a:-1"])
def test_what_is_no_address_is_refused_by_its_text(address: str) -> None:
    with pytest.raises(InvalidConfig, match="is not host:port"):
        split_address(address)


@pytest.mark.asyncio
async def test_a_port_that_is_taken_is_named() -> None:
    server, address = await listen(lambda: None, "127.0.0.1:0")  # type: ignore[arg-type, return-value]
    with pytest.raises(PortTaken, match=address):
        await listen(lambda: None, address)  # type: ignore[arg-type, return-value]
    server.close()
    await server.wait_closed()


def test_descriptors_are_asked_for_as_far_as_the_machine_gives_them() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    with limit(300):
        assert descriptors_for(1000) == min(1000, hard - DESCRIPTORS_KEPT)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == min(1000 + DESCRIPTORS_KEPT, hard)
    with limit(300):
        assert descriptors_for(10) == 10
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 300
