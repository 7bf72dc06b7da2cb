"""A real ingress in front of a real worker, in this process: what operators see and order over HTTP is done."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from http_wire import Answer, Wire, get, post
from tests.unit.deathless.shell.worker.test_worker import Told, config_in, to_standby

from deathless.base.config import ReplicaConfig, SourceConfig
from deathless.base.errors import HandlerFailed, InvocationUnknown, NotParked, NotUnsettled, Parked, StreamNotStopped
from deathless.core.supervisor.records import Deaths, RoleIs, Stop, TakeOver
from deathless.shell.client.shard_client import Client
from deathless.shell.directory.identity import prepare
from deathless.shell.ingress.ingress import Ingress
from deathless.shell.ingress.operators import Operators, shard_askers
from deathless.shell.link.source_status import SourceStatus, StreamStatus, write_status
from deathless.shell.net.admin_call import access_of, ask
from deathless.shell.service_code.loading import load_service
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits
from deathless.shell.worker.worker import serve

SECONDS = 120  # for all of a test; it waits for states
SERVICE = """
from deathless import Context, OutcomeUnknown, Service, Struct
from deathless.base.errors import Overloaded

class Order(Struct):
    promise: str = ""
    count: int = 0

shop = Service("bank", state=Order)

@shop.handler
async def place(order: Order, ctx: Context, article: str, count: int = 1) -> int:
    asked = ctx.promise(int)
    order.promise = asked.id
    first = await asked
    again = ctx.promise(dict[str, int])
    order.promise = again.id
    return first + (await again)["more"]

@shop.handler(shared=True)
def give(order: Order, ctx: Context, value: object = None) -> None:
    ctx.complete(order.promise, value)

@shop.handler
def add(order: Order, ctx: Context, by: int = 1) -> int:
    order.count += by
    return order.count

@shop.activity(at_most_once=True)
def charge() -> int:
    raise OutcomeUnknown("no answer came")

@shop.handler
async def pay(order: Order, ctx: Context) -> int:
    return await ctx.run(charge)

@shop.handler
def refuse(order: Order, ctx: Context) -> int:
    raise Overloaded("the kitchen is full")

@shop.query
def count(order: Order) -> int:
    return order.count
"""


@pytest.fixture(autouse=True)
def _collector() -> Iterator[None]:
    """A worker switches the garbage collector off; this process goes on."""
    yield
    gc.enable()
    gc.unfreeze()


def children() -> set[int]:
    """Processes that this one has begun and not reaped."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it is gone
            if b"witness_writer" in (path.parent / "cmdline").read_bytes():
                continue  # it ends with its worker's process, which is this one here
            if int(path.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.add(int(path.parent.name))
    return found


class Site:
    """A worker that leads, and an ingress before it."""

    def __init__(self, told: Told, config: ReplicaConfig, address: str, client: Client, wire: Wire) -> None:
        self.told = told
        self.config = config
        self.address = address
        self.client = client
        self.wire = wire
        self.ask = wire.ask

    async def get(self, path: str) -> Any:
        answer = await self.ask(get(path))
        assert answer.status == 200, answer.body
        return answer.json

    async def order(self, path: str, body: bytes = b"{}") -> Answer:
        return await self.ask(post(path, body))

    async def result(self, invocation: int) -> Answer:
        """The answer that a caller of a handler that waits has in the end, however long that takes."""
        while (answer := await self.ask(get(f"/bank/-/invocations/{invocation}"))).status == 202:
            pass
        return answer

    async def begin(self, key: str, handler: str = "place", body: bytes = b'{"article": "apple"}') -> int:
        answer = await self.ask(post(f"/bank/{key}/{handler}", body, "Prefer: respond-async"))
        assert answer.status == 202, answer.body
        return int(answer.json["invocation"])

    async def park_next(self, key: str, body: bytes = b'{"by": 3}', *headers: str) -> Answer:
        """Call `add` as if it had ended its process twice."""
        self.told.order(Deaths(self.client.session, self.client._machine.window.next_seq, 2))
        return await self.ask(post(f"/bank/{key}/add", body, *headers))


@asynccontextmanager
async def leading(told: Told, config: ReplicaConfig) -> AsyncIterator[Site]:
    addresses = await to_standby(told)
    told.order(TakeOver(0, "a test"))
    while not any(isinstance(one, RoleIs) and one.role == "primary" for one in told.records):  # noqa: ASYNC110  a state
        await asyncio.sleep(0)
    async with Client("bank", [addresses.client]) as client:
        await client.ready(60)
        operators = Operators(asked=shard_askers(lambda _: client.primary, config))
        ingress = Ingress(
            load_service(config.module), client, limits=config.make_limits(), labels={"replica": "r0"},
            operators=operators,
        )  # fmt: skip
        http = HttpServer(ingress, HttpLimits(), now=lambda: 0.0, wall=lambda: 0.0, refused=ingress.count_refused)
        try:
            wire = await Wire.connect(await http.start("127.0.0.1:0"))
            yield Site(told, config, addresses.client, client, wire)
        finally:
            await Wire.close_all()
            await http.stop(1.0)
            await ingress.close()


def run(folder: Path, look: Callable[[Site], Awaitable[None]], **config_of: Any) -> None:
    """Have `look` look at a primary behind its ingress."""
    (folder / "shop.py").write_text(SERVICE)
    config = config_in(folder, module=f"{folder}/shop.py:shop", **config_of)

    before = children()

    async def main() -> None:
        await prepare(config)
        told = Told()
        reading = asyncio.create_task(told.read())
        running = asyncio.create_task(serve(config, told.theirs))
        async with asyncio.timeout(SECONDS):
            try:
                async with leading(told, config) as site:
                    await look(site)
            finally:
                told.order(Stop())
            assert await running == 0
            told.theirs.close()
            await reading
            while children() - before:  # noqa: ASYNC110  a state: the loop reaps what ran activities
                await asyncio.sleep(0)
        told.ours.close()

    asyncio.run(main())


def test_what_waits_is_listed_and_shown_with_its_history(tmp_path: Path) -> None:
    async def look(site: Site) -> None:
        one, other = await site.begin("a"), await site.begin("b")
        listed = await site.get("/bank/-/invocations")
        assert [each["invocation"] for each in listed["invocations"]] == [one, other]
        assert listed["count"] == 2
        rest = await site.get(f"/bank/-/invocations?from={other}")
        assert [each["invocation"] for each in rest["invocations"]] == [other]
        assert (await site.order("/bank/a/give", b'{"value": 4}')).status == 200
        shown = await site.get(f"/bank/-/invocations/{one}/history")
        assert shown["arguments"] == {"article": "apple"}
        (given,) = shown["given"]
        assert (given["operation"], given["what"], given["value"]) == (1, f"promise {one}.1", 4)
        assert given["asked_us"] <= given["at_us"] <= shown["nowUs"]
        (waits,) = shown["invocation"]["waits_for"]
        assert waits.startswith(f"promise {one}.2, since ")
        assert await ask(site.address, "invocation", access_of(site.config), {"invocation": str(one)}) == shown

    run(tmp_path, look)


def test_orders_over_http_are_carried_out(tmp_path: Path) -> None:
    async def look(site: Site) -> None:
        resumed, cancelled, killed = await site.begin("a"), await site.begin("b"), await site.begin("c")
        path = "/bank/-/invocations"
        answer = await site.order(f"{path}/{resumed}/resume", b'{"value": 4, "operation": 1}')
        assert (answer.status, answer.json) == (200, {"invocation": resumed, "done": "resumed"})
        assert (await site.order(f"{path}/{resumed}/resume", b'{"value": {"more": 5}}')).status == 200
        assert await site.get(f"{path}/{resumed}") == 9
        assert (await site.order(f"{path}/{cancelled}/cancel")).json["done"] == "cancelled"
        assert (await site.ask(get(f"{path}/{cancelled}"))).json["type"] == "Cancelled"
        assert (await site.order(f"{path}/{killed}/kill", b"")).json["done"] == "killed"
        assert (await site.ask(get(f"{path}/{killed}"))).status == 409
        assert await site.get(path) == {"count": 0, "invocations": [], "nowUs": pytest.approx(0, abs=2**63)}
        gone = await site.order(f"{path}/{killed}/kill")
        assert (gone.status, gone.json["code"]) == (404, InvocationUnknown.code)
        assert (await site.get("/bank/-/peers")) == {"peers": []}

    run(tmp_path, look)


def test_a_parked_call_is_run_again_once(tmp_path: Path) -> None:
    async def look(site: Site) -> None:
        await site.get("/bank/a/count")
        parked = await site.park_next("a", b'{"by": 3}', "Idempotency-Key: k1")
        assert (parked.status, parked.json["code"]) == (422, Parked.code)
        (listed,) = (await site.get("/bank/-/parked"))["parked"]
        assert (listed["handler"], listed["key"]) == ("add", "a")
        path = f"/bank/-/parked/{listed['lsn']}/retry"
        retried = await site.order(path)
        assert retried.status == 200, retried.body
        assert (retried.json["parked"], retried.json["done"]) == (listed["lsn"], "retried")
        assert await site.get(f"/bank/-/invocations/{retried.json['invocation']}") == 3
        again = await site.order(path)
        assert (again.status, again.json["code"]) == (409, NotParked.code)
        sent_again = await site.ask(post("/bank/a/add", b'{"by": 3}', "Idempotency-Key: k1"))
        assert (sent_again.status, sent_again.json) == (200, 3)
        assert await site.get("/bank/a/count") == 3
        assert (await site.get("/bank/-/parked")) == {"parked": [], "count": 0}

    run(tmp_path, look)


def test_a_parked_call_whose_caller_has_sent_it_again_is_not_run_twice(tmp_path: Path) -> None:
    async def look(site: Site) -> None:
        await site.park_next("a", b'{"by": 3}', "Idempotency-Key: k1")
        assert (await site.ask(post("/bank/a/add", b'{"by": 3}', "Idempotency-Key: k1"))).json == 3
        (listed,) = (await site.get("/bank/-/parked"))["parked"]
        refused = await site.order(f"/bank/-/parked/{listed['lsn']}/retry")
        assert (refused.status, refused.json["code"]) == (409, NotParked.code)
        assert await site.get("/bank/a/count") == 3

    run(tmp_path, look)


def test_a_parked_call_waits_for_the_key_that_is_held(tmp_path: Path) -> None:
    async def look(site: Site) -> None:
        parked = await site.park_next("a")
        assert parked.status == 422
        holds = await site.begin("a")
        (listed,) = (await site.get("/bank/-/parked"))["parked"]
        invocation = (await site.order(f"/bank/-/parked/{listed['lsn']}/retry")).json["invocation"]
        views = (await site.get("/bank/-/invocations"))["invocations"]
        assert [(each["invocation"], each["turns"]) for each in views] == [(holds, 1), (invocation, 0)]
        await site.order(f"/bank/-/invocations/{holds}/kill")
        assert await site.get(f"/bank/-/invocations/{invocation}") == 3

    run(tmp_path, look)


def test_a_long_value_is_told_by_its_size(tmp_path: Path) -> None:
    async def look(site: Site) -> None:
        one = await site.begin("a", body=msgspec.json.encode({"article": "x" * 3000}))
        await site.order(f"/bank/-/invocations/{one}/resume", b'{"value": 4}')
        shown = await site.get(f"/bank/-/invocations/{one}/history")
        assert shown["arguments"] is None
        assert shown["givenCount"] == 1

    run(tmp_path, look)


def test_i7_an_activity_of_unknown_outcome_is_listed_until_it_is_settled(tmp_path: Path) -> None:
    async def look(site: Site) -> None:
        one, other = await site.begin("a", "pay", b"{}"), await site.begin("b", "pay", b"{}")
        for invocation in (one, other):
            await site.result(invocation)
        found = await site.get("/bank/-/unknown")
        assert [(each["handler"], each["activity"], each["operation"]) for each in found["unknown"]] == 2 * [
            ("pay", "charge", 1)
        ]
        assert ({each["key"] for each in found["unknown"]}, found["count"]) == ({"a", "b"}, 2)
        assert len({each["activityKey"] for each in found["unknown"]}) == 2
        settled = await site.order(f"/bank/-/unknown/{one}/1/settle")
        assert (settled.status, settled.json) == (200, {"invocation": one, "operation": 1, "done": "settled"})
        again = await site.order(f"/bank/-/unknown/{one}/1/settle")
        assert (again.status, again.json["code"]) == (409, NotUnsettled.code)
        left = (await site.get("/bank/-/unknown"))["unknown"]
        assert [each["invocation"] for each in left] == [other]
        status = await ask(site.address, "status", access_of(site.config))
        assert isinstance(told := status["messaging"], dict)
        assert told["outcomes_unknown"] == 1

    run(tmp_path, look)


def test_an_error_that_escaped_a_handler_is_no_answer_that_was_lost(tmp_path: Path) -> None:
    async def look(site: Site) -> None:
        invocation = await site.begin("a", "pay", b"{}")
        for _ in range(2):
            answer = await site.result(invocation)
            told = (answer.status, answer.json["code"], answer.json["type"], answer.json["error"])
            assert told == (500, HandlerFailed.code, "OutcomeUnknown", "no answer came")
            assert "retry-after" not in answer.headers
        with pytest.raises(HandlerFailed, match="no answer came") as failure:
            await site.client.result(invocation)
        assert failure.value.kind == "OutcomeUnknown"
        for _ in range(2):
            answer = await site.ask(post("/bank/a/refuse", b"{}", "Idempotency-Key: k1"))
            assert (answer.status, answer.json["code"], answer.json["type"]) == (500, HandlerFailed.code, "Overloaded")
        with pytest.raises(HandlerFailed) as refusal:
            await site.client.call("refuse", "a")
        assert refusal.value.kind == "Overloaded"

    run(tmp_path, look)


def test_a_peer_is_adopted_over_http(tmp_path: Path) -> None:
    async def look(site: Site) -> None:
        for incarnation, number in ((3, "0"), (4, "f")):
            body = msgspec.json.encode({"serviceId": 32 * number, "incarnation": incarnation})
            answer = await site.order("/bank/-/peers/stock/adopt", body)
            told = {"adopted": "stock", "serviceId": 32 * number, "incarnation": incarnation, "shard": 0}
            assert (answer.status, answer.json) == (200, told)
            (peer,) = (await site.get("/bank/-/peers"))["peers"]
            assert (peer["service"], peer["serviceId"], peer["incarnation"]) == ("stock", 32 * number, incarnation)

    run(tmp_path, look)


def test_what_sources_said_last_is_listed_and_a_stream_that_stands_nowhere_does_not_go_on(tmp_path: Path) -> None:
    stream = StreamStatus(stream=0, name="flights", state="reading", taken_in=4, end=9)
    status = SourceStatus(source="flights", kind="files", input="i", state="reading", streams=(stream,), at_us=7)

    async def look(site: Site) -> None:
        write_status(site.config.directory, status)
        (only,) = (await site.get("/bank/-/sources"))["sources"]
        assert (only["source"], only["takenIn"], only["behind"], only["atUs"]) == ("flights", 4, 4, 7)
        assert await site.get("/bank/-/sinks") == {"sinks": []}
        told = await site.get("/bank/-/sources/flights/refused")
        assert told == {"streams": [], "refused": [], "standing": [], "count": 0, "more": False}
        for page in ("streams/5/retry", "streams/5/6/skip"):
            answer = await site.order(f"/bank/-/{page}")
            assert (answer.status, answer.json["code"]) == (409, StreamNotStopped.code)

    run(tmp_path, look, sources=(SourceConfig(name="flights", kind="files", input="i"),))
