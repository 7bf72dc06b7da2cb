"""A service's front door as a client uses it: HTTP, one try at a time, never longer than it has patience for.

A Service without endpoints rarely refuses: most packets just vanish, so a try has a short time for its connection and a
short one for its answer, and what a try did not learn the next one does, under the same idempotency key. A connection
that gave anything but an answer is closed, so that the next try may reach another replica.

Guarantees: a try ends within its patience; nothing that happens on the wire raises. Does not: repeat, or count.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self
from urllib.parse import quote

import aiohttp
import msgspec

from deathless.codec.untrusted import read_json
from deathless_operator.drill.judge import Held

CONNECT_TIMEOUT_S: Final = 0.2
TRY_TIMEOUT_S: Final = 0.75
READ_TIMEOUT_S: Final = 5.0
BODY_BYTES_MAX: Final = 1 << 20
PROBE: Final = "deathless.probe"
# No retry changes these; all other answers but 200 are worth another try.
FINAL_STATUSES: Final = frozenset({400, 401, 403, 404, 405, 409, 413, 415, 422})


@dataclass(frozen=True, slots=True)
class Try:
    """How one try ended."""

    answered: bool = False
    refused: str = ""  # an answer that no retry changes
    problem: str = ""  # why another try is needed


class FrontDoor(Protocol):
    """What a runner calls."""

    async def call(self, client: int, number: int, patience_s: float = TRY_TIMEOUT_S) -> Try:
        """Send one probe call once, and wait so long for its answer."""
        ...

    async def read(self) -> Held | str:
        """Give what the service holds of the series, or why that could not be read."""
        ...


class HttpFrontDoor:
    """One session per client, so that clients spread over replicas as clients do.

    Args:
        url: `http(s)://host:port`.
        service: its name, the first part of each path.
        series: of the run, letters and digits.
        clients: how many sessions.
        witnesses: how many more of them, the last ones, that call the primary itself.
        primary_url: where they find it; empty: at `url` like the others.
        tls: folder with `ca.crt`, and `tls.crt` with `tls.key` for a client certificate; None: as the URL says.
        token: shown as a bearer; empty: none.
    """

    def __init__(
        self,
        url: str,
        service: str,
        series: str,
        *,
        clients: int,
        witnesses: int = 0,
        primary_url: str = "",
        tls: Path | None = None,
        token: str = "",
    ) -> None:
        path = f"/{quote(service, safe='')}/{quote(series, safe='')}/{PROBE}"
        self._series = series
        self._path, self._primary_path = (f"{at.rstrip('/')}{path}" for at in (url, primary_url or url))
        self._clients, self._count = clients, clients + witnesses
        self._ssl = _context(tls)
        # Bytes are read as they come, so that an answer which is compressed is none that is understood.
        self._headers = {"Accept-Encoding": "identity", **({"Authorization": f"Bearer {token}"} if token else {})}
        self._sessions: list[aiohttp.ClientSession] = []

    async def __aenter__(self) -> Self:
        self._sessions = [self._open() for _ in range(self._count + 1)]
        return self

    def _open(self) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=self._ssl, ttl_dns_cache=None),
            headers=self._headers,
            trust_env=False,
            auto_decompress=False,
        )

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in self._sessions:
            await session.close()

    async def call(self, client: int, number: int, patience_s: float = TRY_TIMEOUT_S) -> Try:
        """See FrontDoor."""
        headers = {"Idempotency-Key": f"{self._series}-{number}"}
        timeout = aiohttp.ClientTimeout(total=patience_s, sock_connect=CONNECT_TIMEOUT_S)
        path = self._path if client < self._clients else self._primary_path
        post = self._sessions[client].post(path, json={"number": number}, headers=headers, timeout=timeout)
        try:
            async with post as answer:
                body = await answer.content.read(BODY_BYTES_MAX)
                if answer.status == 200:
                    return Try(answered=True)
                told = f"{answer.status} {body.decode(errors='replace')}"[:300]
                outcome = Try(refused=told) if answer.status in FINAL_STATUSES else Try(problem=told)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            outcome = Try(problem=f"{type(error).__name__}: {error}"[:200])
        # The library keeps a connection whose answer is read; only a new session surely asks another replica.
        spoilt, self._sessions[client] = self._sessions[client], self._open()
        await spoilt.close()
        return outcome

    async def read(self) -> Held | str:
        """See FrontDoor."""
        timeout = aiohttp.ClientTimeout(total=READ_TIMEOUT_S, sock_connect=CONNECT_TIMEOUT_S)
        try:
            async with self._sessions[-1].get(f"{self._path}.read", timeout=timeout) as answer:
                body = await answer.content.read(BODY_BYTES_MAX)
                if answer.status != 200:
                    return f"{answer.status} {body.decode(errors='replace')}"[:300]
            return read_json(body, Held)
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError) as error:
            return f"{type(error).__name__}: {error}"[:300]


def _context(tls: Path | None) -> ssl.SSLContext | bool:
    if tls is None:
        return True
    context = ssl.create_default_context(cafile=str(tls / "ca.crt"))
    if (tls / "tls.crt").exists():
        context.load_cert_chain(tls / "tls.crt", tls / "tls.key")
    return context
