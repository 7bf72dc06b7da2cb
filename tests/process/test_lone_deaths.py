"""One process of a replica dies, is frozen or is told to stop: what the others of it do."""

from __future__ import annotations

import os
import random
import signal
import socket
import time
from functools import partial
from pathlib import Path

import pytest
from fault_seed import seed_of
from http_load import HttpLoad
from replica_set import (
    ALL,
    DEADLINE_S,
    PATIENT,
    Load,
    ReplicaSet,
    called,
    check_exactly_once,
    children_of,
    judge,
    send_signal,
    wait_for,
)

from deathless.base.errors import PortTaken
from deathless.codec.wire import PREFIX, Hello, Type, struct_packet
from deathless.shell.directory.members import Member, read_members, write_member
from deathless.shell.net.listening import split_address


def is_alive(pid: int) -> bool:
    """Is there such a process, other than a dead one that nobody waited for?"""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


@pytest.mark.parametrize("state", ["running", "frozen"])
def test_killed_supervisor_takes_its_worker_and_ingress_with_it(tmp_path: Path, state: str) -> None:
    with ReplicaSet(tmp_path, replicas=1, ingress_listen="127.0.0.1:0") as replicas:
        replicas.primary()
        supervisor = replicas.processes["r0"].pid
        wait_for(lambda: not read_members(str(replicas.directory))["r0"].ingress.endswith(":0"), "an ingress")
        children = [
            pid for kind in ("worker", "ingress") for pid in children_of(supervisor, f"deathless.shell.{kind}.{kind}")
        ]
        assert len(children) == 2
        if state == "frozen":
            for pid in children:
                os.kill(pid, signal.SIGSTOP)
        replicas.kill_replica("r0")
        wait_for(lambda: not any(is_alive(pid) for pid in children), "the end of its children")


def grew(load: HttpLoad, size: int) -> bool:
    """Are there more calls than `size`?"""
    return len(load.history) > size


def test_killed_ingress_is_started_again_and_its_callers_lose_nothing(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, replicas=1, ingress_listen="127.0.0.1:0") as replicas:
        replicas.primary()
        supervisor = replicas.processes["r0"].pid
        with HttpLoad(replicas) as load:
            for _ in range(3):
                before = len(load.history)
                wait_for(partial(grew, load, before + 20), "calls over HTTP", replicas.describe)
                for pid in children_of(supervisor, "deathless.shell.ingress.ingress"):
                    send_signal(pid, signal.SIGKILL)
            before = len(load.history)
            wait_for(lambda: len(load.history) > before + 5, "calls over HTTP", replicas.describe)
        judge(replicas, load.history)


def test_sigterm_of_a_worker_hands_over_and_the_worker_comes_back(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path) as replicas:
        with called(replicas) as load:
            old = replicas.primary()
            replicas.signal_worker(old, signal.SIGTERM)
            replicas.primary(besides=old)
            load.wait_more()
            replicas.wait_roles(**ALL)
        assert "handed over" in (tmp_path / f"{old}.log").read_text()


def test_sigterm_at_random_moments_ends_in_order(tmp_path: Path) -> None:
    seed = seed_of("DEATHLESS_STOPS_SEED")
    chance = random.Random(seed)
    with ReplicaSet(tmp_path) as replicas:
        replicas.primary()
        with Load(replicas) as load:
            for _ in range(8):
                load.wait_more(chance.randrange(1, 60))
                name = chance.choice(replicas.names)
                process = replicas.processes[name]
                process.terminate()
                # One that has not installed its handlers yet is ended by the signal itself.
                assert process.wait(DEADLINE_S) in (0, -signal.SIGTERM), replicas.describe()
                replicas.start(name)
            load.wait_more()
        replicas.wait_roles(**ALL)
        check_exactly_once(load, replicas)


def test_frozen_supervisor_alone_costs_its_primary_nothing(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, limits=PATIENT) as replicas:
        replicas.wait_roles(**ALL)
        primary, epoch = replicas.primary(), replicas.status()[replicas.primary()]["epoch"]
        with Load(replicas) as load:
            replicas.processes[primary].send_signal(signal.SIGSTOP)
            end = time.monotonic() + 1.5 * PATIENT["suspect_after_s"]
            while time.monotonic() < end:
                load.wait_more()
            replicas.processes[primary].send_signal(signal.SIGCONT)
            load.wait_more()
        replicas.wait_roles(**ALL)
        assert replicas.status()[primary]["epoch"] == epoch
        check_exactly_once(load, replicas)


def test_replica_that_was_frozen_longer_than_a_turn_may_last_wakes_up_unharmed(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path, replicas=1, limits={"turn_max_s": 1.5}) as replicas:
        replicas.primary()
        with Load(replicas) as load:
            load.wait_more()
            worker = replicas.signal_worker("r0", signal.SIGSTOP)
            replicas.processes["r0"].send_signal(signal.SIGSTOP)
            end = time.monotonic() + 2.0
            wait_for(lambda: time.monotonic() > end, "the end of the pause")
            send_signal(worker, signal.SIGCONT)
            replicas.processes["r0"].send_signal(signal.SIGCONT)
            load.wait_more(200)
        assert replicas.status()["r0"]["worker_pid"] == worker
        assert replicas.status()["r0"]["deaths"] == []
        check_exactly_once(load, replicas)


def test_garbage_on_every_port_harms_nobody(tmp_path: Path) -> None:
    chance = random.Random(7)
    hello = struct_packet(Type.HELLO, Hello(1, "client", "ledger", "garbage"))
    with ReplicaSet(tmp_path, limits=PATIENT) as replicas:
        replicas.wait_roles(**ALL)
        before = {name: status["worker_pid"] for name, status in replicas.status().items()}
        with Load(replicas) as load:
            load.wait_more()
            for member in read_members(str(replicas.directory)).values():
                for address in (member.control, member.client, member.replication):
                    for kind in [*Type, 200]:
                        body = chance.randbytes(chance.choice([0, 1, 8, 24, 200]))
                        with socket.create_connection(split_address(address)) as connection:
                            connection.sendall(hello + PREFIX.pack(len(body) + 1, int(kind)) + body)
                    with socket.create_connection(split_address(address)) as connection:
                        connection.sendall(chance.randbytes(3000))
            load.wait_more()
        replicas.wait_roles(**ALL)
        assert {name: status["worker_pid"] for name, status in replicas.status().items()} == before
        check_exactly_once(load, replicas)


def test_announcement_of_a_replica_that_is_no_more_hinders_nobody(tmp_path: Path) -> None:
    with ReplicaSet(tmp_path) as replicas:
        replicas.directory.mkdir(exist_ok=True)
        with socket.create_server(("127.0.0.1", 0)) as silent:
            port = silent.getsockname()[1]
            write_member(str(replicas.directory), Member("r7", f"127.0.0.1:{port}", f"127.0.0.1:{port}"))
            write_member(str(replicas.directory), Member("r8", "127.0.0.1:1", "127.0.0.1:1"))
            (replicas.directory / "members" / "r9.json").write_bytes(b"{")
            with called(replicas) as load:
                replicas.kill_primary()
                load.wait_more()


def test_port_of_a_worker_that_is_taken_is_told_and_tried_again(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with ReplicaSet(tmp_path, replicas=1, client_listen=address) as replicas:
            wait_for(
                lambda: replicas.status().get("r0", {}).get("problem") == PortTaken.code, "a word", replicas.describe
            )
            taken.close()
            assert replicas.primary() == "r0"
            assert replicas.status()["r0"]["problem"] == ""


def test_nothing_is_warned_of_or_left_unawaited(tmp_path: Path) -> None:
    replicas = ReplicaSet(tmp_path, ingress_listen="127.0.0.1:0")
    replicas.environment = {"PYTHONDEVMODE": "1"}
    with replicas:
        replicas.wait_roles(**ALL)
        with Load(replicas) as load:
            load.wait_more()
            old = replicas.primary()
            replicas.signal_worker(old, signal.SIGTERM)
            replicas.primary(besides=old)
            load.wait_more()
        replicas.wait_roles(**ALL)
        replicas.stop()
        for name in replicas.names:
            log = (tmp_path / f"{name}.log").read_text().splitlines()
            for word in ("Warning", "Traceback", "never retrieved", "was never awaited", "unexpected"):
                assert not [log[number : number + 30] for number, line in enumerate(log) if word in line]
