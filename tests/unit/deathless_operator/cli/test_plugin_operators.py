"""Operators' pages are asked with the operators' token, and orders go out as the pages take them."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.unit.deathless_operator.cli.plugin_world import SERVICES, ApiServer, api_server, put_bank
from tests.unit.deathless_operator.cli.test_plugin_cluster import put_kubectl

from deathless.base.errors import OperatorsOnly, OutcomeUnknown, TooLarge
from deathless.shell.ingress_operators import find_page
from deathless_operator.cli import plugin
from deathless_operator.cluster import bounded

SECRET = "/api/v1/namespaces/ns/secrets/bank-operator-token"
TOKEN = "operators-0123456789"


@dataclass
class Door:
    """A front door that notes what it is asked."""

    status: int = 200
    answer: bytes = b'{"as": "told"}'
    seen: list[tuple[str, str, str, bytes]] = field(default_factory=list)
    port: int = 0


@pytest.fixture(name="door")
def front_door() -> Iterator[Door]:
    door = Door()

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            assert self.headers["content-type"] == "application/json"
            door.seen.append((self.command, self.path, self.headers["authorization"], body))
            self.send_response(door.status)
            self.send_header("content-length", str(len(door.answer)))
            self.end_headers()
            self.wfile.write(door.answer)

        do_GET = do_POST = _serve  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    door.port = http.server_address[1]
    yield door
    http.shutdown()
    thread.join()
    http.server_close()


@pytest.fixture(name="server")
def cluster_with_a_bank(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: Door) -> Iterator[ApiServer]:
    code = f"import signal; print('Forwarding from 127.0.0.1:{door.port} -> 8080', flush=True); signal.pause()"
    put_kubectl(tmp_path, monkeypatch, code)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with api_server(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        put_bank(server)
        server.objects[f"{SERVICES}/bank"]["spec"]["tls"] = {"issuer": "Off"}
        server.put(SECRET, data={"token": base64.b64encode(TOKEN.encode()).decode()})
        yield server


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("words", "method", "page", "body"),
    [
        ("invocations bank", "GET", "invocations", None),
        ("invocations bank --from 7", "GET", "invocations?from=7", None),
        ("invocations bank 512", "GET", "invocations/512/history", None),
        ("order bank 512 cancel", "POST", "invocations/512/cancel", {}),
        ("order bank 512 kill --json", "POST", "invocations/512/kill", {}),
        (
            "order bank 512 resume --operation 2 --value true",
            "POST",
            "invocations/512/resume",
            {"operation": 2, "value": True},
        ),
        ("invocations bank --shard 1 --from 7", "GET", "invocations?from=7&shard=1", None),
        ("invocations bank 1-512", "GET", "invocations/1-512/history", None),
        ("order bank 1-512 cancel", "POST", "invocations/1-512/cancel", {}),
        ("parked bank", "GET", "parked", None),
        ("parked bank --shard 0", "GET", "parked?shard=0", None),
        ("retry-parked bank 1-9", "POST", "parked/1-9/retry", {}),
        ("unknown bank --shard 1", "GET", "unknown?shard=1", None),
        ("settle bank 1-512 1", "POST", "unknown/1-512/1/settle", {}),
        ("peers bank --shard 1", "GET", "peers?shard=1", None),
        (
            f"adopt-peer bank stock --service-id {32 * 'a'} --incarnation 2 --peer-shard 3 --shard 1",
            "POST",
            "peers/stock/adopt?shard=1",
            {"serviceId": 32 * "a", "incarnation": 2, "shard": 3},
        ),
        ("retry-parked bank 9", "POST", "parked/9/retry", {}),
        ("unknown bank", "GET", "unknown", None),
        ("settle bank 512 1 --json", "POST", "unknown/512/1/settle", {}),
        ("peers bank", "GET", "peers", None),
        (
            f"adopt-peer bank stock --service-id {32 * 'a'} --incarnation 2",
            "POST",
            "peers/stock/adopt",
            {"serviceId": 32 * "a", "incarnation": 2, "shard": 0},
        ),
    ],
)
def test_command_asks_its_page_with_the_operators_token(
    door: Door, capsys: pytest.CaptureFixture[str], words: str, method: str, page: str, body: dict[str, Any] | None
) -> None:
    assert plugin.main(words.split()) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"as": "told"}
    ((asked, path, shown, sent),) = door.seen
    assert (asked, path, shown) == (method, f"/bank/-/{page}", f"Bearer {TOKEN}")
    assert (json.loads(sent) if sent else None) == body
    assert TOKEN not in printed.out + printed.err
    found = find_page([part.encode() for part in page.partition("?")[0].split("/")], 2 if "1-" in page else 1)
    assert found is not None and bool(found.done) == (method == "POST"), "the ingress knows it"


def test_service_without_the_secret_has_no_operators(
    server: ApiServer, door: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    del server.objects[SECRET]
    assert plugin.main(["peers", "bank", "--json"]) == OperatorsOnly.exit_code
    told = json.loads(capsys.readouterr().err)["error"]
    assert (told["code"], door.seen) == (OperatorsOnly.code, [])
    assert "bank-operator-token" in told["what"]


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("words", ["peers bank --json", "call bank balance --json"])
def test_answer_above_the_limit_is_an_error_that_names_it(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr(bounded, "ANSWER_BYTES_MAX", 4096)
    door.answer = b'"' + b"x" * 4096 + b'"'
    assert plugin.main(words.split()) == TooLarge.exit_code
    told = json.loads(capsys.readouterr().err)["error"]
    assert (told["code"], "more than 4096 bytes" in told["what"]) == (TooLarge.code, True)
    assert "ask for less" in told["remedy"]


@pytest.mark.usefixtures("server")
def test_order_without_an_answer_is_unknown_and_went_out_once(door: Door, capsys: pytest.CaptureFixture[str]) -> None:
    door.status, door.answer = 504, b'{"code": "DL3009", "error": "no answer"}'
    assert plugin.main(["order", "bank", "512", "cancel", "--json"]) == OutcomeUnknown.exit_code
    assert "look before you repeat it" in json.loads(capsys.readouterr().err)["error"]["remedy"]
    assert len(door.seen) == 1


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("words", ["order bank 5 cancel --value 1", "order bank 5 resume --value nonsense"])
def test_order_that_makes_no_sense_is_not_sent(door: Door, capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert plugin.main(words.split()) != 0
    assert "--value" in capsys.readouterr().err
    assert door.seen == []


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("words", ["order bank 1/5 cancel", "order bank 64-5 kill", "settle bank 0 1"])
def test_what_is_no_id_goes_into_no_address(door: Door, capsys: pytest.CaptureFixture[str], words: str) -> None:
    assert plugin.main(words.split()) != 0
    assert "is no id: 512, or 1-512 of shard 1" in capsys.readouterr().err
    assert door.seen == []
