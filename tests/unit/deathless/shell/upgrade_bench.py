"""Former code that is kept in a service's folder, a log of it, and the process that runs it for an upgrader."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deathless import Context, Service, Struct
from deathless.base.config import ReplicaConfig, UpgradeConfig
from deathless.base.errors import DeathlessError
from deathless.base.ids import ChainHash, Epoch, Incarnation, Lsn
from deathless.base.limits import Limits
from deathless.codec.frames import Frame, FrameKind, Run, chain_after
from deathless.codec.messages import Kind, encode, encode_register
from deathless.codec.snapshot import Snapshot
from deathless.engine.log.checkpoint_store import CheckpointStore
from deathless.engine.shard.assembly import open_shard
from deathless.execution.author.migration import Migration as Moved
from deathless.execution.snapshot_migration import Migrated
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.service_code import interface_record, kept_import
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.kept_code import keep
from deathless.shell.service_code.loading import load_service
from deathless.shell.upgrade.former import FormerProcess
from deathless.shell.upgrade.former_link import FormerLink, OwnProcess
from deathless.shell.upgrade.migration import Migration
from deathless.shell.upgrade.packets import Begin

SEED, LIMITS = bytes(32), Limits()
TEXT = """
from deathless import Context, Service, Struct
class Purse(Struct):
    total: int = 0
purse = Service("purse", state=Purse)
@purse.handler
def add(state: Purse, ctx: Context, amount: int) -> int:
    state.total += amount * RATE
    return state.total
RATE = 1
"""
OUTSIDE = """
import os
@purse.handler
def waits(state: Purse, ctx: Context) -> int:
    return os.system("touch {path}")
"""
"""What a turn may not do, which this bench does all the same: it has no guards. So whoever has some differs."""


LATER = """
from deathless import Context, Migration, Service, Struct
class PurseOf1(Struct):
    total: int = 0
class Coins(Struct):
    cents: int = 0
purse = Service("purse", state=Coins, version=2)
@purse.handler
def add(state: Coins, ctx: Context, amount: int) -> int:
    state.cents += 100 * amount
    return state.cents
@purse.migrate(from_=1)
def up(old: PurseOf1, m: Migration) -> Coins:
    return Coins(100 * old.total)
@purse.migrate(from_=2, to=1)
def down(new: Coins, m: Migration) -> PurseOf1:
    if new.cents < 0:
        raise ValueError("it owes")
    return PurseOf1(new.cents // 100)
"""
"""Code of version 2 that serves, and from which a service goes back."""


class Coins(Struct):
    """The state of the new code."""

    cents: int = 0


def new_code(*, migrates: bool = True) -> Service:
    """Give the new code; without a migration it has no place for what there is."""
    made = Service("purse", state=Coins, version=2)

    @made.handler
    def add(state: Coins, ctx: Context, amount: int) -> int:
        state.cents += 100 * amount
        return state.cents

    if migrates:

        @made.migrate(from_=1)
        def purse(old: Purse, m: Moved) -> Coins:
            return Coins(100 * old.total)

    return made


class Purse(Struct):
    """The state of the former code, as the new code declares it."""

    total: int = 0


def code_of_before() -> Service:
    """Give version 1, which knows of no later one."""
    made = Service("purse", state=Purse)

    @made.handler
    def add(state: Purse, ctx: Context, amount: int) -> int:
        state.total += amount
        return state.total

    return made


class Former:
    """A service's folder whose log is of code that is kept there.

    Attributes:
        config: of an upgrader, which names the upgrade.
        code: what the former code consists of.
    """

    def __init__(self, tmp_path: Path, text: str = TEXT) -> None:
        self.tmp_path = tmp_path
        tree, self.directory, self.scratch = tmp_path / "tree", tmp_path / "log", tmp_path / "scratch"
        for each in (tree, self.directory, self.scratch):
            each.mkdir(exist_ok=True)
        path = tree / "purse_service.py"
        path.write_text(text)
        self.service = load(path)
        self.code = describe(self.service, LIMITS)
        assert keep(self.directory, self.code, service="purse", module=f"{path}:purse")
        interface_record.keep(self.directory, self.code.fingerprint, self.service, LIMITS)
        path.write_text("raise RuntimeError('the files are of other code by now')\n")
        sys.modules.pop("purse_service", None)
        self.shard = open_shard(self.service, LIMITS, SEED)
        self._seq = 0
        name = self.code.fingerprint.hex()
        self.upgrade = UpgradeConfig(
            id="ab" * 16, from_generation=1, from_fingerprint=name, from_version=self.service.version,
            interpreter=sys.executable, code=name, module=f"{path}:purse", time_us=7,
        )  # fmt: skip
        self.config = ReplicaConfig(
            service="purse", module="new_service:purse", directory=str(self.directory), replica="r3",
            upgrade=self.upgrade,
        )  # fmt: skip

    @property
    def former_config(self) -> ReplicaConfig:
        """Give the config that the process is told."""
        return msgspec.structs.replace(self.config, module=self.upgrade.module, code=self.upgrade.code, upgrade=None)

    @property
    def begin(self) -> Begin:
        """Give what it is told first."""
        return Begin(msgspec.json.encode(self.former_config), SEED, self.code.fingerprint)

    def frame(self, *amounts: int, key: bytes = b"ann", waits: bool = False) -> Frame:
        """Give the next confirmed frame: a session's beginning, or these calls; `waits`: one of a handler `waits`."""
        if not (amounts or waits):
            runs: list[Any] = [(Run(0, 0, 0, 1), (encode_register(bytes(16)),))]
        else:
            calls = [encode(Kind.CALL, method=b"waits", key=key, args=b"\x80")] * waits
            calls += [self._call(amount, key) for amount in amounts]
            runs = [(Run(1, self._seq + 1, self._seq, len(calls)), calls)]
            self._seq += len(calls)
        place = self.shard.place
        first, before = place.lsn + 1, ChainHash(place.chain)
        done = self.shard.execute(runs)
        place.chain = chain_after(before, first, done.payload)
        numbers = (FrameKind.DATA, Epoch(1), Lsn(first), Lsn(0), done.count, Incarnation(1))
        return Frame(*numbers, before, ChainHash(place.chain), 0, done.payload)

    def _call(self, amount: int, key: bytes) -> bytes:
        return encode(Kind.CALL, method=b"add", key=key, args=msgspec.msgpack.encode({"amount": amount}))

    def snapshot(self) -> Snapshot:
        """Give all that the log led to."""
        return self.shard.snapshot(
            service="purse", service_id=bytes(16), incarnation=1, epoch=1, fingerprint=self.code.fingerprint
        )

    def checkpoint(self) -> Snapshot:
        """Write a checkpoint of the log so far."""
        snapshot = self.snapshot()
        CheckpointStore(RealFileSystem(str(self.directory)), "r0").write(snapshot)
        return snapshot

    def process(
        self, service: Service | None = None, *, interpreter: str = sys.executable, fingerprint: bytes = b"",
        look: Callable[..., Migrated] | None = None, link: FormerLink | None = None,
    ) -> FormerProcess:  # fmt: skip
        """Give its process, which is not started yet."""
        migration = Migration(service or new_code(), self.config, self.upgrade, SEED)
        return FormerProcess(
            self.former_config,
            link=link or OwnProcess(interpreter, 0),
            seed=SEED,
            fingerprint=fingerprint or self.code.fingerprint,
            scratch=str(self.scratch),
            look=look or migration.look,
            back=migration.back,
        )

    def run(self, former: FormerProcess, work: Callable[[FormerProcess], Awaitable[None]]) -> None:
        """Start a process, do something with it, and see that it leaves nothing behind."""

        async def main() -> None:
            async with asyncio.timeout(60):
                try:
                    await former.start()
                    await work(former)
                finally:
                    former.close()

        asyncio.run(main())
        process = process_of(former)
        assert process is None or process.returncode is not None, "no process is left"
        assert list(self.scratch.iterdir()) == [], "no file is left"


def process_of(former: FormerProcess) -> subprocess.Popen[bytes] | None:
    """Give the process that was started for it; None: it was not, or a server did."""
    link = former._link
    return link.process if isinstance(link, OwnProcess) else None


def load(path: Path) -> Service:
    """Import the service anew."""
    sys.modules.pop(path.stem, None)
    return load_service(f"{path}:purse")


async def migrated(former: FormerProcess) -> Snapshot | DeathlessError:
    """Ask for what the new code goes on with."""
    found: asyncio.Future[Snapshot | DeathlessError] = asyncio.get_running_loop().create_future()
    former.migrated(found.set_result)
    return await found


async def tried(former: FormerProcess) -> Migrated | DeathlessError:
    """Ask what would come of it."""
    found: asyncio.Future[Migrated | DeathlessError] = asyncio.get_running_loop().create_future()
    former.tried(found.set_result)
    return await found


@pytest.fixture
def former_code(tmp_path: Path) -> Iterator[Former]:
    """Give kept code, and forget its modules afterwards."""
    yield from _forgotten(lambda: Former(tmp_path))


@pytest.fixture
def later_code(tmp_path: Path) -> Iterator[Former]:
    """Give kept code of version 2, from which a service goes back."""
    yield from _forgotten(lambda: Former(tmp_path, LATER))


def _forgotten(make: Callable[[], Former]) -> Iterator[Former]:
    before = list(sys.path)
    yield make()
    kept_import.remove()
    sys.path[:] = before
    sys.modules.pop("purse_service", None)
