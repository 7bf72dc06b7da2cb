"""An answer that never ends, or is longer than any that we asked for, is an error before it is decoded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import aiohttp
import pytest

from deathless.base.errors import TooLarge
from deathless_operator.cluster import bounded
from deathless_operator.cluster.api import Api
from deathless_operator.cluster.bounded import read_whole
from deathless_operator.cluster.connection import Connection
from deathless_operator.cluster.errors import ApiRefused
from deathless_operator.cluster.kinds import POD

BODY = b'{"kind": "Pod", "metadata": {"name": "bank-0"}}'


@pytest.fixture(name="server")
def answering() -> Iterator[str]:
    """Answers with BODY, and below /endless with a body that ends when who asked hangs up."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            if "endless" not in self.path:
                self.send_header("content-length", str(len(BODY)))
            self.end_headers()
            self.wfile.write(BODY)
            with contextlib.suppress(OSError):
                while "endless" in self.path:
                    self.wfile.write(BODY * 100)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{http.server_address[1]}"
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.mark.asyncio
@pytest.mark.parametrize(("path", "most"), [("endless", 1 << 20), ("short", len(BODY) - 1)])
async def test_answer_above_the_limit_is_refused(server: str, path: str, most: int) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{server}/{path}") as answer:
        with pytest.raises(TooLarge, match=f"get x: the answer has more than {most} bytes"):
            await read_whole(answer, "get x", most)


@pytest.mark.asyncio
async def test_answer_of_just_the_limit_is_whole(server: str) -> None:
    async with aiohttp.ClientSession() as session, session.get(f"{server}/short") as answer:
        assert await read_whole(answer, "get x", len(BODY)) == BODY


@pytest.mark.asyncio
async def test_an_api_server_that_says_too_much_has_refused(server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Api(Connection(server=server)) as api:
        assert await api.get(POD, "ns", "bank-0") == {"kind": "Pod", "metadata": {"name": "bank-0"}}
        monkeypatch.setattr(bounded, "ANSWER_BYTES_MAX", 1 << 16)
        with pytest.raises(ApiRefused, match=r"more than 65536 bytes; check what answers"):
            await api.get(POD, "ns", "endless")
