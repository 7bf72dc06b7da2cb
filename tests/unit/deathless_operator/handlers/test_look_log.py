"""What is counted and logged of looks."""

from __future__ import annotations

import logging

import pytest

from deathless_operator.handlers.look_log import LookLog
from deathless_operator.handlers.metrics import Metrics
from deathless_operator.handlers.work_queue import Key
from deathless_operator.plan.actions import DeletePod

KEY = Key("Replay", "prod", "nightly")


def test_a_look_is_told_where_it_did_something_or_found_something_else(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    metrics = Metrics()
    log = LookLog(metrics)
    gone = DeletePod(name="a", uid="u", grace_s=None, force=False, why="it ended")
    for sentence, actions in (("it waits", ()), ("it waits", ()), ("it waits", (gone,)), ("it runs", ())):
        log.note(KEY, sentence, actions)
    assert [each.levelname for each in caplog.records] == ["INFO", "DEBUG", "INFO", "INFO"]
    assert caplog.records[2].__dict__["actions"] == ["DeletePod Pod a: it ended"]
    assert caplog.records[2].__dict__["object"] == "nightly"
    assert b'actions_total{action="DeletePod",kind="Replay"} 1.0' in metrics.text()


def test_what_is_gone_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    log = LookLog(Metrics())
    log.note(KEY, "it runs", ())
    log.forget(KEY)
    log.forget(KEY)
    assert [each.getMessage() for each in caplog.records][1:] == [f"{KEY}: it no longer exists"]
