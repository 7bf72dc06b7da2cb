"""What `deathless dev` does beside `deathless up`: a file that is saved becomes the code that runs, by an upgrade.

    a file of the code is other than it was --> it is read in a process of its own
        it can't be loaded       told; the code that runs serves on
        it means the same        nothing: comments and docstrings are no code
        it is other code         an upgrade with one upgrader (LiveUpgrade); a refusal is told, and the next save is
                                 waited for

Files are looked at by their time, size and inode, ten times a second: they are few, and no kind of file system or
editor has to be known. What is read is compared with the log's head, so that nothing depends on what was seen before.

Guarantees: what can't be made leaves the code that runs as it is. Does not: start or stop the set; import the author's
code into this process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError
from deathless.shell.lock_stores.inspection import inspect
from deathless.shell.net.admin_call import access_of
from deathless.shell.operate.status import look
from deathless.shell.operate.upgrading.live_upgrade import LiveUpgrade, absolute_module
from deathless.shell.operate.upgrading.upgrade_lead import Told
from deathless.shell.service_code.code_process import describe_code_of
from deathless.shell.service_code.description import Description

POLL_S: Final = 0.1

Signature = tuple[tuple[str, int, int, int], ...]
"""Of each file: path, time of its last change in ns, size in bytes, inode; one that is not there has zeros."""


def signature_of(files: Iterable[Path]) -> Signature:
    """Tell files' present state, by which a later one is known to differ.

    Args:
        files: in any order.
    """
    found = []
    for path in sorted(set(files)):
        try:
            stat = path.stat()
        except OSError:  # an editor that replaces a file may be caught without one
            found.append((str(path), 0, 0, 0))
            continue
        found.append((str(path), stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(found)


class Reload:
    """Keeps a set that runs at the code that stands in its files.

    Args:
        configs: of one replica of each shard, as the manifest gives it.
        environment: of the replicas' processes, the whole of it.
        tell: gets each thing that is to be told.
    """

    def __init__(
        self, configs: list[ReplicaConfig], environment: Mapping[str, str], tell: Callable[[str], None]
    ) -> None:
        self._configs = configs
        self._environment = environment
        self._tell = tell
        self._files: set[Path] = set()
        self._failed = ""  # why the files as they were last are not what runs

    async def run(self) -> None:
        """Look after it until cancelled."""
        await self._served()
        with contextlib.suppress(DeathlessError, OSError):
            await self._describe()  # which files there are
        while True:
            before = signature_of(self._files)
            told, failed = "", self._failed
            try:
                await self._adapt()
            except (DeathlessError, OSError) as error:
                told = str(error)
            self._failed = told
            if told and told != failed:  # what is looked at again for another file is not told again
                self._tell(told)
            await self._changed(before)  # at once, where one was saved meanwhile, or there are further files

    async def _served(self) -> None:
        """Wait until every shard has a primary."""
        for config in self._configs:
            while True:
                with contextlib.suppress(DeathlessError):
                    if (await look(Path(config.directory), access_of(config))).serving:
                        break
                await asyncio.sleep(POLL_S)

    async def _changed(self, before: Signature) -> None:
        """Wait until a file is other than it was, and nobody writes it for a moment."""
        seen = signature_of(self._files)
        while True:
            await asyncio.sleep(POLL_S)
            seen, former = signature_of(self._files), seen
            if seen == former != before:
                return

    async def _adapt(self) -> None:
        """Have each shard run the code of the files. Raises: DeathlessError where that can't be."""
        described = await self._describe()
        for config in self._configs:
            if await _runs(config, described):
                continue
            await self._upgrade(config)

    async def _describe(self) -> Description:
        """Read the files. What can't be loaded is looked at as well: it is about to be mended."""
        config = msgspec.structs.replace(self._configs[0], code="")
        path, _, _ = config.module.rpartition(":")
        if path.endswith(".py"):
            self._files.add(Path(path))
        try:
            described = await asyncio.to_thread(describe_code_of, config, self._environment)
        except DeathlessError:
            # What mends it may be a module that is still to be written.
            self._files |= {file for each in list(self._files) for file in each.parent.glob("*.py")}
            self._files |= {each.parent for each in self._files if each.suffix}
            raise
        self._files = set(described.files.values())
        return described

    async def _upgrade(self, config: ReplicaConfig) -> None:
        where = f"shard {config.shard}: " if len(self._configs) > 1 else ""

        def tell(told: Told) -> None:
            if told.phase == "checking" and told.text.startswith("it fits"):
                self._tell(f"{where}{told.text}")
            elif told.phase == "following":
                self._tell(f"{where}the saved code serves; the other replicas follow")

        work = LiveUpgrade(config, absolute_module(config.module, Path()), self._environment, tell, upgraders=1)
        outcome = await work.run()
        unavailable = f"nothing was served for {outcome.unavailable_s * 1000:.0f} ms"
        self._tell(f"{where}generation {outcome.generation}, {outcome.primary} is primary; {unavailable}")


async def _runs(config: ReplicaConfig, described: Description) -> bool:
    """Is the log of this code? Raises: DeathlessError."""
    found = await inspect(config)
    return bool(found.view.head) and found.reader.routes.cut(found.view.head).fingerprint in described.spellings
