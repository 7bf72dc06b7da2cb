"""One replica's way to etcd is cut while the others' stand: who gets answers leads (I1, I2)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec
import pytest
from etcd_server import EtcdCluster
from relay import Relay
from replica_set import ALL, PATIENT, Load, ReplicaSet, check_exactly_once, judge

from deathless.base.config import EtcdConfig, ReplicaConfig

pytestmark = pytest.mark.etcd


class RelayedSet(ReplicaSet):
    """Each replica reaches etcd through a relay of its own."""

    def __init__(self, folder: Path, relays: dict[str, Relay], **settings: object) -> None:
        super().__init__(folder, lock="etcd", fence="etcd", **settings)  # type: ignore[arg-type]
        self.relays = relays

    def config(self, name: str) -> ReplicaConfig:
        """See the base class."""
        host, port = self.relays[name].address
        return msgspec.structs.replace(super().config(name), etcd=EtcdConfig(endpoints=(f"http://{host}:{port}",)))

    def told(self, words: str) -> bool:
        """Do the words stand in any log?"""
        return any(words in (self.folder / f"{name}.log").read_text() for name in self.names)


@contextmanager
def relayed_set(folder: Path, **settings: object) -> Iterator[RelayedSet]:
    """Three replicas over one etcd, with all roles taken."""
    with ExitStack() as stack:
        cluster = stack.enter_context(EtcdCluster(folder / "etcd"))
        target = ("127.0.0.1", cluster.members[0].port)
        relays = {name: stack.enter_context(Relay(target)) for name in ("r0", "r1", "r2")}
        replicas = stack.enter_context(RelayedSet(folder, relays, **settings))
        replicas.wait_roles(**ALL)
        yield replicas


@pytest.mark.parametrize("busy", [True, False], ids=["under-load", "that-was-idle"])
def test_primary_that_alone_is_cut_from_etcd_is_replaced_and_follows_when_joined_again(
    tmp_path: Path, busy: bool
) -> None:
    with relayed_set(tmp_path) as replicas:
        old = replicas.primary()
        if not busy:
            replicas.relays[old].cut()
        with Load(replicas) as load:
            if busy:
                load.wait_more()
                replicas.relays[old].cut()
            replicas.primary(besides=old)
            load.wait_more(50)
            assert replicas.told(f"unproved: {old} gets no answer from the lock store")
            with Load(replicas, sessions=1, name="later") as later:  # somebody who asks the old one first, perhaps
                later.wait_more()
            replicas.relays[old].join()
            replicas.wait_roles(**ALL)
            load.wait_more()
        judge(replicas, load.history, later.history)
        check_exactly_once(load, replicas, later)
        replicas.wait_same_lsn()


def test_standbys_cut_from_etcd_steal_nothing(tmp_path: Path) -> None:
    with relayed_set(tmp_path, limits=PATIENT) as replicas:
        with Load(replicas) as load:
            load.wait_more()
            old, epochs = replicas.primary(), {s["epoch"] for s in replicas.status().values()}
            for name in set(replicas.names) - {old}:
                replicas.relays[name].cut()
            load.wait_more(300)
        assert replicas.primary() == old
        assert {s["epoch"] for s in replicas.status().values()} == epochs
        check_exactly_once(load, replicas)
