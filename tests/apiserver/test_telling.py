"""Events on a real API server: told once, counted when they repeat, across operators, and never in the way."""

from __future__ import annotations

from typing import Any

import pytest
from real_api_server import RealApiServer

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.events import NOTE_MAX, REPEAT_S, Recorder, Subject
from deathless_operator.cluster.kinds import EVENT, SERVICE
from deathless_operator.plan.actions import Event

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio]

SAID = Event(type="Warning", reason="Degraded", message="one replica of three serves")


def bank(namespace: str) -> Subject:
    return Subject(kind=SERVICE, namespace=namespace, name="bank", uid="11111111-2222-3333-4444-555555555555")


async def stored(api: Api, namespace: str) -> list[dict[str, Any]]:
    return await api.list(EVENT, namespace)


async def test_repeated_event_is_told_once_and_counted_later(api_server: RealApiServer, namespace: str) -> None:
    now = [5.0]
    backwards = iter(range(1_800_000_000, 0, -7200))  # a wall clock that is set back all the time
    async with Api(api_server.connection()) as api:
        recorder = Recorder(api, instance="a", wall=lambda: next(backwards), steady=lambda: now[0])
        assert await recorder.tell(bank(namespace), SAID)
        assert not await recorder.tell(bank(namespace), SAID)
        now[0] += REPEAT_S
        assert await recorder.tell(bank(namespace), SAID)
        found = await stored(api, namespace)
        assert len(found) == 1 and found[0]["series"]["count"] == 2
        assert found[0]["regarding"]["name"] == "bank" and found[0]["note"] == SAID.message


async def test_next_operator_counts_on_instead_of_telling_again(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as api:
        for instance in ("a", "b", "c"):
            assert await Recorder(api, instance=instance, wall=lambda: 1e9).tell(bank(namespace), SAID)
        found = await stored(api, namespace)
        assert [each["series"]["count"] for each in found] == [3]


async def test_long_words_are_cut_and_refusals_cost_nothing(api_server: RealApiServer, namespace: str) -> None:
    long = Event(type="Normal", reason="Told", message="x" * 5000)
    async with Api(api_server.connection()) as api, Api(api_server.connection("nobody")) as stranger:
        assert await Recorder(api, instance="a" * 300, wall=lambda: 1e9).tell(bank(namespace), long)
        assert len((await stored(api, namespace))[0]["note"]) == NOTE_MAX
        assert not await Recorder(stranger, instance="n", wall=lambda: 1e9).tell(bank(namespace), SAID)
        assert not await Recorder(api, instance="a", wall=lambda: 1e9).tell(bank("no-such-namespace"), SAID)
