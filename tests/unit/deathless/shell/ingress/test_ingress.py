"""The ingress over real sockets, in front of a fake replica that runs the bank for real."""

from __future__ import annotations

import asyncio
import os
import signal
import ssl
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trustme
from bank_fake import bank, bank_shard
from http2_wire import Http2Wire, head
from http_wire import Wire, get, post
from replica_fake import FakeShard, ReplicaServer

from deathless.base.config import ReplicaConfig, TlsConfig
from deathless.base.limits import Limits
from deathless.codec.messages import decode
from deathless.core.tables.keys import time_of_key
from deathless.shell.client.shard_client import Client
from deathless.shell.directory.members import Member, write_member
from deathless.shell.ingress.ingress import Ingress, serve
from deathless.shell.net.tls import client_context, server_context
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits

pytestmark = pytest.mark.asyncio
V7_AHEAD = "0fff0000-0000-7000-8000-000000000000"


async def until(holds: Callable[[], object]) -> None:
    """Give way until something is so; the run's own time limit bounds it."""
    while not holds():  # noqa: ASYNC110  what is waited for is plain state without an event
        await asyncio.sleep(0)


class Site:
    """A replica, a client, an ingress and a connection to it."""

    def __init__(self, shard: FakeShard, server: ReplicaServer, client: Client, ingress: Ingress, wire: Wire) -> None:
        self.shard = shard
        self.server = server
        self.client = client
        self.ingress = ingress
        self.wire = wire
        self.ask = wire.ask
        self.now = 0.0


@asynccontextmanager
async def site(
    token: str = "", limits: Limits | None = None, wait: bool = True, time_us: int = 0
) -> AsyncIterator[Site]:
    limits = limits or Limits()
    shard = bank_shard(limits)
    server = ReplicaServer(shard)
    await server.start()
    server.replica.become("primary", 1, server.address)
    server.replica.time_us = time_us
    async with Client("bank", [server.address]) as client:
        if wait:
            await client.ready(30)
        ingress = Ingress(bank, client, token=token, limits=limits, labels={"replica": "r0"})
        http = HttpServer(ingress, HttpLimits(), now=lambda: 0.0, wall=lambda: 0.0, refused=ingress.count_refused)
        try:
            wire = await Wire.connect(await http.start("127.0.0.1:0"))
            yield Site(shard, server, client, ingress, wire)
        finally:
            await Wire.close_all()
            await http.stop(1.0)
            await ingress.close()
            server.kill()


# ---- calls -----------------------------------------------------------------------------------------------------


async def test_post_calls_a_handler_and_gives_its_result() -> None:
    async with site() as s:
        answer = await s.ask(post("/bank/alice/deposit", b'{"amount": 5}'))
        assert (answer.status, answer.json) == (200, 5)
        assert answer.headers["content-type"] == "application/json"
        assert (await s.ask(get("/bank/alice/balance"))).json == 5


@pytest.mark.parametrize("time_us", [0, 1_700_000_000_000_000], ids=["time not told", "time told"])
async def test_key_is_minted_where_it_is_missing_and_told(time_us: int) -> None:
    async with site(time_us=time_us) as s:
        await until(lambda: s.client.session)
        key = (await s.ask(post("/bank/alice/deposit", b'{"amount": 5}'))).headers["idempotency-key"]
        carried = time_of_key(key.encode())
        assert carried is None if not time_us else 0 <= (carried or 0) - time_us < 600_000_000
        assert decode(s.shard.applied[0]).idempotency_key == key.encode()
        again = await s.ask(post("/bank/alice/deposit", b'{"amount": 5}', f"Idempotency-Key: {key}"))
        assert (again.status, again.json, again.headers["idempotency-key"]) == (200, 5, key)
        assert (await s.ask(get("/bank/alice/balance"))).json == 5


async def test_key_given_counts_quoted_or_not() -> None:
    async with site() as s:
        for header in ("Idempotency-Key: abc", 'Idempotency-Key: "abc"'):
            assert (await s.ask(post("/bank/alice/deposit", b'{"amount": 5}', header))).json == 5
        assert (await s.ask(get("/bank/alice/balance"))).json == 5


async def test_key_that_came_with_another_request_or_from_outside_the_window_is_422() -> None:
    async with site() as s:
        await s.ask(post("/bank/alice/deposit", b'{"amount": 5}', "Idempotency-Key: abc"))
        answer = await s.ask(post("/bank/alice/deposit", b'{"amount": 6}', "Idempotency-Key: abc"))
        assert (answer.status, answer.json["code"]) == (422, "DL3007")
        answer = await s.ask(post("/bank/alice/deposit", b'{"amount": 6}', f"Idempotency-Key: {V7_AHEAD}"))
        assert (answer.status, answer.json["code"]) == (422, "DL3008")


@pytest.mark.parametrize("key", ["", "with space", "x" * 256, "caf\u00e9", '""'])
async def test_key_that_can_not_be_told_back_is_refused(key: str) -> None:
    async with site() as s:
        raw = post("/bank/alice/deposit", b'{"amount": 5}', "Idempotency-Key: @").replace(b"@", key.encode())
        answer = await s.ask(raw)
        assert answer.status == (200 if key == '""' else 400)
        assert len(s.shard.applied) == (key == '""')


async def test_handler_that_refuses_is_409_with_type_and_text() -> None:
    async with site() as s:
        answer = await s.ask(post("/bank/alice/withdraw", b'{"amount": 5}'))
        assert answer.status == 409
        assert answer.json["code"] == "DL3048"
        assert answer.json["type"] == "TooPoor"
        assert answer.json["error"] == "balance is 0"
        assert answer.json["docs"] == "docs/errors/DL3048.md"
        assert "idempotency-key" in answer.headers


async def test_handler_of_several_keys_takes_the_first_from_the_address() -> None:
    async with site() as s:
        answer = await s.ask(post("/bank/alice/transfer", b'{"target": "bob", "amount": 5}'))
        assert answer.json == {"alice": -5, "bob": 5}
        answer = await s.ask(post("/bank/alice/transfer", b'{"source": "alice", "target": "bob", "amount": 5}'))
        assert answer.json == {"alice": -10, "bob": 10}
        answer = await s.ask(post("/bank/alice/transfer", b'{"source": "carol", "target": "bob", "amount": 5}'))
        assert (answer.status, answer.json["field"]) == (400, "$.source")
        assert (await s.ask(get("/bank/alice/sum_of?b=bob"))).json == 0
        assert (await s.ask(get("/bank/alice/sum_of?a=bob&b=bob"))).json["field"] == "$.a"


async def test_keys_are_any_text() -> None:
    async with site() as s:
        await s.ask(post("/bank/caf%C3%A9%2Fbar%20/deposit", b'{"amount": 5}'))
        assert decode(s.shard.applied[0]).key == "café/bar ".encode()


# ---- bad input -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b'{"amount": "five"}', "$.amount"),
        (b"{}", "$.amount"),
        (b"", "$.amount"),
        (b'{"amount": 5, "colour": 1}', "$.colour"),
        (b'{"amount": 5, "note": 7}', "$.note"),
        (b"[1]", ""),
        (b'{"amount": ', ""),
        (b'{"amount": 99999999999999999999999}', ""),
        (b'\xff{"amount": 5}', ""),
    ],
)
async def test_arguments_that_do_not_fit_are_400_with_the_path_of_the_field(body: bytes, field: str) -> None:
    async with site() as s:
        answer = await s.ask(post("/bank/alice/deposit", body))
        assert (answer.status, answer.json["code"]) == (400, "DL3003")
        assert answer.json.get("field", "") == field
        assert s.shard.applied == []


@pytest.mark.parametrize(
    ("data", "status", "code"),
    [
        (get("/nothing"), 404, "DL3004"),
        (get("/bank"), 404, "DL3004"),
        (get("/bank/alice/balance/more"), 404, "DL3004"),
        (get("/shop/alice/balance"), 404, "DL3005"),
        (get("/bank/alice/nothing"), 404, "DL3004"),
        (post("/bank/alice/nothing"), 404, "DL3004"),
        (get("/bank/alice/deposit"), 405, "DL3003"),
        (post("/bank/alice/balance"), 405, "DL3003"),
        (post("/healthz"), 405, "DL3003"),
        (get("/bank//balance"), 400, "DL3003"),
        (get("/bank/%zz/balance"), 400, "DL3003"),
        (get("/bank/%ff/balance"), 400, "DL3003"),
        (get("/bank/%00x/balance"), 400, "DL3003"),
        (get("/bank/%00x/deathless.probe.read"), 400, "DL3003"),
        (get("/bank/x/deathless.probe"), 405, "DL3003"),
        (post("/bank/x/deathless.probe", b'{"number": "one"}'), 400, "DL3003"),
        (get("/bank/" + "k" * 513 + "/balance"), 413, "DL3006"),
        (get("/bank/a/balance?x=1"), 400, "DL3003"),
        (get("/bank/a/balance?stale=maybe"), 400, "DL3003"),
        (get("/bank/a/history?first=x"), 400, "DL3003"),
        (get("/bank/a/history?first=1&first=2"), 400, "DL3003"),
        (get("/bank/a/history?%zz=1"), 400, "DL3003"),
        (post("/bank/a/deposit?amount=5", b"{}"), 400, "DL3003"),
        (post("/bank/a/deposit", b"amount=5").replace(b"application/json", b"text/plain"), 415, "DL3003"),
        (
            post("/bank/a/deposit", b"{}").replace(b"application/json", b"application/json; charset=latin1"),
            415,
            "DL3003",
        ),
        (post("/bank/a/deposit", b"{}", "Content-Encoding: gzip"), 415, "DL3003"),
        (post("/bank/a/deposit", b'{"amount": 1, "note": "' + b"x" * 2_000_000 + b'"}'), 413, "DL3006"),
    ],
)
async def test_bad_request_has_its_status_and_code(data: bytes, status: int, code: str) -> None:
    async with site() as s:
        answer = await s.ask(data)
        assert (answer.status, answer.json["code"]) == (status, code)
        if status == 405:
            assert answer.headers["allow"] in ("POST", "GET, HEAD")
        assert s.shard.applied == []


async def test_message_above_the_services_maximum_is_413() -> None:
    async with site(limits=Limits(message_bytes_max=200)) as s:
        answer = await s.ask(post("/bank/a/deposit", b'{"amount": 1, "note": "' + b"x" * 300 + b'"}'))
        assert (answer.status, answer.json["code"]) == (413, "DL3006")


@pytest.mark.parametrize(
    "header", ["", "Authorization: Bearer wrong", "Authorization: Basic secret", "Authorization: secret"]
)
async def test_token_is_asked_for(header: str) -> None:
    async with site(token="secret") as s:
        answer = await s.ask(get("/bank/alice/balance", *([header] if header else [])))
        assert (answer.status, answer.json["code"]) == (401, "DL3010")
        assert answer.headers["www-authenticate"] == "Bearer"
        answer = await s.ask(get("/bank/alice/balance", "Authorization: bearer secret"))
        assert answer.status == 200
        assert (await s.ask(get("/healthz"))).status == 200


# ---- queries ---------------------------------------------------------------------------------------------------


async def test_query_takes_its_arguments_from_the_address() -> None:
    async with site() as s:
        answer = await s.ask(get("/bank/a/history?first=3&only=a%20b&exact=true&since=2026-01-02T03:04:05Z"))
        assert answer.json == {"first": 3, "only": ["a b"], "exact": True, "since": "2026-01-02T03:04:05Z"}
        answer = await s.ask(get("/bank/a/history?only=a+b&only=c&stale=true"))
        assert answer.json["only"] == ["a b", "c"]
        assert (await s.ask(get("/bank/a/history?&first=1&"))).json["first"] == 1


async def test_head_of_a_query_tells_without_the_body() -> None:
    async with site() as s:
        answer = await s.ask(get("/bank/a/balance", method="HEAD"))
        assert (answer.status, answer.body, answer.headers["content-length"]) == (200, b"", "1")


async def test_stale_query_is_answered_without_a_primary_and_a_linearizable_one_waits() -> None:
    async with site() as s:
        s.server.replica.become("standby", 1, "")
        assert (await s.ask(get("/bank/a/balance?stale=true"))).json == 0
        s.wire.send(get("/bank/a/balance"))
        await until(lambda: s.ingress._pending)
        s.server.replica.become("primary", 2, s.server.address)
        assert (await s.wire.answer()).json == 0


# ---- while the service can't ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "status"), [("DL1002", 429), ("DL1003", 507)])
async def test_refusal_is_told_at_once_with_the_time_to_wait(code: str, status: int) -> None:
    async with site() as s:
        s.server.replica.refusals = [(code, 1200)]
        answer = await s.ask(post("/bank/a/deposit", b'{"amount": 5}', "Idempotency-Key: k"))
        assert (answer.status, answer.json["code"], answer.headers["retry-after"]) == (status, code, "2")
        assert answer.headers["idempotency-key"] == "k"
        second = await s.ask(post("/bank/a/deposit", b'{"amount": 7}'))
        assert (second.status, second.json["code"]) == (status, code), "while it lasts nothing new is sent"
        assert (await s.ask(get("/bank/a/balance"))).status == 200, "queries go on"


async def test_refused_call_that_is_repeated_with_its_key_is_applied_once() -> None:
    async with site() as s:
        s.server.replica.refusals = [("DL1003", 1)]
        request = post("/bank/a/deposit", b'{"amount": 5}', "Idempotency-Key: k")
        assert (await s.ask(request)).status == 507
        await until(lambda: not (s.client.refusal() is not None))
        assert (await s.ask(request)).json == 5
        assert (await s.ask(get("/bank/a/balance"))).json == 5


async def test_session_that_expired_is_no_matter_of_the_caller() -> None:
    async with site() as s:
        assert (await s.ask(post("/bank/a/deposit", b'{"amount": 5}'))).json == 5
        s.shard.sessions.clear()
        assert (await s.ask(post("/bank/a/deposit", b'{"amount": 5}'))).json == 10


async def test_request_goes_through_a_takeover() -> None:
    async with site() as s:
        s.server.replica.muted = True
        s.wire.send(post("/bank/a/deposit", b'{"amount": 5}'))
        await until(lambda: s.shard.applied)
        s.server.replica.muted = False
        for transport in list(s.server.transports.values()):
            transport.abort()
        assert (await s.wire.answer()).json == 5
        assert len(s.shard.applied) == 1


async def test_call_without_a_reply_in_time_is_504_and_its_key_finds_out() -> None:
    async with site() as s:
        s.server.replica.muted = True
        s.wire.send(post("/bank/a/deposit", b'{"amount": 5}', "Idempotency-Key: k") + get("/bank/a/balance"))
        await until(lambda: not (len(s.ingress._pending) < 1 or not s.shard.applied))
        s.ingress.sweep(s.ingress._loop.time() + 11)
        answer = await s.wire.answer()
        assert (answer.status, answer.json["code"], answer.headers["idempotency-key"]) == (504, "DL1006", "k")
        assert answer.headers["retry-after"] == "1"
        assert (await s.wire.answer()).status in (200, 503)
        s.server.replica.muted = False
        assert (await s.ask(post("/bank/a/deposit", b'{"amount": 5}', "Idempotency-Key: k"))).json == 5
        assert (await s.ask(get("/bank/a/balance"))).json == 5


async def test_no_replica_in_time_is_503_and_nothing_was_done() -> None:
    async with site() as s:
        s.server.kill()
        await until(lambda: not s.client.primary)
        s.wire.send(post("/bank/a/deposit", b'{"amount": 5}'))
        await until(lambda: s.ingress._pending)
        s.ingress.sweep(s.ingress._loop.time() + 11)
        answer = await s.wire.answer()
        assert (answer.status, answer.json["code"]) == (503, "DL1005")
        assert s.shard.applied == []
        ready = await s.ask(get("/readyz"))
        assert (ready.status, ready.json["status"]) == (503, "seeking")


async def test_query_without_an_answer_in_time_is_503() -> None:
    async with site() as s:
        s.server.replica.dropping = True
        s.wire.send(get("/bank/a/balance"))
        await until(lambda: s.ingress._pending)
        s.ingress.sweep(s.ingress._loop.time() + 11)
        assert (await s.wire.answer()).status == 503


async def test_requests_beyond_the_queue_are_429() -> None:
    async with site() as s:
        s.client._queue_max = 0
        answer = await s.ask(post("/bank/a/deposit", b'{"amount": 5}'))
        assert (answer.status, answer.json["code"]) == (429, "DL1002")
        assert (await s.ask(get("/bank/a/balance"))).status == 429


# ---- the process's own pages -----------------------------------------------------------------------------------


async def test_health_readiness_and_metrics() -> None:
    async with site() as s:
        assert (await s.ask(get("/healthz"))).json == {"status": "ok"}
        ready = await s.ask(get("/readyz"))
        assert (ready.status, ready.json) == (200, {"status": "ready", "primary": s.server.address})
        await s.ask(post("/bank/a/deposit", b'{"amount": 5}'))
        await s.ask(get("/bank/a/nothing"))
        answer = await s.ask(get("/metrics"))
        assert answer.headers["content-type"].startswith("text/plain")
        assert b'deathless_ingress_requests_total{replica="r0",status="200"} 1.0' in answer.body
        assert b'deathless_ingress_requests_total{replica="r0",status="404"} 1.0' in answer.body
        assert b'deathless_ingress_ready{replica="r0"} 1.0' in answer.body
        assert (await s.ask(get("/metrics", method="HEAD"))).body == b""
        assert b"deathless_ingress_ready" in (await s.ask(get("/metrics?own"))).body


async def test_sixty_four_connections_share_packets() -> None:
    async with site() as s:
        host = ":".join(map(str, s.wire.writer.get_extra_info("peername")))
        wires = [await Wire.connect(host) for _ in range(64)]
        for wire in wires:
            wire.send(post("/bank/a/deposit", b'{"amount": 1}') * 4)
        answers = [await wire.answer() for wire in wires for _ in range(4)]
        assert sorted(answer.json for answer in answers) == list(range(1, 257))


# ---- the process -----------------------------------------------------------------------------------------------


def configure(folder: Path, server: ReplicaServer, **changes: object) -> ReplicaConfig:
    write_member(str(folder), Member("r0", "", server.address))
    (folder / "replicas" / "r0").mkdir(parents=True)
    fields: dict[str, object] = {
        "service": "bank", "module": str(Path(__file__).parents[4] / "process" / "bank_fake.py") + ":bank",
        "directory": str(folder), "replica": "r0", "ingress_listen": "127.0.0.1:0",
    }  # fmt: skip
    return msgspec.convert(fields | changes, ReplicaConfig)


async def test_process_serves_announces_its_address_and_ends_in_order(tmp_path: Path) -> None:
    server = ReplicaServer(bank_shard())
    await server.start()
    server.replica.become("primary", 1, server.address)
    config = tmp_path / "config.json"
    config.write_bytes(msgspec.json.encode(configure(tmp_path, server)))
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deathless.shell.ingress.ingress", str(config), env=environment
    )
    announced = tmp_path / "replicas" / "r0" / "ingress.address"
    await until(lambda: not (not announced.exists() and process.returncode is None))
    wire = await Wire.connect(announced.read_text().strip())
    assert (await wire.ask(post("/bank/alice/deposit", b'{"amount": 5}'))).json == 5
    assert b"deathless_replica_up" in (await wire.ask(get("/metrics"))).body
    two = await Http2Wire.connect(announced.read_text().strip())
    json = [(b"content-type", b"application/json"), (b"idempotency-key", b"abc")]
    numbers = [two.ask(head("POST", "/bank/alice/deposit", *json), b'{"amount": 5}') for _ in range(2)]
    told = [await two.answer(number) for number in numbers]
    assert [(each.status, each.body, each.headers[b"idempotency-key"]) for each in told] == [(200, b"10", b"abc")] * 2
    assert (await two.answer(two.ask(head("GET", "/bank/alice/balance")))).body == b"10"
    assert (await two.answer(two.ask(head("GET", "/bank/alice/nothing")))).status == 404
    assert b"deathless_replica_up" in (await two.answer(two.ask(head("GET", "/metrics")))).body
    own = (await wire.ask(get("/metrics?own"))).body
    assert b"deathless_ingress_ready" in own and b"deathless_replica" not in own
    process.send_signal(signal.SIGTERM)
    assert [code for code, _ in await two.end()] == [0, 0]
    two.writer.close()
    assert await process.wait() == 0
    await Wire.close_all()
    server.kill()


async def test_ingress_speaks_tls(tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "server.pem"))
    tls = {"ca": str(tmp_path / "ca.pem"), "certificate": str(tmp_path / "server.pem")}
    shard = bank_shard()
    server = ReplicaServer(shard)
    settings = msgspec.convert(tls, TlsConfig)
    await server.start(server_context(settings))
    server.replica.become("primary", 1, server.address)
    announced: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(serve(configure(tmp_path, server, tls=tls), announced.set_result))
    wire = await Wire.connect(await announced, ssl=client_context(settings))
    assert (await wire.ask(post("/bank/alice/deposit", b'{"amount": 5}'))).json == 5
    bad = await wire.ask(b"nonsense\r\n\r\n")
    assert bad.status == 400
    agreeing = ssl.create_default_context(cafile=tls["ca"])
    agreeing.set_alpn_protocols(["h2"])
    two = await Http2Wire.connect(announced.result(), agreeing)
    assert (await two.answer(two.ask(head("GET", "/bank/alice/balance")))).body == b"5"
    os.kill(os.getpid(), signal.SIGTERM)
    await serving
    await Wire.close_all()
    server.kill()
