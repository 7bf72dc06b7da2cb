"""A client in a process that was forked from the one that opened it: an error at once, and the parent goes on."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

import pytest
from replica_in_thread import served

from deathless.base.errors import ClientOfParent, DeathlessError
from deathless.shell.client.shard_client import Client
from deathless.shell.client.sync_client import SyncClient

pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
CHILD_MAX_S = 60


def in_child(work: Callable[[], object]) -> str:
    """Run something in a forked process; gives the code of the error it raised, `fine`, or what else happened."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(CHILD_MAX_S)  # where it hangs, its parent reads nothing but the end of the pipe
        try:
            work()
            told = "fine"
        except DeathlessError as error:
            told = error.code
        except BaseException as error:  # noqa: BLE001  the test says what it was
            told = repr(error)
        os.write(writing, told.encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    return told


def test_blocking_client_of_the_parent_is_refused_at_once_and_the_parent_goes_on() -> None:
    with served() as address, SyncClient("bank", [address]) as client:
        assert client.call("add", "k", n=1) == {"n": 1}
        session = client.read(lambda c: c.session)
        for work in (
            lambda: client.call("add", "k", n=2),
            lambda: client.query("add", "k"),
            lambda: client.submit("add", "k", {}),
            lambda: client.ready(1),
            lambda: client.read(lambda c: c.session),
            client.__enter__,
        ):
            assert in_child(work) == ClientOfParent.code
        assert in_child(client.close) == "fine"
        assert client.call("add", "k", n=3) == {"n": 3}
        assert client.read(lambda c: c.session) == session


def test_client_that_the_child_opens_works_with_a_session_of_its_own() -> None:
    with served() as address, SyncClient("bank", [address]) as client:
        assert client.call("add", "k", n=1) == {"n": 1}
        session = client.read(lambda c: c.session)

        def work() -> None:
            with SyncClient("bank", [address]) as own:
                assert own.call("add", "k", n=2) == {"n": 2}
                assert own.read(lambda c: c.session) != session

        assert in_child(work) == "fine"
        assert client.call("add", "k", n=3) == {"n": 3}


def test_client_of_the_parent_is_refused_whatever_the_child_asks() -> None:
    with served() as address:

        async def main() -> None:
            async with Client("bank", [address]) as client, Client("bank", [address], shards=2) as several:
                assert await client.call("add", "k", n=1) == {"n": 1}

                def call() -> None:
                    client.call("add", "k", n=2).send(None)

                assert in_child(call) == ClientOfParent.code
                assert in_child(lambda: client.submit("add", "k", {})) == ClientOfParent.code
                assert in_child(client.start) == ClientOfParent.code
                assert in_child(lambda: several.shard(0)) == ClientOfParent.code
                assert in_child(several.start) == ClientOfParent.code
                assert await client.call("add", "k", n=3) == {"n": 3}

        asyncio.run(main())
