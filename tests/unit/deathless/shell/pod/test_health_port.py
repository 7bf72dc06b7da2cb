"""The health port: alive while the supervisor is heard, ready while callers are served, and why not."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path

import msgspec
import pytest
import trustme

from deathless.base.config import BindingConfig, ReplicaConfig, TlsConfig
from deathless.shell.link.standing import HEARD_MAX_S, Program, Standing
from deathless.shell.net.tls import server_context
from deathless.shell.pod import health_port as module
from deathless.shell.pod.health_port import Health, expose_standing, main, not_ready
from deathless.shell.web.protocol import HttpServer
from deathless.shell.web.request import HttpLimits

STANDING = Standing(service="bank", replica="r0", role="standby", state="running")


class Front:
    """An HTTP port as the ingress has one."""

    status = 200

    def handle(self, request: object) -> None:
        request.respond(self.status, b"{}")  # type: ignore[attr-defined]  # a Request


async def listen(application: object, tls: TlsConfig | None = None) -> tuple[HttpServer, str]:
    loop = asyncio.get_running_loop()
    http = HttpServer(application, HttpLimits(), now=loop.time, wall=loop.time)  # type: ignore[arg-type]  # an Application
    return http, await http.start("127.0.0.1:0", server_context(tls))


async def get(address: str, target: str, method: str = "GET") -> tuple[int, bytes]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n".encode())
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    return int(head.split()[1]), body


def config(**settings: object) -> ReplicaConfig:
    fields = {"service": "bank", "module": "m:a", "directory": "nowhere", "replica": "r0", **settings}
    return msgspec.convert(fields, ReplicaConfig)


def watched(look: Callable[[Health, str], Coroutine[object, object, None]], **settings: object) -> None:
    async def run() -> None:
        health = Health(config(**settings))
        http, address = await listen(health)
        async with asyncio.timeout(30):
            await look(health, address)
        await http.stop(0)

    asyncio.run(run())


def test_it_is_alive_while_the_supervisor_is_heard() -> None:
    async def look(health: Health, address: str) -> None:
        assert (await get(address, "/livez"))[0] == 200
        health._heard_at -= HEARD_MAX_S + 1
        status, body = await get(address, "/livez")
        assert (status, "said nothing for 11 s" in json.loads(body)["why"]) == (503, True)
        assert (await get(address, "/readyz"))[0] == 503
        health.told(STANDING)
        assert (await get(address, "/livez"))[0] == 200

    watched(look)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"role": "recovering"}, "recovering"),
        ({"role": "recovering", "problem": "DL4003", "text": "DL4003 gone"}, "recovering: DL4003 gone"),
        ({"role": "fenced", "state": "dead"}, "fenced: the annotation"),
        ({"role": "dead", "state": "dead", "condition": "DL4007", "text": "DL4007 half"}, "refused: DL4007 half"),
        ({"role": "standby", "stopping": True}, "stopping"),
        ({"role": "primary", "state": "stopped"}, "its worker is stopped"),
        ({"role": "starting", "state": "starting"}, "starting"),
        ({"role": "upgrader"}, "upgrader"),
    ],
)
def test_who_serves_nobody_is_not_ready_and_says_why(changes: dict[str, object], why: str) -> None:
    async def look(health: Health, address: str) -> None:
        health.told(msgspec.structs.replace(STANDING, **changes))
        status, body = await get(address, "/readyz")
        assert status == 503
        assert json.loads(body)["why"].startswith(why)

    watched(look)


@pytest.mark.parametrize("role", ["primary", "standby", "checkpointer", "taking-over"])
def test_who_follows_or_leads_is_ready_once_its_front_door_answers(role: str) -> None:
    async def look(health: Health, address: str) -> None:
        front = Front()
        http, door = await listen(front)
        health.told(msgspec.structs.replace(STANDING, role=role, epoch=7))
        assert "does not listen yet" in json.loads((await get(address, "/readyz"))[1])["why"]
        health.told(msgspec.structs.replace(STANDING, role=role, epoch=7, ingress=door))
        status, body = await get(address, "/readyz")
        assert (status, json.loads(body)) == (200, {"ready": True, "role": role, "epoch": 7, "why": ""})
        front.status = 500
        assert "500" in json.loads((await get(address, "/readyz"))[1])["why"]
        await http.stop(0)
        assert (await get(address, "/readyz"))[0] == 503

    watched(look, ingress_listen="127.0.0.1:1")


def test_who_takes_over_for_an_upgrade_is_not_ready_before_it_is_made() -> None:
    upgrade = {"id": "ab" * 16, "from_generation": 1, "from_fingerprint": "cd" * 16, "from_version": 1}

    async def look(health: Health, address: str) -> None:
        http, door = await listen(Front())
        for role, status in (("taking-over", 503), ("primary", 200), ("standby", 200)):
            health.told(msgspec.structs.replace(STANDING, role=role, ingress=door))
            assert (await get(address, "/readyz"))[0] == status
        await http.stop(0)

    watched(look, ingress_listen="127.0.0.1:0", upgrade=upgrade)


def test_who_has_no_program_that_serves_is_not_ready_and_says_why() -> None:
    """Where the code is a module nobody asks for one."""
    binding = BindingConfig(command=("./counter",), instance="bank")
    failing = Program(state="failing", text="DL3103 it ended")

    async def look(health: Health, address: str) -> None:
        front, door = await listen(Front())
        wanted = {
            None: "program: nobody has said yet how it is",
            failing: "program failing: DL3103 it ended",
            Program(state="loading"): "program loading",
            Program(state="serving"): "",
        }
        for program, why in wanted.items():
            health.told(msgspec.structs.replace(STANDING, role="primary", ingress=door, program=program))
            status, body = await get(address, "/readyz")
            assert (status, json.loads(body)["why"]) == (503 if why else 200, why)
        await front.stop(0)

    watched(look, binding=msgspec.to_builtins(binding), ingress_listen="127.0.0.1:0")


def test_front_door_that_hangs_makes_a_replica_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FRONT_DOOR_S", 0.1)

    async def look(health: Health, address: str) -> None:
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen()
            health.told(msgspec.structs.replace(STANDING, ingress=f"127.0.0.1:{deaf.getsockname()[1]}"))
            assert "TimeoutError" in json.loads((await get(address, "/readyz"))[1])["why"]

    watched(look, ingress_listen="127.0.0.1:1")


def test_without_an_http_port_the_client_port_is_the_front_door() -> None:
    async def look(health: Health, address: str) -> None:
        http, door = await listen(Front())
        health.told(msgspec.structs.replace(STANDING, client=door))
        assert (await get(address, "/readyz"))[0] == 200
        await http.stop(0)
        assert (await get(address, "/readyz"))[0] == 503

    watched(look)


def mutual_tls(folder: Path) -> TlsConfig:
    """A certificate of an authority of its own; callers must show one."""
    authority = trustme.CA()
    leaf = authority.issue_cert("bank.example")
    authority.cert_pem.write_to_path(folder / "ca")
    leaf.cert_chain_pems[0].write_to_path(folder / "crt")
    leaf.private_key_pem.write_to_path(folder / "key")
    paths = {"ca": str(folder / "ca"), "certificate": str(folder / "crt"), "key": str(folder / "key")}
    return TlsConfig(**paths, require_client_certificate=True)


@pytest.mark.parametrize("mode", ["Server", ""])
def test_front_door_behind_tls_is_asked_with_what_it_may_want(tmp_path: Path, mode: str) -> None:
    mutual = mutual_tls(tmp_path)
    server = msgspec.structs.replace(mutual, require_client_certificate=False)

    async def look(health: Health, address: str) -> None:
        http, door = await listen(Front(), server if mode else mutual)
        health.told(msgspec.structs.replace(STANDING, ingress=door))
        assert (await get(address, "/readyz"))[0] == 200
        await http.stop(0)

    watched(look, ingress_listen="127.0.0.1:1", ingress_tls=mode, tls=msgspec.to_builtins(mutual))


def test_metrics_are_told_although_the_worker_is_down() -> None:
    async def look(health: Health, address: str) -> None:
        health.told(msgspec.structs.replace(STANDING, epoch=7, lsn=9, lag=3, takeovers=2))
        status, body = await get(address, "/metrics")
        assert status == 200
        for line in (
            'deathless_supervisor_role{replica="r0",role="standby",service="bank"} 1.0',
            'deathless_supervisor_epoch{replica="r0",service="bank"} 7.0',
            'deathless_supervisor_lsn{replica="r0",service="bank"} 9.0',
            'deathless_supervisor_lag_messages{replica="r0",service="bank"} 3.0',
            'deathless_supervisor_takeovers_total{replica="r0",service="bank"} 2.0',
            'deathless_replica_up{replica="r0",service="bank"} 0.0',
        ):
            assert line in body.decode().splitlines()

    watched(look)


def test_every_metric_of_a_shards_replica_names_the_shard() -> None:
    async def look(health: Health, address: str) -> None:
        health.told(STANDING)
        found = (await get(address, "/metrics"))[1].decode().splitlines()
        values = [line for line in found if not line.startswith("#")]
        assert any(line.startswith("deathless_supervisor_ready") for line in values)
        assert all('replica="r0"' in line and 'service="bank"' in line and 'shard="1"' in line for line in values)

    watched(look, shard=1, shards=2)


class Counting:
    """An HTTP port that tells its metrics."""

    status = 200
    body = b"deathless_ingress_ready 1.0\n"

    def handle(self, request: object) -> None:
        own = (request.target, request.query) == (b"/metrics", b"own")  # type: ignore[attr-defined]  # a Request
        request.respond(self.status if own else 404, self.body)  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", ["", "Server", "Off"])
def test_metrics_of_the_http_port_are_told_whatever_guards_it(mode: str, tmp_path: Path) -> None:
    mutual = mutual_tls(tmp_path)
    own = {"": mutual, "Server": msgspec.structs.replace(mutual, require_client_certificate=False), "Off": None}[mode]

    async def look(health: Health, address: str) -> None:
        front = Counting()
        http, door = await listen(front, own)
        health.told(msgspec.structs.replace(STANDING, ingress=door))
        shown = (await get(address, "/metrics"))[1].decode().splitlines()
        assert "deathless_ingress_ready 1.0" in shown
        assert len([line for line in shown if line.startswith("deathless_replica_up")]) == 1
        front.status = 503
        assert b"deathless_ingress" not in (await get(address, "/metrics"))[1]
        front.status, front.body = 200, b"x" * (module.METRICS_BYTES_MAX + 1)
        assert b"xxx" not in (await get(address, "/metrics"))[1]
        await http.stop(0)
        status, body = await get(address, "/metrics")
        assert status == 200 and b"deathless_supervisor_ready" in body

    watched(look, ingress_listen="127.0.0.1:1", ingress_tls=mode, tls=msgspec.to_builtins(mutual))


def test_metrics_before_the_first_word_and_of_a_refusal() -> None:
    async def look(health: Health, address: str) -> None:
        assert b"deathless_supervisor" not in (await get(address, "/metrics"))[1]

    watched(look)
    labels = {"service": "bank", "replica": "r0"}
    told = expose_standing(msgspec.structs.replace(STANDING, condition="DL4007"), labels).decode()
    assert 'deathless_supervisor_condition{code="DL4007",replica="r0",service="bank"} 1.0' in told.splitlines()
    assert not_ready(None)


@pytest.mark.parametrize(
    ("method", "target", "status"), [("POST", "/livez", 405), ("GET", "/data", 404), ("HEAD", "/livez", 200)]
)
def test_nothing_else_is_answered_there(method: str, target: str, status: int) -> None:
    async def look(health: Health, address: str) -> None:
        assert (await get(address, target, method))[0] == status

    watched(look)


def test_port_that_is_taken_is_an_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "replica.json"
    monkeypatch.setattr(module, "die_with_parent", lambda _: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(module, "configure", lambda *_: None)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        path.write_bytes(msgspec.json.encode(config(health_listen=f"127.0.0.1:{taken.getsockname()[1]}")))
        ours, theirs = socket.socketpair()
        with ours:
            assert main([str(path), str(theirs.detach()), "0"]) == 78
