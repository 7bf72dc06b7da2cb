"""Processes can't be started any more while activities wait for one: each of them is told, none is forgotten."""

from __future__ import annotations

from tests.unit.deathless.shell.worker.test_activities import Pool, error_of, run, start

from deathless.shell.worker.activities import ENDED_EARLY


def test_all_that_wait_are_told_when_no_process_can_be_started() -> None:
    async def main() -> Pool:
        pool = Pool(workers=1)
        for operation in (1, 2, 3):
            pool.activities.start(start("die", operation))
        pool.activities._command = lambda _: ["/no/such/program"]
        told = await pool.wait_told(3)
        assert [event.operation for event in told] == [1, 2, 3]
        assert {error_of(event).type for event in told} == {ENDED_EARLY}
        return pool

    run(main)
