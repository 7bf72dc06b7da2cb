"""Our client of ClickHouse: where it is, and what its words mean."""

from __future__ import annotations

import asyncio

import pytest

from deathless.base.errors import SinkTableUnfit, SinkUnavailable
from deathless.sinks.clickhouse.client import Client, Where, refusal, where_of
from deathless.sinks.port import BlockRefused

pytest.importorskip("aiohttp", reason="the client needs aiohttp: pip install deathless[clickhouse]")


def test_url_says_where_and_as_whom() -> None:
    assert where_of("http://db:8123") == Where("http://db:8123/", "", "", "")
    found = where_of("https://rep%40rt:p%3Aw@db.example:8443/ch?database=re%20ports")
    assert found == Where("https://db.example:8443/ch", "rep@rt", "p:w", "re ports")


@pytest.mark.parametrize("text", ["db:8123", "tcp://db:9000", "http://", "http://db:x", "http://db?user=a", "http://db#a",
                                  "http://db?database=a&b=c"])  # fmt: skip
def test_what_is_no_such_url_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must begin|may say"):
        where_of(text)


@pytest.mark.parametrize("text", ["http://me:s3cr3t/x@db:8123", "http://me:s3cr3t@[::1", "http://me:s3cr3t\u2100@db"])
def test_a_password_that_breaks_the_url_is_not_told(text: str) -> None:
    """It stands in the part that the library quotes."""
    with pytest.raises(ValueError, match="in a password / is written %2F") as told:
        where_of(text)
    assert "s3cr3t" not in str(told.value)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Code: 469. DB::Exception: Constraint `c` is violated", BlockRefused),
        ("Code: 349, e.displayText() = DB::Exception: Cannot convert NULL", BlockRefused),
        ("Code: 252. DB::Exception: Too many partitions for single INSERT block (more than 100)", BlockRefused),
        ("Code: 252. DB::Exception: Too many parts (300). Merges are slower", SinkUnavailable),
        ("Code: 60. DB::Exception: Table does not exist", SinkTableUnfit),
        ("Code: 497. DB::Exception: Not enough privileges", SinkTableUnfit),
        ("Code: 516. DB::Exception: Authentication failed", SinkUnavailable),
        ("Code: 241. DB::Exception: Memory limit exceeded", SinkUnavailable),
        ("", SinkUnavailable),
    ],
)
def test_words_of_the_server_say_whether_row_table_or_time_is_wrong(text: str, kind: type[Exception]) -> None:
    found = refusal(text, 503)
    assert type(found) is kind
    assert (text or "HTTP status 503") in str(found)


def test_server_that_is_not_there_is_unavailable() -> None:
    async def work() -> None:
        client = Client(Where("http://127.0.0.1:1/", "", "", ""))
        with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:1"):
            await client.run("SELECT 1", {})
        await client.close()

    asyncio.run(work())


def test_statement_and_rows_travel_in_one_request_as_the_user_says() -> None:
    seen: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await reader.readuntil(b"--\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        await writer.drain()
        writer.close()

    async def work() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            client = Client(Where(f"http://127.0.0.1:{port}/", "me", "pw", "db"))
            settings = {"async_insert": "0"}
            assert await client.run("INSERT", settings, name="q-1", rows=b"1\n", columns="c0 Int64") == b"ok"
            await client.close()

    asyncio.run(work())
    head = seen[0].decode()
    for each in ("query=INSERT", "query_id=q-1", "database=db", "async_insert=0", "_rows_format=TabSeparated"):
        assert each in head
    assert "X-ClickHouse-User: me" in head
    assert "1\n" in head
