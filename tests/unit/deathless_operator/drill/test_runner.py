"""A runner measures what its clients wait for, keeps every call, and ends with a verdict whatever happens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from deathless_operator.drill.front_door import Try
from deathless_operator.drill.judge import Held, judge
from deathless_operator.drill.runner import Pace, Runner, run_and_judge
from deathless_operator.plan.drill.reports import RunnerReport

PACE = Pace(clients=2, per_second=200, warm_s=0.1, observe_s=0.3, settle_s=0.1, deadline_s=30, warm_deadline_s=5)


@dataclass
class Service:
    """A service that counts right, or as it is told to."""

    applied: list[int] = field(default_factory=list)
    fails: Callable[[int], bool] = lambda _: False  # of the number of tries so far
    tries: int = 0
    lost: frozenset[int] = frozenset()
    refusal: str = ""
    unreadable: bool = False

    async def call(self, client: int, number: int, patience_s: float = 0.75) -> Try:
        await asyncio.sleep(0)
        self.tries += 1
        if self.refusal:
            return Try(refused=self.refusal)
        if self.fails(self.tries):
            return Try(problem="503")
        self.applied.append(number)
        return Try(answered=True)

    async def read(self) -> Held | str:
        if self.unreadable:
            return "503"
        kept = sorted(set(self.applied) - self.lost)
        return Held([(number, number) for number in kept], len(self.applied) - len(set(self.applied)))


@pytest.mark.asyncio
async def test_good_service_passes_and_warms_first() -> None:
    told: list[bool] = []
    report = await run_and_judge("ns/d/r", Runner(door=Service(), pace=PACE, told=lambda: told.append(True)))
    assert (report.verdict, report.reason, report.run) == ("Passed", "NothingLost", "ns/d/r")
    assert told == [True]
    assert report.calls == report.answered > 0
    assert report.began_at <= report.warm_at <= report.ended_at


@pytest.mark.asyncio
async def test_call_is_repeated_until_it_is_answered() -> None:
    service = Service()
    runner = Runner(door=service, pace=PACE)
    service.fails = lambda tries: runner.warm_at is not None and 0 < tries - at_warm(runner, service) <= 12
    history = await runner.run()
    found = judge(history, 30.0)
    assert found.verdict == "Passed"
    assert found.attempts == found.calls + 12
    assert len(service.applied) == len(set(service.applied)) == found.calls
    assert found.unavailable_seconds > 0.05


def at_warm(runner: Runner, service: Service, seen: dict[int, int] = {}) -> int:  # noqa: B006 - remembers per runner
    """Give how many tries there had been when the runner was first seen warm."""
    return seen.setdefault(id(runner), service.tries)


@pytest.mark.asyncio
async def test_call_that_takes_too_long_is_given_up_and_its_client_goes_on() -> None:
    service = Service()
    runner = Runner(door=service, pace=replace(PACE, call_timeout_s=0.2))
    # The calls that are open at some moment are never answered; later ones are.
    service.fails = lambda _: runner.warm_at is not None and runner.clock() - runner.warm_at < 0.3
    history = await runner.run()
    given_up = [call for call in history.calls if call.gave_up is not None]
    assert given_up and all(call.answered is None for call in given_up)
    assert max(call.number for call in history.calls if call.answered is not None) > given_up[0].number
    found = judge(history, 30.0)
    assert (found.verdict, found.reason, found.lost) == ("Failed", "NotRecovered", 0)
    assert found.unavailable_seconds > 0.2, "an outage does not end because a client gives up"


@pytest.mark.asyncio
async def test_lost_call_fails_the_run() -> None:
    report = await run_and_judge("ns/d/r", Runner(door=Service(lost=frozenset({3})), pace=PACE))
    assert (report.verdict, report.lost) == ("Failed", 1)


@dataclass
class Zombie(Service):
    """A service one of whose replicas freezes once calls go well; who waits on it is answered by it when it wakes."""

    freezes: Callable[[], bool] = lambda: False
    wakes: asyncio.Event = field(default_factory=asyncio.Event)
    waited_on_by: int = 99  # so many, and it wakes
    asked: set[int] = field(default_factory=set)  # numbers that somebody waited for

    async def call(self, client: int, number: int, patience_s: float = 0.75) -> Try:
        if client < PACE.clients or not self.freezes():
            return await super().call(client, number)
        self.asked.add(number)
        if len(self.asked) == self.waited_on_by:
            self.wakes.set()
        await self.wakes.wait()
        return Try(answered=True)  # applied nowhere: the log is another's


@pytest.mark.asyncio
async def test_witness_hears_what_a_replica_that_wakes_answers_and_an_impatient_client_does_not() -> None:
    for witnesses, reason in ((2, "Lost"), (0, "NothingLost")):
        report = await freeze_drill(witnesses)
        assert (report.reason, report.lost) == (reason, witnesses)


async def freeze_drill(witnesses: int) -> RunnerReport:
    """A drill of a Zombie."""
    service = Zombie(waited_on_by=witnesses)
    runner = Runner(door=service, pace=replace(PACE, witnesses=witnesses))
    service.freezes = lambda: runner.warm_at is not None and not service.wakes.is_set()
    return await run_and_judge("r", runner)


@pytest.mark.asyncio
async def test_witness_of_a_replica_that_never_wakes_asks_like_anybody_once_the_calls_end() -> None:
    service = Zombie()
    runner = Runner(door=service, pace=PACE)
    service.freezes = lambda: runner.warm_at is not None and not runner._stopping
    history = await runner.run()
    waited = [call for call in history.calls if call.witness and call.number in service.asked]
    assert [(call.attempts, call.answered is not None) for call in waited] == [(2, True)] * PACE.witnesses
    assert judge(history, 30.0).verdict == "Passed"


@pytest.mark.asyncio
async def test_service_that_never_answers_well_is_not_broken_further() -> None:
    told: list[bool] = []
    pace = Pace(clients=2, per_second=200, warm_s=0.1, observe_s=0.1, settle_s=0.1, warm_deadline_s=0.1)
    report = await run_and_judge(
        "r", Runner(door=Service(fails=lambda _: True), pace=pace, told=lambda: told.append(True))
    )
    assert (report.verdict, report.reason) == ("Aborted", "NotWarm")
    assert "503" in report.message
    assert told == []


@pytest.mark.asyncio
async def test_refusal_ends_the_run_at_once() -> None:
    report = await run_and_judge("r", Runner(door=Service(refusal="401 no token"), pace=PACE))
    assert (report.verdict, report.reason) == ("Aborted", "NotWarm")
    assert "401" in report.message


@pytest.mark.asyncio
async def test_terminated_runner_still_judges() -> None:
    runner = Runner(door=Service(), pace=Pace(clients=2, per_second=200, warm_s=0.05, observe_s=600))
    runner.told = runner.terminate
    report = await run_and_judge("r", runner)
    assert (report.verdict, report.reason) == ("Aborted", "Terminated")
    assert report.calls > 0


@pytest.mark.asyncio
async def test_terminated_runner_tells_what_was_lost() -> None:
    runner = Runner(door=Service(lost=frozenset({0})), pace=Pace(clients=2, per_second=200, warm_s=0.05, observe_s=600))
    runner.told = runner.terminate
    assert (await run_and_judge("r", runner)).reason == "Lost"


@pytest.mark.asyncio
async def test_wall_clock_that_steps_changes_no_duration() -> None:
    walls = iter([1000.0])
    report = await run_and_judge("r", Runner(door=Service(), pace=PACE), wall=lambda: next(walls))
    assert report.began_at == 1000.0
    assert 1000.0 < report.warm_at < report.ended_at < 1030.0
