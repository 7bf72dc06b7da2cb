"""Callers at both doors of a replica: looks at what they show, and says who they are.

Guarantees: tokens are read anew when their files have changed, without a restart, and what can't be read leaves the
former ones good; a caller whose token was taken away or has expired is told from one whose token is good by `still`.
Each reason to refuse is logged once per process, never with what was shown. Does not: give answers, or know requests
and packets. Imports core and base.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import logging
import os
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deathless.base.config import AuthenticationConfig, ReplicaConfig, TlsConfig
from deathless.base.errors import DeathlessError, InvalidConfig, NotAuthenticated
from deathless.base.limits import CALLER_FILES_MAX, CALLER_TOKEN_BYTES_MAX
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.core.access.authorisation import Port
from deathless.core.access.callers import Caller, KeysWanted, TokenTable, Way, check_allowed, check_size, way_in
from deathless.shell.disk.small_files import read_small
from deathless.shell.net.port_guard import PortGuard
from deathless.shell.net.tls import own_identity, shown_identity, shown_name

if TYPE_CHECKING:
    from deathless.shell.net.issuer import Issuer

_LOG: Final = logging.getLogger("deathless.callers")
LOOK_S: Final = 1.0  # between two looks at the callers' files
NO_TOKEN: Final = (errno.EFBIG, errno.EINVAL)  # what is found under such a name is none
FILE_BYTES_MAX: Final = 16 * CALLER_TOKEN_BYTES_MAX
Stamp = tuple[tuple[str, int, int, int], ...]


class TokenFiles:
    """The callers' tokens in a folder, a file for each caller, or in one such file.

    Args:
        path: as a Secret is mounted, or as somebody wrote it.

    Raises: InvalidConfig when nothing can be read at the start.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._stamp: Stamp = ()
        self._looked_at = time.monotonic()
        try:
            self._stamp, self.table = self._read()
        except OSError as error:
            raise InvalidConfig(
                f"ingress.authentication.token.path: {path} can't be read: {error.strerror}",
                remedy="make it a folder with a file for each caller, which holds the caller's tokens",
            ) from None

    def current(self) -> TokenTable:
        """Give the tokens that are good now; looks at the files at most once in LOOK_S."""
        now = time.monotonic()
        if now - self._looked_at >= LOOK_S:
            self.look()
            self._looked_at = now
        return self.table

    def look(self) -> None:
        """Read the files again if they have changed."""
        try:
            if self._stamp_of(self._files()) != self._stamp:
                self._stamp, self.table = self._read()
        except OSError as error:
            _LOG.warning("can't read the callers' tokens", extra={"path": str(self._path), "why": error.strerror})

    def _files(self) -> list[Path]:
        if not self._path.is_dir():
            return [self._path]
        # A mounted Secret has `..data` and folders beside the keys, which are links.
        found = (each for each in self._path.iterdir() if not each.name.startswith(".") and each.is_file())
        return sorted(found)[:CALLER_FILES_MAX]

    @staticmethod
    def _stamp_of(files: list[Path]) -> Stamp:
        found = [(each, os.stat(each)) for each in files]
        return tuple((each.name, one.st_ino, one.st_size, one.st_mtime_ns) for each, one in found)

    def _read(self) -> tuple[Stamp, TokenTable]:
        files = self._files()
        stamp = self._stamp_of(files)  # before they are read: what changes meanwhile is seen by the next look
        found = {}
        for each in files:
            try:
                found[each.name] = read_small(each, FILE_BYTES_MAX)
            except OSError as error:
                if error.errno not in NO_TOKEN:
                    raise
                _LOG.warning("a caller's token is ignored", extra={"path": str(each), "why": error.strerror})
        table = TokenTable(found)
        for problem in table.problems:
            _LOG.warning("a caller's token is ignored", extra={"path": str(self._path), "why": problem})
        return stamp, table


def _open_issuer(found: AuthenticationConfig) -> Issuer:
    from deathless.shell.net.issuer import Issuer  # noqa: PLC0415 - an HTTP client: only who names an issuer needs it

    return Issuer(found, now=time.monotonic, wall=time.time)


class Callers:
    """Says who calls, at one door of a replica.

    Args:
        config: the replica's, where `asks_callers`.
        tls: that the door listens with; None: none.
        safeguards: what is kept.

    Raises: InvalidConfig when the service's own processes could not be told from callers, or as the parts do.
    """

    def __init__(self, config: ReplicaConfig, tls: TlsConfig | None, safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
        found = config.authentication
        assert found is not None and found.asks, "callers prove who they are"
        self.how: AuthenticationConfig = found
        self.refused: Counter[str] = Counter()  # by code
        self.safeguards = safeguards
        self._tls = tls
        self._own_token = config.token.encode()
        self._guard = PortGuard(config, Port.CLIENT, tls, safeguards)
        self._tokens = TokenFiles(found.tokens) if found.type == "Token" else None
        self._issuer = _open_issuer(found) if found.type == "OIDC" else None
        if found.type == "MTLS" and tls is None:
            raise InvalidConfig("ingress.authentication type MTLS needs TLS", remedy="give spec.tls with ca")
        if not self._own_token and own_identity(tls) is None:
            raise InvalidConfig(
                f"ingress.authentication type {found.type}: replicas, tools and peers have no credentials",
                remedy="give spec.tokenFile (spec.tokenSecretRef in a cluster), or certificates that name the service",
            )

    def way_in(self, transport: asyncio.BaseTransport | None, kind: str, token: str) -> Way:
        """Say how a connection to the client port is judged."""
        known = bool(self._own_token) and hmac.compare_digest(token.encode(), self._own_token)
        if not self.safeguards.check_callers:
            return Way.TABLE
        return way_in(kind, own=own_identity(self._tls), shown=shown_identity(transport), token_known=known)

    def enter(
        self, transport: asyncio.BaseTransport | None, kind: str, token: str, *, again: bool = False
    ) -> Caller | None:
        """Let a connection to the client port in; gives who calls, None: it is judged as ever, by token or certificate.

        Raises: as `admit`.
        """
        way = self.way_in(transport, kind, token)
        if way is Way.NONE:
            error = NotAuthenticated(f"a connection of kind {kind!r} needs the service's own token or certificate")
            self.count(error)
            raise error
        return self.admit(transport, token.encode(), again=again) if way is Way.CALLER else None

    def admit(self, transport: asyncio.BaseTransport | None, shown: bytes, *, again: bool = False) -> Caller:
        """Give who calls.

        Args:
            transport: of its connection.
            shown: its token; empty: none.
            again: `fetch` was waited for.

        Raises: NotAuthenticated; CallerNotAllowed; Forbidden (of a certificate); IssuerUnavailable; KeysWanted.
        """
        try:
            return self._admit(transport, shown, again=again)
        except DeathlessError as error:
            self.count(error)
            raise

    def count(self, error: DeathlessError) -> None:
        """Count a refusal; the first of each kind is logged."""
        self.refused[error.code] += 1
        if self.refused[error.code] == 1:
            _LOG.warning("callers are refused", extra={"code": error.code, "why": error.message})

    def _admit(self, transport: asyncio.BaseTransport | None, shown: bytes, *, again: bool) -> Caller:
        if self.how.type == "MTLS":
            return self._admit_certificate(transport)
        check_size(shown)
        if self._issuer is not None:
            caller = self._issuer.judge(shown, again=again)
        else:
            assert self._tokens is not None
            name = self._tokens.current().find(shown)
            if name is None:
                raise NotAuthenticated("the token is unknown", remedy="present a token that the service knows")
            caller = Caller(name, f"token:{name}")
        check_allowed(caller.name, self.how.allowed)
        return caller

    def _admit_certificate(self, transport: asyncio.BaseTransport | None) -> Caller:
        name = shown_name(transport)
        if not name:
            raise NotAuthenticated(
                "no certificate with a name was presented",
                remedy="use one of the authority that the service's spec.tls names",
            )
        # A session of before is bound to the name as it is, and goes on.
        caller = Caller(name, name)
        shown, own = shown_identity(transport), own_identity(self._tls)
        if name in self.how.allowed or (own is not None and shown is not None and shown.is_of_service(own)):
            return caller
        if own is not None and (shown is not None or not self.how.allowed):
            self._guard.admit(transport, "client")  # allowServices
            return caller
        check_allowed(name, self.how.allowed)
        return caller

    async def fetch(self) -> None:
        """Wait for what `admit` wanted by KeysWanted."""
        if self._issuer is not None:
            await self._issuer.fetch()

    def still(self, transport: asyncio.BaseTransport | None, shown: bytes) -> bool:
        """Is a caller that was let in still good: is its token there, and not expired?"""
        try:
            self._admit(transport, shown, again=True)
        except (NotAuthenticated, KeysWanted):
            return False
        except DeathlessError as error:
            return error.http_status != 403
        return True

    async def close(self) -> None:
        """End."""
        if self._issuer is not None:
            await self._issuer.close()
