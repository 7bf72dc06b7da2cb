"""A bank whose code changes while it runs: its versions as files, callers that count, and what must hold at the end.

    with UpgradedBank(tmp_path) as bank, Callers(bank) as callers:
        callers.wait_more()
        bank.upgrade("v2")
        callers.wait_more()
    bank.check(callers, generation=2, factor=100)

Version 1 counts in units, version 2 in hundredths, version 3 in thousandths: a state that was migrated twice, or not at
all, shows in the balances. A deposit is remembered by its tag, which says how much it was.

Guarantees: whatever is left running at the end is ended, by its id alone. Does not: sleep for a guessed time.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import threading
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from cli_tool import Bank, Done
from replica_set import DEADLINE_S, send_signal, wait_for

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError
from deathless.base.shards import shard_directory
from deathless.codec.frames import Cut
from deathless.shell.client.shard_client import Client
from deathless.shell.directory.members import read_members
from deathless.shell.link.config_file import read_config
from deathless.shell.lock_stores.inspection import inspect
from deathless.shell.net.admin_call import access_of
from deathless.shell.operate.runner import running_supervisor
from deathless.shell.operate.status import ServiceView, look

KEYS = 5
SAID_AGAIN = 4  # every so many calls, one is sent a second time with its idempotency key
CALL_S = DEADLINE_S
PAUSE_S = 0.04  # between the calls of a thread: this is about death, not about speed

HANDLERS = '''

@bank.handler
def deposit(account: Account, ctx: Context, amount: int, tag: str{argument}) -> int:
    """Add so much; gives how many deposits there were."""
    account.{field} += amount * {factor}
    account.tags.append(tag)
    return len(account.tags)


@bank.handler(keys=("source", "target"))
def transfer(accounts: dict[str, Account], ctx: Context, source: str, target: str, amount: int) -> None:
    """Move so much, whatever is there."""
    accounts[source].{field} -= amount * {factor}
    accounts[target].{field} += amount * {factor}


@bank.query
def look(account: Account) -> Look:
    """Give all of it."""
    return Look(account.{field}, account.tags)
'''
HEAD = '''"""A bank, version {version}."""

from datetime import timedelta

from deathless import Context, Migration, Service, Struct, current_activity


class Look(Struct):
    amount: int = 0
    tags: list[str] = []


class Account(Struct):
    {field}: int = 0
    tags: list[str] = []


bank = Service("bank", state=Account, version={version})
'''
UP = '''

class Account{old}(Struct):
    {old_field}: int = 0
    tags: list[str] = []


@bank.migrate(from_={old})
def up(old: Account{old}, m: Migration) -> Account:
    """From version {old}; takes as long as it is told to."""
    from pathlib import Path

    total = 0
    for each in range({work} if {slow} else 0):
        total += each
    return Account(old.{old_field} * {times} + 0 * total, old.tags)
'''
BACK = """

class AccountOf2(Struct):
    cents: int = 0
    tags: list[str] = []


@bank.migrate(from_=2)
def back(old: AccountOf2, m: Migration) -> Account:
    return Account(old.cents // 100, old.tags)
"""
DOWN = """

@bank.migrate(from_=2, to=1)
def down(new: Account, m: Migration) -> Account1:
    return Account1(new.cents // 100, new.tags)
"""
NEW_HANDLER = '''

@bank.handler
def bonus(account: Account, ctx: Context, amount: int) -> int:
    """A handler that version 1 does not have."""
    account.{field} += amount
    return account.{field}
'''


def version_1(more: str = "") -> str:
    """The first code."""
    handlers = HANDLERS.format(argument="", field="balance", factor=1)
    return HEAD.format(version=1, field="balance") + handlers + more


def version_2(
    more: str = "", *, work: int = 0, slow: Path | None = None, migration: bool = True, back: bool = False
) -> str:
    """Renames the field and counts in hundredths; a handler and an optional argument more.

    Args:
        more: at the end of the file.
        work: rounds of a loop in the migration of each key.
        slow: they are made while there is this file; None: always.
        migration: is there one?
        back: is there a way back to version 1?
    """
    handlers = HANDLERS.format(argument=", fee: int = 0", field="cents", factor=100)
    there = "True" if slow is None else f"Path({str(slow)!r}).exists()"
    up = UP.format(old=1, old_field="balance", times=100, work=work, slow=there) if migration else ""
    up += DOWN * back
    return HEAD.format(version=2, field="cents") + up + handlers + NEW_HANDLER.format(field="cents") + more


def version_3(more: str = "") -> str:
    """Counts in thousandths."""
    handlers = HANDLERS.format(argument=", fee: int = 0", field="mills", factor=1000)
    up = UP.format(old=2, old_field="cents", times=10, work=0, slow="False")
    return HEAD.format(version=3, field="mills") + up + handlers + NEW_HANDLER.format(field="mills") + more


def version_1_again() -> str:
    """The first code as version 3, which makes its state of version 2's."""
    handlers = HANDLERS.format(argument=", fee: int = 0", field="balance", factor=1)
    return HEAD.format(version=3, field="balance") + BACK + handlers + NEW_HANDLER.format(field="balance")


class UpgradedBank(Bank):
    """A set that runs version 1 of the bank.

    Args:
        source: of that version.
        detach: start it by `up --detach`; else a runner stays.
        more: lines of the manifest's spec.
        shards: how many.
    """

    def __init__(
        self,
        folder: Path,
        *,
        source: str = "",
        replicas: int = 3,
        detach: bool = True,
        more: str = "",
        shards: int = 1,
    ) -> None:
        super().__init__(folder, replicas=replicas, more=more + f"  shards: {shards}\n" * (shards > 1))
        self.shards = shards
        self.parts = [Path(shard_directory(str(self.directory), shard, shards)) for shard in range(shards)]
        (self.folder / "service.py").write_text(source or version_1())
        self._detach = detach
        self.runner: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        if self._detach:
            self.up()
        else:
            self.runner = self.start("up", "service.yaml")
            wait_for(lambda: self.json("status", code=None)["primary"], "a primary")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                error.add_note(self.told())
        finally:
            for path in (each for part in self.parts for each in (part / "replicas").glob("*")):
                send_signal(running_supervisor(path), signal.SIGKILL)
            super().__exit__(kind, error, trace)

    # ---- code ------------------------------------------------------------------------------------------------

    def code(self, name: str, source: str) -> str:
        """Put other code into a folder beside the service's; gives what --to takes."""
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        (folder / "service.py").write_text(source)
        return f"{name}/service.py:bank"

    def upgrade(self, to: str, *more: str, code: int | None = 0) -> Done:
        """Run `deathless upgrade` to its end."""
        return self.run("upgrade", "--to", to, *more, code=code)

    # ---- looking ---------------------------------------------------------------------------------------------

    def config(self, shard: int = 0) -> ReplicaConfig:
        """Of one replica, as it was started."""
        found = sorted((self.parts[shard] / "replicas").glob("*/config.json"))
        return read_config(str(found[0]))

    def view(self, shard: int = 0) -> ServiceView:
        """What the supervisors say."""
        return asyncio.run(look(self.parts[shard], access_of(self.config(shard))))

    def head(self, shard: int = 0) -> Cut:
        """The cut of the epoch that head names."""
        found = asyncio.run(inspect(self.config(shard)))
        return found.reader.routes.cut(found.view.head)

    def lock_epoch(self) -> int:
        """The highest epoch that was taken."""
        return asyncio.run(inspect(self.config())).view.epoch

    def upgraders(self, shard: int = 0) -> dict[str, int]:
        """Names and supervisors of replicas whose config names an upgrade."""
        found = {}
        for path in (self.parts[shard] / "replicas").glob("*/config.json"):
            try:
                config = read_config(str(path))
            except (DeathlessError, OSError):
                continue
            if config.upgrade is not None:
                found[config.replica] = running_supervisor(path.parent)
        return dict(sorted(found.items()))

    def worker(self, name: str) -> int:
        """Pid of a replica's worker; 0: it says of none."""
        found = self.view().of(name)
        return found.worker_pid if found is not None else 0

    def told(self, shard: int = 0) -> str:
        """Status and the ends of the logs, for a failing test."""
        lines = []
        try:
            lines += [
                f"{one.replica} {one.role} {one.state} epoch {one.epoch} lsn {one.lsn} {one.condition}"
                for one in self.view(shard).replicas
            ]
        except (DeathlessError, OSError) as error:
            lines.append(f"no view: {error}")
        for path in sorted((self.parts[shard] / "replicas").glob("*/replica.log")):
            lines.append(f"--- {path.parent.name}")
            lines += [line[:500] for line in path.read_text().splitlines()[-25:]]
        return "\n".join(lines)

    def wait_whole(self, *names: str, shard: int = 0) -> ServiceView:
        """Wait until just these replicas run, all at one lsn and in one epoch."""
        wanted = sorted(names or ("r0", "r1", "r2"))

        def whole() -> ServiceView | None:
            view = self.view(shard)
            running = sorted(r.replica for r in view.replicas)
            states = {r.state for r in view.replicas}
            places = {(r.lsn, r.epoch) for r in view.replicas}
            good = view.serving and running == wanted and states == {"running"} and len(places) == 1
            return view if good else None

        return wait_for(whole, f"{wanted} at one place", lambda: self.told(shard))

    def client(self) -> Client:
        """A client that finds the replicas by itself."""
        return Client("bank", [f"dir:{self.directory}"], shards=self.shards)

    def accounts(self) -> dict[str, tuple[int, list[str]]]:
        """Amount and tags of each account."""

        async def ask() -> dict[str, tuple[int, list[str]]]:
            async with self.client() as client:
                found = {}
                for number in range(KEYS):
                    said = await client.query("look", f"k{number}", timeout=CALL_S)
                    found[f"k{number}"] = (said.get("amount", 0), said.get("tags", []))
                return found

        return asyncio.run(ask())

    def check(self, callers: Callers, *, generation: int, factor: int, names: tuple[str, ...] = ()) -> None:
        """Every acknowledged call once, every other at most once; the sum is right; all follow; no upgrader is left."""
        for shard, part in enumerate(self.parts):
            view = self.wait_whole(*names, shard=shard)
            assert {r.condition for r in view.replicas} == {""}
            assert self.head(shard).generation == generation
            assert self.upgraders(shard) == {}
            assert sorted(read_members(str(part))) == sorted(names or ("r0", "r1", "r2"))
            folders = {path.name for path in (part / "replicas").iterdir() if path.is_dir()}
            assert folders == set(names or ("r0", "r1", "r2"))
        callers.check(self.accounts(), factor)


def amount_of(tag: str) -> int:
    """What a deposit's tag says."""
    return int(tag.rpartition(".")[2])


class Callers:
    """Sessions in threads of their own, each of which calls without a pause.

    Args:
        bank: that is called.
        threads: how many.
        name: what its tags begin with.
    """

    def __init__(self, bank: UpgradedBank, *, threads: int = 2, name: str = "") -> None:
        self._bank = bank
        self._name = name
        self.acknowledged: list[str] = []
        self.sent: list[str] = []
        self.errors: list[BaseException] = []
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(number,), daemon=True, name=f"caller-{number}")
            for number in range(threads)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        self.wait_more()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(DEADLINE_S if error is None else 1.0)
        if error is None:
            assert not any(thread.is_alive() for thread in self._threads), f"calls did not end\n{self._bank.told()}"
            if self.errors:
                raise self.errors[0]

    def wait_more(self, count: int = 30) -> None:
        """Wait until so many more calls are answered."""
        goal = len(self.acknowledged) + count
        wait_for(lambda: len(self.acknowledged) >= goal or bool(self.errors), f"{count} more calls", self._bank.told)
        if self.errors:
            raise self.errors[0]

    def behind(self, earlier: Callers) -> Self:
        """Take over what earlier callers know, for the end."""
        self.acknowledged += earlier.acknowledged
        self.sent += earlier.sent
        return self

    def check(self, accounts: dict[str, tuple[int, list[str]]], factor: int) -> None:
        """Compare what was answered with what the accounts hold."""
        held = Counter(itertools.chain.from_iterable(tags for _, tags in accounts.values()))
        lost = sorted(set(self.acknowledged) - set(held))
        doubled = sorted(tag for tag, count in held.items() if count > 1)
        assert not lost, f"lost {lost[:5]} of {len(self.acknowledged)}"
        assert not doubled, f"doubled {doubled[:5]}"
        assert set(held) <= set(self.sent)
        total = sum(amount for amount, _ in accounts.values())
        assert total == factor * sum(map(amount_of, held)), "the balances do not add up"

    def _run(self, number: int) -> None:
        try:
            asyncio.run(self._call(number))
        except BaseException as error:
            self.errors.append(error)
            raise

    async def _call(self, number: int) -> None:
        async with self._bank.client() as client:
            for count in itertools.count():
                if self._stop.wait(PAUSE_S):
                    return
                key, other = f"k{count % KEYS}", f"k{(count + 1) % KEYS}"
                amount = 1 + (7 * count + number) % 90
                tag = f"{self._name}{number}.{count}.{amount}"
                self.sent.append(tag)
                named: dict[str, Any] = {"amount": amount, "tag": tag}
                answer = await client.call("deposit", key, idempotency_key=tag, timeout=CALL_S, **named)
                self.acknowledged.append(tag)
                if count % SAID_AGAIN == 0:
                    again = await client.call("deposit", key, idempotency_key=tag, timeout=CALL_S, **named)
                    assert again == answer, f"{tag} was answered {answer}, then {again}"
                    if self._bank.shards > 1:
                        continue  # one turn changes keys of one shard
                    moved = {"source": key, "target": other, "amount": amount}
                    await client.request("transfer", key, moved, timeout=CALL_S)
