"""A member that can't answer is left for another; the rest is tried with a real etcd in tests/process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from deathless.base.errors import LockUnavailable
from deathless_operator.cluster.lock_store import LockStore


@contextmanager
def member(status: int, said: bytes) -> Iterator[tuple[str, list[str]]]:
    """A member that gives one answer to everything; yields its address and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = Thread(target=http.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_address[1]}", asked
        finally:
            http.shutdown()
            thread.join()


async def users_of(*endpoints: str) -> list[frozenset[str]]:
    """Ask twice."""
    async with LockStore(endpoints, tls=None, user="admin") as store:
        return [await store.users() for _ in range(2)]


@pytest.mark.parametrize("said", [b'{"message":"etcdserver: no leader"}', b"Service Unavailable"])
def test_member_that_can_do_nothing_is_left_for_the_next_one(said: bytes) -> None:
    with ExitStack() as stack:
        lame, asked = stack.enter_context(member(503, said))
        sound, answered = stack.enter_context(member(200, b'{"users":["shop.bank"]}'))
        assert asyncio.run(users_of(lame, sound)) == [frozenset({"shop.bank"})] * 2
        assert (len(asked), len(answered)) == (1, 2), "the one that answered is asked first"


def test_what_the_last_member_said_is_told_where_none_can_do_anything() -> None:
    with (
        member(503, b'{"message":"etcdserver: no leader"}') as (lame, _),
        pytest.raises(LockUnavailable, match=r"HTTP 503: .*no leader"),
    ):
        asyncio.run(users_of(lame))
