"""What an answer means; requests themselves are tried in tests/apiserver/test_api.py, on a real API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from deathless_operator.cluster.api import Api, Object, Read, _parsed
from deathless_operator.cluster.connection import Connection
from deathless_operator.cluster.errors import ApiFailed, ApiUnreachable, Expired, NotFound
from deathless_operator.cluster.kinds import POD, Kind


def test_good_answer_is_its_object_and_an_empty_one_is_empty() -> None:
    assert _parsed("get", 200, b'{"kind": "Pod"}', "") == {"kind": "Pod"}
    assert _parsed("delete", 200, b"", "") == {}


def test_throttled_answer_says_how_long_to_wait() -> None:
    with pytest.raises(ApiUnreachable) as caught:
        _parsed("get", 429, b'{"message": "too many"}', "3")
    assert caught.value.retry_after_s == 3.0 and "too many" in str(caught.value)
    with pytest.raises(ApiUnreachable) as caught:
        _parsed("get", 503, b"", "Wed, 21 Oct 2026 07:28:00 GMT")
    assert caught.value.retry_after_s == 0.0


@pytest.mark.parametrize("content", [b"<html>gateway</html>", b'"text"', b"\xff\xfe", b""])
def test_refusal_that_is_no_object_is_still_a_refusal(content: bytes) -> None:
    with pytest.raises(NotFound) as caught:
        _parsed("get Pod shop/x", 404, content, "")
    assert caught.value.status == 404


@pytest.mark.asyncio
async def test_list_that_expires_between_pages_is_read_again_whole() -> None:
    asked: list[int] = []

    class Shifting(Api):
        async def _pages(
            self,
            kind: Kind,
            namespace: str | None,
            read: Callable[[Object], Read],
            labels: str,
            fields: str,
            page: int,
        ) -> tuple[Read, ...]:
            asked.append(page)
            if page:
                raise Expired("the continue token is too old", status=410)
            return (read({"metadata": {"name": "bank-0"}}),)

    api = Shifting(Connection(server="https://one.test"))
    assert len(await api.list(POD, "shop")) == 1
    assert len(asked) == 2 and asked[1] == 0


@pytest.mark.asyncio
async def test_write_whose_connection_ends_without_an_answer_has_failed_by_itself() -> None:
    """A busy API server does so where a write takes too long; it is there, and answers for other objects."""

    answers: list[asyncio.Task[object] | None] = []

    async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers.append(asyncio.current_task())
        await reader.readuntil(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(hang_up, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with Api(Connection(server=url), patience_s=0.0) as api:
            with pytest.raises(ApiFailed, match="ended the connection") as caught:
                await api.delete(POD, "shop", "bank-0")
            assert caught.value.status == 0
            with pytest.raises(ApiUnreachable) as unread:
                await api.get(POD, "shop", "bank-0")
            assert not isinstance(unread.value, ApiFailed)
        await asyncio.gather(*(each for each in answers if each is not None))
