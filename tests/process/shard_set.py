"""The service of `shard_service` with two shards, each with two replicas as processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from replica_set import ReplicaSet
from shard_service import Ledger

from deathless.base.shards import shard_directory
from deathless.shell.client.shard_client import Client
from deathless.shell.net.admin_call import Access, access_of

MODULE = Path(__file__).with_name("shard_service.py")
SHARDS = 2


class OneShard(ReplicaSet):
    """The replicas of one shard."""

    def __init__(self, folder: Path, service: Path, shard: int, **more: object) -> None:
        folder.mkdir()
        settings = {"module": f"{MODULE}:crossing", "shard": shard, "shards": SHARDS, **more}
        super().__init__(folder, replicas=2, service="crossing", **settings)
        self.directory = Path(shard_directory(str(service), shard, SHARDS))

    def _access(self) -> Access:
        return access_of(self.config(self.names[0]))


class Both:
    """Both shards; `more` are settings of all their replicas."""

    def __init__(self, folder: Path, **more: object) -> None:
        self.directory = folder / "crossing"
        self.shards = [OneShard(folder / f"of{shard}", self.directory, shard, **more) for shard in range(SHARDS)]

    def client(self) -> Client:
        """A client that is told the number: it may be made before the service's first start."""
        return Client("crossing", [f"dir:{self.directory}"], shards=SHARDS)

    def look(self, key: str) -> Ledger:
        """What a key holds."""

        async def ask() -> Ledger:
            async with self.client() as client:
                found = await client.query("look", key, result=Ledger)
                assert isinstance(found, Ledger)
                return found

        return asyncio.run(ask())

    def describe(self) -> str:
        """Both, for a failing test."""
        return "\n".join(shard.describe() for shard in self.shards)


@contextmanager
def running(folder: Path, **more: object) -> Iterator[Both]:
    """Both shards, running."""
    both = Both(folder, **more)
    with ExitStack() as stack:
        for shard in both.shards:
            stack.enter_context(shard)
        yield both
