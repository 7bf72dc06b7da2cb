"""The PostgreSQL sink against a real server, whose processes are killed and whose connections are cut."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from postgresql_bench import ADVISORY, NEWER, SOURCE, Bench, acting, message, value_of
from postgresql_server import Relay

from deathless.drivers.conformance import World, check
from deathless.drivers.port import (
    Answer,
    Deposed,
    Opened,
    Reference,
    SinkUnavailable,
    Source,
)
from deathless.drivers.postgresql import PostgresqlSink

# ---- exactly once ---------------------------------------------------------------------------------------------


def test_effect_position_and_answer_are_kept_together(bench: Bench) -> None:
    async def work() -> None:
        one = bench.sink()
        assert await one.open(SOURCE, 1) == Opened(1, [])
        answers = await one.deliver([message(1), message(2, "quiet"), message(3, asked=False)])
        assert [value_of(each) for each in answers] == [{"id": "m0001", "cents": 1}, None]
        assert await one.open(SOURCE, 1) == Opened(4, answers)
        assert await one.deliver([]) == []
        await one.close()
        assert bench.ledger() == ["m0001", "m0002", "m0003"]

    acting(work)


def test_batch_of_every_size_gives_each_its_answer(bench: Bench) -> None:
    async def work() -> None:
        one = bench.sink()
        position = (await one.open(SOURCE, 7)).next_position
        assert position == 7, "one that never heard of the source goes on where the source does"
        for size in (1, 2, 256):
            answers = await one.deliver([message(position + n) for n in range(size)])
            assert [value_of(each)["cents"] for each in answers] == list(range(position, position + size))
            position += size
        await one.deliver([message(position + 10)])  # a gap: what had nothing for the outside
        assert (await one.open(SOURCE, 7)).next_position == position + 11
        await one.close()

    acting(work)


def test_what_comes_again_is_passed_by_and_answered_the_same(bench: Bench) -> None:
    async def work() -> None:
        one = bench.sink()
        await one.open(SOURCE, 1)
        first = await one.deliver([message(1), message(2, asked=False), message(3)])
        again = await one.deliver([message(2, asked=False), message(3), message(4)])
        assert again[0] == first[1]
        assert value_of(again[1])["id"] == "m0004"
        await one.close()
        assert len(bench.ledger()) == 4

    acting(work)


@pytest.mark.parametrize("seed", range(6))
def test_sink_passes_the_conformance_kit(bench: Bench, seed: int) -> None:
    async def arrived() -> list[int]:
        async with await psycopg.AsyncConnection.connect(bench.dsn) as connection:
            found = await connection.execute(b"SELECT number FROM written ORDER BY id")
            return [row[0] for row in await found.fetchall()]

    made: list[PostgresqlSink] = []

    def another() -> PostgresqlSink:
        made.append(bench.sink())
        return made[-1]

    async def work() -> None:
        try:
            await check(World(sink=another, arrived=arrived, refused="broken"), seed=seed)
        finally:
            for each in made:
                await each.close()

    acting(work)


@pytest.mark.parametrize("first", range(4))
def test_connection_cut_between_every_two_steps_leaves_each_effect_once(bench: Bench, first: int) -> None:
    async def whole(relay: Relay, source: Source) -> list[Answer]:
        one = bench.sink(dsn=relay.dsn + bench.search)
        messages = [message(n, key=f"{source.incarnation}.{n}") for n in range(1, 6)]
        answers: dict[int, Answer] = {}
        next_position = 0
        while next_position <= 5:
            try:
                opened = await one.open(source, 1)
                next_position = opened.next_position
                for each in opened.answers:
                    assert answers.setdefault(each.position, each) == each, "an answer stays what it was"
                for batch in (messages[:2], messages[2:3], messages[3:]):
                    if fresh := [each for each in batch if each.position >= next_position]:
                        answers |= {each.position: each for each in await one.deliver(fresh)}
                        next_position = fresh[-1].position + 1
                await one.confirmed(5)
            except SinkUnavailable:
                continue
        await one.close()
        return [answers[n] for n in sorted(answers)]

    with tempfile.TemporaryDirectory(prefix="deathless-pg-") as folder, Relay(bench.server, Path(folder)) as relay:
        for run in itertools.count(first, 4):
            relay.cut_after(run)
            answers = asyncio.run(whole(relay, msgspec.structs.replace(SOURCE, incarnation=run)))
            assert [value_of(each)["id"] for each in answers] == [f"{run}.{n}" for n in range(1, 6)]
            assert [row[0] for row in bench.run("SELECT id FROM ledger WHERE id LIKE %s ORDER BY id", f"{run}.%")] == [
                f"{run}.{n}" for n in range(1, 6)
            ]
            if not relay.cut:
                break
        assert run > 20, "there are more steps than that"


@pytest.mark.parametrize("whom", ["backend", "server"])
def test_kill_in_the_middle_of_a_transaction_leaves_nothing_of_it(bench: Bench, whom: str) -> None:
    async def work() -> None:
        one = bench.sink()
        await one.open(SOURCE, 1)
        first = await one.deliver([message(1)])
        async with await psycopg.AsyncConnection.connect(bench.dsn, autocommit=True) as holder:
            await holder.execute(f"SELECT pg_advisory_lock({ADVISORY})".encode())
            delivering = asyncio.create_task(one.deliver([message(2), message(3, "wait"), message(4)]))
            pid = await blocked(holder)
            if whom == "backend":
                os.kill(pid, signal.SIGKILL)
            else:
                bench.server.kill()
                bench.server.start()
            with pytest.raises(SinkUnavailable):
                await delivering
        bench.server.wait_ready()
        opened = await open_again(one, SOURCE)
        assert opened == Opened(2, first)
        assert bench.ledger() == ["m0001"]
        answers = await one.deliver([message(2), message(3, "wait"), message(4)])
        assert [each.position for each in answers] == [2, 3, 4]
        await one.close()
        assert bench.ledger() == ["m0001", "m0002", "m0004"]

    acting(work)


async def blocked(connection: psycopg.AsyncConnection[Any]) -> int:
    """Wait until a session waits for the advisory lock; gives its process."""
    while True:
        found = await connection.execute(b"SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted")
        if row := await found.fetchone():
            return int(row[0])


async def open_again(one: PostgresqlSink, source: Source) -> Opened:
    """Open until the server takes connections: it recovers."""
    while True:
        try:
            return await one.open(source, 1)
        except SinkUnavailable:
            await asyncio.sleep(0)


def test_answers_are_kept_until_they_are_confirmed(bench: Bench) -> None:
    async def work() -> None:
        one = bench.sink()
        await one.open(SOURCE, 1)
        answers = list(await one.deliver([message(n) for n in range(1, 5)]))
        kept = Answer(5, Reference(105, 1), b"\x01no")
        await one.pass_over(5, kept)
        await one.pass_over(6, None)
        await one.pass_over(5, Answer(5, Reference(105, 1), b"\x01another"))  # comes again: the first one counts
        await one.close()
        bench.server.kill()
        bench.server.start()
        another = bench.sink()
        assert await another.open(SOURCE, 1) == Opened(7, [*answers, kept])
        await another.confirmed(2)
        assert await another.open(SOURCE, 1) == Opened(7, [*answers[2:], kept])
        await another.confirmed(6)
        assert await another.open(SOURCE, 1) == Opened(7, [])
        await another.close()

    acting(work)


def test_delivery_that_is_cancelled_leaves_nothing_and_the_sink_opens_again(bench: Bench) -> None:
    async def work() -> None:
        one = bench.sink()
        await one.open(SOURCE, 1)
        async with await psycopg.AsyncConnection.connect(bench.dsn, autocommit=True) as holder:
            await holder.execute(f"SELECT pg_advisory_lock({ADVISORY})".encode())
            delivering = asyncio.create_task(one.deliver([message(1), message(2, "wait")]))
            await blocked(holder)
            delivering.cancel()
            with pytest.raises(asyncio.CancelledError):
                await delivering
        with pytest.raises(SinkUnavailable):
            await one.deliver([message(1)])
        assert await one.open(SOURCE, 1) == Opened(1, [])
        await one.close()
        assert bench.ledger() == []

    acting(work)


def test_each_driver_and_each_incarnation_has_positions_of_its_own(bench: Bench) -> None:
    async def work() -> None:
        others = [
            ("audit", SOURCE),
            ("ledger", msgspec.structs.replace(SOURCE, incarnation=2)),
            ("ledger", msgspec.structs.replace(SOURCE, shard=1)),
            ("ledger", msgspec.structs.replace(SOURCE, service_id=b"another service ")),
            ("ledger", msgspec.structs.replace(SOURCE, service="stock")),
        ]
        one = bench.sink()
        await one.open(SOURCE, 1)
        await one.deliver([message(1), message(2)])
        for driver, source in others:
            another = bench.sink(driver)
            assert (await another.open(source, 1)).next_position == 1
            await another.close()
        assert (await one.open(SOURCE, 1)).next_position == 3
        await one.close()

    acting(work)


# ---- fencing --------------------------------------------------------------------------------------------------


def test_lower_epoch_is_refused_in_the_transaction_in_which_it_would_write(bench: Bench) -> None:
    async def work() -> None:
        old, new = bench.sink(), bench.sink()
        await old.open(SOURCE, 1)
        await new.open(NEWER, 1)
        with pytest.raises(Deposed):
            await old.deliver([message(1)])
        assert bench.ledger() == []
        for late in (old.open(SOURCE, 1), bench.sink().open(SOURCE, 1)):
            with pytest.raises(Deposed):
                await late
        await new.deliver([message(1)])
        await new.close()
        await old.close()
        assert bench.ledger() == ["m0001"]

    acting(work)


@pytest.mark.parametrize("late", ["pass_over", "confirmed"])
def test_lower_epoch_neither_passes_over_nor_forgets(bench: Bench, late: str) -> None:
    async def work() -> None:
        old, new = bench.sink(), bench.sink()
        await old.open(SOURCE, 1)
        answers = await old.deliver([message(1)])
        await new.open(NEWER, 1)
        with pytest.raises(Deposed):
            await (old.pass_over(2, None) if late == "pass_over" else old.confirmed(1))
        assert await new.open(NEWER, 1) == Opened(2, answers)
        await new.close()
        await old.close()

    acting(work)


def test_older_driver_that_is_frozen_within_its_transaction_holds_nobody_up(bench: Bench) -> None:
    async def work() -> None:
        old, new = bench.sink(), bench.sink()
        await old.open(SOURCE, 1)
        async with await psycopg.AsyncConnection.connect(bench.dsn, autocommit=True) as holder:
            await holder.execute(f"SELECT pg_advisory_lock({ADVISORY})".encode())
            frozen = asyncio.create_task(old.deliver([message(1), message(2, "wait")]))
            await blocked(holder)  # it holds our row, and would for ever
            assert await new.open(NEWER, 1) == Opened(1, [])
            await new.deliver([message(1)])
        with pytest.raises(SinkUnavailable):  # it wakes
            await frozen
        with pytest.raises(Deposed):
            await old.open(SOURCE, 1)
        await new.deliver([message(2, "wait")])
        await new.close()
        await old.close()
        assert bench.ledger() == ["m0001"]

    acting(work)
