"""What an operator waits for before it leads; tests/apiserver runs whole processes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from deathless_operator.cluster.connection import Connection
from deathless_operator.cluster.kinds import (
    CERTIFICATE,
    DRILL,
    LIVE_UPGRADE,
    NODE,
    PIPELINE,
    REHEARSAL,
    REPLAY,
    SERVICE,
    Kind,
)
from deathless_operator.handlers import process
from deathless_operator.handlers.process import ALWAYS, LATER, Operator, RunOptions
from deathless_operator.model.settings import OperatorSettings


class Served:
    """An API server that knows these kinds, and says so."""

    def __init__(self, *kinds: Kind) -> None:
        self.kinds = set(kinds)
        self.asked = 0

    async def serves(self, kind: Kind) -> bool:
        self.asked += 1
        if self.asked > 20:  # somebody installs the rest
            self.kinds |= {*ALWAYS, *LATER}
        return kind in self.kinds

    async def may(self, verb: str, kind: Kind) -> bool:
        return (verb, kind) == ("watch", NODE)

    async def maintain(self, now: float) -> None:
        """There is an authority."""
        del now


def operator(monkeypatch: pytest.MonkeyPatch) -> Operator:
    """One that waits for nothing."""
    monkeypatch.setattr(process, "RETRY_S", 0.0)
    monkeypatch.setattr(process, "LATER_S", 0.0)
    return Operator(RunOptions(connection=Connection(server="http://x"), settings=OperatorSettings()))


def prepared(api: Any, monkeypatch: pytest.MonkeyPatch) -> frozenset[Kind]:
    """What else can be watched, as a leader finds out."""
    return asyncio.run(operator(monkeypatch)._prepare(api, api))


def test_operator_of_a_later_release_than_the_kinds_goes_on_with_those_that_are_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert set(LATER) == {LIVE_UPGRADE, REPLAY, REHEARSAL, PIPELINE}
    assert prepared(Served(SERVICE, DRILL), monkeypatch) == {NODE}
    assert prepared(Served(SERVICE, DRILL, REPLAY, CERTIFICATE), monkeypatch) == {NODE, REPLAY, CERTIFICATE}


def test_services_and_drills_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Served(SERVICE, REPLAY)
    assert prepared(api, monkeypatch) == {NODE, *LATER}
    assert api.asked > 20


def test_kind_that_is_served_later_has_the_process_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = operator(monkeypatch)
    api: Any = Served(SERVICE, DRILL)
    asyncio.run(made._wait_for(api, [REHEARSAL]))
    assert made.stop.is_set()
    assert api.asked > 20
