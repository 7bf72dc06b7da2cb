"""HTTP requests whose handler waits: their result in time, or 202 and where to ask for it again.

    POST --accepted--> waits for the result, up to `Prefer: wait=N` seconds from the request --> 200, or the error
                                                '--> 202, Location: /{service}/-/invocations/{id}
    GET  /{service}/-/invocations/{id} -------> likewise: a long poll, as often as one likes

The id is the shard's, the same for every caller and every replica (`k-512` of shard k where there are several); nothing
is kept here. Guarantees: 202 says only that
the call is confirmed and goes on by itself. Does not: read or write HTTP. Imports shell.
"""

from __future__ import annotations

import contextlib
import logging
import re
from typing import Final, Protocol

import msgspec

from deathless.base.errors import DeathlessError, InvalidArgument, UnknownHandler
from deathless.base.shards import read_invocation, show_invocation
from deathless.shell.client.shard_client import Client
from deathless.shell.client.waiters import Receiver
from deathless.shell.ingress.routes import RAW, Answer
from deathless.shell.web.json_results import result_as_json
from deathless.shell.web.request import Request

WAIT_S: Final = 30.0  # for a result, where the caller says nothing
WAIT_MAX_S: Final = 600.0
INVOCATIONS: Final = (b"-", b"invocations")  # of the path, behind the service
_decode_bytes: Final = msgspec.msgpack.Decoder(bytes | None).decode
_LOG: Final = logging.getLogger("deathless.ingress")
_WAIT: Final = re.compile(rb'wait\s*=\s*"?(\d{1,9})"?')


class Late(Receiver, Protocol):
    """One request that waits for a result."""

    invocation: int
    shard: int  # whose it is
    began: float  # seconds of the loop's clock
    wait_s: float  # from there
    request: Request

    def finish_late(self, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        """Answer it, without a result."""
        ...


class LateResults:
    """All requests of one ingress that wait for results.

    Args:
        service: its name, as in paths.
        client: asks for the results.
    """

    def __init__(self, service: bytes, client: Client) -> None:
        self._service = service
        self._client = client
        self._waiting: dict[Late, None] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def add(self, late: Late, now: float) -> None:
        """Have a request wait for the result of its invocation, or answer it where its time is over already."""
        if late.request.answered:  # the caller left
            return
        if now - late.began >= late.wait_s:
            self._accepted(late)
            return
        self._waiting[late] = None
        try:
            self._client.shard(late.shard).attach_to(late.invocation, late)
        except DeathlessError as error:
            late.failed(error)

    def done(self, late: Late) -> None:
        """It has its answer."""
        self._waiting.pop(late, None)

    def sweep(self, now: float) -> None:
        """Answer 202 to those whose time is over; forget those whose caller left."""
        for late in [each for each in self._waiting if each.request.answered or now - each.began >= each.wait_s]:
            try:
                self._let_go(late)
            except Exception:  # noqa: BLE001  the others are answered all the same
                _LOG.exception("could not answer a caller whose wait timed out")

    def stop(self) -> None:
        """The ingress ends: everybody asks again, somewhere else."""
        for late in list(self._waiting):
            self._let_go(late)

    def _let_go(self, late: Late) -> None:
        del self._waiting[late]
        self._client.shard(late.shard).give_up(late, late.wait_s)
        if not late.request.answered:
            self._accepted(late)

    def _accepted(self, late: Late) -> None:
        shards = self._client.shards
        shown = show_invocation(late.invocation, late.shard, shards)
        location = b"/%s/-/invocations/%s" % (self._service, shown.encode())
        told = late.invocation if shards == 1 else shown
        body = msgspec.json.encode({"invocation": told, "location": location.decode()})
        late.finish_late(202, body, [(b"location", location)])


class ResultRoute:
    """How a result goes out whose handler is not known here: as plain values, or bytes as they are.

    Args:
        request: says in Accept whether it takes bytes (`application/octet-stream`).
    """

    def __init__(self, request: Request) -> None:
        self._raw = RAW in request.headers.get(b"accept", b"").lower()

    def answer(self, result: bytes) -> Answer:
        """Give what is answered with a msgpack result. Raises: ResultUnreadable."""
        if self._raw:
            with contextlib.suppress(msgspec.DecodeError):
                found = _decode_bytes(result)
                return Answer(204, b"", RAW) if found is None else Answer(200, found, RAW)
        return Answer(200, result_as_json(result))


def place_of(raw: bytes, shards: int) -> tuple[int, int]:
    """Give (shard, invocation) of the id in a path. Raises: UnknownHandler."""
    try:
        return read_invocation(raw[:100].decode("ascii", "replace"), shards)
    except InvalidArgument as error:
        raise UnknownHandler(error.message) from None


def wait_of(request: Request) -> float:
    """Give how long a caller wants to wait, by its header Prefer.

    RFC 7240, 2: a server ignores preferences that it does not know or can't honour, and of one that comes twice it
    takes the first.
    """
    names = [part.strip() for part in request.headers.get(b"prefer", b"").lower().split(b",")]
    waits = [found for name in names if (found := _WAIT.fullmatch(name)) is not None]
    if waits:
        return min(float(waits[0].group(1)), WAIT_MAX_S)
    return 0.0 if b"respond-async" in names else WAIT_S
