"""Real replicas whose lock and fence are a real etcd, which is killed, frozen, taken away and restored (I1, I2)."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from etcd_server import EtcdCluster
from replica_set import ALL, DEADLINE_S, PATIENT, Load, ReplicaSet, called, check_exactly_once, send_signal, wait_for
from test_storage_faults import mounted_set

from deathless.base.errors import HalfCopy, StoreOlderThanLog
from deathless.shell.operate.adoption import carry_out, look

pytestmark = pytest.mark.etcd

STALE = "attr_timeout=2,entry_timeout=2,negative_timeout=2,kernel_cache"
"""A node's kernel believes for two seconds what it looked up once: a takeover falls into that time."""


def over(cluster: EtcdCluster, folder: Path) -> dict[str, Any]:
    """Settings of replicas that use this etcd."""
    etcd: dict[str, object] = {"endpoints": list(cluster.urls)}
    if cluster.tls is not None:
        files = cluster.tls
        etcd["tls"] = {
            "ca": str(files.ca_file), "certificate": str(files.client_cert), "key": str(files.client_key)
        }  # fmt: skip
    if cluster.password is not None:
        password = folder / "etcd.password"
        password.write_text(cluster.password)
        etcd |= {"username": "root", "passwordFile": str(password)}
    return {"lock": "etcd", "fence": "etcd", "etcd": etcd}


@contextmanager
def etcd_set(
    folder: Path, *, members: int = 1, limits: object = None, **settings: Any
) -> Iterator[tuple[ReplicaSet, EtcdCluster]]:
    """Three replicas over an etcd, with all roles taken."""
    with ExitStack() as stack:
        cluster = stack.enter_context(EtcdCluster(folder / "etcd", members=members, **settings))
        replicas = stack.enter_context(ReplicaSet(folder, limits=limits or {}, **over(cluster, folder)))
        replicas.wait_roles(**ALL)
        yield replicas, cluster


def test_kill_of_the_primary_loses_and_doubles_nothing(tmp_path: Path) -> None:
    with etcd_set(tmp_path) as (replicas, _):
        with Load(replicas) as load:
            for _ in range(2):
                load.wait_more()
                replicas.kill_primary()
                load.wait_more()
                replicas.wait_roles(**ALL)
        check_exactly_once(load, replicas)
        replicas.wait_same_lsn()


def test_i2_frozen_primary_that_wakes_up_releases_nothing_more(tmp_path: Path) -> None:
    with etcd_set(tmp_path) as (replicas, _):
        with Load(replicas) as load:
            load.wait_more()
            old = replicas.primary()
            pid = replicas.signal_worker(old, signal.SIGSTOP)
            replicas.processes[old].send_signal(signal.SIGSTOP)
            replicas.primary(besides=old)
            load.wait_more(50)
            send_signal(pid, signal.SIGCONT)
            replicas.processes[old].send_signal(signal.SIGCONT)
            load.wait_more()
            replicas.wait_roles(**ALL)
        check_exactly_once(load, replicas)


def test_node_that_freezes_with_the_primary_and_a_member_of_the_store_loses_nothing(tmp_path: Path) -> None:
    with etcd_set(tmp_path, members=3) as (replicas, cluster):
        with Load(replicas) as load:
            load.wait_more()
            old = replicas.primary()
            first = cluster.members[0]  # asked first by those that never met a failure
            first.freeze()
            pid = replicas.signal_worker(old, signal.SIGSTOP)
            replicas.processes[old].send_signal(signal.SIGSTOP)
            replicas.primary(besides=old)
            load.wait_more(50)
            first.thaw()
            send_signal(pid, signal.SIGCONT)
            replicas.processes[old].send_signal(signal.SIGCONT)
            load.wait_more()
            replicas.wait_roles(**ALL)
        check_exactly_once(load, replicas)
        replicas.wait_same_lsn()


@pytest.mark.parametrize("fault", ["killed", "frozen"])
def test_leader_of_etcd_that_is_gone_stops_nobody_for_long(tmp_path: Path, fault: str) -> None:
    with etcd_set(tmp_path, members=3) as (replicas, cluster), called(replicas) as load:
        leader = cluster.leader()
        {"killed": leader.kill, "frozen": leader.freeze}[fault]()
        load.wait_more()
        replicas.kill_primary()
        load.wait_more()


def test_i1_without_etcd_releases_wait_and_nothing_is_lost(tmp_path: Path) -> None:
    with etcd_set(tmp_path, limits=PATIENT) as (replicas, cluster):
        with Load(replicas) as load:
            load.wait_more()
            before = {name: status["epoch"] for name, status in replicas.status().items()}
            cluster.members[0].kill()
            # What was proved before etcd died may still arrive; then nothing may, whatever is sent.
            settled = wait_for_silence(load, replicas)
            with Load(replicas, sessions=1, name="later") as later:
                wait_for(lambda: later.sent, "a call", replicas.describe)
                assert len(load.acknowledged) == settled
                assert not later.acknowledged
                cluster.members[0].restart()
                later.wait_more()
            load.wait_more()
        check_exactly_once(load, replicas, later)
        assert {name: status["epoch"] for name, status in replicas.status().items()} == before


def wait_for_silence(load: Load, replicas: ReplicaSet) -> int:
    """Wait until nothing was acknowledged between two looks; gives how much was."""
    seen = -1

    def silent() -> bool:
        nonlocal seen
        before, seen = seen, len(load.acknowledged)
        return before == seen and replicas.status() != {}

    wait_for(silent, "silence", replicas.describe)
    return seen


def test_primary_killed_while_etcd_is_away_is_replaced_when_it_is_back(tmp_path: Path) -> None:
    with etcd_set(tmp_path) as (replicas, cluster):
        with Load(replicas) as load:
            load.wait_more()
            old = replicas.primary()
            cluster.members[0].kill()
            replicas.kill_worker(old)
            replicas.kill_replica(old)
            replicas.start(old)  # a supervisor waits for the lock store too
            cluster.members[0].restart()
            load.wait_more()
            replicas.wait_roles(**ALL)
        check_exactly_once(load, replicas)


def test_etcd_restored_from_a_backup_is_refused(tmp_path: Path) -> None:
    with etcd_set(tmp_path) as (replicas, cluster):
        member = cluster.members[0]
        replicas.stop()
        member.kill()
        member.back_up(tmp_path / "backup")
        member.restart()
        for name in replicas.names:
            replicas.start(name)
        with Load(replicas) as load:
            load.wait_more()
        replicas.stop()
        member.kill()
        member.wipe()
        member.bring_back(tmp_path / "backup")
        member.restart()
        for name in replicas.names:
            replicas.start(name)
        wait_for(
            lambda: {s.get("condition") for s in replicas.status().values()} == {StoreOlderThanLog.code},
            "a refusal by all",
            replicas.describe,
        )


def test_etcd_that_was_wiped_is_restored_from_the_directory_alone(tmp_path: Path) -> None:
    with etcd_set(tmp_path) as (replicas, cluster):
        with Load(replicas) as load:
            load.wait_more()
            replicas.kill_worker(replicas.primary())
            load.wait_more()
            replicas.wait_roles(**ALL)
        replicas.stop()
        member = cluster.members[0]
        member.kill()
        member.wipe()
        member.restart()
        replicas.start("r0")
        assert replicas.processes["r0"].wait(DEADLINE_S) == HalfCopy.exit_code
        plan = asyncio.run(look(replicas.config("r0")))
        assert plan.create is not None
        asyncio.run(carry_out(plan))
        for name in replicas.names:
            replicas.start(name)
        with Load(replicas, name="later") as later:
            later.wait_more()
            replicas.wait_roles(**ALL)
        check_exactly_once(load, replicas, later)


def test_set_over_tls_with_user_and_password(tmp_path: Path) -> None:
    with etcd_set(tmp_path, tls=True, password="a secret", token_ttl_s=2) as (replicas, _):
        with Load(replicas) as load:
            load.wait_more()
            replicas.kill_primary()
            load.wait_more()
        check_exactly_once(load, replicas)


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("bindfs"), reason="needs root and bindfs")
def test_stale_lookups_at_a_takeover_lose_nothing_with_the_etcd_fence(tmp_path: Path) -> None:
    with ExitStack() as stack:
        cluster = stack.enter_context(EtcdCluster(tmp_path / "etcd"))
        replicas = stack.enter_context(mounted_set(tmp_path, STALE, **over(cluster, tmp_path)))
        with Load(replicas) as load:
            for _ in range(2):
                load.wait_more()
                for name in replicas.names:  # every node's kernel learns what is not there
                    for epoch in range(1, 12):
                        (replicas.mount_point(name) / "log" / f"e{epoch:012d}.r000000.seg").exists()
                        (replicas.mount_point(name) / "seal" / f"{epoch:012d}").exists()
                replicas.kill_worker(replicas.primary())
                load.wait_more()  # whoever takes over: the same one, if the others believe the new segment absent
            replicas.wait_roles(**ALL)
            load.stop()
            check_exactly_once(load, replicas)
