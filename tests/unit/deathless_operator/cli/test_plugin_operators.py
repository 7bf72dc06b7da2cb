"""Operators' pages are asked with the operators' token, and orders go out as the pages take them."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.unit.deathless_operator.cli.plugin_world import SERVICES, ApiServer, api_server, put_bank
from tests.unit.deathless_operator.cli.test_plugin_cluster import put_kubectl

from deathless.base.errors import OperatorsOnly, OutcomeUnknown, TooLarge
from deathless.shell.ingress.operators import find_page
from deathless_operator.cli import plugin
from deathless_operator.cluster import bounded

SECRET = "/api/v1/namespaces/ns/secrets/bank-operator-token"
TOKEN = "operators-0123456789"


@dataclass
class Door:
    """A front door that notes what it is asked."""

    status: int = 200
    answer: bytes = b'{"as": "told"}'
    answers: Callable[[str], bytes] | None = None  # by method, instead of that one
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
            answer = door.answers(self.command) if door.answers is not None else door.answer
            self.send_response(door.status)
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

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
        ("undelivered bank", "GET", "undelivered", None),
        ("undelivered bank --shard 1 --from 7 --json", "GET", "undelivered?from=7&shard=1", None),
        ("resume-outside bank --yes", "POST", "outside/resume", {}),
        ("resume-outside bank -y --shard 1", "POST", "outside/resume?shard=1", {}),
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


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    ("words", "pages", "done"),
    [
        ("retry-undelivered bank 4711 1-9", ["4711/retry", "1-9/retry"], "sent again"),
        ("discard-undelivered bank 4711 --json", ["4711/discard"], "discarded"),
    ],
)
def test_each_message_that_was_given_up_and_named_is_seen_to(
    door: Door, capsys: pytest.CaptureFixture[str], words: str, pages: list[str], done: str
) -> None:
    assert plugin.main(words.split()) == 0
    assert json.loads(capsys.readouterr().out) == {"messages": [each.split("/")[0] for each in pages], "done": done}
    assert [(asked, path) for asked, path, *_ in door.seen] == [
        ("POST", f"/bank/-/undelivered/{each}") for each in pages
    ]
    for page in pages:
        found = find_page([b"undelivered", *(part.encode() for part in page.split("/"))], 2 if "1-" in page else 1)
        assert found is not None and found.done == done, "the ingress knows it"


@pytest.mark.parametrize(
    ("words", "shards", "asked", "seen_to"),
    [
        ("", 1, ["", "?from=4", "?from=6"], ["2", "3", "5"]),
        ("--driver mail", 1, ["", "?from=4", "?from=6"], ["2", "5"]),
        ("", 2, [*("?shard=0", "?from=4&shard=0", "?from=6&shard=0"), "?shard=1"], ["0-2", "0-3", "0-5"]),
        ("--shard 1", 2, ["?shard=1"], []),
    ],
)
def test_all_that_was_given_up_is_seen_to_page_by_page(
    server: ApiServer,
    door: Door,
    capsys: pytest.CaptureFixture[str],
    words: str,
    shards: int,
    asked: list[str],
    seen_to: list[str],
) -> None:
    server.objects[f"{SERVICES}/bank"]["spec"]["shards"] = shards
    listed = [[{"id": 2, "driver": "mail"}, {"id": 3, "driver": "book"}], [{"id": 5, "driver": "mail"}]]
    pages = iter([*listed, [], []] if words != "--shard 1" else [[]])
    door.answers = lambda method: json.dumps({"undelivered": next(pages)} if method == "GET" else {}).encode()
    assert plugin.main(["discard-undelivered", "bank", "--all", *words.split()]) == 0
    assert json.loads(capsys.readouterr().out) == {"messages": seen_to, "done": "discarded"}
    expected = [("GET", f"/bank/-/undelivered{page}") for page in asked]
    expected += [("POST", f"/bank/-/undelivered/{each}/discard") for each in seen_to]
    assert [(method, path) for method, path, *_ in door.seen] == expected


@pytest.mark.usefixtures("server")
def test_list_that_does_not_go_on_is_read_once_more_and_no_further(
    door: Door, capsys: pytest.CaptureFixture[str]
) -> None:
    door.answers = lambda _: json.dumps({"undelivered": [{"id": 3, "driver": "mail"}]}).encode()
    assert plugin.main(["retry-undelivered", "bank", "--all"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == ["3"]
    assert [method for method, *_ in door.seen] == ["GET", "GET", "POST"]


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize(
    "words",
    [
        "retry-undelivered bank",
        "retry-undelivered bank 5 --all",
        "discard-undelivered bank 5 --driver mail",
        "discard-undelivered bank 5 --shard 1",
        "resume-outside bank",
    ],
)
def test_order_that_is_not_meant_for_certain_is_not_sent(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert plugin.main(words.split()) != 0
    said = capsys.readouterr().err
    assert "--all" in said or "--yes" in said
    assert door.seen == []


@pytest.mark.usefixtures("server")
@pytest.mark.parametrize("answer", [True, False])
def test_outside_is_let_go_on_a_persons_word(
    door: Door, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, answer: bool
) -> None:
    monkeypatch.setattr(
        "sys.stdin", type("Terminal", (io.StringIO,), {"isatty": lambda _: True})("y\n" if answer else "n\n")
    )
    assert (plugin.main(["resume-outside", "bank"]) == 0) is answer
    assert "leaves for good" in capsys.readouterr().err
    assert len(door.seen) == answer


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
    assert "request less" in told["remedy"]


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
    assert "is not an ID; expected 512, or 1-512 for shard 1" in capsys.readouterr().err
    assert door.seen == []
