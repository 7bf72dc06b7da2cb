"""Answers of a front door become results and errors; who leads is the highest epoch; a call takes kubectl's tunnel."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.unit.deathless_operator.cli.plugin_world import SERVICES, api_server, put_bank

from deathless.base.errors import (
    DeathlessError,
    HandlerFailed,
    InvalidArgument,
    OutcomeUnknown,
    PeerUnreachable,
    UnknownHandler,
)
from deathless_operator.cli import plugin, plugin_cluster
from deathless_operator.cli.plugin_cluster import forwarded, leader, read_answer
from deathless_operator.plan.snapshot import Announcement, PodView


def pod(name: str, role: str, epoch: int, *, ends: bool = False) -> PodView:
    return PodView(
        name=name,
        uid=name,
        labels={"deathless.dev/role": role},
        announced=Announcement(role=role, epoch=epoch),
        deleted_at=1.0 if ends else None,
    )


def test_leader_is_the_primary_of_the_highest_epoch() -> None:
    found = leader([pod("a", "primary", 3), pod("b", "primary", 4), pod("c", "standby", 9)])
    assert found is not None
    assert found.name == "b"


def test_pod_that_ends_leads_nobody() -> None:
    assert leader([pod("a", "primary", 3, ends=True)]) is None


def test_result_is_what_the_answer_holds() -> None:
    assert read_answer(200, b'{"balance": 5}', again="k") == {"balance": 5}


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (409, HandlerFailed),
        (503, OutcomeUnknown),
        (504, OutcomeUnknown),
        (404, InvalidArgument),
        (422, InvalidArgument),
        (502, InvalidArgument),
    ],
)
def test_answer_that_is_no_result_is_its_error(status: int, kind: type[DeathlessError]) -> None:
    body = json.dumps({"code": "DL9", "error": "no", "type": "Overdrawn"}).encode()
    with pytest.raises(kind) as caught:
        read_answer(status, body, again="key-1")
    assert "no" in caught.value.message
    if kind is OutcomeUnknown:
        assert "key-1" in caught.value.advice


def test_error_of_the_service_keeps_its_code() -> None:
    body = json.dumps({"code": "DL3004", "error": "no handler", "remedy": ""}).encode()
    with pytest.raises(UnknownHandler, match="no handler"):
        read_answer(404, body, again="k")


def test_answer_that_is_no_json_is_told_as_it_is() -> None:
    with pytest.raises(InvalidArgument, match="bad gateway"):
        read_answer(404, b"<html>bad gateway", again="k")


@pytest.fixture(name="front_door")
def front_door_of_a_bank() -> Iterator[tuple[int, list[tuple[str, str, bytes, str]]]]:
    seen: list[tuple[str, str, bytes, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            seen.append((self.command, self.path, body, self.headers.get("idempotency-key", "")))
            self.send_response(200)
            self.send_header("content-length", "1")
            self.end_headers()
            self.wfile.write(b"7")

        do_GET = do_POST = _serve  # noqa: N815 - the library's names

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
            """Say nothing."""

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever, args=(0.02,))
    thread.start()
    yield http.server_address[1], seen
    http.shutdown()
    thread.join()
    http.server_close()


def put_kubectl(folder: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let a Python script be `kubectl`."""
    kubectl = folder / "kubectl"
    kubectl.write_text(f"#!{sys.executable}\n{code}\n")
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize("query", [False, True])
def test_call_goes_through_kubectls_tunnel(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    front_door: tuple[int, list[tuple[str, str, bytes, str]]],
    query: bool,
) -> None:
    port, seen = front_door
    code = f"import signal; print('Forwarding from 127.0.0.1:{port} -> 8080', flush=True); signal.pause()"
    put_kubectl(tmp_path, monkeypatch, code)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with api_server(tmp_path) as (server, kubeconfig):
        monkeypatch.setenv("KUBECONFIG", kubeconfig)
        put_bank(server)
        server.objects[f"{SERVICES}/bank"]["spec"]["tls"] = {"issuer": "Off"}
        words = ["call", "bank", "balance", "-k", "al/ice", "-a", "n=1", "--idempotency-key", "k1"]
        assert plugin.main([*words, *(["--query"] if query else [])]) == 0
    assert capsys.readouterr().out.strip() == "7"
    posted = ("POST", "/bank/al%2Fice/balance", b'{"n": 1}', "k1")
    assert seen == [("GET", "/bank/al%2Fice/balance?n=1", b"", "") if query else posted]


@pytest.mark.asyncio
async def test_tunnel_that_fails_says_what_kubectl_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_kubectl(tmp_path, monkeypatch, "import sys; sys.exit('error: no pod is Running')")
    with pytest.raises(PeerUnreachable, match="no pod is Running"):
        async with forwarded("ns", "bank", 10.0):
            await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_tunnel_that_does_not_come_is_given_up_in_the_callers_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_kubectl(tmp_path, monkeypatch, "import signal; signal.pause()")
    with pytest.raises(PeerUnreachable, match="no answer"):
        async with forwarded("ns", "bank", 0.05):
            await asyncio.sleep(0)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os, signal; os.write(1, b'x' * 70_000); signal.pause()", "no answer"),
        ("import os\nwhile True: os.write(2, b'no pod is Running')", "no pod is Running"),
    ],
)
async def test_kubectl_that_says_too_much_is_read_so_far(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    put_kubectl(tmp_path, monkeypatch, code)
    with pytest.raises(PeerUnreachable) as error:
        async with forwarded("ns", "bank", 1.0):
            await asyncio.sleep(0)
    assert said in str(error.value) and len(str(error.value)) < plugin_cluster.SAID_BYTES_MAX + 200


@pytest.mark.asyncio
async def test_kubectl_that_never_ends_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('no', flush=True); signal.pause()"
    put_kubectl(tmp_path, monkeypatch, code)
    monkeypatch.setattr(plugin_cluster, "SAID_S", 0.05)
    with pytest.raises(PeerUnreachable, match="no answer"):
        async with forwarded("ns", "bank", 10.0):
            await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_process_that_holds_the_pipes_of_a_killed_kubectl_keeps_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pid = tmp_path / "pid"
    other = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]
    code = f"import pathlib, subprocess; other = subprocess.Popen({other!r})"
    told = f"pathlib.Path({str(pid)!r}).write_text(str(other.pid)); print('no', flush=True)"
    put_kubectl(tmp_path, monkeypatch, f"{code}; {told}")
    for name in ("SAID_S", "END_S"):
        monkeypatch.setattr(plugin_cluster, name, 0.05)
    with pytest.raises(PeerUnreachable, match="no answer"):
        async with forwarded("ns", "bank", 10.0):
            await asyncio.sleep(0)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    assert "it is left" in caplog.text


@pytest.mark.asyncio
async def test_tunnel_needs_kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PeerUnreachable, match="kubectl"):
        async with forwarded("ns", "bank", 10.0):
            await asyncio.sleep(0)
