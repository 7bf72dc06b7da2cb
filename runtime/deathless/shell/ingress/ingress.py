"""The HTTP ingress: a process beside a replica that turns HTTP requests into calls and queries.

    POST /{service}/{key}/{handler}       JSON object of named arguments -> JSON result
    POST /{service}/{key}/{number}        bytes -> bytes (shell.ingress.by_number)
    GET  /{service}/{key}/{query}?args    arguments in the query string; `stale=true` on request
    GET  /{service}/-/invocations/{id}    the result of a call that was answered 202 (shell.ingress.results)
    ...  /{service}/-/...                 what operators ask and order (shell.ingress.operators)
    ...  /topics, /topics/...             rows that the service publishes (shell.ingress.topic_pages)
    GET  /{service}/-/openapi.json        what can be called, with types (shell.ingress.openapi)
    GET  /healthz  /readyz  /metrics      /metrics?own: without the replica's

It holds no truth: it checks arguments by the handlers' own types, sends everything through one session of the binary
client, in batches, and answers with what the shard recorded. The shard remembers idempotency keys, not we; a request
without one gets a UUIDv7 of ours, told in the answer's header, so it can be repeated. That makes every call here safe
to send again, which we do ourselves when our session has expired.

    202 the handler still waits   204 a method returned no bytes   400 arguments, with the path of the field
    401 who calls is not known   403 it may not, or it is for operators   404 service, handler or method
    405 wrong method   409 the handler raised   413 too large
    415 not JSON   429, 507 with Retry-After
    422 key reused, or outside its window   503 no primary, nothing was done   504 no reply in time: repeat it

Guarantees: an answer 200 is the recorded reply of a confirmed call (I1, I5); after 429, 503, 504 and 507 the same
request with the same key is applied once in all. Does not: keep anything across requests but counters.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import math
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig, TlsConfig
from deathless.base.errors import (
    DeathlessError,
    InvalidArgument,
    OutcomeUnknown,
    RetryLater,
    TooLarge,
    UnknownHandler,
    UnknownService,
)
from deathless.base.limits import Limits
from deathless.base.shards import shard_of
from deathless.core.access.callers import KeysWanted
from deathless.core.client.link import State
from deathless.execution.author.service import Service
from deathless.execution.handlers.probe import SPECS as PROBE_SPECS
from deathless.shell.client.active_trace import tracer
from deathless.shell.client.shard_client import Client
from deathless.shell.directory.members import announce_at, announce_later, ingress_address_path
from deathless.shell.ingress.browsers import PAGE_METHODS, Browsers
from deathless.shell.ingress.by_number import NumberRoute, Numbers, check_bytes
from deathless.shell.ingress.callers import Admitted, CallersAtFront, challenge
from deathless.shell.ingress.openapi import encode_document
from deathless.shell.ingress.operators import Operators, Page, find_page, operators_of
from deathless.shell.ingress.pending import Headers, Pending, idempotency_key_of
from deathless.shell.ingress.results import INVOCATIONS, LateResults, ResultRoute, place_of, wait_of
from deathless.shell.ingress.routes import Route, field_of, parse_query, unescape
from deathless.shell.ingress.topic_pages import TopicPage, no_topics, status_of, topics_of
from deathless.shell.link.config_file import read_config
from deathless.shell.net import tls as tls_files
from deathless.shell.net.callers import Callers
from deathless.shell.net.listening import announced, descriptors_for
from deathless.shell.process.forked import die_with_parent
from deathless.shell.process.logs import configure
from deathless.shell.process.output import never_wait
from deathless.shell.service_code.loading import load_configured
from deathless.shell.web import remedies
from deathless.shell.web.http2 import ALPN, Http2Connection
from deathless.shell.web.metrics import CONTENT_TYPE, MetricSet
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.replica_metrics import labels_of, replica_metrics
from deathless.shell.web.request import JSON, HttpLimits, Request, RequestTasks, problem, unforeseen
from deathless.shell.web.tls import front_tls

_LOG: Final = logging.getLogger("deathless.ingress")
REQUEST_TIMEOUT_S: Final = 10.0  # without a reply after this the answer is 504
SWEEP_S: Final = 0.1  # how often that is looked at
LINGER_S: Final = 1.0  # so long a stop waits for callers to send once more and be told that the connection ends
STOP_GRACE_S: Final = 4.0
RESERVED_STALE: Final = "stale"
_JSON_TYPE: Final = re.compile(rb'application/json\s*(;\s*charset="?utf-8"?\s*)?', re.IGNORECASE)
_PAGES_BYTES_MAX: Final = 64  # of the path of a page
_FIXED: Final = {b"/healthz", b"/readyz", b"/metrics"}
_OWN: Final = b"own"


class Ingress:
    """Answers HTTP requests of one service.

    Args:
        service: its code, for the types of arguments and results.
        client: started.
        token: what callers must show as `Authorization: Bearer ...`; empty: nothing.
        callers: where they prove who they are in another way; then `token` counts for nothing here.
        limits: of the service.
        labels: on all metrics.
        request_timeout_s: without a reply after this the answer is 503 or 504.
        replica_metrics: gives the metrics of the replica beside us, in the text format.
        operators: answers them; without it nobody is one.
    """

    def __init__(
        self,
        service: Service,
        client: Client,
        *,
        token: str = "",
        callers: Callers | None = None,
        limits: Limits,
        labels: dict[str, str],
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        replica_metrics: Callable[[], asyncio.Future[bytes]] | None = None,
        operators: Operators | None = None,
    ) -> None:
        self.service = service
        self.client = client
        specs, older = (*service.specs.items(), *PROBE_SPECS.items()), service.declared.older_arguments
        routes = {name.encode(): Route(spec, older=older(name)) for name, spec in specs}
        former = service.declared.former_names()
        routes |= {old.encode(): Route(service.specs[now], old, older(now)) for old, now in former.items()}
        self._routes = Numbers(service, routes)
        self._name = service.name.encode()
        self._key_bytes_max = limits.key_bytes_max
        self.trace = tracer(None)
        self._timeout_s = request_timeout_s
        self._pending: dict[Pending, None] = {}  # in the order they came
        self.late = LateResults(self._name, client)  # those that wait for the result of a handler that waits
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._replica_metrics = replica_metrics
        self._tasks = RequestTasks()
        self._tls: TlsConfig | None = None
        self.topics = no_topics()
        self.browsers = Browsers(service.name)
        self._measure(labels)
        known = operators or Operators(refusal="this ingress serves no operators")
        self._front = CallersAtFront(token, callers, known, self.metrics)
        self._sweep()

    def _measure(self, labels: dict[str, str]) -> None:
        self.metrics = MetricSet("deathless_ingress", labels=labels)
        self._answers = self.metrics.counter("requests", "Requests answered, by status.", labels=("status",))
        self._seconds = self.metrics.histogram("request_seconds", "Time from a whole request to its answer.")
        self.metrics.gauge("in_flight", "Requests without an answer.", lambda: len(self._pending) + len(self.late))
        self.metrics.gauge("ready", "1 while a session with the primary stands.", lambda: self.ready)

    # ---- requests --------------------------------------------------------------------------------------------

    def handle(self, request: Request) -> None:
        """See Application."""
        if request.target in _FIXED:
            self._fixed(request)
            return
        if self.browsers.preflight(request):
            self._answers["200"] += 1
        elif not self._page(request):
            self._enter(request)

    def _page(self, request: Request) -> bool:
        """Answer with a page for people; False: there is none at this path."""
        page = self.browsers.page(request) if len(request.target) < _PAGES_BYTES_MAX else None
        if page is None:
            return False
        if request.method not in PAGE_METHODS:
            self._wrong_method(request, b", ".join(PAGE_METHODS))
            return True
        self._answers["200"] += 1
        request.respond(200, page.body, content_type=page.kind, headers=page.headers)
        return True

    def _enter(self, request: Request, *, again: bool = False) -> None:
        try:
            self._route(request, self._front.admit(request, again=again))
        except KeysWanted:
            self._tasks.spawn(request, self._enter_later(request))
        except DeathlessError as error:
            self._answer_error(request, error)
        except Exception as error:  # noqa: BLE001  one bad request never touches another
            self._answers["500"] += 1
            unforeseen(request, error)

    async def _enter_later(self, request: Request) -> None:
        """Go on with a request once the keys that its token needs were fetched, or could not be."""
        try:
            await self._front.fetch()
        except DeathlessError as error:
            self._answer_error(request, error)
        else:
            self._enter(request, again=True)

    def _route(self, request: Request, who: Admitted) -> None:
        parts = request.target.split(b"/")
        if parts[1:3] == [self._name, b"-"] and self._own_page(request, parts[3:], who.token):
            return
        if (page := self.topics.find(parts)) is not None:
            self._topic(request, page, who)
            return
        if len(parts) != 4:
            raise UnknownHandler("the path must be /{service}/{key}/{handler}")
        if parts[1] != self._name:
            raise UnknownService(f"this is service {self.service.name!r}")
        name = unescape(parts[3], "the handler's name").encode() if b"%" in parts[3] else parts[3]
        route = self._routes.route(name, request)
        if route is None:
            raise UnknownHandler(f"{self.service.name} has no handler or query {_text(name)!r}")
        key = unescape(parts[2], "the key of the address")
        if not key:
            raise InvalidArgument("the key must not be empty")
        if key[0] == "\0":
            raise InvalidArgument("a key that begins with a zero byte is not for users")
        if len(key.encode()) > self._key_bytes_max:
            raise TooLarge(f"the key is longer than {self._key_bytes_max} bytes")
        if isinstance(route, NumberRoute) or not route.query:
            self._call(request, route, key)
        else:
            self._query(request, route, key)

    def _own_page(self, request: Request, parts: list[bytes], shown: bytes) -> bool:
        """Answer what is ours below `/{service}/-/`; False: it is a call for the key `-`."""
        if parts == [b"openapi.json"]:
            self._describe(request)
        elif len(parts) == 2 and parts[0] == INVOCATIONS[1]:
            self._result(request, *place_of(parts[1], self.client.shards))
        elif (page := find_page(parts, self.client.shards)) is None:
            return False
        else:
            self._front.operators.admit(shown)
            self._operate(request, page)
        return True

    def _describe(self, request: Request) -> None:
        if request.method not in (b"GET", b"HEAD"):
            self._wrong_method(request, b"GET, HEAD")
            return
        self.browsers.document = self.browsers.document or encode_document(self.service, self._front.how)
        self._answers["200"] += 1
        request.respond(200, self.browsers.document)

    def _operate(self, request: Request, page: Page) -> None:
        allowed = (b"POST",) if page.done else (b"GET", b"HEAD")
        if request.method not in allowed:
            self._wrong_method(request, b", ".join(allowed))
            return
        if page.done and not self._is_json(request, request.headers.get(b"content-type", b"")):
            return
        self._tasks.spawn(request, self._answer_operator(request, page, parse_query(request.query)))

    def _topic(self, request: Request, page: TopicPage, who: Admitted) -> None:
        if request.method in page.methods:
            self._tasks.spawn(request, self._answer_topic(request, page, who))
        else:
            self._wrong_method(request, b", ".join(page.methods))

    async def _answer_topic(self, request: Request, page: TopicPage, who: Admitted) -> None:
        try:
            body = await self.topics.answer(request, page, who)
        except DeathlessError as error:
            self._answer_error(request, error, status=status_of(error), door={})  # it is no call
        else:
            self._answers["200"] += 1
            if body is not None:
                request.respond(200, body)

    async def _answer_operator(self, request: Request, page: Page, named: dict[str, list[str]]) -> None:
        try:
            body = await self._front.operators.answer(page, named, request.body)
        except DeathlessError as error:
            self._answer_error(request, error)
        else:
            self._answers["200"] += 1
            request.respond(200, body)

    def _call(self, request: Request, route: Route | NumberRoute, key: str) -> None:
        if request.method != b"POST":
            self._wrong_method(request, b"POST")
            return
        if not self._is_readable(request, route):
            return
        if request.query:
            raise InvalidArgument("a handler takes its arguments in the body, not in the query string")
        shard = shard_of(key.encode(), self.client.shards)
        link = self.client.shard(shard)
        idempotency_key = idempotency_key_of(request, link)
        if isinstance(route, NumberRoute):
            arguments = route.from_bytes(request.body)
        else:
            arguments = route.from_json(request.body, key)
        message = self.trace(request, self.client.encode(route.name, key, arguments, idempotency_key.decode()))
        pending = Pending(self, request, route, message, idempotency_key, self._loop.time(), wait_of(request), shard)
        refusal = link.refusal()
        if refusal is not None:
            pending.refused(refusal)
            return
        self._pending[pending] = None
        try:
            link.submit_message(message, pending)
        except DeathlessError as error:
            pending.failed(error)

    def _is_readable(self, request: Request, route: Route | NumberRoute) -> bool:
        """Answer 415 to a body that this route does not take."""
        if not isinstance(route, NumberRoute):
            kind = b"application/json" if not request.body else b""
            return self._is_json(request, request.headers.get(b"content-type", kind))
        try:
            check_bytes(request)
        except InvalidArgument as error:
            self._answer_error(request, error, status=415)
            return False
        return True

    def _is_json(self, request: Request, kind: bytes) -> bool:
        """Answer 415 to a body that is not JSON."""
        coding = request.headers.get(b"content-encoding", b"identity").lower()
        if _JSON_TYPE.fullmatch(kind.strip()) and coding == b"identity":
            return True
        text = "the body must be JSON with the header Content-Type: application/json, and not compressed"
        remedy = "send Content-Type: application/json, and no Content-Encoding"
        self._answer_error(request, InvalidArgument(text, remedy=remedy), status=415)
        return False

    def _query(self, request: Request, route: Route, key: str) -> None:
        if request.method not in (b"GET", b"HEAD"):
            self._wrong_method(request, b"GET, HEAD")
            return
        named = parse_query(request.query)
        stale = named.pop(RESERVED_STALE, ["false"])
        if stale not in (["true"], ["false"]):
            raise InvalidArgument("stale must be true or false - at `$.stale`")
        arguments = route.from_query(named, key)
        message = self.client.encode(route.name, key, arguments)
        shard = shard_of(key.encode(), self.client.shards)
        pending = Pending(self, request, route, message, b"", self._loop.time(), 0.0, shard)
        self._pending[pending] = None
        try:
            self.client.shard(shard).ask_message(message, pending, stale=stale == ["true"])
        except DeathlessError as error:
            pending.failed(error)

    def _result(self, request: Request, shard: int, invocation: int) -> None:
        if request.method not in (b"GET", b"HEAD"):
            self._wrong_method(request, b"GET, HEAD")
            return
        now = self._loop.time()
        self.accepted(Pending(self, request, ResultRoute(request), b"", b"", now, wait_of(request), shard), invocation)

    def accepted(self, pending: Pending, invocation: int) -> None:
        """The handler waits, and the caller with it, as long as it said."""
        self._pending.pop(pending, None)
        pending.invocation = invocation
        self.late.add(pending, self._loop.time())

    # ---- answers ---------------------------------------------------------------------------------------------

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
        """Answer a request that went to the shard; a second answer to it is dropped."""
        self._pending.pop(pending, None)
        self.late.done(pending)
        if pending.request.answered:
            return
        self._seconds.observe(self._loop.time() - pending.began)
        self._answers[str(status)] += 1
        told = list(headers)
        if pending.idempotency_key:
            told.append((b"idempotency-key", pending.idempotency_key))
        if isinstance(error, RetryLater):
            told.append(_retry_after(error))
        pending.request.respond(status, body, content_type=content_type, headers=told)

    def _answer_error(
        self, request: Request, error: DeathlessError, *, status: int = 0, door: Mapping[str, str] = remedies.HTTP
    ) -> None:
        status = status or error.http_status
        self._answers[str(status)] += 1
        headers: list[tuple[bytes, bytes]] = []
        if isinstance(error, RetryLater):
            headers.append(_retry_after(error))
        if status == 401:
            headers.append((b"www-authenticate", challenge(error)))
        request.respond(status, problem(error, field=field_of(error), door=door), headers=headers)

    def _wrong_method(self, request: Request, allowed: bytes) -> None:
        self._answers["405"] += 1
        error = InvalidArgument(f"method {_text(request.method)} is not allowed here, use {allowed.decode()}")
        request.respond(405, problem(error), headers=[(b"allow", allowed)])

    def count_refused(self, status: int) -> None:
        """A message that could not be read was answered below us."""
        self._answers[str(status)] += 1

    # ---- the process's own pages -----------------------------------------------------------------------------

    @property
    def ready(self) -> bool:
        """A session with the primary stands, of each shard."""
        return self.client.state is State.READY

    def _fixed(self, request: Request) -> None:
        if request.method not in (b"GET", b"HEAD"):
            self._wrong_method(request, b"GET, HEAD")
        elif request.target == b"/healthz":
            request.respond(200, b'{"status":"ok"}')
        elif request.target == b"/readyz":
            body = msgspec.json.encode({"status": self.client.state.value, "primary": self.client.primary})
            request.respond(200 if self.ready else 503, body)
        else:
            self._tasks.spawn(request, self._expose(request))

    async def _expose(self, request: Request) -> None:
        text = self.metrics.expose()
        if self._replica_metrics is not None and request.query != _OWN:
            text += await self._replica_metrics()
        request.respond(200, text, content_type=CONTENT_TYPE.encode())

    # ---- time ------------------------------------------------------------------------------------------------

    def watch_tls(self, tls: TlsConfig | None) -> None:
        """Look for renewed certificates from now on."""
        self._tls = tls

    def _sweep(self) -> None:
        """Answer those whose time is over, oldest first."""
        self._timer = self._loop.call_later(SWEEP_S, self._sweep)  # first: what fails below is tried again
        tls_files.refresh(self._tls)
        self.sweep(self._loop.time())

    def sweep(self, now: float) -> None:
        """Answer those who have waited for `request_timeout_s`, or for a result, at time `now` of the loop."""
        self.late.sweep(now)
        late: list[Pending] = []
        for pending in self._pending:
            if now - pending.began < self._timeout_s:
                break
            late.append(pending)
        for pending in late:
            try:
                error = self.client.shard(pending.shard).give_up(pending, self._timeout_s)
                if isinstance(error, OutcomeUnknown) and not pending.idempotency_key:
                    error = RetryLater(f"no answer within {self._timeout_s:g} s", remedy="retry")
                pending.failed(error)
            except Exception:  # noqa: BLE001  the others are answered all the same
                self._pending.pop(pending, None)
                _LOG.exception("could not answer a call that timed out")

    async def close(self) -> None:
        """End; the client is the owner's to close."""
        if self._timer is not None:
            self._timer.cancel()
        await self._tasks.close()
        self.topics.close()
        await self._front.close()


def _retry_after(error: RetryLater) -> tuple[bytes, bytes]:
    return b"retry-after", b"%d" % max(1, math.ceil(error.retry_after_s))


def _text(raw: bytes) -> str:
    return raw[:100].decode("utf-8", "replace")


async def serve(config: ReplicaConfig, announce: Callable[[str], None]) -> None:
    """Run the ingress of a replica until SIGTERM or SIGINT.

    Args:
        config: the replica's.
        announce: told the address that is listened on.

    Raises: InvalidConfig, InvalidService, PortTaken.
    """
    limits = config.make_limits()
    service = load_configured(config)
    where, name = [f"dir:{config.service_directory}"], f"ingress-{config.replica}"
    shards, token = config.shards, config.token
    async with Client(config.service, where, token=token, tls=config.tls, name=name, shards=shards) as client:
        for shard in range(shards):
            client.shard(shard)  # its link is made, so that `ready` tells of all
        operators = operators_of(config, lambda shard: client.shard(shard).primary)
        ingress = Ingress(
            service,
            client,
            token=config.token,
            callers=Callers(config, front_tls(config)) if config.asks_callers else None,
            limits=limits,
            labels=labels_of(config),
            replica_metrics=lambda: asyncio.ensure_future(replica_metrics(config)),
            operators=operators,
        )
        ingress.trace = tracer(config.tracing, limits.message_bytes_max)
        ingress.browsers = Browsers(config.service, config.cors_origins)
        ingress.topics = topics_of(config, operators)
        http = HttpServer(
            ingress,
            HttpLimits(
                body_bytes_max=limits.message_bytes_max, connections_max=descriptors_for(limits.connections_max)
            ),
            now=time.monotonic,
            wall=time.time,
            refused=ingress.count_refused,
            http2=Http2Connection,
        )
        ingress.watch_tls(front_tls(config))
        bound = await http.start(config.ingress_listen, tls_files.server_context(front_tls(config), ALPN))
        announce(announced(bound, config.advertise_host))
        gc.collect()
        gc.freeze()
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        await ended.wait()
        ingress.late.stop()  # this process ends: they ask again, somewhere else
        ingress.topics.stop()
        await http.stop(STOP_GRACE_S, LINGER_S)
        await ingress.close()


def main(arguments: list[str]) -> int:
    """`python -m deathless.shell.ingress.ingress CONFIG [PARENT]`: ends with its parent; gives the error's code."""
    if len(arguments) > 1:
        die_with_parent(int(arguments[1]))
    config = read_config(arguments[0])
    configure(config.log_level, config.replica, "ingress")
    address = ingress_address_path(config.directory, config.replica, config.instance)

    def announce(bound: str) -> None:
        """Leave the address where tools find it."""
        error = announce_at(address, bound)
        if error is not None:  # storage full or away: who knows the address is served all the same
            _LOG.warning("address not announced yet", extra={"address": bound, "why": str(error)})
            threading.Thread(target=announce_later, args=(address, bound), name="address", daemon=True).start()

    runner = asyncio.run if find_spec("uvloop") is None else import_module("uvloop").run
    try:
        runner(serve(config, announce))
    except DeathlessError as error:
        sys.stderr.write(f"{error}\n")
        return error.exit_code
    return 0


if __name__ == "__main__":
    never_wait()
    sys.exit(main(sys.argv[1:]))
