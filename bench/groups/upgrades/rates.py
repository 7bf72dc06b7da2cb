"""How fast an upgrade's work is done: keys migrated, messages rehearsed, turns run again, and tests of one's own.

The log that is rehearsed and run again was written by a service that served, so it has what such logs have: a
checkpoint in between, times, sessions.
"""

from __future__ import annotations

import asyncio
import resource
import time
from typing import Final

import msgspec
from examples.shop.payments import ask_bank, payments
from examples.shop.shop import shop
from examples.shop.stock import stock

from bench.figures import Figure, Goal, figure
from bench.generator import generate
from bench.groups.upgrades.live import SERVICES, Upgraded
from bench.setting import Setting
from deathless.base.limits import Limits
from deathless.execution.interface.interface import interface_of
from deathless.execution.migration.state import migrate_state
from deathless.shell.service_code.loading import load_service
from deathless.testing import Environment

FIXED: Final = '''

@bench.query
def half(account: Account) -> int:
    """Say half of it."""
    return account.balance // 2
'''
"""What is added to the code that serves, for a change that takes all states as they are."""
MOMENTS: Final = ("turn", "written", "synced")  # which each of the three comes to


class Ran(msgspec.Struct):
    """What a rehearsal or a replay tells of itself."""

    messages: int
    seconds: float


async def migration(setting: Setting) -> list[Figure]:
    """A function for each state, as an upgrader calls it: decode, call, encode, compare."""
    keys = setting.size(1_000_000, 1000)
    used = await asyncio.to_thread(_migrate, keys)
    return [
        figure(
            "migration_keys_per_s", f"migration of {keys:,} small states by a function, one core", keys / used,
            "keys/s", samples=1, goal=Goal("at least", 400_000),
            note="processor time of one process; without reading the former states and writing the new ones",
        )
    ]  # fmt: skip


def _migrate(keys: int) -> float:
    """Migrate so many states; gives seconds of processor time."""
    before = interface_of(load_service(f"{SERVICES / 'accounts_1.py'}:bench"), Limits())
    service = load_service(f"{SERVICES / 'accounts_2.py'}:bench")
    state = {b"key%07d" % number: msgspec.msgpack.encode({"balance": number + 1}) for number in range(keys)}
    began = time.process_time()
    made, misfits = migrate_state(state, service, before, time_us=1)
    used = time.process_time() - began
    if misfits or made[b"key%07d" % (keys - 1)] != msgspec.msgpack.encode({"cents": keys * 100}):
        raise AssertionError(f"the migration gave something else: {misfits[:1]}")
    return max(used, 1e-6)


async def runs(setting: Setting) -> list[Figure]:
    """A rehearsal by three processes, and a replay."""
    messages = setting.size(2_000_000, 2000)
    service = Upgraded(setting.new_folder())
    await service.run("up", "--detach", "service.yaml")
    try:
        calls = 0
        while calls < messages:
            clients, window = setting.size(4, 1), setting.size(500, 10)
            calls += (await generate(await service.primary(), clients=clients, window=window, seconds=1.0)).calls
    finally:
        await service.run("down")
    to = f"{SERVICES / 'accounts_2.py'}:bench"
    rehearsed, rehearsing_us = await _ran(service, "upgrade", "rehearse", "--to", to, "--json")
    fixed = service.folder / "accounts_fixed.py"
    fixed.write_text((SERVICES / "accounts_1.py").read_text() + FIXED)
    alike, alike_us = await _ran(service, "upgrade", "rehearse", "--to", f"{fixed}:bench", "--json")
    replayed, replaying_us = await _ran(service, "replay", "--from", "oldest", "--quiet", "--json")
    return [
        figure(
            "rehearsal_by_digests_messages_per_s", f"rehearsal of {alike.messages:,} messages, states as they are",
            alike.messages / alike.seconds, "messages/s", samples=1, goal=Goal("at least", 150_000),
            note=f"twice by the new code, against the log's own digests, {alike.seconds:.1f} s; both processes took "
            f"{alike_us:.1f} us of processor time for each",
        ),
        figure(
            "rehearsal_messages_per_s", f"rehearsal of {rehearsed.messages:,} messages, states migrated",
            rehearsed.messages / rehearsed.seconds, "messages/s", samples=1, goal=Goal("at least", 150_000),
            note=f"side by side: by the former code and twice by the new one, {rehearsed.seconds:.1f} s; all processes "
            f"together took {rehearsing_us:.1f} us of processor time for each",
        ),
        figure(
            "replay_turns_per_s", f"replay of {replayed.messages:,} turns", replayed.messages / replayed.seconds,
            "turns/s", samples=1, goal=Goal("at least", 300_000),
            note=f"each compared with the log's digest, {replayed.seconds:.1f} s with reading the log; "
            f"{replaying_us:.1f} us of processor time for each",
        ),
    ]  # fmt: skip


async def _ran(service: Upgraded, *command: str) -> tuple[Ran, float]:
    """What a command says of itself, and its processes' time for each message, microseconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = msgspec.json.decode(await service.run(*command), type=Ran)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ran, used / max(ran.messages, 1) * 1e6


async def testing(setting: Setting) -> list[Figure]:
    """Tests as an author writes them: three services, an order, a kill in each test."""
    tests = setting.size(200, 3)
    took = await asyncio.to_thread(_test, tests)
    return [
        figure(
            "tests_of_the_shop_per_s", f"{tests:,} tests of an order of the shop, a service killed in each",
            tests / took, "tests/s", samples=tests, goal=Goal("at least", 50),
            note="`deathless.testing`, by the processor time of its one process, in memory; each test begins with "
            "three empty services, and all that was logged is compared at its end",
        )
    ]  # fmt: skip


def _test(tests: int) -> float:
    """Run so many; gives seconds of processor time."""
    began = time.process_time()
    for number in range(tests):
        with Environment(shop, stock, payments) as env:
            env.activity(ask_bank, lambda customer, cents: "receipt")
            env.service(stock)["apple"].refill(10)
            env.kill((shop, stock, payments)[number % 3], at=MOMENTS[number // 3 % len(MOMENTS)])
            said = env.service(shop)["o1"].place("apple", 2, "ann", 500)
            if said != "sent" or env.service(stock)["apple"].free() != 8 or len(env.killed) != 1:
                raise AssertionError(f"test {number} gave {said!r}, killed {env.killed}")
    return time.process_time() - began
