"""Users, roles and logins of the chart's lock store, over etcd's JSON gateway.

Why not the runtime's client: that one speaks of keys and leases, for replicas, and the operator's package knows nothing
of it.

Guarantees: each change may be made twice, and finds what an earlier one that was cut off has left; a request is tried
at each member; a token that ended is replaced by a login. While logins are off no login is needed, and none is made.
Does not: read or write keys, or draw passwords.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

import aiohttp
import msgspec

from deathless.base.errors import InvalidConfig, LockUnavailable, Unauthorized
from deathless.codec.untrusted import read_json
from deathless_operator.cluster.api import Object
from deathless_operator.cluster.bounded import read_whole

REQUEST_TIMEOUT_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 4 << 20
SHOWN_BYTES: Final = 200  # of an answer that is no JSON
LOGINS_MAX: Final = 2  # for one request: a member that was restarted has forgotten the first token
ROOT: Final = "root"  # of etcd: this user and this role have to be before logins can be switched on

_LOGIN_AGAIN: Final = ("user name is empty", "invalid auth token", "revision of auth store is old")


class _Refused(Exception):
    """A member said no; the words are etcd's."""


class LockStore:
    """The members of one etcd; use it as `async with`.

    Args:
        endpoints: base URLs of the members.
        tls: folder with ca.crt, tls.crt and tls.key, read when it is opened; None: for plain HTTP.
        user: logs in where logins are on.
        password: of that user; may be set later.
    """

    def __init__(self, endpoints: Sequence[str], *, tls: Path | None, user: str, password: str = "") -> None:
        self._endpoints = list(endpoints)
        self._tls = tls
        self._user = user
        self.password = password
        self._token = ""
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        connector = aiohttp.TCPConnector(ssl=_context(self._tls) if self._tls is not None else True)
        timeout = aiohttp.ClientTimeout(total=REQUEST_TIMEOUT_S)
        self._session = aiohttp.ClientSession(connector=connector, timeout=timeout, trust_env=False)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    # ------------------------------------------------------------ logins

    async def logins(self) -> bool:
        """Tell whether etcd asks for logins."""
        return bool((await self._ask("auth/status")).get("enabled"))

    async def switch(self, *, on: bool) -> None:
        """Have etcd ask for logins, or ask no more."""
        await self._ask("auth/enable" if on else "auth/disable")

    async def may_log_in(self, user: str, password: str) -> bool:
        """Tell whether a password is the user's; asked while logins are on."""
        try:
            await self._once("auth/authenticate", {"name": user, "password": password}, "")
        except _Refused as refused:
            if "authentication failed" in str(refused):
                return False
            raise LockUnavailable(str(refused)) from None
        return True

    # ------------------------------------------------------------ users and roles

    async def users(self) -> frozenset[str]:
        """Return the names of all users."""
        return frozenset((await self._ask("auth/user/list")).get("users") or ())

    async def set_password(self, user: str, password: str) -> None:
        """Make a user, or change the password of the one that is there, which ends its tokens."""
        if not await self._ask_unless("already exists", "auth/user/add", name=user, password=password):
            await self._ask("auth/user/changepw", name=user, password=password)

    async def make_root(self) -> None:
        """Make the user `root` that etcd asks for, without a password, where there is none."""
        await self._ask_unless("already exists", "auth/user/add", name=ROOT, options={"no_password": True})
        await self.give_roles(ROOT, ROOT)

    async def make_role(self, role: str, prefix: str) -> None:
        """Make a role, and have it allow to read and write the keys that begin with `prefix` and nothing else."""
        await self._ask_unless("already exists", "auth/role/add", name=role)
        first = prefix.encode()
        assert first.endswith(b"/"), "a prefix without it holds the keys of longer names, too"
        key, end = _text(first), _text(first[:-1] + bytes([first[-1] + 1]))
        wanted = ("READWRITE", key, end)
        found = [
            (str(each.get("permType", "READ")), str(each.get("key", "")), str(each.get("range_end", "")))
            for each in (await self._ask("auth/role/get", role=role)).get("perm") or ()
        ]
        if wanted not in found:
            perm = {"permType": "READWRITE", "key": key, "range_end": end}
            await self._ask("auth/role/grant", name=role, perm=perm)
        for _, other, other_end in found:
            if (other, other_end) != (key, end):
                await self._ask_unless(
                    "permission is not granted", "auth/role/revoke", role=role, key=other, range_end=other_end
                )

    async def give_roles(self, user: str, role: str) -> None:
        """Have a user hold one role and no other."""
        found = (await self._ask("auth/user/get", name=user)).get("roles") or []
        if role not in found:
            await self._ask("auth/user/grant", user=user, role=role)
        for other in found:
            if other != role:
                await self._ask_unless("role is not granted", "auth/user/revoke", name=user, role=other)

    async def remove(self, user: str) -> None:
        """Take a user and its role away, where they are."""
        await self._ask_unless("user name not found", "auth/user/delete", name=user)
        await self._ask_unless("role name not found", "auth/role/delete", role=user)

    # ------------------------------------------------------------ the wire

    async def _ask_unless(self, known: str, path: str, **body: object) -> bool:
        """Send a request; False where it was refused for the reason `known`, which means that it was done before."""
        try:
            await self._authorised(path, body)
        except _Refused as refused:
            if known not in str(refused):
                raise _told(refused) from None
            return False
        return True

    async def _ask(self, path: str, **body: object) -> Object:
        """Send a request.

        Raises:
            LockUnavailable: no member answers, or one says what makes no sense here; nothing is known: look again.
            Unauthorized: our user may not do that.
        """
        try:
            return await self._authorised(path, body)
        except _Refused as refused:
            raise _told(refused) from None

    async def _authorised(self, path: str, body: object) -> Object:
        """Send a request, and log in where that is asked for."""
        for _ in range(LOGINS_MAX):
            try:
                return await self._once(path, body, self._token)
            except _Refused as refused:
                if not any(words in str(refused) for words in _LOGIN_AGAIN):
                    raise
            self._token = await self._log_in()
        return await self._once(path, body, self._token)

    async def _log_in(self) -> str:
        try:
            answer = await self._once("auth/authenticate", {"name": self._user, "password": self.password}, "")
        except _Refused as refused:
            if "authentication is not enabled" in str(refused):
                return ""
            raise
        return str(answer.get("token", ""))

    async def _once(self, path: str, body: object, token: str) -> Object:
        """Send a request to one member after the other until one answers; the one that did is asked first next time."""
        assert self._session is not None, "use `async with LockStore(...)`"
        headers = {"Authorization": token} if token else {}
        last = ""
        for endpoint in tuple(self._endpoints):
            try:
                async with self._session.post(
                    f"{endpoint}/v3/{path}", data=msgspec.json.encode(body), headers=headers
                ) as answer:
                    raw, status = await read_whole(answer, endpoint, ANSWER_BYTES_MAX), answer.status
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                last = f"{endpoint}: {type(error).__name__}: {error}"
            else:
                if status < 500:
                    return _read(endpoint, status, raw)
                # It has no leader, is stopping, or failed while it did this: another member may do it, perhaps again.
                last = f"{endpoint}: HTTP {status}: {raw[:SHOWN_BYTES].decode('utf-8', 'replace')}"
            self._endpoints.append(self._endpoints.pop(0))
        raise LockUnavailable(last)


def _context(folder: Path) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(folder / "ca.crt"))
        context.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    except OSError as error:  # of which ssl.SSLError is one
        raise InvalidConfig(f"{folder}: no usable ca.crt, tls.crt and tls.key: {error}") from error
    return context


def _read(endpoint: str, status: int, raw: bytes) -> Object:
    try:
        answer = read_json(raw, dict[str, Any])
    except msgspec.DecodeError:
        raise _Refused(f"{endpoint}: HTTP {status}: {raw[:SHOWN_BYTES].decode('utf-8', 'replace')}") from None
    if status == 200:
        return answer
    raise _Refused(f"{endpoint}: {answer.get('message') or answer.get('error') or f'HTTP {status}'}")


def _told(refused: _Refused) -> Unauthorized | LockUnavailable:
    words = str(refused)
    if "permission denied" in words or "authentication failed" in words:
        return Unauthorized(words, remedy="the lock store has another password: see docs/kubernetes/lock-store.md")
    return LockUnavailable(words)


def _text(raw: bytes) -> str:
    return base64.b64encode(raw).decode()
