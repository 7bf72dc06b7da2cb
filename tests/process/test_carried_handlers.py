"""A saga that waits in version 1 and is gone in version 2 is carried: its caller gets the reply, exactly once."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from replica_set import DEADLINE_S, send_signal, wait_for
from test_live_upgrade import PAIR, SLOW, Victims, again, behind_the_commit, ended, supervisors_of, tool_of, workers_of
from upgraded_bank import Callers, UpgradedBank, version_1, version_2

from deathless.base.errors import UpgradeRefused

RESERVE = '''

@bank.activity
def reserve(item: str) -> int:
    """Gives a number."""
    return len(item)
'''
BEFORE = f'''{RESERVE}

@bank.handler
async def saga(account: Account, ctx: Context, item: str) -> str:
    """Waits for somebody who never comes."""
    number = await ctx.run(reserve, item)
    return f"{{await ctx.promise(str)}} {{number}}"
'''
BEHIND = f'''{RESERVE}

@bank.handler
async def ship(account: Account, ctx: Context, item: str, number: int, cents: int) -> str:
    """Goes on for it."""
    account.tags.append(f"{{item}} {{number}} {{cents}}")
    weight = await ctx.run(reserve, item * 2)
    return f"{{item}} {{number}} of {{weight}}"
'''
CARRY = """

from deathless import Continue, Suspended


@bank.carry("saga", from_=1)
def carry(old: Suspended, account: Account) -> Continue:
    return Continue("ship", item=old.arguments["item"], number=old.given("reserve", int), cents=account.cents)
"""
SAID = "apple 5 of 10"
WAITS = f"""{RESERVE}

@bank.handler
async def saga(account: Account, ctx: Context, item: str) -> str:
    # What is asked for here, version 1 did not ask for.
    number = 0
    if ctx.begun_in >= 2:
        number = await ctx.run(reserve, item)
    waits = ctx.promise(str)
    account.tags.append(waits.id)
    return f"{{await waits}}, begun in {{ctx.begun_in}}, {{number}}"


@bank.handler
def say(account: Account, ctx: Context, promise: str) -> int:
    ctx.complete(promise, "said")
    return ctx.begun_in
"""
WAITED = WAITS.replace("        number = await ctx.run(reserve, item)\n", "        number = 1\n")


class Waiter:
    """Calls the saga, and calls it again with the same idempotency key once it was answered."""

    def __init__(self, bank: UpgradedBank) -> None:
        self.said: list[object] = []
        self._bank = bank
        self._loop = asyncio.new_event_loop()
        self._calling = self._loop.create_task(self._call())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._calling)
        self._loop.close()

    def stop(self) -> None:
        """Call no more: a later test's service may get the address of this one."""
        with suppress(RuntimeError):  # it is done, and its loop closed
            self._loop.call_soon_threadsafe(self._calling.cancel)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive(), self._bank.told()

    async def _call(self) -> None:
        async with self._bank.client() as client:
            for _ in range(2):
                said = await client.call(
                    "saga", "carried", idempotency_key="one-saga", timeout=6 * DEADLINE_S, item="apple"
                )
                self.said.append(said)

    def wait(self) -> list[object]:
        """Give both answers."""
        self._thread.join(6 * DEADLINE_S)
        assert not self._thread.is_alive(), self._bank.told()
        return self.said


@contextmanager
def waiting(tmp_path: Path, before: str = BEFORE) -> Iterator[tuple[UpgradedBank, Waiter]]:
    """A bank whose saga was given what it asked for before its promise, and waits."""
    with UpgradedBank(tmp_path, replicas=2, source=version_1(before)) as bank:
        bank.run("call", "deposit", "--key", "carried", "--arg", "amount=3", "--arg", "tag=a.3")
        waiter = Waiter(bank)
        try:
            wait_for(lambda: "promise" in str(bank.json("invocations", "list")), "the saga waits", bank.told)
            yield bank, waiter
        finally:
            waiter.stop()


def tags(bank: UpgradedBank) -> list[str]:
    return list(json.loads(bank.run("query", "look", "--key", "carried").stdout)["tags"])


def test_caller_of_a_carried_saga_gets_one_reply_under_load(tmp_path: Path) -> None:
    with waiting(tmp_path) as (bank, waiter):
        refused = bank.upgrade(bank.code("gone", version_2(BEHIND)), "--upgraders", "1", code=UpgradeRefused.exit_code)
        assert "HandlerGone: handler saga of version 1" in refused.stderr
        to = bank.code("v2", version_2(BEHIND + CARRY))
        bank.run("checkpoint", "take")
        told = bank.json("upgrade", "check", "--to", to)
        assert (told["fits"], told["carried"], told["misfits"]) == (True, 1, [])
        assert "1 suspended handler carried" in bank.run("upgrade", "check", "--to", to).stdout
        with Callers(bank) as callers:
            said = bank.upgrade(to, "--upgraders", "1").stdout
            callers.wait_more()
        assert "Carried: saga does not fit, and goes on as ship, 1 of 1 invocation" in said
        assert waiter.wait() == [SAID, SAID]
        assert tags(bank) == ["a.3", "apple 5 300"], "it ran once, on the migrated state"
        bank.check(callers, generation=2, factor=100, names=PAIR)
        assert bank.json("invocations", "list")["count"] == 0
        assert bank.json("log", "verify")["problems"] == []


@pytest.mark.parametrize("victims", [workers_of, supervisors_of], ids=["worker", "supervisor"])
def test_new_primary_that_is_killed_right_behind_the_cut_does_it_once(tmp_path: Path, victims: Victims) -> None:
    with waiting(tmp_path) as (bank, waiter):
        to = bank.code("v2", version_2(BEHIND + CARRY, work=SLOW))
        tool = tool_of(bank, to, "--upgraders", "1")
        for pid in behind_the_commit(bank, tool, victims):
            send_signal(pid, signal.SIGKILL)
        ended(tool)
        again(bank, to, "--upgraders", "1")
        assert waiter.wait() == [SAID, SAID]
        assert tags(bank) == ["a.3", "apple 5 300"]
        bank.wait_whole(*PAIR)
        assert bank.json("log", "verify")["problems"] == []


def test_saga_is_carried_while_all_replicas_are_stopped(tmp_path: Path) -> None:
    with waiting(tmp_path) as (bank, waiter):
        (saga,) = bank.json("invocations", "list")["invocations"]
        bank.down()
        (bank.folder / "service.py").write_text(version_2(BEHIND + CARRY))
        told = bank.json("upgrade", "--offline", "--yes")["shards"][0]
        assert any(note.startswith("Carried: saga does not fit") for note in told["notes"])
        assert told["compatible"] is False
        bank.up()
        assert bank.json("invocations", "wait", str(saga["invocation"]))["result"] == SAID
        assert tags(bank) == ["a.3", "apple 5 300"]
        assert waiter.wait() == [SAID, SAID]


def test_carry_that_gives_another_way_each_time_is_refused(tmp_path: Path) -> None:
    """The order of a set differs between processes."""
    chance = '"".join({"a", "b", "c", "d", "e", "f", "g", "h"})'
    with waiting(tmp_path) as (bank, _):
        bank.run("checkpoint", "take")
        to = bank.code("v2", version_2(BEHIND + CARRY.replace('old.arguments["item"]', chance)))
        told = bank.json("upgrade", "check", "--to", to, code=UpgradeRefused.exit_code)
        assert [each["word"] for each in told["misfits"]] == ["CarryNotDeterministic"]


def test_saga_that_began_in_version_1_goes_its_former_way_in_version_2(tmp_path: Path) -> None:
    """It needs no function that carries it, since the new code asks in which version it began."""
    with waiting(tmp_path, WAITED) as (bank, waiter):
        promise = tags(bank)[1]
        bank.upgrade(bank.code("v2", version_2(WAITS)), "--upgraders", "1")
        said = bank.run("call", "say", "--key", "other", "--arg", f'promise="{promise}"').stdout
        assert json.loads(said) == 2, "a plain handler is of the version that runs"
        assert waiter.wait() == ["said, begun in 1, 0"] * 2
        assert bank.json("log", "verify")["problems"] == []
