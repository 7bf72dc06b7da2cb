"""A service with two shards whose keys call each other while either primary is killed: nothing lost, nothing twice."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Self

from replica_set import wait_for
from shard_set import SHARDS, Both, running

from deathless.base.shards import shard_of
from deathless.shell.client.shard_client import Client

PAIRS = (("bob", "alice"), ("alice", "bob"))  # of shards 0 and 1; who sends, and to whom
KILLED = (0, 1, 0)  # the shard whose primary is killed, one after the other


class Callers:
    """One caller of each key, in a thread, until stopped."""

    def __init__(self, both: Both) -> None:
        self.answered = [0] * len(PAIRS)
        self.errors: list[BaseException] = []
        self._both = both
        self._stop = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive(), f"calls did not end\n{self._both.describe()}"
        if self.errors:
            raise self.errors[0]

    async def _run(self) -> None:
        async with self._both.client() as client:
            await asyncio.gather(*(self._caller(client, number) for number in range(len(PAIRS))))

    async def _caller(self, client: Client, number: int) -> None:
        key, to = PAIRS[number]
        try:
            while not self._stop.is_set():
                count = self.answered[number]
                await client.call("call" if count % 2 else "fork", key, to=to, tag=f"{key}.{count}")
                self.answered[number] += 1
        except BaseException as error:
            self.errors.append(error)
            raise

    def wait_more(self, count: int) -> None:
        """Wait until so many more are answered to each caller."""
        goals = [answered + count for answered in self.answered]

        def done() -> bool:
            return bool(self.errors) or all(have >= goal for have, goal in zip(self.answered, goals, strict=True))

        wait_for(done, f"{count} more calls", self._both.describe)
        if self.errors:
            raise self.errors[0]


def test_keys_of_two_shards_call_each_other_exactly_once_while_either_primary_is_killed(tmp_path: Path) -> None:
    assert [shard_of(key.encode(), SHARDS) for key, _ in PAIRS] == [0, 1]
    with running(tmp_path) as both:
        for shard in both.shards:
            shard.primary()
        with Callers(both) as callers:
            callers.wait_more(10)
            for number in KILLED:
                shard = both.shards[number]
                name = shard.primary()
                shard.kill_replica(name)
                callers.wait_more(10)
                shard.start(name)
                shard.wait_roles(primary=1, checkpointer=1)
        for (key, to), answered in zip(PAIRS, callers.answered, strict=True):
            sent = both.look(key).sent
            assert sent == [f"{key}.{count}" for count in range(answered)], both.describe()
            wait_for(lambda: len(both.look(to).came) >= len(sent), "all messages", both.describe)  # noqa: B023
            assert both.look(to).came == sent, both.describe()
            totals = both.look(key).totals
            assert totals == sorted(set(totals)), "a reply came twice, or late"
