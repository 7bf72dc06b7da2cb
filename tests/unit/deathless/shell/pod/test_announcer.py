"""The announcer against an API server: at once, own label first, through outages, and the fence on its way back."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.shell.announcer_bench import Announcing, announcing_at
from tests.unit.deathless.shell.api_server import ApiServer, api_server

from deathless.base.config import ReplicaConfig
from deathless.shell.link.standing import Standing
from deathless.shell.pod import announcer as module
from deathless.shell.pod.announcement import FENCED, ROLE, SERVES, STATUS
from deathless.shell.pod.announcer import RETRY_MAX_S, RETRY_MIN_S, SETTLE_S, Announcer
from deathless.shell.pod.kubernetes_api import Api, ApiError

UID = "uid-bank-0"


class Running:
    """An announcer and the API server it speaks to."""

    def __init__(self, announcing: Announcing, server: ApiServer) -> None:
        self.server = server
        self.process, self.line = announcing.process, announcing.line
        self.tell, self.hear = announcing.tell, announcing.hear

    def wait_label(self, wanted: str | None, pod: str = "bank-0") -> None:
        self.server.wait(lambda: self.server.label(pod) == wanted)


@contextmanager
def announcing(folder: Path) -> Iterator[Running]:
    """An announcer beside three pods."""
    with api_server(folder) as server:
        for name in ("bank-0", "bank-1", "bank-2"):
            server.put(name)
        with announcing_at(server.place, UID, folder) as process:
            yield Running(process, server)


def test_each_role_is_announced_with_its_status(tmp_path: Path) -> None:
    with announcing(tmp_path) as running:
        assert running.hear() is False
        for role in ("recovering", "standby", "checkpointer"):
            running.tell(role, epoch=7)
            running.wait_label(role)
            status = json.loads(running.server.pods["bank-0"]["metadata"]["annotations"][STATUS])
            assert (status["role"], status["epoch"]) == (role, 7)
        assert {pod for method, pod in running.server.requests if method == "PATCH"} == {"bank-0"}


def test_new_primary_takes_its_label_first_and_then_takes_it_off_the_others(tmp_path: Path) -> None:
    with announcing(tmp_path) as running:
        server = running.server
        for name, epoch in (("bank-1", 3), ("bank-2", 9)):
            status = {STATUS: json.dumps({"epoch": epoch})}
            server.merge(name, {"metadata": {"labels": {ROLE: "primary"}, "annotations": status}})
        running.tell("primary", epoch=5)
        running.wait_label("primary")
        running.wait_label(None, "bank-1")
        patched = [pod for method, pod in server.requests if method == "PATCH"]
        assert patched == ["bank-0", "bank-1"]
        server.wait(lambda: ("GET", "bank-2") in server.requests)
        assert server.label("bank-2") == "primary", "it claims a higher epoch"


def test_pod_that_changed_under_the_patch_is_looked_at_again_and_one_that_is_gone_is_passed_over(
    tmp_path: Path,
) -> None:
    with announcing(tmp_path) as running:
        server = running.server
        server.forbidden.add("bank-1")
        server.merge("bank-2", {"metadata": {"labels": {ROLE: "primary"}}})
        running.tell("standby")
        running.wait_label("standby")
        server.conflicts = 0
        running.tell("primary", epoch=2)
        running.wait_label("primary")
        running.wait_label(None, "bank-2")


def test_primary_takes_callers_from_the_silent_instance_each_time_that_it_falls_silent(tmp_path: Path) -> None:
    with announcing(tmp_path) as running:
        server = running.server
        for name in ("bank-1", "bank-2"):
            server.merge(name, {"metadata": {"labels": {SERVES: "true"}}})
        running.tell("primary")
        running.wait_label("primary")
        for _ in range(2):
            running.tell("primary", silent={"r1": "uid-bank-1", "r2": "uid-of-another"})
            server.wait(lambda: server.label("bank-1", SERVES) == "false")
            running.tell("primary")
            looks = server.requests.count(("GET", "bank-2"))
            server.wait(lambda looks=looks: server.requests.count(("GET", "bank-2")) > looks)
            server.merge("bank-1", {"metadata": {"labels": {SERVES: "true"}}})
        assert server.label("bank-2", SERVES) == "true"


def test_replica_that_was_taken_out_comes_back_by_itself_once_it_hears_the_primary(tmp_path: Path) -> None:
    with announcing(tmp_path) as running:
        server = running.server
        server.merge("bank-0", {"metadata": {"labels": {SERVES: "false"}}})
        running.tell("standby")
        running.wait_label("standby")
        assert server.label("bank-0", SERVES) == "false"
        running.tell("standby", led=True)
        server.wait(lambda: server.label("bank-0", SERVES) == "true")
        server.merge("bank-0", {"metadata": {"labels": {SERVES: "false"}}})
        server.wait(lambda: server.label("bank-0", SERVES) == "true")  # after a pause


def test_old_primary_keeps_its_label_until_the_new_one_takes_it(tmp_path: Path) -> None:
    with announcing(tmp_path) as running:
        running.tell("primary")
        running.wait_label("primary")
        running.tell("dead", epoch=1)
        server = running.server
        server.wait(lambda: '"dead"' in server.pods["bank-0"]["metadata"]["annotations"][STATUS])
        assert server.label("bank-0") == "primary"
        server.merge("bank-0", {"metadata": {"labels": {ROLE: None}}})
        running.wait_label("dead")


def test_fence_is_told_when_it_comes_and_when_it_goes(tmp_path: Path) -> None:
    with announcing(tmp_path) as running:
        assert running.hear() is False
        for text, fenced in (("true", True), (None, False), ("true", True), ("no", False)):
            running.server.merge("bank-0", {"metadata": {"annotations": {FENCED: text}}})
            assert running.hear() is fenced


@pytest.mark.parametrize("refusal", [0, 500, 401])
def test_outage_of_the_api_server_delays_what_is_announced_and_nothing_else(tmp_path: Path, refusal: int) -> None:
    with announcing(tmp_path) as running:
        running.tell("standby")
        running.wait_label("standby")
        server = running.server
        if refusal:
            server.refuse = refusal
        else:
            server.stop()
        for epoch in range(50):
            running.tell("recovering", epoch)
        server.refuse = 0
        if not refusal:
            server.start()
        running.tell("checkpointer", 51)
        running.wait_label("checkpointer")
        server.merge("bank-0", {"metadata": {"annotations": {FENCED: "true"}}})
        while not running.hear():
            pass
        assert running.process.poll() is None


def test_pod_of_our_name_that_is_another_is_left_alone(tmp_path: Path) -> None:
    with announcing(tmp_path) as running:
        server = running.server
        running.tell("standby")
        running.wait_label("standby")
        server.put("bank-0", uid="replacement")
        running.tell("primary")
        server.wait(
            lambda: server.requests.count(("PATCH", "bank-0")) > 1 or server.requests.count(("GET", "bank-0")) > 3
        )
        assert server.label("bank-0") is None


@pytest.mark.parametrize("said", [b"", b'{"type":"ERROR","object":{"code":410}}\n'])
def test_watch_that_ends_at_once_is_begun_again_less_and_less_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 9:
            raise InterruptedError

    monkeypatch.setattr(module, "FAILURES", (ApiError,))
    monkeypatch.setattr("deathless.shell.pod.announcer.time.sleep", pause)
    ours, theirs = socket.socketpair()
    with api_server(tmp_path) as server, ours, theirs:
        server.put("bank-0")
        server.watch_ends = said
        with pytest.raises(InterruptedError):
            Announcer(server.place, "bank-0", UID, theirs).watch()
    assert pauses[0] == RETRY_MIN_S
    assert pauses == sorted(pauses)
    assert pauses[-1] == RETRY_MAX_S


def test_roles_of_a_takeover_are_announced_once_they_have_lasted_but_a_primary_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 100.0
    monkeypatch.setattr("deathless.shell.pod.announcer.time.monotonic", lambda: now)
    ours, theirs = socket.socketpair()
    with api_server(tmp_path) as server, closing(Api(server.place)) as api, ours, theirs:
        server.put("bank-0")
        server.merge("bank-0", {"metadata": {"labels": {ROLE: "standby"}}})
        made = Announcer(server.place, "bank-0", UID, theirs)
        made.see(api.get_pod("bank-0"))
        for role, waited_s, due in (
            ("taking-over", 0.0, False),
            ("taking-over", SETTLE_S, True),
            ("checkpointer", 0.0, False),
            ("primary", 0.0, True),
        ):
            made.take(Standing(service="bank", replica="r0", instance=UID, role=role, state="running", epoch=3))
            now += waited_s
            assert made.has_work() is due, role


def test_announcer_ends_with_its_supervisor(tmp_path: Path) -> None:
    with announcing(tmp_path) as running:
        running.hear()
        running.line.shutdown(socket.SHUT_RDWR)
        assert running.process.wait(20) == 0


def test_process_that_is_in_no_pod_says_so(tmp_path: Path) -> None:
    path = tmp_path / "replica.json"
    fields = {"service": "bank", "module": "m:a", "directory": "d", "replica": "r0"}
    path.write_bytes(msgspec.json.encode(msgspec.convert(fields, ReplicaConfig)))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        command = [
            sys.executable,
            "-m",
            "deathless.shell.pod.announcer",
            str(path),
            str(theirs.fileno()),
            str(os.getpid()),
        ]
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("KUBERNETES", "POD_"))}
        ended = subprocess.run(command, pass_fds=(theirs.fileno(),), env=plain, capture_output=True, check=False)
    assert ended.returncode == 1
    assert b"KUBERNETES_SERVICE_HOST" in ended.stderr


def test_pod_of_an_api_server_that_was_restored_counts_though_its_version_is_older(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    with api_server(tmp_path) as server, closing(Api(server.place)) as api, ours, theirs:
        server.put("bank-0")
        made = Announcer(server.place, "bank-0", UID, theirs)
        restored = api.get_pod("bank-0")
        server.merge("bank-0", {"metadata": {"labels": {ROLE: "standby"}}})
        made.see(api.get_pod("bank-0"))
        made.see(restored)
        assert made._seen != restored, "an answer that the watch has overtaken"
        made.see(restored, anew=True)
        assert made._seen == restored
