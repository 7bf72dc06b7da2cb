"""What operators ask and order over HTTP: as `deathless invocations`, `parked` and `peers` do.

    GET  /{service}/-/invocations?from=ID          handlers that wait, the oldest first
    GET  /{service}/-/invocations/{id}/history     one of them: what it was given, what it waits for and since when
    POST /{service}/-/invocations/{id}/cancel      likewise kill; resume takes {"operation": N, "value": ...}
    GET  /{service}/-/peers                        the services that this one sends to and hears from
    POST /{service}/-/peers/{name}/adopt           take the one created anew: {"serviceId": .., "incarnation": ..}
    GET  /{service}/-/parked                       messages that were set aside
    POST /{service}/-/parked/{lsn}/retry           run one of them again
    GET  /{service}/-/unknown                      activities that may have been done
    POST /{service}/-/unknown/{id}/{n}/settle      one of them was seen to: it is listed no more

The primary answers, over its client port, what it answers to `deathless`; nothing is kept here.

Who may: a page here shows other callers' data, and an order ends their calls. So whoever asks must show what opens the
client port to tools, or the operators' own token where there is one. Where the ingress asks for less than the client
port (TLS without a client certificate, nothing at all beyond this machine), callers can't be told from operators, and
nobody is let in without that token.

Guarantees: an order without an answer is told as one whose outcome is unknown, never as one that was not done; one is
taken only with `Content-Type: application/json`, which a page of another site can't make a browser send. Does not: try
again. Imports shell.
"""

from __future__ import annotations

import hmac
import logging
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Final, NamedTuple

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import (
    InvalidArgument,
    NotPrimary,
    OperatorsOnly,
    OutcomeUnknown,
    Overloaded,
    PeerUnreachable,
    UnknownHandler,
    UnknownService,
)
from deathless.base.shards import SHARDS_MAX
from deathless.codec.peer_messages import RETRY, SETTLE, is_service_name
from deathless.shell.admin import Access, ask
from deathless.shell.packets import split_address

TOKEN_BYTES_MIN: Final = 16  # of a token in a file; a shorter one is none
ASKED_MAX: Final = 16  # questions to the primary at a time (I10)
_LOG: Final = logging.getLogger("deathless.ingress")
_NUMBER: Final = re.compile(rb"\d{1,19}")
_DONE: Final = {b"cancel": "cancelled", b"kill": "killed"}
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
Ask = Callable[[str, dict[str, str]], Awaitable[dict[str, object]]]
"""Asks the primary, as `deathless` does."""


class _Resume(msgspec.Struct, forbid_unknown_fields=True):
    operation: int = 0
    value: msgspec.Raw = msgspec.Raw(b"null")


class _Adopt(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    service_id: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
    incarnation: Annotated[int, msgspec.Meta(ge=1)]
    shard: Annotated[int, msgspec.Meta(ge=0, lt=SHARDS_MAX)] = 0


class _Nothing(msgspec.Struct, forbid_unknown_fields=True):
    pass


class Page(NamedTuple):
    """One address, found."""

    command: str  # for the primary
    arguments: dict[str, str]
    done: str = ""  # what the invocation is when an order was carried out; empty: it is no order, and so asked by GET
    body: type[msgspec.Struct] = _Nothing  # of an order


def find_page(parts: Sequence[bytes]) -> Page | None:
    """Give the page of an address behind `/{service}/-/`; None: there is none.

    Raises: UnknownHandler for a number that is none.
    """
    match parts:
        case [b"invocations"]:
            return Page("invocations", {})
        case [b"invocations", number, b"history"]:
            return Page("invocation", {"invocation": _number(number)})
        case [b"invocations", number, (b"cancel" | b"kill") as command]:
            return Page("order", {"command": command.decode(), "invocation": _number(number)}, _DONE[command])
        case [b"invocations", number, b"resume"]:
            return Page("order", {"command": "resume", "invocation": _number(number)}, "resumed", _Resume)
        case [b"parked", number, b"retry"]:
            return Page("order", {"command": RETRY, "invocation": _number(number)}, "retried")
        case [b"unknown"]:
            return Page("unknown", {})
        case [b"unknown", number, operation, b"settle"]:
            named = {"invocation": _number(number), "operation": _number(operation)}
            return Page("order", {"command": SETTLE, **named}, "settled")
        case [b"peers"]:
            return Page("peers", {})
        case [b"peers", name, b"adopt"]:
            return Page("adopt-peer", {"service": _service(name)}, "adopted", _Adopt)
        case [b"parked"]:
            return Page("parked", {})
        case _:
            return None


def _number(raw: bytes) -> str:
    if not _NUMBER.fullmatch(raw) or not int(raw):
        raise UnknownHandler("an invocation has a number above 0")
    return raw.decode()


def _service(raw: bytes) -> str:
    name = raw.decode(errors="replace")
    if not is_service_name(name):
        raise UnknownService("a peer is named as a service is")
    return name


def refusal_to_callers(config: ReplicaConfig) -> str:
    """Say why a caller of this ingress may be less than an operator; empty: it shows all that tools show."""
    if config.tls is not None and config.ingress_tls:
        return "this ingress does not ask for a client certificate, so who calls may be no operator"
    certified = config.tls is not None and config.tls.require_client_certificate
    if not config.token and not certified and split_address(config.ingress_listen)[0] not in _LOOPBACK:
        return "this ingress asks callers of other machines for nothing, so who calls may be no operator"
    return ""


class TokenFile:
    """A token in a file that may come, change and go while this runs, as a mounted Secret's does.

    Args:
        path: of the file.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._stamp: tuple[int, int, int] | None = None
        self._token = b""

    def current(self) -> bytes:
        """Give the token that holds now; empty: there is none. Costs a stat."""
        try:
            found = os.stat(self._path)
            stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
            if stamp != self._stamp:
                token = self._path.read_bytes().strip()
                self._stamp, self._token = stamp, token if len(token) >= TOKEN_BYTES_MIN else b""
                if not self._token:
                    _LOG.warning("the operators' token is too short and opens nothing", extra={"file": str(self._path)})
        except OSError:
            self._stamp, self._token = None, b""
        return self._token


class Operators:
    """Answers operators of one service.

    Args:
        asked: asks the primary; None where nobody is let in.
        token: the operators' own; empty: they show what callers show.
        token_file: the same, in a file that counts while it holds one.
        refusal: why that is not enough here; empty: it is.
    """

    def __init__(self, *, asked: Ask | None = None, token: str = "", token_file: str = "", refusal: str = "") -> None:
        assert asked is not None or refusal, "somebody is let in"
        self._ask = asked
        self._given = token.encode()
        self._file = TokenFile(token_file) if token_file else None
        self._refusal = refusal
        self._count = 0

    def _token(self) -> bytes:
        return self._given or (self._file.current() if self._file is not None else b"")

    def knows(self, shown: bytes) -> bool:
        """Is this the operators' token?"""
        token = self._token()
        return bool(token) and hmac.compare_digest(shown, token)

    def admit(self, shown: bytes) -> None:
        """Let in who showed this token, and all that the ingress asks of callers. Raises: OperatorsOnly."""
        if self._token():
            if not self.knows(shown):
                raise OperatorsOnly("this is for operators, who show a token of their own")
        elif self._refusal:
            raise OperatorsOnly(self._refusal)

    async def answer(self, page: Page, named: dict[str, list[str]], body: bytes) -> bytes:
        """Give the JSON of a page.

        Args:
            page: asked for with its method.
            named: what stands behind the path.
            body: of an order; empty stands for `{}`.

        Raises: InvalidArgument, Overloaded, OutcomeUnknown, NotPrimary, PeerUnreachable; what the primary refuses with.
        """
        assert self._ask is not None
        arguments = {**page.arguments, **_options(page, named), **_told(page, body)}
        if self._count >= ASKED_MAX:
            raise Overloaded(f"{ASKED_MAX} questions of operators are without an answer")
        self._count += 1
        try:
            found = await self._ask(page.command, arguments)
        except PeerUnreachable as error:
            if not page.done:
                raise
            remedy = "look whether it was carried out before you repeat it"
            raise OutcomeUnknown(error.message, remedy=remedy) from None
        finally:
            self._count -= 1
        return msgspec.json.encode(_carried_out(page, arguments, found) if page.done else found)


def _carried_out(page: Page, arguments: dict[str, str], found: dict[str, object]) -> dict[str, object]:
    """What the answer to an order says: as the command prints it with --json."""
    if page.command == "adopt-peer":
        told = {"adopted": arguments["service"], "serviceId": arguments["service_id"]}
        return {**told, "incarnation": int(arguments["incarnation"]), "shard": int(arguments["shard"])}
    numbered: dict[str, object] = {"invocation": int(arguments["invocation"])}
    if arguments["command"] == RETRY:
        numbered = {"parked": int(arguments["invocation"]), "invocation": found["invocation"]}
    elif arguments["command"] == SETTLE:
        numbered["operation"] = int(arguments["operation"])
    return {**numbered, "done": page.done}


def _options(page: Page, named: dict[str, list[str]]) -> dict[str, str]:
    """What may stand behind the path: `from` of the list."""
    options: dict[str, str] = {}
    for name, texts in named.items():
        if page.command != "invocations" or name != "from":
            raise InvalidArgument(f"this page takes no `{name}` - at `$.{name}`")
        if len(texts) != 1 or not _NUMBER.fullmatch(texts[0].encode()):
            raise InvalidArgument("from is one number - at `$.from`")
        options[name] = texts[0]
    return options


def _told(page: Page, body: bytes) -> dict[str, str]:
    """What an order's body says."""
    if not page.done:
        return {}
    try:
        told = msgspec.json.decode(body or b"{}", type=page.body)
        match told:
            case _Resume():
                return {"operation": str(told.operation), "value": bytes(told.value).decode()}
            case _Adopt():
                named = {"service_id": told.service_id, "incarnation": str(told.incarnation)}
                return {**named, "shard": str(told.shard)}
            case _:
                return {}
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise InvalidArgument(str(error)) from None


def primary_asker(primary: Callable[[], str], access: Access) -> Ask:
    """Give what asks the primary whose address `primary` knows; empty: it knows none."""

    async def asked(command: str, arguments: dict[str, str]) -> dict[str, object]:
        address = primary()
        if not address:
            raise NotPrimary("no primary is known now")
        return await ask(address, command, access, arguments)

    return asked
