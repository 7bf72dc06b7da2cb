"""A request on its way through the shard: what becomes of the reply, the error, or the wait for a result.

Guarantees: whatever comes is told once, as the answer of its request. Does not: read requests or write answers (the
ingress does). Imports shell.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Final, Protocol

from deathless.base.errors import (
    DeathlessError,
    Internal,
    InvalidArgument,
    KeyOutsideWindow,
    OutcomeUnknown,
    SessionExpired,
)
from deathless.codec.untrusted import MsgpackReader
from deathless.codec.wire import ReplyError, accepted_invocation
from deathless.core.client.events import error_of
from deathless.shell.client.shard_client import Client
from deathless.shell.ingress.by_number import NumberRoute
from deathless.shell.ingress.results import ResultRoute
from deathless.shell.ingress.routes import Route, field_of
from deathless.shell.ingress.uuid7 import drawn_key
from deathless.shell.web.request import JSON, Request, problem

_LOG: Final = logging.getLogger("deathless.ingress")
IDEMPOTENCY_KEY_MAX: Final = 255
_KEY_TEXT: Final = re.compile(rb"[\x21-\x7e]{1,255}")
Headers = Sequence[tuple[bytes, bytes]]
_decode_error: Final = MsgpackReader(ReplyError).decode


def idempotency_key_of(request: Request, link: Client) -> bytes:
    """Give the key that a request names, or one that is drawn for it. Raises: InvalidArgument."""
    key = request.headers.get(b"idempotency-key")
    if key is None:
        return drawn_key(link.time_us()).encode()
    if len(key) > 2 and key[:1] == key[-1:] == b'"':
        key = key[1:-1]
    if not _KEY_TEXT.fullmatch(key):
        raise InvalidArgument(f"idempotency-key must be 1 to {IDEMPOTENCY_KEY_MAX} visible ASCII characters")
    return key


class Front(Protocol):
    """The ingress, as its requests see it."""

    client: Client

    def accepted(self, pending: Pending, invocation: int) -> None:
        """The handler waits."""
        ...

    def finish(
        self,
        pending: Pending,
        status: int,
        body: bytes,
        error: DeathlessError | None = None,
        headers: Headers = (),
        *,
        content_type: bytes = JSON,
    ) -> None:
        """Answer the request."""
        ...


class Pending:
    """A request on its way through the shard; a Receiver of the client."""

    __slots__ = (
        "began", "idempotency_key", "ingress", "invocation", "message", "request", "retried", "route", "shard", "wait_s"
    )  # fmt: skip

    def __init__(
        self,
        ingress: Front,
        request: Request,
        route: Route | NumberRoute | ResultRoute,
        message: bytes,
        idempotency_key: bytes,
        began: float,
        wait_s: float,
        shard: int,
    ) -> None:
        self.ingress = ingress
        self.request = request
        self.route = route
        self.message = message
        self.idempotency_key = idempotency_key  # empty for a query
        self.began = began
        self.wait_s = wait_s  # from there, for the result of a handler that waits
        self.invocation = 0  # of that handler; 0: none yet
        self.shard = shard  # that the key lives on
        self.retried = False  # sent in a second session

    def answered(self, reply: bytes) -> None:
        """See Receiver."""
        try:
            self._answered(reply)
        except DeathlessError as error:
            self._finish_error(error)
        except Exception as error:  # noqa: BLE001  others' replies came in the same packet
            _LOG.exception(
                "can't write a reply", extra={"handler": self.request.target[:200].decode("utf-8", "replace")}
            )
            self._finish_error(Internal(f"{type(error).__name__} while the reply was written"))

    def _answered(self, reply: bytes) -> None:
        if reply[:1] == b"\x00":
            status, body, kind = self.route.answer(reply[1:])
            self.ingress.finish(self, status, body, content_type=kind)
            return
        invocation = accepted_invocation(reply)
        if invocation is not None:
            self.ingress.accepted(self, invocation)
            return
        told = _decode_error(reply[1:])
        if self.retried and told.code == KeyOutsideWindow.code:
            # Sent in a session that ended, so it may have been applied there and its key forgotten for room.
            self._finish_error(
                OutcomeUnknown("the call was sent in a session that has ended; it may have been applied")
            )
            return
        self._finish_error(error_of(told.code, told.text, kind=told.type), told.type)

    def failed(self, error: DeathlessError) -> None:
        """See Receiver. An expired session of ours is no matter of the caller's: the key makes sending again safe."""
        if isinstance(error, SessionExpired) and not self.retried and self.idempotency_key:
            self.retried = True
            try:
                self.ingress.client.shard(self.shard).submit_message(self.message, self)
            except DeathlessError as again:
                error = again
            else:
                return
        self._finish_error(error)

    def refused(self, error: DeathlessError) -> None:
        """See Receiver. The call stays in the session; the caller hears 429 or 507 now and may repeat it."""
        self._finish_error(error)

    def finish_late(self, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """See Late."""
        self.ingress.finish(self, status, body, None, headers)

    def _finish_error(self, error: DeathlessError, kind: str = "") -> None:
        self.ingress.finish(self, error.http_status, problem(error, field=field_of(error), kind=kind), error)
