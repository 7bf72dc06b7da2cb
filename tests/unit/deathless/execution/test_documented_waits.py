"""Handlers that docs/messaging.md shows for taking back, answering later and going on anew do what the page says."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.unit.deathless.execution.messaging_bench import Hub, Target, kinds, ok, reference

from deathless.codec.messages import Kind
from deathless.codec.peer_messages import encode_response
from deathless.shell.service_code.loading import load_service

PAGE = Path(__file__).parents[4] / "docs" / "messaging.md"
CHRISTMAS_US = int(datetime(2026, 12, 24, tzinfo=UTC).timestamp()) * 1_000_000
DAY_US = 86_400_000_000


@pytest.fixture
def hub(tmp_path: Path) -> Hub:
    (code,) = [
        text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "reply_later" in text
    ]
    (tmp_path / "documented_waits.py").write_text(code)
    return Hub(load_service("documented_waits.py:orders", tmp_path))


def test_what_comes_in_time_is_taken(hub: Hub) -> None:
    invocation = hub.begin("reserve")
    ((target, request),) = hub.sent
    assert (target, kinds([request])) == (Target("stock", 0), ["REQUEST"])
    hub.receive(encode_response(reference(request), ok(4)), peer=target)
    assert hub.result(invocation) == "4 left"


def test_what_comes_too_late_is_taken_back(hub: Hub) -> None:
    invocation = hub.begin("reserve")
    hub.tick()
    assert hub.now_us == CHRISTMAS_US
    assert hub.result(invocation) == "too late"
    assert kinds([message for _, message in hub.sent]) == [Kind.REQUEST.name, Kind.CANCEL.name]


def test_a_plain_handler_is_answered_by_another(hub: Hub) -> None:
    invocation = hub.begin("ask", question="when?")
    assert hub.results == {}
    hub.send("answer", text="now")
    assert hub.result(invocation) == "now"


def test_a_handler_goes_on_anew_under_its_id(hub: Hub) -> None:
    invocation, begun_us = hub.begin("remind", times=2), hub.now_us
    hub.tick()
    assert (hub.results, hub.now_us) == ({}, begun_us + DAY_US)
    hub.restart()
    hub.tick()
    assert hub.result(invocation) == 2
