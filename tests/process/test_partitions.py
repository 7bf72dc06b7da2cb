"""One replica in a network of its own, cut off and joined again while it serves. Needs root: it makes a namespace."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from replica_set import ALL, Load, ReplicaSet, check_exactly_once, judge

from deathless.base.config import ReplicaConfig
from deathless.shell.directory.members import read_members
from deathless.shell.net.admin_call import ask

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("ip"), reason="a network of its own needs root and ip"),
]
APART = "r0"  # the replica with a network of its own


def ip(*words: str) -> None:
    """Run `ip`, which must succeed."""
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


class Network:
    """Two ends of a wire: one here, one in a namespace. Names and addresses are this process's own."""

    def __init__(self) -> None:
        number = os.getpid()
        self.namespace = f"apart{number}"
        self.wire = f"dl{number}a"
        subnet = f"10.{200 + number % 50}.{number // 50 % 250}"
        self.here, self.there = f"{subnet}.1", f"{subnet}.2"

    def make(self) -> None:
        """Make both ends and let them up."""
        other = f"dl{os.getpid()}b"
        ip("netns", "add", self.namespace)
        ip("link", "add", self.wire, "type", "veth", "peer", "name", other, "netns", self.namespace)
        ip("addr", "add", f"{self.here}/24", "dev", self.wire)
        ip("link", "set", self.wire, "up")
        for words in (
            ("addr", "add", f"{self.there}/24", "dev", other),
            ("link", "set", other, "up"),
            ("link", "set", "lo", "up"),
        ):
            ip("-n", self.namespace, *words)

    def remove(self) -> None:
        """Remove everything."""
        subprocess.run(["ip", "link", "del", self.wire], capture_output=True, check=False)
        subprocess.run(["ip", "netns", "del", self.namespace], capture_output=True, check=False)

    def cut(self) -> None:
        """No packet passes any more; nobody is told."""
        ip("link", "set", self.wire, "down")

    def join(self) -> None:
        """Packets pass again."""
        ip("link", "set", self.wire, "up")


class PartedSet(ReplicaSet):
    """One replica apart, the others here."""

    def __init__(self, folder: Path, network: Network) -> None:
        super().__init__(folder)
        self.network = network

    def config(self, name: str) -> ReplicaConfig:
        """Each listens in its own network."""
        address = f"{self.network.there if name == APART else self.network.here}:0"
        return msgspec.structs.replace(
            super().config(name), control_listen=address, client_listen=address, replication_listen=address
        )

    def command(self, name: str, config: Path) -> list[str]:
        """See the base class."""
        inside = ["ip", "netns", "exec", self.network.namespace] if name == APART else []
        return [*inside, *super().command(name, config)]

    def lead_with(self, wanted: str) -> None:
        """Have one replica be the primary."""
        name = self.primary()
        if name != wanted:
            address = read_members(str(self.directory))[name].client
            asyncio.run(ask(address, "switchover", self._access(), {"target": wanted}))
            self.primary(besides=name)
            self.wait_roles(**ALL)
        assert self.primary() == wanted


@contextmanager
def parted_set(folder: Path) -> Iterator[PartedSet]:
    """A running set with all roles taken; skips where no namespace can be made."""
    network = Network()
    try:
        try:
            network.make()
        except AssertionError as error:
            pytest.skip(f"this machine makes no network namespace: {error}")
        with PartedSet(folder, network) as replicas:
            replicas.wait_roles(**ALL)
            yield replicas
    finally:
        network.remove()


def test_i2_primary_that_is_cut_off_is_replaced_and_releases_nothing_when_joined_again(tmp_path: Path) -> None:
    with parted_set(tmp_path) as replicas:
        replicas.lead_with(APART)
        with Load(replicas) as load:
            load.wait_more()
            replicas.network.cut()
            assert replicas.primary(besides=APART) != APART
            load.wait_more(50)
            replicas.network.join()
            load.wait_more()
            replicas.wait_roles(**ALL)
        judge(replicas, load.history)
        check_exactly_once(load, replicas)
        replicas.wait_same_lsn()


def test_standby_that_is_cut_off_steals_nothing_for_long_and_comes_back(tmp_path: Path) -> None:
    with parted_set(tmp_path) as replicas:
        with Load(replicas) as load:
            replicas.lead_with("r1")
            replicas.network.cut()
            load.wait_more(300)
            replicas.network.join()
            load.wait_more()
            replicas.wait_roles(**ALL)
        judge(replicas, load.history)
        check_exactly_once(load, replicas)
        replicas.wait_same_lsn()
