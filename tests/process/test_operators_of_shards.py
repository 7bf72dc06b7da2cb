"""Orders over HTTP to a service with two shards: whichever ingress takes one, the shard that the id names obeys."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from http_wire import Wire, get, post
from replica_set import wait_for
from shard_set import Both, running

from deathless.shell.directory.members import read_members

TAGS = ("bob", "alice")  # keys with these are of shards 0 and 1
INVOCATIONS = "/crossing/-/invocations"


def ingress_of(both: Both, shard: int) -> str:
    """Wait for the ingress beside the first replica of a shard; gives its address."""

    def look() -> str | None:
        member = read_members(str(both.shards[shard].directory)).get("r0")
        return None if member is None or member.ingress.endswith(":0") else member.ingress

    return wait_for(look, "an ingress", both.describe)


class Callers:
    """Calls handlers that wait, each with a key of its own."""

    def __init__(self, doors: Sequence[Wire]) -> None:
        self.numbers: list[list[int]] = [[] for _ in TAGS]  # of their invocations, by shard
        self._doors = doors

    async def begin(self, shard: int, at_once: int = 1) -> None:
        """Call one or more of a shard, each over a connection of its own."""
        first = len(self.numbers[shard])
        calls = [
            door.ask(post(f"/crossing/%7B{TAGS[shard]}%7D.{key}/wait", b"{}", "Prefer: respond-async"))
            for key, door in enumerate(self._doors[:at_once], first)
        ]
        for answer in await asyncio.gather(*calls):
            assert answer.status == 202, answer.body
            named, _, number = answer.json["invocation"].partition("-")
            assert named == str(shard)
            self.numbers[shard].append(int(number))
        self.numbers[shard].sort()

    async def begin_alike(self) -> int:
        """Call until each shard has an invocation of the same number; gives that."""
        for shard in range(len(TAGS)):
            await self.begin(shard)
        while not (alike := set(self.numbers[0]) & set(self.numbers[1])):
            last = [numbers[-1] for numbers in self.numbers]
            # A frame has a record of the time, then its messages. One message in each would keep odd and even apart.
            await self.begin(last.index(min(last)), at_once=1 + (last[0] - last[1]) % 2)
        return alike.pop()


async def waiting(door: Wire, shard: int) -> list[int]:
    """What waits on a shard, as an ingress lists it."""
    answer = await door.ask(get(f"{INVOCATIONS}?shard={shard}"))
    assert (answer.status, answer.json["shard"]) == (200, shard)
    return [each["invocation"] for each in answer.json["invocations"]]


async def order(both: Both) -> None:
    """Order through one shard's ingress, and look through the other's."""
    door, other, second = [await Wire.connect(ingress_of(both, shard)) for shard in (0, 1, 0)]
    callers = Callers([door, second])
    alike = await callers.begin_alike()
    refused = await door.ask(post(f"{INVOCATIONS}/{alike}/kill"))
    assert (refused.status, refused.json["code"]) == (400, "DL3003")
    assert "SHARD-NUMBER, like 1-512" in refused.json["error"]
    assert [await waiting(door, shard) for shard in range(len(TAGS))] == callers.numbers, "nothing was done"
    done = await door.ask(post(f"{INVOCATIONS}/1-{alike}/kill"))
    assert (done.status, done.json) == (200, {"invocation": alike, "done": "killed", "shard": 1})
    left = [callers.numbers[0], [each for each in callers.numbers[1] if each != alike]]
    for through in (door, other):
        assert [await waiting(through, shard) for shard in range(len(TAGS))] == left
        whole = (await through.ask(get(INVOCATIONS))).json
        listed = [(each["shard"], each["invocation"]) for each in whole["invocations"]]
        assert listed == [(shard, number) for shard, numbers in enumerate(left) for number in numbers]
        assert whole["count"] == len(listed)
    shown = (await other.ask(get(f"{INVOCATIONS}/0-{alike}/history"))).json
    assert (shown["shard"], shown["invocation"]["invocation"]) == (0, alike)
    assert (await door.ask(get(f"{INVOCATIONS}/1-{alike}"))).status == 409, "its caller is told"
    await Wire.close_all()


def test_order_reaches_the_shard_of_its_id_alone_whichever_ingress_takes_it(tmp_path: Path) -> None:
    with running(tmp_path, ingress_listen="127.0.0.1:0") as both:
        for shard in both.shards:
            shard.primary()
        asyncio.run(order(both))
