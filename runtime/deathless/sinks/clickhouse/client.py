"""Our client of ClickHouse: statements over HTTP, each sent once.

Why our own: a client that repeats a request by itself, as those for ClickHouse do, would insert a block twice. What is
needed of HTTP is one POST, with rows as a file of a form: the server reads all of it before it begins the statement,
so that a statement whose rows are still under way has not looked at the fence.

Guarantees: a request is sent at most once; a call that is given up closes its connection. An answer is whole, or an
error. Does not: know sinks. Imports aiohttp, which is an extra, when a client is made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

import msgspec

from deathless.base.errors import InvalidConfig, SinkTableUnfit, SinkUnavailable
from deathless.sinks.port import BlockRefused

if TYPE_CHECKING:
    import aiohttp

REQUEST_S: Final = 600.0
"""A request without an answer for so long is given up."""
CONNECT_S: Final = 10.0
ANSWER_BYTES_MAX: Final = 64 << 20
CHUNK_BYTES: Final = 64 << 10
TEXT_MAX: Final = 500  # characters of a server's message that are told on
ROWS: Final = "_rows"
"""The name under which a statement finds the rows that were sent with it."""
ROW_CODES: Final = frozenset({6, 26, 27, 38, 41, 69, 70, 72, 117, 131, 153, 321, 349, 395, 407, 469})
"""The server's codes that say no to a row: text, numbers, times, null, a constraint, throwIf."""
TABLE_CODES: Final = frozenset({10, 16, 20, 36, 43, 44, 46, 47, 48, 50, 53, 60, 62, 81, 115, 164, 291, 452, 497})
"""Codes that say no to the table, or to us: a missing table or column, types, settings, no right."""
_CODE: Final = re.compile(r"Code: (\d+)")
_PARTITIONS: Final = "Too many partitions for single INSERT block"


_NO_URL: Final = (
    "it must begin with http:// or https://, and name a host, and behind it no port or one from 1 to 65535; in a "
    "password / is written %2F, ? %3F, # %23 and @ %40"
)


class Where(msgspec.Struct, frozen=True):
    """Where a server is, and as whom we come."""

    url: str  # scheme, host, port and path
    user: str
    password: str
    database: str


def where_of(text: str) -> Where:
    """Take a URL apart: http[s]://[user[:password]@]host[:port][/path][?database=name].

    Raises: ValueError saying what is wrong, without the password.
    """
    try:
        parts = urlsplit(text)
        fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ValueError(_NO_URL) from None  # theirs quotes what may be a password
    if not fits:
        raise ValueError(_NO_URL)
    name, _, database = parts.query.partition("=")
    if parts.fragment or (parts.query and (name != "database" or not database or "&" in database)):
        raise ValueError("behind ? it may say database=NAME, and no more")
    host = parts.netloc.rpartition("@")[2]
    url = f"{parts.scheme}://{host}{parts.path or '/'}"
    return Where(url, unquote(parts.username or ""), unquote(parts.password or ""), unquote(database))


class Client:
    """One server.

    Args:
        where: it is.

    Raises: InvalidConfig when aiohttp is not installed.
    """

    def __init__(self, where: Where) -> None:
        try:
            import aiohttp  # noqa: F401, PLC0415 - an extra: only who has such a sink needs it
        except ImportError as error:
            raise InvalidConfig(str(error), remedy="pip install deathless[clickhouse]") from None
        self._where = where
        self._session: aiohttp.ClientSession | None = None

    async def run(
        self,
        statement: str,
        settings: Mapping[str, str],
        *,
        name: str = "",
        rows: bytes | None = None,
        columns: str = "",
    ) -> bytes:
        """Run a statement, and give its answer.

        Args:
            statement: in ClickHouse's own words.
            settings: of this statement.
            name: that the server knows it by; empty: of its own choice.
            rows: lines with tabs, which the statement finds as the table `_rows`; None: it needs none.
            columns: of `rows`, as ClickHouse declares them.

        Raises: BlockRefused when the server refuses a row for good; SinkTableUnfit when it refuses the table, or us;
            SinkUnavailable, after which nobody knows whether it was carried out.
        """
        import aiohttp  # noqa: PLC0415 - as above

        where = self._where
        given = {**settings, "wait_end_of_query": "1"}
        given |= {key: value for key, value in (("query_id", name), ("database", where.database)) if value}
        data: aiohttp.FormData | bytes = statement.encode()
        if rows is not None:
            given |= {"query": statement, f"{ROWS}_structure": columns, f"{ROWS}_format": "TabSeparated"}
            data = aiohttp.FormData()
            data.add_field(ROWS, rows, filename="rows.tsv", content_type="text/tab-separated-values")
        try:
            async with self._connected().post(where.url, params=given, data=data, allow_redirects=False) as response:
                body = bytearray()
                async for chunk in response.content.iter_chunked(CHUNK_BYTES):
                    body += chunk
                    if len(body) > ANSWER_BYTES_MAX:
                        raise SinkUnavailable(f"{where.url} answers more than {ANSWER_BYTES_MAX} bytes")
                status, code = response.status, response.headers.get("X-ClickHouse-Exception-Code", "")
        except TimeoutError:
            raise SinkUnavailable(f"{where.url} gave no answer in time") from None
        except (aiohttp.ClientError, OSError) as error:
            raise SinkUnavailable(f"{where.url}: {str(error) or type(error).__name__}") from None
        if status != 200 or code:
            raise refusal(body.decode(errors="replace"), status)
        return bytes(body)

    def _connected(self) -> aiohttp.ClientSession:
        import aiohttp  # noqa: PLC0415 - as above

        if self._session is None:
            headers = {"X-ClickHouse-User": self._where.user} if self._where.user else {}
            if self._where.password:
                headers["X-ClickHouse-Key"] = self._where.password
            self._session = aiohttp.ClientSession(
                # A connection for each request: one that the server has closed meanwhile would look like a failure.
                connector=aiohttp.TCPConnector(force_close=True),
                timeout=aiohttp.ClientTimeout(total=REQUEST_S, sock_connect=CONNECT_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=headers,
            )
        return self._session

    async def close(self) -> None:
        """End what is under way, and let go of connections."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()


def refusal(text: str, status: int) -> BlockRefused | SinkTableUnfit | SinkUnavailable:
    """Give the error that a server's words mean."""
    told = " ".join(text.split())[:TEXT_MAX] or f"HTTP status {status}"
    found = _CODE.search(text)
    code = int(found[1]) if found else 0
    if code in ROW_CODES or _PARTITIONS in text:
        return BlockRefused(told)
    if code in TABLE_CODES:
        return SinkTableUnfit(told)
    return SinkUnavailable(told)
