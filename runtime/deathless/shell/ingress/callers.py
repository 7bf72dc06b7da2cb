"""Who is let in at the HTTP port, before a request is looked at: callers by what they show, operators by their token.

Guarantees: whoever is refused is counted, and told by RFC 6750 what to show; requests that wait for an issuer's keys
have a maximum (I10). Does not: say who is an operator (`Operators` does). Imports shell.
"""

from __future__ import annotations

import hmac
from typing import Final, NamedTuple

from deathless.base.errors import DeathlessError, NotAuthenticated, Overloaded, Unauthorized
from deathless.base.limits import CALLERS_WAITING_MAX
from deathless.shell.ingress.operators import Operators
from deathless.shell.net.callers import Callers
from deathless.shell.net.tls import shown_name
from deathless.shell.web.metrics import MetricSet
from deathless.shell.web.request import Request

_COUNTED: Final = (401, 403)


class Admitted(NamedTuple):
    """Who was let in."""

    token: bytes  # that it showed; empty: none
    name: str  # of the caller, or of the holder of its certificate; empty: nothing says who it is


class CallersAtFront:
    """Lets callers in.

    Args:
        token: what they must show; empty: nothing.
        callers: where they prove who they are in another way; then `token` counts for nothing.
        operators: who show a token of their own.
        metrics: of the ingress.
    """

    def __init__(self, token: str, callers: Callers | None, operators: Operators, metrics: MetricSet) -> None:
        self._bearer = token.encode()
        self._callers = callers
        self.operators = operators
        self._waiting = 0  # requests that wait for an issuer's keys
        self._refused = metrics.counter(
            "refused", "Requests of callers that did not prove who they are or may not call.", labels=("reason",)
        )

    @property
    def how(self) -> str:
        """`ingress.authentication.type` where callers prove who they are; empty: they don't, beyond a shared token."""
        return self._callers.how.type if self._callers is not None else ""

    def admit(self, request: Request, *, again: bool) -> Admitted:
        """Let a caller in; gives what it showed, and who it is.

        Args:
            request: its head was read.
            again: `fetch` was waited for.

        Raises: Unauthorized, NotAuthenticated, CallerNotAllowed, Forbidden, IssuerUnavailable; KeysWanted.
        """
        scheme, _, shown = request.headers.get(b"authorization", b"").partition(b" ")
        shown = shown.strip() if scheme.lower() == b"bearer" else b""
        name = ""
        try:
            if self._callers is not None:
                if not self.operators.knows(shown):
                    name = self._callers.admit(request.transport, shown, again=again).name
            elif self._bearer and not hmac.compare_digest(shown, self._bearer) and not self.operators.knows(shown):
                raise Unauthorized("token is missing or wrong", remedy="send `Authorization: Bearer <token>`")
        except DeathlessError as error:
            if error.http_status in _COUNTED:
                self._refused[error.code] += 1
            raise
        return Admitted(shown, name if self._callers is not None else shown_name(request.transport))

    async def fetch(self) -> None:
        """Wait until the keys that a token needs were fetched, or could not be. Raises: Overloaded."""
        assert self._callers is not None, "somebody wanted keys"
        if self._waiting >= CALLERS_WAITING_MAX:
            raise Overloaded(f"{CALLERS_WAITING_MAX} requests wait for the issuer's keys")
        self._waiting += 1
        try:
            await self._callers.fetch()
        finally:
            self._waiting -= 1

    async def close(self) -> None:
        """End."""
        if self._callers is not None:
            await self._callers.close()


def challenge(error: DeathlessError) -> bytes:
    """Give WWW-Authenticate of an answer 401: whether a token came that is not good (RFC 6750, 3.1)."""
    missing = not isinstance(error, NotAuthenticated) or error.message.startswith("no ")
    return b"Bearer" if missing else b'Bearer error="invalid_token"'
