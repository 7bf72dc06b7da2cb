"""A record that was given before is given again only where it would be made the same."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.deathless.execution.messaging_bench import Hub
from tests.unit.deathless.execution.saga_versions import begun
from tests.unit.deathless.execution.test_ready import CHANGES, hub_with

from deathless.codec.peer_messages import Attempt, Target
from deathless.execution.invocations.invocation import Invocation
from deathless.execution.invocations.journal import REQUEST, Origin, SuspendedInvocation, decode_record
from deathless.execution.invocations.kept_records import KeptRecords


def attempts(hub: Hub) -> None:
    start = hub.executor.activities()[0]
    hub.record(Attempt(start.invocation, start.operation, 1))


def fails_once(hub: Hub) -> None:
    hub.outcome(hub.executor.activities()[0], ("DL1", "Odd", "not today"))


def is_disowned(hub: Hub) -> None:
    tables = hub.executor.restoration._table.tables
    first = next(iter(tables.live.values()))
    first.received = msgspec.structs.replace(first.received, origin=Origin(REQUEST, "ant", 0, 7, 1))
    hub.executor.suspended()
    tables.disown(Target("ant", 0))


STEPS = CHANGES | {"an attempt begins": attempts, "an attempt fails": fails_once, "its caller is gone": is_disowned}


@pytest.mark.parametrize("name", STEPS)
def test_records_are_those_that_would_be_made_now(name: str) -> None:
    hub, kept = hub_with(), KeptRecords()
    assert hub.executor.suspended(kept) == hub.executor.suspended()
    for _ in range(2):
        STEPS[name](hub)
        assert hub.executor.suspended(kept) == hub.executor.suspended()
    ids = {each.id for each in map(decode_record, hub.executor.suspended()) if isinstance(each, SuspendedInvocation)}
    assert kept._kept.keys() == ids, "what has ended is not kept"


def test_only_what_changed_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    hub, kept = hub_with(), KeptRecords()
    hub.executor.suspended(kept)
    made: list[bytes] = []
    suspend = Invocation.suspend

    def noted(self: Invocation, held: bytes | None) -> SuspendedInvocation:
        made.append(self.received.key)
        return suspend(self, held)

    monkeypatch.setattr(Invocation, "suspend", noted)
    hub.executor.suspended(kept)
    assert made == []
    hub.send("add", "watched0", amount=7)
    hub.begin("watch", "watched2")
    hub.executor.suspended(kept)
    assert made == [b"watched0", b"watched2"]


def test_what_looks_at_maps_is_made_each_time() -> None:
    hub = begun()
    [invocation] = hub.executor.restoration._table.tables.live.values()
    assert invocation.made_of(None) == ()
    kept = KeptRecords()
    for _ in range(2):
        assert hub.executor.suspended(kept) == hub.executor.suspended()
