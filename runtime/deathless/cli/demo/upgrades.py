"""What `deathless demo --upgrade` does: other code for the bank while it is called, with kills at the worst moments.

    version 2     the upgrader is killed once it holds the lock: a replica of the former code goes on
    version 2     the same again; the upgrader is killed right behind the commit: the log is of the new code
    generation 3  compatible code, and nobody is killed

Guarantees: only processes that this demo's replicas announced are killed; a kill that comes too late is no fault of the
service, and is told. Does not: judge (cli.demo.load does).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, UpgradeCalledOff
from deathless.cli.demo.faults import Faults, Incident
from deathless.shell.lock_stores.inspection import inspect
from deathless.shell.operate.runner import running_supervisor
from deathless.shell.operate.status import look
from deathless.shell.operate.upgrading.live_upgrade import LiveUpgrade, Told

if TYPE_CHECKING:
    from deathless.engine.ports import LockView

HERE: Final = Path(__file__).parent
SOURCES: Final = "sources"  # folder of the bank's versions, in the demo's
LOOK_S: Final = 0.002  # between two looks for the moment of a kill
MORE: Final = '''

@bank.query
def balance(account: Account) -> int:
    """Give the balance: a query more, which needs no version."""
    return account.cents // HUNDREDTHS
'''

Due = Callable[[], Awaitable[bool]]


def write_sources(folder: Path) -> list[str]:
    """Write the bank's codes into a folder; gives their modules, in the order of the upgrades."""
    first, second = ((HERE / name).read_text() for name in ("service.py", "service_2.py"))
    modules = []
    for name, text in (("1", first), ("2", second), ("3", second + MORE)):
        place = folder / SOURCES / name
        place.mkdir(parents=True, exist_ok=True)
        (place / "service.py").write_text(text)
        modules.append(f"{place}/service.py:bank")
    return modules


def end_what_is_left(folder: Path) -> None:
    """End the upgraders of an upgrade that was interrupted; nobody else looks after them."""
    for path in (folder / "replicas").glob("*"):
        pid = running_supervisor(path)
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


class Upgrades:
    """Of one run of the demo.

    Args:
        config: of a replica.
        faults: gets the incidents.
        tell: gets a line for each thing that happens.
    """

    def __init__(self, config: ReplicaConfig, faults: Faults, tell: Callable[[str], None]) -> None:
        self._config = config
        self._faults = faults
        self._tell = tell
        self._checking = asyncio.Event()  # the upgraders are ready, and the cut comes next

    async def before_the_commit(self, module: str) -> Incident:
        """Upgrade, and kill the upgrader once it holds the lock: the upgrade is called off, or was made just before."""
        epoch = (await self._view()).epoch

        async def due() -> bool:
            return (await self._view()).epoch > epoch

        return await self._run(module, "upgrade, its upgrader killed with the lock", due)

    async def behind_the_commit(self, module: str) -> Incident:
        """Upgrade, and kill the upgrader right behind the commit."""
        before = await self.generation()

        async def due() -> bool:
            return await self.generation() > before

        return await self._run(module, "upgrade, its upgrader killed behind the commit", due)

    async def undisturbed(self, module: str) -> Incident:
        """Upgrade, and kill nobody."""

        async def due() -> bool:
            return False

        return await self._run(module, "upgrade", due)

    async def _run(self, module: str, words: str, due: Due) -> Incident:
        incident = Incident(words, "upgrader", "-", time.monotonic(), 0)

        self._checking.clear()

        def told(news: Told) -> None:
            if news.phase == "checking":
                self._checking.set()
            if news.phase == "cutting" and not incident.epoch:
                incident.at, incident.epoch = time.monotonic(), 1
                self._faults.incidents.append(incident)
            self._tell(f"  {news.phase}: {news.text}")

        self._tell(f"{words}: to {module}")
        work = LiveUpgrade(self._config, module, dict(os.environ), told)
        killer = asyncio.create_task(self._kill_when(due, work, incident))
        try:
            outcome = await work.run()
            self._tell(f"  generation {outcome.generation} serves, {outcome.primary} is primary")
            if outcome.missing:
                incident.problem = f"{', '.join(outcome.missing)} did not follow"
        except UpgradeCalledOff as error:
            self._tell(f"  called off: {error.message}")
        finally:
            killer.cancel()
            await asyncio.gather(killer, return_exceptions=True)
        return incident

    async def _kill_when(self, due: Due, work: LiveUpgrade, incident: Incident) -> None:
        await self._checking.wait()
        view = await look(self._config.directory, self._faults.found.access)  # now, for the moment is short
        victim = view.of(work.names[0])
        if victim is None or victim.worker_pid <= 1:
            self._tell("  there is no upgrader to be killed")
            return
        while True:
            with contextlib.suppress(DeathlessError, OSError):
                if await due():
                    break
            await asyncio.sleep(LOOK_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim.worker_pid, signal.SIGKILL)
            incident.replica = victim.replica
            self._tell(f"  kill -9 of the upgrader {victim.replica}")

    async def _view(self) -> LockView:
        return (await inspect(self._config)).view

    async def generation(self) -> int:
        """That of the log."""
        found = await inspect(self._config)
        return found.reader.routes.cut(found.view.head).generation
