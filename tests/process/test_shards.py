"""A service with two shards whose keys call each other while either primary is killed: nothing lost, nothing twice."""

from __future__ import annotations

from pathlib import Path

from background_callers import BackgroundCallers
from replica_set import wait_for
from shard_set import SHARDS, Both, running

from deathless.base.shards import shard_of

PAIRS = (("bob", "alice"), ("alice", "bob"))  # of shards 0 and 1; who sends, and to whom
KILLED = (0, 1, 0)  # the shard whose primary is killed, one after the other


class Callers(BackgroundCallers):
    """One caller of each key."""

    def __init__(self, both: Both) -> None:
        super().__init__(len(PAIRS), both.describe)
        self.answered = [0] * len(PAIRS)
        self._both = both

    async def call(self, number: int) -> None:
        """See BackgroundCallers."""
        key, to = PAIRS[number]
        async with self._both.client() as client:
            while not self.stopping:
                count = self.answered[number]
                await client.call("call" if count % 2 else "fork", key, to=to, tag=f"{key}.{count}")
                self.answered[number] += 1

    def wait_more(self, count: int) -> None:
        """Wait until so many more are answered to each caller."""
        goals = [answered + count for answered in self.answered]

        def done() -> bool:
            return all(have >= goal for have, goal in zip(self.answered, goals, strict=True))

        self.wait_until(done, f"{count} more calls")


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
