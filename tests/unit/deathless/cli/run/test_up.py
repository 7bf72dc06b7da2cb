"""What `deathless up` tells, in each of its ways."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deathless.cli.main import main
from deathless.cli.run.up import Voice
from deathless.shell.operate.replica_log import LogLine
from deathless.shell.operate.runner import Change, RunnerEvent
from deathless.shell.operate.status import ReplicaView, ServiceView

VIEW = ServiceView("bank", "/d", "r0", 2, [ReplicaView(replica="r0", state="running", role="primary", epoch=2)])


def test_event_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    voice = Voice("info", live=False, as_json=False)
    voice.event(RunnerEvent(change=Change.ENDED, replica="r1", pid=7, text="by a\nsignal"))
    assert capsys.readouterr().out.split("  ", 1)[1] == "r1  ended (process 7): by a; signal\n"


def test_event_is_one_object_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    voice = Voice("info", live=False, as_json=True)
    voice.event(RunnerEvent(change=Change.STARTED, replica="r1", pid=7))
    voice.view(VIEW)
    event, status = map(json.loads, capsys.readouterr().out.splitlines())
    assert (event["event"], event["replica"], event["pid"]) == ("started", "r1", 7)
    assert status["status"]["primary"] == "r0"


def test_log_lines_below_the_level_are_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    voice = Voice("warning", live=False, as_json=False)
    voice.log("r0", LogLine(text="role", level="info", why="started"))
    voice.log("r0", LogLine(text="worker ended", level="warning", process="supervisor", why="killed"))
    assert capsys.readouterr().out.split("  ", 1)[1] == "r0  supervisor WARNING worker ended: killed\n"


def test_one_reason_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    voice = Voice("warning", live=False, as_json=False)
    for replica in ("r0", "r1", "r2"):
        voice.log(replica, LogLine(text="worker ends", level="error", why="DL4009 other code"))
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_view_is_told_when_it_changes(capsys: pytest.CaptureFixture[str]) -> None:
    voice = Voice("warning", live=False, as_json=False)
    voice.view(VIEW)
    voice.view(VIEW)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_suspended_service_is_not_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "service.yaml").write_text(
        "apiVersion: deathless.dev/v1alpha1\nkind: DeathlessService\nmetadata: {name: bank}\n"
        "spec: {module: 'm:a', suspend: true, image: 'x:1'}\n"
    )
    assert main(["up", str(tmp_path / "service.yaml")]) == 0
    told = capsys.readouterr().out
    assert "spec.image has no effect on this machine" in told
    assert "nothing is started" in told
    assert not (tmp_path / ".deathless").exists()
