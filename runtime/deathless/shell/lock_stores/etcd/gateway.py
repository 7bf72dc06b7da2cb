"""Requests to an etcd cluster over HTTP: endpoints, failover, TLS, tokens, deadlines, and what an answer means.

The rules, in the order in which a request meets them:

- A request goes to the endpoint that answered last. A failure moves everyone on to the next endpoint; after
  each full round without an answer there is a pause that doubles up to `RETRY_PAUSE_MAX_S`.
- A member whose node has lost its power says nothing at all, and its time-out would be the takeover's. So a
  request that may reach etcd twice is sent to the next endpoint too when `HEDGE_S` have passed without an answer,
  and so on; the first answer counts, and whoever gave it is asked first from then on.
- Every request says that the member must know a leader (metadata `hasleader`), so a member that is cut off
  answers "no leader" instead of serving. Reads are linearizable unless the caller asks otherwise.
- What a failure means depends on whether the request left us. Not connected, "no leader", "too many
  requests", a token refused: **not done**, so any request may go to the next endpoint. No answer, a broken
  connection, every other unavailable: **outcome unknown**; then only a request that may be repeated goes on,
  all others raise `EtcdUnavailable(outcome_unknown=True)` and are never sent twice.
- A token that ended (or that a restarted member forgot) is replaced by one login for all waiting requests.

Guarantees: a request marked neither repeatable nor hedged reaches etcd at most once; every call ends by its deadline; a
definite refusal is raised at once and never retried; answers above `ANSWER_BYTES_MAX` are refused (I10).
Does not: know keys or leases; log keys, values, tokens or passwords. Imports base and aiohttp.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import Final, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit

import aiohttp
import msgspec
from aiohttp.helpers import is_ip_address

from deathless.base.backoff import next_pause
from deathless.base.errors import Closed
from deathless.shell.lock_stores.etcd import records as wire
from deathless.shell.lock_stores.etcd.errors import EtcdAuth, EtcdError, EtcdRefused, EtcdUnavailable, LeaseNotFound
from deathless.shell.lock_stores.etcd.name_cache import RememberingResolver
from deathless.shell.lock_stores.etcd.settings import EtcdSettings, RenewedContext

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

ANSWER_BYTES_MAX: Final = 16 << 20  # one answer
CONNECTIONS_MAX: Final = 32  # to all endpoints together
LOGINS_PER_CALL_MAX: Final = 3  # a member that just restarted may refuse the first new token
RETRY_PAUSE_MIN_S: Final = 0.02  # after the first full round of endpoints without an answer; doubles
RETRY_PAUSE_MAX_S: Final = 0.5
HEDGE_S: Final = 0.15  # without an answer; the same request then goes to one endpoint more
IDLE_CONNECTION_S: Final = 75.0  # a connection unused for longer is closed

_LOG: Final = logging.getLogger("deathless.etcd")

# gRPC codes that etcd answers with (google.golang.org/grpc/codes).
_PERMISSION_DENIED: Final = 7
_UNAUTHENTICATED: Final = 16
# Cancelled, Unknown, DeadlineExceeded, Aborted, Internal, Unavailable: the proposal may be on its way.
_MAYBE_DONE_CODES: Final = frozenset({1, 2, 4, 10, 13, 14})

# etcd's error texts (api/v3/v3rpc/rpctypes/error.go) that say more than their code. The first three are
# decided before anything is proposed to the cluster.
_NOT_DONE_TEXTS: Final = (
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "etcdserver: rpc not supported for learner",
)
_STALE_TOKEN_TEXTS: Final = (
    "etcdserver: invalid auth token",
    "etcdserver: user name is empty",
    "etcdserver: revision of auth store is old",
)
_LEASE_GONE_TEXT: Final = "requested lease not found"
_AUTH_OFF_TEXT: Final = "authentication is not enabled"
_COMMON_NAME_TEXT: Final = b"CommonName of client"
_LOGIN_FAILED_TEXT: Final = "authentication failed"


class Decoder(Protocol[T_co]):
    """Turns an answer's body into a record."""

    def decode(self, buf: bytes, /) -> T_co:
        """Raises msgspec.DecodeError for bytes that are not that record."""
        ...


class _NoAnswer(Exception):
    """One attempt failed in a way that another endpoint may mend."""

    def __init__(self, reason: str, *, done_maybe: bool, wrong_certificate: bool = False) -> None:
        super().__init__(reason)
        self.done_maybe = done_maybe
        self.wrong_certificate = wrong_certificate

    def after(self, former: _NoAnswer | None) -> _NoAnswer:
        """Give the same, for a request that failed elsewhere before: it may have been done there."""
        self.done_maybe = self.done_maybe or (former is not None and former.done_maybe)
        return self


class _StaleToken(Exception):
    """The member does not know the token that was sent (any more); the request was not done."""

    def __init__(self, token: str | None) -> None:
        super().__init__()
        self.token = token


Attempt: TypeAlias = Callable[[str, float], Coroutine[object, object, T]]
"""One request to one endpoint; given the endpoint and the loop's time by which it has to end."""


class Gateway:
    """One client process's way to an etcd cluster. Open it inside a running event loop."""

    def __init__(self, settings: EtcdSettings) -> None:
        settings.validate()
        self.settings = settings
        self._endpoints = tuple(endpoint.rstrip("/") for endpoint in settings.endpoints)
        self._current = 0  # index of the endpoint that answered last
        self._session: aiohttp.ClientSession | None = None
        self._tls: RenewedContext | None = None  # None: no endpoint is https
        self._token: str | None = None
        self._names: RememberingResolver | None = None
        self._learning: asyncio.Task[None] | None = None  # looks names up before they are needed
        self._login_lock = asyncio.Lock()  # one login at a time; the others use what it got

    @property
    def endpoint(self) -> str:
        """The endpoint that is asked first."""
        return self._endpoints[self._current]

    async def open(self) -> None:
        """Prepare to connect; nothing is sent yet.

        Raises: InvalidConfig when a TLS file can't be used.
        """
        if any(endpoint.startswith("https:") for endpoint in self._endpoints):
            self._tls = RenewedContext(self.settings.tls)
        self._names = RememberingResolver()
        self._learning = asyncio.create_task(self._names.learn(_named(self._endpoints)), name="etcd names")
        connector = aiohttp.TCPConnector(
            limit=CONNECTIONS_MAX, keepalive_timeout=IDLE_CONNECTION_S, resolver=self._names, use_dns_cache=False
        )
        # The environment's proxies are for the world outside, never for the lock store (trust_env=False).
        self._session = aiohttp.ClientSession(connector=connector, trust_env=False, auto_decompress=False)

    async def close(self) -> None:
        """Drop all connections; open calls end with an error."""
        if self._learning is not None:
            self._learning.cancel()
            await asyncio.wait({self._learning})
        if self._session is not None:
            await self._session.close()
        if self._names is not None:
            await self._names.close()

    def _failed(self, endpoint: str) -> None:
        """Ask another endpoint from now on, unless somebody moved on from `endpoint` already."""
        if endpoint == self.endpoint and len(self._endpoints) > 1:
            self._current = (self._current + 1) % len(self._endpoints)
            _LOG.debug("etcd endpoint %s failed, continuing with %s", endpoint, self.endpoint)

    async def call(
        self,
        path: str,
        body: bytes,
        decoder: Decoder[T],
        *,
        repeatable: bool,
        leader: bool = True,
        hedged: bool | None = None,
    ) -> T:
        """Send one request and return its answer.

        Args:
            path: below `/v3/`.
            body: the JSON to send.
            decoder: of the answer.
            repeatable: doing it twice does what doing it once does, so an unknown outcome is simply tried again.
            leader: the member must know a leader; False only for reads that may be stale.
            hedged: several endpoints may be sent it within one attempt; None: as `repeatable`.

        Raises:
            EtcdUnavailable: no answer; see `outcome_unknown`.
            EtcdRefused, EtcdAuth: a definite no.
        """

        async def attempt(endpoint: str, until: float) -> T:
            token = await self._valid_token(endpoint, until)
            raw = await self._post(endpoint, path, body, token, until, leader=leader)
            return _decode(raw, decoder, endpoint)

        return await self._carry(attempt, repeatable=repeatable, hedged=repeatable if hedged is None else hedged)

    async def _carry(self, attempt: Attempt[T], *, repeatable: bool, hedged: bool) -> T:
        """Make attempts at one endpoint after the other until there is an answer, a refusal or no time left.

        An attempt gets an endpoint and the loop time by which it has to end.
        """
        now = asyncio.get_running_loop().time
        deadline = now() + self.settings.call_timeout_s
        pause_s, failures, logins = RETRY_PAUSE_MIN_S, 0, 0
        while True:
            endpoint = self.endpoint
            try:
                return await (self._hedge if hedged else self._attempt)(attempt, endpoint, deadline)
            except _StaleToken as stale:
                logins += 1
                if self.settings.username is None or logins > LOGINS_PER_CALL_MAX:
                    raise EtcdAuth(f"{endpoint}: no valid token: {self._user()}") from None
                if self._token == stale.token:  # else another call has a newer one already
                    self._token = None
                continue
            except _NoAnswer as failure:
                self._failed(endpoint)
                if failure.done_maybe and not repeatable:
                    raise EtcdUnavailable(str(failure), outcome_unknown=True) from failure
                last = failure
            failures += 1
            full_round = failures % len(self._endpoints) == 0
            if now() + (pause_s if full_round else 0.0) >= deadline:
                raise EtcdAuth(str(last)) if last.wrong_certificate else EtcdUnavailable(str(last))
            if full_round:
                await asyncio.sleep(pause_s)
                pause_s = next_pause(pause_s, first_s=RETRY_PAUSE_MIN_S, most_s=RETRY_PAUSE_MAX_S)

    async def _attempt(self, attempt: Attempt[T], endpoint: str, deadline: float) -> T:
        """Ask one endpoint, for as long as an attempt may take."""
        until = asyncio.get_running_loop().time() + self.settings.attempt_timeout_s
        return await attempt(endpoint, min(deadline, until))

    async def _hedge(self, attempt: Attempt[T], first: str, deadline: float) -> T:
        """Ask `first`, and one endpoint more each time that HEDGE_S pass without an answer; the first answer counts.

        Raises: what an attempt raises; _NoAnswer when nobody who was asked is still to answer.
        """
        start = self._endpoints.index(first)
        left = [*self._endpoints[start:], *self._endpoints[:start]]
        asked: dict[asyncio.Task[T], str] = {}
        failure: _NoAnswer | None = None
        try:
            while failure is None or asked:
                if left:
                    endpoint = left.pop(0)
                    asked[asyncio.create_task(self._attempt(attempt, endpoint, deadline))] = endpoint
                done, _ = await asyncio.wait(
                    asked, timeout=HEDGE_S if left else None, return_when=asyncio.FIRST_COMPLETED
                )
                for task in done:
                    endpoint = asked.pop(task)
                    try:
                        answer = task.result()
                    except _NoAnswer as error:
                        self._failed(endpoint)
                        failure = error.after(failure)
                    else:
                        self._current = self._endpoints.index(endpoint)
                        return answer
        finally:
            for task in asked:
                task.cancel()
            # Their connections close as they end; what they would have said is nobody's any more.
            await asyncio.gather(*asked, return_exceptions=True)
        raise failure

    async def _valid_token(self, endpoint: str, until: float) -> str | None:
        """Return the token to send, logging in where there is none; None: requests carry no token."""
        if self.settings.username is None:
            return None
        try:
            async with asyncio.timeout_at(until), self._login_lock:
                if self._token is None:
                    self._token = await self._login(endpoint, self.settings.username, until)
                return self._token
        except TimeoutError:
            raise _NoAnswer(f"{endpoint}: login took too long", done_maybe=False) from None
        except _NoAnswer as failure:  # the request behind this login was not even sent
            raise _NoAnswer(
                f"login: {failure}", done_maybe=False, wrong_certificate=failure.wrong_certificate
            ) from failure

    async def _login(self, endpoint: str, username: str, until: float) -> str:
        body = wire.encode_login(username, self.settings.current_password())
        try:
            raw = await self._post(endpoint, "auth/authenticate", body, None, until)
        except EtcdRefused as refused:
            if _AUTH_OFF_TEXT in refused.message:
                return ""  # go on without, as etcd's own clients do: it may be switched on later
            raise
        return _decode(raw, wire.LOGIN, endpoint).token

    async def _post(
        self, endpoint: str, path: str, body: bytes, token: str | None, until: float, *, leader: bool = True
    ) -> bytes:
        """Make one attempt at one endpoint; return the body of an answer with status 200."""
        response = await self._send(endpoint, path, body, token, until, leader=leader)
        raw = await self._read(response, endpoint, until)
        if response.status != 200:
            raise self._refusal(endpoint, response.status, raw, token)
        return raw

    async def _send(
        self, endpoint: str, path: str, body: bytes, token: str | None, until: float, *, leader: bool
    ) -> aiohttp.ClientResponse:
        """Send a request and wait for the head of its answer."""
        if self._session is None or self._session.closed:
            raise Closed("the etcd client is not open")
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if leader:
            headers["Grpc-Metadata-hasleader"] = "true"
        if token:
            headers["Authorization"] = token
        left_s = max(until - asyncio.get_running_loop().time(), 0.001)
        try:
            async with asyncio.timeout_at(until):
                return await self._session.post(
                    f"{endpoint}/v3/{path}",
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    ssl=True if self._tls is None else self._tls.current(),
                    server_hostname=self.settings.tls.server_name if endpoint.startswith("https:") else None,
                    # Half the attempt for connecting, so that "never connected" is told from "no answer".
                    timeout=aiohttp.ClientTimeout(total=None, connect=left_s / 2),
                )
        except (aiohttp.ClientConnectorError, aiohttp.ClientSSLError, aiohttp.ConnectionTimeoutError) as error:
            wrong = isinstance(error, (aiohttp.ClientConnectorCertificateError, aiohttp.ClientSSLError))
            raise _NoAnswer(f"{endpoint}: {_reason(error)}", done_maybe=False, wrong_certificate=wrong) from error
        except (aiohttp.ClientError, OSError) as error:  # TimeoutError is an OSError
            raise _NoAnswer(f"{endpoint}: {_reason(error)}", done_maybe=True) from error

    @staticmethod
    async def _read(response: aiohttp.ClientResponse, endpoint: str, until: float) -> bytes:
        """Read a whole body and give the connection back."""
        raw = bytearray()
        try:
            async with asyncio.timeout_at(until):
                async for chunk in response.content.iter_any():
                    raw += chunk
                    if len(raw) > ANSWER_BYTES_MAX:
                        raise EtcdRefused(f"{endpoint}: answer above {ANSWER_BYTES_MAX} bytes")
        except (aiohttp.ClientError, OSError) as error:
            raise _NoAnswer(f"{endpoint}: {_reason(error)}", done_maybe=True) from error
        finally:
            response.release()  # closes the connection where the body was not read to its end
        return bytes(raw)

    def _refusal(self, endpoint: str, status: int, raw: bytes, token: str | None) -> Exception:
        """Return what an answer that is not 200 means; the classes are the module's third rule."""
        try:
            code, text = wire.ERROR.decode(raw).reduced()
        except msgspec.DecodeError:
            if status >= 500:
                return _NoAnswer(f"{endpoint}: HTTP {status}", done_maybe=True)
            if _COMMON_NAME_TEXT in raw:
                return EtcdAuth(
                    f"{endpoint}: while logins are on, etcd's gateway accepts no client certificate with a common "
                    "name: issue one without"
                )
            return EtcdRefused(f"{endpoint}: HTTP {status}: this is not an etcd gateway")
        if _stale_token(code, text):
            return _StaleToken(token)
        if text.startswith(_NOT_DONE_TEXTS):
            return _NoAnswer(f"{endpoint}: {text}", done_maybe=False)
        if code in _MAYBE_DONE_CODES:
            return _NoAnswer(f"{endpoint}: {text} (gRPC code {code})", done_maybe=True)
        return _refusal(code, f"{endpoint}: {text}", self._user())

    def _user(self) -> str:
        return "no user is configured" if self.settings.username is None else f"user {self.settings.username!r}"


def _decode(raw: bytes, decoder: Decoder[T], endpoint: str) -> T:
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError as error:
        raise _NoAnswer(f"{endpoint}: the answer does not come from etcd: {error}", done_maybe=True) from error


def _stale_token(code: int, text: str) -> bool:
    """Does this error say that the token has to be replaced?"""
    return code == _UNAUTHENTICATED or any(known in text for known in _STALE_TOKEN_TEXTS)


def _refusal(code: int, text: str, user: str = "") -> EtcdError:
    """Return the error for a definite no."""
    if code == _PERMISSION_DENIED or _LOGIN_FAILED_TEXT in text:
        return EtcdAuth(f"{text}: {user}" if user else text)
    if _LEASE_GONE_TEXT in text:
        return LeaseNotFound(text)
    return EtcdRefused(text)


def _named(endpoints: Iterable[str]) -> list[str]:
    """Return the hosts of endpoints that are names."""
    hosts = (urlsplit(endpoint).hostname or "" for endpoint in endpoints)
    return [host for host in hosts if not is_ip_address(host)]


def _reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
