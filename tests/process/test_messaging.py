"""Two services of three replicas each that talk while their processes are killed: nothing lost, nothing twice.

`DEATHLESS_KILLS_SEED=n` chooses the same faults again.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TypeVar, cast

import pytest
from background_callers import BackgroundCallers
from cli_tool import run
from fault_seed import seed_of
from message_services import History
from replica_set import ALL, DEADLINE_S, PATIENT, ReplicaSet, client_of, wait_for

from deathless.base.errors import DeathlessError, OutboxFull
from deathless.codec.wire import accepted_invocation
from deathless.core.primary.handover import Stage
from deathless.shell.client.shard_client import Client
from deathless.shell.directory.members import read_members
from deathless.shell.net import admin_call as admin
from deathless.shell.operate.status import ServiceView, look_now, parts_of

MODULE = Path(__file__).with_name("message_services.py")
SEED_VARIABLE = "DEATHLESS_KILLS_SEED"
KEYS = 3
ROUNDS = 12  # faults
CALLERS = 3
T = TypeVar("T")


class Pair:
    """Both services."""

    def __init__(self, folder: Path, replicas: int = 3, **settings: object) -> None:
        def one(name: str, other: str) -> ReplicaSet:
            own = folder / name
            own.mkdir(exist_ok=True)
            peer = {"name": other, "directory": str(folder / other / "data")}
            return ReplicaSet(own, replicas=replicas, service=name, module=f"{MODULE}:{name}", peers=[peer], **settings)

        self.sender = one("sender", "receiver")
        self.receiver = one("receiver", "sender")

    def both(self) -> list[ReplicaSet]:
        return [self.sender, self.receiver]

    def describe(self) -> str:
        """Both, for a failing test."""
        return "\n".join(one.describe() for one in self.both())


@contextmanager
def pair(folder: Path, replicas: int = 3) -> Iterator[Pair]:
    """Both services, running."""
    two = Pair(folder, replicas)
    with ExitStack() as stack:
        for one in two.both():
            stack.enter_context(one)
        yield two


def ask(replicas: ReplicaSet, work: Callable[[Client], Awaitable[T]]) -> T:
    """Do something with a client."""

    async def main() -> T:
        async with client_of(replicas) as client:
            return await work(client)

    return asyncio.run(main())


def history_of(two: Pair, key: str) -> History:
    """What the sender knows of a key."""
    found = ask(two.sender, lambda client: client.query("look", key, result=History))
    assert isinstance(found, History)
    return found


def tags_of(two: Pair, key: str) -> list[str]:
    """What the receiver knows of a key."""
    return ask(two.receiver, lambda client: client.query("tags", key, result=list[str]))


class Callers(BackgroundCallers):
    """Forks and calls from several sessions."""

    def __init__(self, two: Pair) -> None:
        super().__init__(CALLERS, two.describe)
        self.answered = 0
        self._two = two

    async def call(self, number: int) -> None:
        """See BackgroundCallers."""
        async with client_of(self._two.sender) as client:
            count = 0
            while not self.stopping:
                handler = "call" if count % 2 else "fork"
                await client.call(handler, f"k{count % KEYS}", tag=f"{number}.{count}")
                self.answered += 1
                count += 1

    def wait_more(self, count: int) -> None:
        """Wait until so many more are answered."""
        goal = self.answered + count
        self.wait_until(lambda: self.answered >= goal, f"{count} more calls")


def kill(two: Pair, chance: random.Random) -> str:
    """kill -9 of a worker, or of a whole replica, of either service."""
    replicas = chance.choice(two.both())
    name = chance.choice(replicas.names)
    if chance.random() < 0.5:
        replicas.kill_worker(name)
        return f"worker {replicas.service}/{name}"
    replicas.kill_replica(name)
    replicas.start(name)
    return f"replica {replicas.service}/{name}"


def test_the_receivers_ledger_is_the_senders_history_whatever_is_killed(tmp_path: Path) -> None:
    seed = seed_of(SEED_VARIABLE)
    chance = random.Random(seed)
    with pair(tmp_path) as two:
        for one in two.both():
            one.primary()
        with Callers(two) as callers:
            callers.wait_more(20)
            for _ in range(ROUNDS):
                print(kill(two, chance), callers.answered)
                callers.wait_more(chance.randrange(5, 60))
        for number in range(KEYS):
            key = f"k{number}"
            history = history_of(two, key)
            assert len(history.sent) == len(set(history.sent)) > 0
            wait_for(lambda: len(tags_of(two, key)) >= len(history.sent), "all messages", two.describe)  # noqa: B023
            assert tags_of(two, key) == history.sent, two.describe()
            assert sorted(history.totals) == sorted(set(history.totals)), "a reply came twice"


def test_an_outbox_larger_than_its_memory_arrives_once_after_a_kill(tmp_path: Path) -> None:
    """The receiver is away; the sender's primary, whose files hold most of what it sent, is killed."""
    count, memory, tag = 120, 20_000, "x" * 1000
    two = Pair(tmp_path, limits={"outbox_memory_bytes_max": memory})
    expected = [f"{number}.{tag}" for number in range(count)]

    async def send(client: Client) -> None:
        for each in expected:
            await client.call("fork", "k0", tag=each)

    with two.sender:
        first = two.sender.primary()
        ask(two.sender, send)
        held = numbers_of(two.sender, first)
        assert held["outbox_bytes"] > 5 * memory
        assert held["outbox_memory_bytes"] <= memory
        two.sender.kill_worker(first)
        two.sender.primary(besides=first)
        with two.receiver:
            wait_for(lambda: len(tags_of(two, "k0")) >= count, "all messages", two.describe)
            assert tags_of(two, "k0") == expected, two.describe()


async def refused_at_last(client: Client) -> type[DeathlessError]:
    """Send until a call is refused; gives with what."""
    async with asyncio.timeout(DEADLINE_S):
        while True:
            call = asyncio.ensure_future(client.call("fork", "k0", tag="x" * 1000))
            while client.refusal() is None and not call.done():  # noqa: ASYNC110 - there is no event for a refusal
                await asyncio.sleep(0)
            if (refusal := client.refusal()) is not None:
                call.cancel()
                return type(refusal)


def look_at(replicas: ReplicaSet) -> ServiceView:
    """What `deathless status` shows."""
    return look_now(parts_of([replicas.config(name) for name in replicas.names]), with_peers=True)


def is_crowded(replicas: ReplicaSet) -> bool:
    """Does the primary say that its outbox is full, to its supervisor and in its metrics?"""
    seen = look_at(replicas)
    leads = seen.of(seen.primary)
    return leads is not None and leads.outbox_full and bool(numbers_of(replicas, leads.replica)["outbox_full"])


def test_a_full_outbox_and_the_peer_that_is_not_reached_are_told_until_it_is_back(tmp_path: Path) -> None:
    two = Pair(
        tmp_path, 1, limits={"message_bytes_max": 5000, "peer_window_bytes_max": 5000, "outbox_bytes_max": 20_000}
    )
    with two.sender:
        two.sender.primary()
        wait_for(lambda: look_at(two.sender).unreached_peers == [], "nobody that it sends to", two.describe)
        assert ask(two.sender, refused_at_last) is OutboxFull
        wait_for(lambda: is_crowded(two.sender), "a full outbox", two.describe)
        (away,) = wait_for(lambda: look_at(two.sender).unreached_peers, "a peer that is away", two.describe)
        assert (away.service, away.shard, away.driver) == ("receiver", 0, False)
        assert away.lag > 0 and away.away_s is not None and "receiver" in away.problem
        with two.receiver:
            wait_for(lambda: look_at(two.sender).unreached_peers == [], "the peer", two.describe)
            wait_for(lambda: not is_crowded(two.sender), "room", two.describe)
            assert ask(two.sender, lambda client: client.call("fork", "k1", tag="there is room")) == 1


def numbers_of(replicas: ReplicaSet, name: str) -> dict[str, int]:
    """What a replica's worker tells of its outbox."""
    member = read_members(str(replicas.directory))[name]
    answer = asyncio.run(admin.ask(member.client, "status", replicas._access()))
    messaging = answer["messaging"]
    assert isinstance(messaging, dict)
    return {key: int(value) for key, value in messaging.items() if key.startswith("outbox_")}


class Waiting:
    """A call whose handler waits, in a thread."""

    def __init__(self, replicas: ReplicaSet, handler: str, **arguments: object) -> None:
        self.result: object = None
        self._done = threading.Event()
        self._replicas = replicas
        self._thread = threading.Thread(
            target=lambda: ask(replicas, lambda client: self._call(client, handler, arguments)), daemon=True
        )
        self._thread.start()

    async def _call(self, client: Client, handler: str, arguments: dict[str, object]) -> None:
        self.result = await client.request(handler, "k", arguments)
        self._done.set()

    def wait(self) -> object:
        """Wait for the result."""
        wait_for(self._done.is_set, "the result", self._replicas.describe)
        self._thread.join()
        return self.result


def began(folder: Path, tag: str) -> list[str]:
    """Keys of the attempts of an activity that began."""
    return [path.read_text() for path in sorted(folder.glob(f"{tag}.*.began"))]


@pytest.mark.parametrize("at_most_once", [False, True])
def test_an_activity_under_way_at_a_takeover_runs_again_unless_it_must_not(tmp_path: Path, at_most_once: bool) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with pair(tmp_path) as two:
        first = two.sender.primary()
        call = Waiting(two.sender, "do", folder=str(work), tag="a", at_most_once=at_most_once)
        wait_for(lambda: began(work, "a"), "an attempt", two.describe)
        two.sender.kill_worker(first)
        if not at_most_once:
            wait_for(lambda: len(began(work, "a")) == 2, "another attempt", two.describe)
            assert len(set(began(work, "a"))) == 1, "every attempt has the same idempotency key"
        (work / "go").touch()
        done = call.wait()
        assert done == ("unknown" if at_most_once else began(work, "a")[0])
        assert history_of(two, "k").steps == [f"a {done}"]
        assert len(began(work, "a")) == (1 if at_most_once else 2)


def waits_for_activities(replicas: ReplicaSet) -> bool:
    """Does the primary wait for activities, on its way out?"""
    answer = operate(replicas, "status")
    return answer is not None and answer["letting_go"] == Stage.WAITING.value


async def count_to_20(client: Client) -> list[object]:
    """Make calls, one after the other, and give their results."""
    return [await client.call("fork", "k2", tag=str(number)) for number in range(20)]


@pytest.mark.parametrize("how", ["deathless switchover", "SIGTERM"])
def test_a_planned_hand_over_waits_for_an_activity_that_must_run_at_most_once_and_serves(
    tmp_path: Path, how: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    limits = PATIENT | {"handover_wait_s": 4 * DEADLINE_S}
    with ThreadPoolExecutor(1) as pool, Pair(tmp_path, limits=limits).sender as sender:
        sender.wait_roles(**ALL)
        first = sender.primary()
        call = Waiting(sender, "do", folder=str(work), tag="a", at_most_once=True)
        wait_for(lambda: began(work, "a"), "an attempt", sender.describe)
        command = ("switchover", "-f", str(sender.folder / "r0.json"), "--json")
        tool = pool.submit(run, *command, cwd=tmp_path) if how == "deathless switchover" else None
        if tool is None:
            sender.processes[first].terminate()
        wait_for(lambda: waits_for_activities(sender) or (tool and tool.done()), "it to let go", sender.describe)
        assert waits_for_activities(sender), tool and tool.result()
        assert told_wait(sender, first, tmp_path) == 1
        assert ask(sender, count_to_20) == list(range(1, 21))
        assert waits_for_activities(sender), "all of these were answered meanwhile"
        (work / "go").touch()
        assert call.wait() == began(work, "a")[0]
        second = sender.primary(besides=first)
        assert len(began(work, "a")) == 1
        assert wait_for(lambda: some(unknown(sender)), "the list", sender.describe) == [[]]
        if tool is not None:
            done = tool.result()
            assert done.returncode == 0, done.stderr
            assert json.loads(done.stdout)["to"] == second
        else:
            assert sender.processes[first].wait(DEADLINE_S) == 0


def told_wait(replicas: ReplicaSet, name: str, folder: Path) -> int:
    """For how many activities a primary waits, as `deathless status` says."""
    shown = run("status", "-f", str(replicas.folder / "r0.json"), "--json", cwd=folder)
    return next(int(one["waitsFor"]) for one in json.loads(shown.stdout)["replicas"] if one["replica"] == name)


def unknown(replicas: ReplicaSet) -> list[dict[str, object]] | None:
    """Activities of unknown outcome as the primary lists them; None: nobody leads at the moment."""
    answer = operate(replicas, "unknown")
    return None if answer is None else cast("list[dict[str, object]]", answer["unknown"])


def some(found: T | None) -> list[T]:
    """One item where there is something, also where that is empty."""
    return [] if found is None else [found]


def operate(replicas: ReplicaSet, asked: str, **arguments: str) -> dict[str, object] | None:
    """Ask the primary as operators do; None: it can't be reached, or refuses."""
    member = read_members(str(replicas.directory)).get(replicas.role_of("primary") or "")
    if member is None:
        return None
    try:
        return asyncio.run(admin.ask(member.client, asked, replicas._access(), arguments))
    except DeathlessError:
        return None


def test_an_activity_of_unknown_outcome_is_listed_through_takeovers_until_it_is_settled(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    with Pair(tmp_path).sender as sender:
        first = sender.primary()
        call = Waiting(sender, "do", folder=str(work), tag="a", at_most_once=True)
        wait_for(lambda: began(work, "a"), "an attempt", sender.describe)
        sender.kill_worker(first)
        assert call.wait() == "unknown"
        (case,) = wait_for(lambda: unknown(sender), "the list", sender.describe)
        assert (case["handler"], case["key"], case["activity"]) == ("do", "k", "once")
        assert case["activityKey"] == began(work, "a")[0], "what the activity showed the world outside"
        sender.kill_worker(sender.primary())
        assert wait_for(lambda: unknown(sender), "the list of the next primary", sender.describe) == [case]
        named = {"invocation": str(case["invocation"]), "operation": str(case["operation"])}
        wait_for(
            lambda: unknown(sender) == [] or operate(sender, "order", command="settle", **named),
            "the order",
            sender.describe,
        )
        wait_for(lambda: unknown(sender) == [], "it to be listed no more", sender.describe)
        sender.kill_worker(sender.primary())
        (listed,) = wait_for(lambda: some(unknown(sender)), "the list of a further primary", sender.describe)
        assert listed == [], "settled for every replica"


def test_a_timer_fires_once_though_the_primary_that_knew_it_is_dead(tmp_path: Path) -> None:
    with pair(tmp_path) as two:
        first = two.sender.primary()
        call = Waiting(two.sender, "nap", seconds=2.0)
        wait_for(lambda: waits(two.sender), "a handler that waits", two.describe)
        two.sender.kill_worker(first)
        assert isinstance(slept := call.wait(), int)
        assert slept >= 2_000_000


def waits(replicas: ReplicaSet) -> list[object]:
    """What an operator sees of handlers that wait."""
    primary = replicas.role_of("primary")
    member = read_members(str(replicas.directory)).get(primary or "")
    if member is None:
        return []
    try:
        answer = asyncio.run(admin.ask(member.client, "invocations", replicas._access()))
    except DeathlessError:
        return []
    found = answer["invocations"]
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("approved", [False, True])
def test_a_saga_waits_through_the_end_of_everything(tmp_path: Path, approved: bool) -> None:
    with pair(tmp_path) as two:
        two.sender.primary()
        two.receiver.primary()
        invocation = ask(two.sender, lambda client: accepted(client, "book", tag="t"))
        wait_for(lambda: history_of(two, "k").promise, "a promise", two.describe)
        for one in two.both():
            assert set(one.stop().values()) == {0}
        for one in two.both():
            for name in one.names:
                one.start(name)
        promise = history_of(two, "k").promise
        ask(two.sender, lambda client: client.call("approve", "k", promise=promise, approved=approved))
        outcome = "booked" if approved else "released"
        assert ask(two.sender, lambda client: client.result(invocation)) == outcome
        assert history_of(two, "k").steps == ["t reserved", f"t {outcome}"]
        assert tags_of(two, "k") == (["t reserved"] if approved else ["t reserved", "t released"])


class _Accepted:
    """Takes the answer that says a handler waits."""

    def __init__(self) -> None:
        self.invocation: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def answered(self, reply: bytes) -> None:
        """See Receiver."""
        self.invocation.set_result(accepted_invocation(reply) or 0)

    def failed(self, error: DeathlessError) -> None:
        """See Receiver."""
        self.invocation.set_exception(error)

    def refused(self, error: DeathlessError) -> None:
        """See Receiver."""


async def accepted(client: Client, handler: str, **arguments: object) -> int:
    """Call a handler that waits and give its invocation, without waiting for its result."""
    receiver = _Accepted()
    client.submit_message(client.encode(handler, "k", arguments), receiver)
    return await receiver.invocation
