"""Tokens of an OpenID Connect issuer: its keys, fetched and kept, and what a token must hold to be believed.

    no keys yet             they are fetched first; while that fails callers are told to come again (IssuerUnavailable)
    keys kept               a token is judged at once, whether the issuer answers or not
    a key id nobody knows   the keys are fetched anew, once in UNKNOWN_PAUSE_S at most; then the token is refused
    older than FRESH_S      fetched anew beside the work; older than KEPT_S they are used no more

Only signatures by the issuer's private keys are taken, and only those of the algorithms that the manifest lists: a
token that says `none`, or one signed with a public key as a shared secret, is refused before a key is looked for.

Guarantees: one fetch at a time, bounded in bytes and time; no redirects; https, or http to this machine alone; what a
token says is never part of a log line. Does not: ask the issuer about single tokens (a token that was revoked there is
good until it expires). Imports base and core; PyJWT, which is an extra, only when an issuer is named.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from http.client import HTTPMessage
from typing import IO, TYPE_CHECKING, Final, TypeVar, cast
from urllib.parse import urlsplit

import msgspec

from deathless.base.config import AuthenticationConfig
from deathless.base.errors import InvalidConfig, IssuerUnavailable, NotAuthenticated
from deathless.base.limits import ISSUER_ANSWER_BYTES_MAX, ISSUER_KEYS_MAX, KNOWN_TOKENS_MAX
from deathless.codec.untrusted import read_json
from deathless.core.access.callers import Caller, KeysWanted

if TYPE_CHECKING:
    from jwt import PyJWK

T = TypeVar("T")
_LOG: Final = logging.getLogger("deathless.callers")
FETCH_S: Final = 3.0  # for one request to the issuer
UNKNOWN_PAUSE_S: Final = 10.0  # between two fetches for a key id that is not known
RETRY_S: Final = 1.0  # between two while there are no keys
FRESH_S: Final = 600.0
KEPT_S: Final = 86_400.0
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


class _Discovery(msgspec.Struct):
    issuer: str
    jwks_uri: str


class _KeySet(msgspec.Struct):
    keys: list[dict[str, object]]


class Issuer:
    """Judges the tokens of one issuer.

    Args:
        config: of type OIDC.
        now: gives seconds, monotonic.
        wall: gives seconds since 1970.

    Raises: InvalidConfig when PyJWT is not installed, or a URL is neither https nor of this machine.
    """

    def __init__(self, config: AuthenticationConfig, *, now: Callable[[], float], wall: Callable[[], float]) -> None:
        try:
            import jwt  # noqa: PLC0415 - an extra: only who names an issuer needs it
        except ImportError:
            raise InvalidConfig(
                "ingress.authentication type OIDC needs PyJWT", remedy="pip install 'deathless[oidc]'"
            ) from None
        self._jwt = jwt
        self._config = config
        self._now = now
        self._wall = wall
        _check_url(config.issuer)
        if config.keys_url:
            _check_url(config.keys_url)
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at: float | None = None  # of the keys we have
        self._asked_at: float | None = None  # when the last fetch began
        self._fetching: asyncio.Task[None] | None = None
        self._known: dict[bytes, Caller] = {}  # tokens that were judged with the keys we have

    def judge(self, shown: bytes, *, again: bool = False) -> Caller:
        """Give who shows a token.

        Args:
            shown: the token, of a size that is bearable.
            again: the keys were fetched for it: what they do not hold is unknown.

        Raises: NotAuthenticated; KeysWanted; IssuerUnavailable.
        """
        now = self._now()
        if self._fetched_at is None or now - self._fetched_at > KEPT_S:
            if again:
                raise IssuerUnavailable(f"the keys of {self._config.issuer} can't be fetched")
            raise KeysWanted
        if now - self._fetched_at > FRESH_S and self._may_ask(now):
            self._begin()
        hashed = hashlib.sha256(shown).digest()
        known = self._known.get(hashed)
        if known is None:
            known = self._verify(shown, self._key_of(shown, again=again, now=now))
            if len(self._known) >= KNOWN_TOKENS_MAX:
                self._known.pop(next(iter(self._known)))
            self._known[hashed] = known
        if self._wall() >= known.until_s:
            raise NotAuthenticated("the token has expired", remedy="fetch a new one from the issuer")
        return known

    def _key_of(self, shown: bytes, *, again: bool, now: float) -> PyJWK:
        try:
            header = self._jwt.get_unverified_header(shown)
        except (self._jwt.PyJWTError, ValueError, RecursionError):
            raise NotAuthenticated("the credential is not a token of an OpenID Connect issuer") from None
        algorithm, key_id = header.get("alg"), header.get("kid", "")
        if algorithm not in self._config.algorithms:
            raise NotAuthenticated("the token is signed with an algorithm that is not accepted here")
        if not key_id and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        found = self._keys.get(key_id) if isinstance(key_id, str) else None
        if found is not None:
            return found
        if not again and self._may_ask(now):
            raise KeysWanted
        raise NotAuthenticated("the token is signed with a key that the issuer does not publish")

    def _verify(self, shown: bytes, key: PyJWK) -> Caller:
        config = self._config
        asked = ["exp", "iss", "aud", config.name_claim, *config.required_claims]
        try:
            claims = self._jwt.decode(
                shown,
                key,
                algorithms=list(config.algorithms),
                issuer=config.issuer,
                audience=list(config.audiences),
                leeway=config.leeway_s,
                options={"require": asked},
            )
            until_s = float(claims["exp"]) + config.leeway_s
        except self._jwt.ExpiredSignatureError:
            raise NotAuthenticated("the token has expired", remedy="fetch a new one from the issuer") from None
        except self._jwt.InvalidIssuerError:
            raise NotAuthenticated("the token comes from another issuer") from None
        except self._jwt.InvalidAudienceError:
            raise NotAuthenticated("the token is not for this service's audiences") from None
        except (self._jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError) as error:
            raise NotAuthenticated(f"the token is not valid: {type(error).__name__}") from None
        for name, wanted in config.required_claims.items():
            has = claims[name]
            if has != wanted and not (isinstance(has, list) and wanted in has):
                raise NotAuthenticated(f"the token's claim {name!r} is not what this service requires")
        name = claims[config.name_claim]
        if not isinstance(name, str) or not name:
            raise NotAuthenticated(f"the token's claim {config.name_claim!r} names nobody")
        return Caller(name, f"oidc:{config.issuer}#{name}", until_s)

    # ---- keys ------------------------------------------------------------------------------------------------

    def _may_ask(self, now: float) -> bool:
        pause = UNKNOWN_PAUSE_S if self._fetched_at is not None else RETRY_S
        return self._asked_at is None or now - self._asked_at >= pause

    def _begin(self) -> asyncio.Task[None]:
        if self._fetching is None or self._fetching.done():
            self._asked_at = self._now()
            self._fetching = asyncio.get_running_loop().create_task(self._fetch())
        return self._fetching

    async def fetch(self) -> None:
        """Fetch the keys, or wait for the fetch that runs; what failed shows when the token is judged again."""
        if self._fetching is not None and not self._fetching.done():
            await asyncio.shield(self._fetching)
        elif self._may_ask(self._now()):
            await asyncio.shield(self._begin())

    async def close(self) -> None:
        """End the fetch that runs."""
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    async def _fetch(self) -> None:
        try:
            found = await _in_thread(self._read_keys)
        except Exception as error:  # noqa: BLE001 - whatever an issuer answers, what we have goes on
            _LOG.warning(
                "the issuer's keys can't be fetched", extra={"issuer": self._config.issuer, "why": _why(error)}
            )
            return
        if found.keys() != self._keys.keys() or any(found[each] != self._keys[each] for each in found):
            self._known.clear()
        self._keys, self._fetched_at = found, self._now()

    def _read_keys(self) -> dict[str, PyJWK]:
        """Ask the issuer; in a thread of its own."""
        config = self._config
        url = config.keys_url
        if not url:
            where = f"{config.issuer.rstrip('/')}/.well-known/openid-configuration"
            told = read_json(_get(where, config.ca), _Discovery)
            if told.issuer != config.issuer:
                raise ValueError("the discovery document is another issuer's")
            url = told.jwks_uri
            _check_url(url)
        raw = read_json(_get(url, config.ca), _KeySet).keys
        found: dict[str, PyJWK] = {}
        for each in raw[:ISSUER_KEYS_MAX]:
            if each.get("use", "sig") != "sig" or each.get("kty") == "oct":
                continue
            try:
                found[str(each.get("kid", ""))] = self._jwt.PyJWK(each)
            except Exception:  # noqa: BLE001, S112 - not known here, or none at all: the issuer's other keys count
                continue
        if not found:
            raise ValueError("no key with which signatures can be verified")
        return found


def _in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Do something that blocks, in a thread that nobody waits for when this process ends."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def told(result: T | None, error: Exception | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(cast("T", result))

    def run() -> None:
        result, error = None, None
        try:
            result = work()
        except Exception as found:  # noqa: BLE001 - whoever waits is told
            error = found
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(told, result, error)

    threading.Thread(target=run, name="deathless-issuer", daemon=True).start()
    return future


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> None:
        """See HTTPRedirectHandler: whoever answers for the issuer must be asked at the address that was named."""


def _get(url: str, ca: str) -> bytes:
    context = ssl.create_default_context(cafile=ca or None)
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context), _NoRedirects)
    request = urllib.request.Request(url, headers={"Accept": "application/json"})  # noqa: S310 - see _check_url
    until = time.monotonic() + FETCH_S  # the timeout below is of each wait alone
    data = bytearray()
    try:
        answered = opener.open(request, timeout=FETCH_S)
    except urllib.error.HTTPError as error:
        error.close()  # it holds the connection
        raise ValueError(f"{url} answers {error.code}") from None
    with answered as answer:
        while piece := answer.read1(1 << 16):
            data += piece
            if len(data) > ISSUER_ANSWER_BYTES_MAX:
                raise ValueError(f"the answer is longer than {ISSUER_ANSWER_BYTES_MAX} bytes")
            if time.monotonic() > until:
                raise TimeoutError(f"no complete answer within {FETCH_S:g} s")
    return bytes(data)


def _check_url(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _LOOPBACK):
        raise InvalidConfig(
            f"ingress.authentication.oidc: {url} is not https", remedy="name the issuer and its keys by https URLs"
        )


def _why(error: Exception) -> str:
    return str(error.reason) if isinstance(error, urllib.error.URLError) else f"{type(error).__name__}: {error}"
