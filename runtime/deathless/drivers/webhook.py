"""Each message a request to an HTTP address: at least once, in the order of its key.

    POST https://example.org/hooks/alice        {key} and {method} of `url` are filled in, percent-encoded
    Idempotency-Key: shop/0/69d2.../1/mail/7    the same for every attempt of this message
    Content-Type: application/json              the arguments

    2xx                        done; the body is the answer (JSON, else its text; none: null)
    408, 425, 429, 5xx         not now: tried again, not before its Retry-After; so are no connection and no answer
    anything else, also 3xx    refused for good

Messages of one key follow each other; `concurrency` keys are under way at a time, and no key waits for another
(`keyed_session`). A new process begins with the first message that the service keeps, so the other side must know a key
that it has seen.

Guarantees: at least once; nothing of a key overtakes. Does not: follow redirects, keep anything. Needs aiohttp, which
is imported when the sink is opened. Imports drivers.port and codec.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import quote, urlsplit

import msgspec
from msgspec import Meta

from deathless.base.errors import DeliveryRefused, InvalidConfig, SinkUnavailable
from deathless.codec.untrusted import read_json
from deathless.codec.wire import ok_reply
from deathless.drivers.json_body import json_of
from deathless.drivers.port import Answer, Delivery, Opened, Settings, Sink, Source

if TYPE_CHECKING:
    import aiohttp

AGAIN: Final = frozenset({408, 425, 429})  # beside 5xx
ANSWER_BYTES_MAX: Final = 1 << 20  # of a response's body
SHOWN_MAX: Final = 200  # characters of it in what operators see


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """Of `kind: webhook`."""

    url: str
    method: str = "POST"
    headers: dict[str, str] = {}
    token_file: str = ""  # its content is sent as `Authorization: Bearer ...`
    ca_file: str = ""  # authorities to trust instead of the system's
    timeout_seconds: Annotated[float, Meta(gt=0, le=3600)] = 30.0  # of one attempt
    concurrency: Annotated[int, Meta(ge=1, le=1000)] = 16


def sink(settings: Settings) -> Sink:
    """See port.Factory."""
    options = settings.typed(Options)
    what = f"driver {settings.driver}: options"
    parts = urlsplit(options.url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InvalidConfig(f"{what}.url {options.url!r} is not an http or https address")
    if not (options.method.isascii() and options.method.isalpha()):
        raise InvalidConfig(f"{what}.method {options.method!r} is not an HTTP method")
    headers = dict(options.headers)
    if options.token_file:
        headers["Authorization"] = f"Bearer {settings.secret(options.token_file)}"
    for name, value in headers.items():
        if not name or any(ord(c) < 32 for c in name + value):
            raise InvalidConfig(f"{what}.headers: {name!r} has a control character or an empty name")
    trust = None
    if options.ca_file:
        try:
            trust = ssl.create_default_context(cafile=settings.path(options.ca_file))
        except OSError as error:
            raise InvalidConfig(f"{what}.caFile {options.ca_file}: {error.strerror or error}") from None
    return WebhookSink(options, headers, trust)


class WebhookSink:
    """Sends requests; see the module.

    Args:
        options: in order.
        headers: of every request, with secrets.
        trust: for https; None: the system's authorities.
    """

    def __init__(self, options: Options, headers: dict[str, str], trust: ssl.SSLContext | None = None) -> None:
        self._options = options
        self._headers = headers
        self._trust = trust
        self._session: aiohttp.ClientSession | None = None
        self._next = 0  # position behind all that `deliver` has returned for
        self._done: dict[int, bytes] = {}  # replies of positions above, done by a call that raised
        self._places = asyncio.Semaphore(options.concurrency)

    async def open(self, source: Source, first: int) -> Opened:  # noqa: ARG002  nothing is kept of who sends
        """See port.Sink."""
        if self._session is None:
            try:
                import aiohttp  # noqa: PLC0415  an extra
            except ImportError as error:
                raise SinkUnavailable(f"{error}: pip install deathless[webhook]") from None

            connector = aiohttp.TCPConnector(limit=0, ssl=self._trust if self._trust is not None else True)
            self._session = aiohttp.ClientSession(
                connector=connector,
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(total=self._options.timeout_seconds),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        self._next = max(self._next, first)
        return Opened(self._next)

    async def deliver(self, deliveries: Sequence[Delivery]) -> Sequence[Answer]:
        """See port.Sink."""
        keys: dict[str, list[Delivery]] = {}
        for each in deliveries:
            keys.setdefault(each.key, []).append(each)
        problems: dict[int, SinkUnavailable | DeliveryRefused] = {}
        async with asyncio.TaskGroup() as group:
            for of_key in keys.values():
                group.create_task(self._in_order(of_key, problems))
        if problems:
            raise problems[min(problems)]
        answers = [
            Answer(each.position, each.reference, self._done[each.position])
            for each in deliveries
            if each.reference is not None
        ]
        self._pass(deliveries[-1].position)
        return answers

    @property
    def concurrency(self) -> int:
        """See port.KeyedSink."""
        return self._options.concurrency

    def destination(self, delivery: Delivery) -> str:
        """See port.KeyedSink: scheme, host and port."""
        parts = urlsplit(self._url(delivery))
        return f"{parts.scheme}://{parts.netloc}"

    async def pass_over(self, position: int, answer: Answer | None) -> None:  # noqa: ARG002  kept by nobody
        """See port.Sink."""
        self._pass(position)

    async def confirmed(self, through: int) -> None:
        """See port.Sink."""

    async def close(self) -> None:
        """See port.Sink."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _pass(self, position: int) -> None:
        self._next = position + 1
        self._done = {at: reply for at, reply in self._done.items() if at > position}

    async def _in_order(
        self, deliveries: Sequence[Delivery], problems: dict[int, SinkUnavailable | DeliveryRefused]
    ) -> None:
        """Deliver those of one key, up to the first that is not taken."""
        async with self._places:
            for each in deliveries:
                if each.position in self._done:
                    continue
                try:
                    self._done[each.position] = await self.attempt(each)
                except (SinkUnavailable, DeliveryRefused) as error:
                    problems[each.position] = error
                    return

    def _url(self, delivery: Delivery) -> str:
        url = self._options.url.replace("{key}", quote(delivery.key, safe=""))
        return url.replace("{method}", quote(delivery.method, safe=""))

    async def attempt(self, delivery: Delivery) -> bytes:
        """See port.KeyedSink."""
        import aiohttp  # noqa: PLC0415  an extra

        assert self._session is not None, "it is open"
        url = self._url(delivery)
        body = json_of(delivery.arguments, delivery.arguments, delivery.position)
        headers = {"Content-Type": "application/json", "Idempotency-Key": delivery.idempotency_key}
        try:
            async with self._session.request(
                self._options.method, url, data=body, headers=headers, allow_redirects=False
            ) as response:
                content = await response.content.read(ANSWER_BYTES_MAX)
                return self._judge(delivery, response.status, response.headers, content)
        except TimeoutError:
            raise SinkUnavailable(f"{url} gave no answer within {self._options.timeout_seconds:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise SinkUnavailable(f"{url}: {str(error) or type(error).__name__}") from None

    def _judge(self, delivery: Delivery, status: int, headers: Mapping[str, str], content: bytes) -> bytes:
        if 200 <= status < 300:
            return ok_reply(_packed(content))
        said = f"{status} {content.decode(errors='replace')[:SHOWN_MAX]}".strip()
        if status in AGAIN or status >= 500:
            error = SinkUnavailable(f"message {delivery.position}: {self._options.url} says {said}")
            after = headers.get("Retry-After", "")
            error.retry_after_s = float(after) if after.isdecimal() else 0.0
            raise error
        raise DeliveryRefused(f"{self._options.url} says {said}", position=delivery.position)


def _packed(content: bytes) -> bytes:
    """Give a response's body as a msgpack value."""
    if not content:
        return msgspec.msgpack.encode(None)
    try:
        return msgspec.msgpack.encode(read_json(content, object))
    except msgspec.MsgspecError:
        return msgspec.msgpack.encode(content.decode(errors="replace"))
