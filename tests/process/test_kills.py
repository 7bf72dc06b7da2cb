"""Real processes, real kill -9 and SIGSTOP, under load: nothing lost, nothing doubled (I1, I2, I3, I5)."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest
from replica_set import PATIENT, Load, ReplicaSet, check_exactly_once, client_of, send_signal, wait_for

from deathless.base.errors import HandlerFailed, Parked


@pytest.mark.parametrize("victim", ["primary", "checkpointer", "standby"])
def test_kill_of_a_worker_loses_and_doubles_nothing(tmp_path: Path, victim: str) -> None:
    with ReplicaSet(tmp_path) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        with Load(replicas) as load:
            for _ in range(3):
                load.wait_more()
                name = wait_for(lambda: replicas.role_of(victim), f"a {victim}", replicas.describe)
                replicas.kill_worker(name)
                load.wait_more()
                replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        check_exactly_once(load, replicas)
        replicas.wait_same_lsn()


def test_kill_of_supervisor_and_worker_loses_nothing(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        with Load(replicas) as load:
            load.wait_more()
            old = replicas.primary()
            replicas.kill_replica(old)
            replicas.primary(besides=old)
            load.wait_more()
            replicas.start(old)
            replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        check_exactly_once(load, replicas)


@pytest.mark.parametrize("whole", [False, True], ids=["worker", "worker and supervisor"])
def test_frozen_primary_that_wakes_up_releases_nothing_more(tmp_path: Path, whole: bool) -> None:
    with ReplicaSet(tmp_path) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        with Load(replicas) as load:
            load.wait_more()
            old = replicas.primary()
            pid = replicas.signal_worker(old, signal.SIGSTOP)
            if whole:
                replicas.processes[old].send_signal(signal.SIGSTOP)
            replicas.primary(besides=old)
            load.wait_more(50)
            send_signal(pid, signal.SIGCONT)
            if whole:
                replicas.processes[old].send_signal(signal.SIGCONT)
            load.wait_more()
            replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        check_exactly_once(load, replicas)


def test_everything_killed_at_once_comes_back_with_its_state(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        with Load(replicas) as load:
            load.wait_more()
            for name in replicas.names:
                replicas.kill_replica(name)
            for name in replicas.names:
                replicas.start(name)
            load.wait_more()
        check_exactly_once(load, replicas)


def test_orderly_stop_and_start_keep_the_state(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        with Load(replicas) as load:
            load.wait_more()
        assert replicas.stop() == dict.fromkeys(replicas.names, 0)
        for name in replicas.names:
            replicas.start(name)
        replicas.primary()
        check_exactly_once(load, replicas)


def test_one_replica_alone_restarts_and_keeps_everything(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, replicas=1) as replicas:
        with Load(replicas) as load:
            load.wait_more()
            replicas.kill_worker("r0")
            load.wait_more()
        check_exactly_once(load, replicas)


def test_i11_message_that_ends_its_process_twice_is_parked_and_named(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)

        async def poison() -> None:
            async with client_of(replicas) as client:
                with pytest.raises(Parked):
                    await client.call("die", "k0")
                assert await client.call("note", "k0", tag="after") == 1

        asyncio.run(poison())
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)


def epoch_of(replicas: ReplicaSet) -> int:
    return max(int(str(status["epoch"])) for status in replicas.status().values())


def test_i11_burst_of_messages_that_end_their_process_costs_others_one_takeover_and_no_answer(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        before = epoch_of(replicas)

        async def one(number: int) -> None:
            async with client_of(replicas) as client:
                with pytest.raises(Parked):
                    await client.call("die", f"k{number}")

        async def burst() -> None:
            await asyncio.gather(*(one(number) for number in range(8)))

        with Load(replicas) as load:
            load.wait_more()
            asyncio.run(burst())
            load.wait_more()
        assert epoch_of(replicas) - before <= 1
        check_exactly_once(load, replicas)


def test_i11_loop_without_end_costs_one_takeover_and_is_parked(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, limits=PATIENT | {"turn_max_s": 5.0}) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        before = epoch_of(replicas)

        async def loop() -> None:
            async with client_of(replicas) as client:
                with pytest.raises(Parked):
                    await client.call("linger", "k0", seconds=1e9)

        with Load(replicas) as load:
            load.wait_more()
            asyncio.run(loop())
            load.wait_more()
        assert epoch_of(replicas) - before == 1
        check_exactly_once(load, replicas)


def test_i5_exception_is_a_recorded_reply_and_rolls_its_turn_back(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, replicas=1) as replicas:

        async def fail() -> None:
            async with client_of(replicas) as client:
                with pytest.raises(HandlerFailed, match="too little"):
                    await client.call("fail", "k0", text="too little")
                assert await client.query("notes", "k0") == []

        asyncio.run(fail())
        assert replicas.primary() == "r0"


def test_i6_replica_that_differs_reloads_the_primarys_state_and_goes_on(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)

        async def differ() -> None:
            async with client_of(replicas) as client:
                await client.call("differ", "k0")
                assert await client.call("note", "k0", tag="after") == 2

        asyncio.run(differ())
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        replicas.wait_same_lsn()


def test_busy_handler_does_not_cost_the_primary_its_role(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, limits=PATIENT) as replicas:
        replicas.wait_roles(primary=1, checkpointer=1, standby=1)
        before = replicas.primary()

        async def linger() -> None:
            async with client_of(replicas) as client:
                await client.call("linger", "k0", seconds=1.5 * PATIENT["suspect_after_s"])

        asyncio.run(linger())
        assert replicas.primary() == before
