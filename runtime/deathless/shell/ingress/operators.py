"""What operators ask and order over HTTP: as `deathless invocations`, `peers`, `undelivered` and so on do.

    GET  /{service}/-/invocations?from=ID          handlers that wait, the oldest first
    GET  /{service}/-/invocations/{id}/history     one of them: what it was given, what it waits for and since when
    POST /{service}/-/invocations/{id}/cancel      likewise kill; resume takes {"operation": N, "value": ...}
    GET  /{service}/-/peers                        the services that this one sends to and hears from
    POST /{service}/-/peers/{name}/adopt           take the one created anew: {"serviceId": .., "incarnation": ..}
    GET  /{service}/-/parked                       messages that were set aside
    POST /{service}/-/parked/{lsn}/retry           run one of them again
    GET  /{service}/-/unknown                      activities that may have been done
    POST /{service}/-/unknown/{id}/{n}/settle      one of them was seen to: it is listed no more
    GET  /{service}/-/undelivered?from=ID          messages that drivers gave up, the oldest first
    POST /{service}/-/undelivered/{id}/retry       send one of them again; likewise discard
    GET  /{service}/-/sources?from=N               how far the streams of sources are, as their processes said last
    GET  /{service}/-/sources/{name}/refused?from=LSN&above=ID&stream=N    rows that were refused, and those at
                                                   which streams stand; streams, with sessions above ID
    POST /{service}/-/streams/{id}/retry           have the row tried again at which a stream stands: its session's id
    POST /{service}/-/streams/{id}/{seq}/skip      pass that row over, which has this seq
    GET  /{service}/-/sinks                        how far sinks are, as their processes said last
    POST /{service}/-/outside/resume               let go what is held of a service made of a copy

The primary answers, over its client port, what it answers to `deathless`; nothing is kept here.

Of a service with several shards every ingress asks the primaries of all of them, because callers reach any: an id in a
path names its shard (`2-512`) and that one is asked, wherever the request came in. A plain one is refused before
anybody is asked: each shard may have an invocation of that number, and an order must not end another's. Lists and
orders without an id take `?shard=k`; without it a list tells of all shards, each entry with its own, or says which does
not answer.

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
from functools import partial
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
from deathless.base.shards import SHARDS_MAX, checked_shard, read_invocation, shard_directory, shard_name
from deathless.codec.peer_messages import (
    DISCARD,
    DROP_INPUT,
    FORGET_STREAM,
    NAME_MAX,
    REDELIVER,
    RETRY,
    RETRY_INPUT,
    RUN_INPUT,
    SETTLE,
    SKIP_INPUT,
    is_service_name,
)
from deathless.codec.untrusted import read_json
from deathless.shell.disk.small_files import read_small
from deathless.shell.ingress.routes import unescape
from deathless.shell.net.admin_call import Access, ask, fitted
from deathless.shell.net.listening import split_address

TOKEN_BYTES_MIN: Final = 16  # of a token in a file; a shorter one is none
ASKED_MAX: Final = 16  # questions to the primary at a time (I10)
_LOG: Final = logging.getLogger("deathless.ingress")
_NUMBER: Final = re.compile(rb"\d{1,19}")
_LISTS: Final[dict[str, tuple[str, ...]]] = {
    **{each: (each,) for each in ("invocations", "parked", "peers", "sinks", "sources", "undelivered", "unknown")},
    "streams": ("streams", "refused", "standing"),
}
"""By command, the lists in its answer."""
_BEGIN: Final[dict[str, tuple[str, ...]]] = {
    **dict.fromkeys(("invocations", "sources", "undelivered"), ("from",)),
    "streams": ("from", "above", "stream"),
}
"""By command, what says where a list begins, or of which stream it is."""
_DONE: Final = {b"cancel": "cancelled", b"kill": "killed"}
_OF_REFUSED: Final = {b"replay": (RUN_INPUT, "taken in"), b"discard": (DROP_INPUT, "discarded")}
_SEEN_TO: Final = {b"retry": (REDELIVER, "sent again"), b"discard": (DISCARD, "discarded")}
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")
Ask = Callable[[str, dict[str, str]], Awaitable[dict[str, object]]]
"""Asks the primary of a shard, as `deathless` does."""


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
    shard: int | None = None  # that the id in the path names; None: no id stands there, `?shard=k` may


def find_page(parts: Sequence[bytes], shards: int) -> Page | None:
    """Give the page of an address behind `/{service}/-/`; None: there is none.

    Args:
        parts: of the path.
        shards: how many the service has.

    Raises: UnknownHandler for a number that is none; InvalidArgument for an id that names no shard of several.
    """
    match parts:
        case [b"invocations"]:
            return Page("invocations", {})
        case [b"invocations", raw, b"history"]:
            shard, number = _id(raw, shards)
            return Page("invocation", {"invocation": number}, shard=shard)
        case [b"invocations", raw, (b"cancel" | b"kill") as command]:
            shard, number = _id(raw, shards)
            return Page("order", {"command": command.decode(), "invocation": number}, _DONE[command], shard=shard)
        case [b"invocations", raw, b"resume"]:
            shard, number = _id(raw, shards)
            return Page("order", {"command": "resume", "invocation": number}, "resumed", _Resume, shard)
        case [b"parked", raw, b"retry"]:
            shard, number = _id(raw, shards)
            return Page("order", {"command": RETRY, "invocation": number}, "retried", shard=shard)
        case [b"unknown"]:
            return Page("unknown", {})
        case [b"unknown", raw, operation, b"settle"]:
            shard, number = _id(raw, shards)
            named = {"invocation": number, "operation": _number(operation)}
            return Page("order", {"command": SETTLE, **named}, "settled", shard=shard)
        case [b"undelivered"]:
            return Page("undelivered", {})
        case [b"undelivered", raw, (b"retry" | b"discard") as what]:
            shard, number = _id(raw, shards)
            order, done = _SEEN_TO[what]
            return Page("order", {"command": order, "invocation": number}, done, shard=shard)
        case [b"sources"]:
            return Page("sources", {})
        case [b"sources", name, b"refused"]:
            return Page("streams", {"source": _source(name)})
        case [b"streams", raw, b"retry"]:
            shard, number = _id(raw, shards)
            return Page("order", {"command": RETRY_INPUT, "invocation": number}, "tried again", shard=shard)
        case [b"streams", raw, b"forget"]:
            shard, number = _id(raw, shards)
            return Page("order", {"command": FORGET_STREAM, "invocation": number}, "forgotten", shard=shard)
        case [b"streams", raw, seq, b"skip"]:
            shard, number = _id(raw, shards)
            named = {"invocation": number, "operation": _seq(seq)}
            return Page("order", {"command": SKIP_INPUT, **named}, "passed over", shard=shard)
        case [b"refused", raw, (b"replay" | b"discard") as what]:
            shard, number = _id(raw, shards)
            order, done = _OF_REFUSED[what]
            return Page("order", {"command": order, "invocation": number}, done, shard=shard)
        case [b"sinks"]:
            return Page("sinks", {})
        case [b"outside", b"resume"]:
            return Page("resume-outside", {}, "let go")
        case [b"peers"]:
            return Page("peers", {})
        case [b"peers", name, b"adopt"]:
            return Page("adopt-peer", {"service": _service(name)}, "adopted", _Adopt)
        case [b"parked"]:
            return Page("parked", {})
        case _:
            return None


def _id(raw: bytes, shards: int) -> tuple[int, str]:
    """Give the shard of an id and its number; that of what is parked is written as that of an invocation."""
    if shards == 1:
        return 0, _number(raw)
    shard, number = read_invocation(raw[:100].decode("ascii", "replace"), shards)
    return shard, str(number)


def _number(raw: bytes) -> str:
    if not _NUMBER.fullmatch(raw) or not int(raw):
        raise UnknownHandler("the number of an invocation must be above 0")
    return raw.decode()


def _seq(raw: bytes) -> str:
    """Give the seq of an input, which is 0 for a row that had waited for its key."""
    if not _NUMBER.fullmatch(raw):
        raise UnknownHandler("the seq of an input must be a number")
    return raw.decode()


def _source(raw: bytes) -> str:
    name = unescape(raw, "the name of a source")
    if not 0 < len(name) <= NAME_MAX:
        raise UnknownHandler(f"the name of a source has 1 to {NAME_MAX} characters")
    return name


def _service(raw: bytes) -> str:
    name = raw.decode(errors="replace")
    if not is_service_name(name):
        raise UnknownService("the name of a peer must be the name of a service")
    return name


def refusal_to_callers(config: ReplicaConfig) -> str:
    """Say why a caller of this ingress may be less than an operator; empty: it shows all that tools show."""
    if config.asks_callers:
        return "this ingress takes what callers prove themselves by, so who calls may be no operator"
    if config.tls is not None and config.ingress_tls:
        return "this ingress does not ask for a client certificate, so who calls may be no operator"
    certified = config.tls is not None and config.tls.require_client_certificate
    if not config.token and not certified and split_address(config.ingress_listen)[0] not in _LOOPBACK:
        return "this ingress asks callers of other machines for nothing, so who calls may be no operator"
    return ""


def operators_token(config: ReplicaConfig) -> str:
    """Give what operators show where no file holds it: with callers that prove who they are, `token` is not theirs."""
    if config.operator_token or not config.asks_callers or config.operator_token_file:
        return config.operator_token
    return config.token


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
                token = read_small(self._path).strip()
                self._stamp, self._token = stamp, token if len(token) >= TOKEN_BYTES_MIN else b""
                if not self._token:
                    _LOG.warning(
                        "the operators' token is too short and is not accepted", extra={"file": str(self._path)}
                    )
        except OSError:
            self._stamp, self._token = None, b""
        return self._token


class Operators:
    """Answers operators of one service.

    Args:
        asked: asks the primary, of each shard in their order; empty where nobody is let in.
        token: the operators' own; empty: they show what callers show.
        token_file: the same, in a file that counts while it holds one.
        refusal: why that is not enough here; empty: it is.
    """

    def __init__(self, *, asked: Sequence[Ask] = (), token: str = "", token_file: str = "", refusal: str = "") -> None:
        assert asked or refusal, "somebody is let in"
        self._asked = tuple(asked)
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
                raise OperatorsOnly("this is for operators, who need a token of their own")
        elif self._refusal:
            raise OperatorsOnly(self._refusal)

    def lets(self, shown: bytes) -> bool:
        """Would `admit` let in who showed this token?"""
        try:
            self.admit(shown)
        except OperatorsOnly:
            return False
        return True

    async def answer(self, page: Page, named: dict[str, list[str]], body: bytes) -> bytes:
        """Give the JSON of a page.

        Args:
            page: asked for with its method.
            named: what stands behind the path.
            body: of an order; empty stands for `{}`.

        Raises: InvalidArgument, Overloaded, OutcomeUnknown, NotPrimary, PeerUnreachable; what the primary refuses with.
        """
        shard, options = _options(page, named, len(self._asked))
        arguments = {**page.arguments, **options, **_told(page, body)}
        if self._count >= ASKED_MAX:
            raise Overloaded(f"{ASKED_MAX} requests of operators are unanswered")
        self._count += 1
        try:
            if shard is None:
                return msgspec.json.encode(await self._list_all(page, arguments))
            found = await self._ask(shard, page, arguments)
        finally:
            self._count -= 1
        told = _carried_out(page, arguments, found) if page.done else found
        return msgspec.json.encode(told if len(self._asked) == 1 else {**told, _shard_field(page): shard})

    async def _ask(self, shard: int, page: Page, arguments: dict[str, str]) -> dict[str, object]:
        try:
            return await self._asked[shard](page.command, arguments)
        except (NotPrimary, PeerUnreachable) as error:
            several = len(self._asked) > 1
            text = f"shard {shard}: {error.message}" if several else error.message
            if page.done and isinstance(error, PeerUnreachable):
                remedy = "look whether it was carried out before you repeat it"
                raise OutcomeUnknown(text, remedy=remedy) from None
            if several:
                remedy = f"{error.advice}; ?shard=K lists another's" if page.command in _LISTS else error.advice
                raise type(error)(text, remedy=remedy) from None
            raise

    async def _list_all(self, page: Page, arguments: dict[str, str]) -> dict[str, object]:
        """List what all shards have; one is asked after the other, so that a request costs one connection at a time."""
        listed: dict[str, list[dict[str, object]]] = {name: [] for name in _LISTS[page.command]}
        counts: list[int] = []
        times: list[int] = []
        more: list[bool] = []
        for shard in range(len(self._asked)):
            found = await self._ask(shard, page, arguments)
            for name, entries in listed.items():
                ours = fitted(found.get(name), list[dict[str, object]])
                entries += [{**entry, _shard_field(page): shard} for entry in ours]
            counts += [fitted(found["count"], int)] if "count" in found else []
            times += [fitted(found["nowUs"], int)] if "nowUs" in found else []
            more += [fitted(found["more"], bool)] if "more" in found else []
        told: dict[str, object] = {**listed}
        told |= ({"count": sum(counts)} if counts else {}) | ({"nowUs": max(times)} if times else {})
        return told | ({"more": any(more)} if more else {})


def _shard_field(page: Page) -> str:
    """Give what the shard that answered is called; of a peer `shard` says which of the peer's it is."""
    return "ownShard" if page.command in ("peers", "adopt-peer") else "shard"


def _carried_out(page: Page, arguments: dict[str, str], found: dict[str, object]) -> dict[str, object]:
    """What the answer to an order says: as the command prints it with --json."""
    if page.command == "adopt-peer":
        told = {"adopted": arguments["service"], "serviceId": arguments["service_id"]}
        return {**told, "incarnation": int(arguments["incarnation"]), "shard": int(arguments["shard"])}
    if page.command == "resume-outside":
        return {"held": found["resumed"], "done": page.done}
    numbered: dict[str, object] = {"invocation": int(arguments["invocation"])}
    if arguments["command"] in (REDELIVER, DISCARD):
        numbered = {"messages": [int(arguments["invocation"])]}
    elif arguments["command"] == RETRY:
        numbered = {"parked": int(arguments["invocation"]), "invocation": found["invocation"]}
    elif arguments["command"] in (RUN_INPUT, DROP_INPUT):
        numbered = {"lsn": int(arguments["invocation"])}
        if not found.get("done", True):
            return {**numbered, "done": "refused again", "code": found["code"], "why": found["why"]}
    elif arguments["command"] == SETTLE:
        numbered["operation"] = int(arguments["operation"])
    elif arguments["command"] in (RETRY_INPUT, FORGET_STREAM):
        numbered = {"session": int(arguments["invocation"])}
    elif arguments["command"] == SKIP_INPUT:
        numbered = {"session": int(arguments["invocation"]), "seq": int(arguments["operation"])}
    return {**numbered, "done": page.done}


def _options(page: Page, named: dict[str, list[str]], shards: int) -> tuple[int | None, dict[str, str]]:
    """Give which shard is asked (None: all of them), and what else stands behind the path: what a list holds."""
    shard, options = page.shard, dict[str, str]()
    for name, texts in named.items():
        of_list = name in _BEGIN.get(page.command, ())
        if not of_list and not (name == "shard" and page.shard is None):
            raise InvalidArgument(f"this page has no parameter `{name}` - at `$.{name}`")
        if len(texts) != 1 or not _NUMBER.fullmatch(texts[0].encode()):
            raise InvalidArgument(f"{name} must be one number - at `$.{name}`")
        if of_list:
            options[name] = texts[0]
        else:
            shard = checked_shard(int(texts[0]), shards)
    if shards == 1:
        return 0, options
    if shard is None and (options or page.command not in _LISTS):
        remedy = f"add ?shard=0 to ?shard={shards - 1}"
        raise InvalidArgument(f"it is about one shard, but this service has {shards} - at `$.shard`", remedy=remedy)
    return shard, options


def _told(page: Page, body: bytes) -> dict[str, str]:
    """What an order's body says."""
    if not page.done:
        return {}
    try:
        told = read_json(body or b"{}", page.body)
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


def shard_askers(primary: Callable[[int], str], config: ReplicaConfig) -> list[Ask]:
    """Give what asks the primary of each shard, whose address `primary` knows; all their ports open to the same."""
    names = [shard_name(config.service, shard, config.shards) for shard in range(config.shards)]
    folders = [shard_directory(config.service_directory, shard, config.shards) for shard in range(config.shards)]
    return [
        primary_asker(partial(primary, shard), Access(name, config.token, config.tls, folders[shard]))
        for shard, name in enumerate(names)
    ]


def operators_of(config: ReplicaConfig, primary: Callable[[int], str]) -> Operators:
    """Give who answers operators at the ingress of a replica, asking the primary of each shard that `primary` knows."""
    return Operators(
        asked=shard_askers(primary, config),
        token=operators_token(config),
        token_file=config.operator_token_file,
        refusal=refusal_to_callers(config),
    )
