"""What a supervisor goes by: the replica that it makes its own, who the service is, settings and certificates in files.

Guarantees: it waits for as long as the storage or the lock store can't be used, and can be stopped meanwhile. Does not:
start anything.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from deathless.base.config import ReplicaConfig
from deathless.engine.ports import ServiceRecord
from deathless.shell.directory.identity import prepare
from deathless.shell.directory.instance import clear_former, lock_replica
from deathless.shell.directory.later_instance import take_generation_after
from deathless.shell.link.settings_file import SettingsFile
from deathless.shell.net.tls import refresh
from deathless.shell.supervisor.usable import when_usable

LOOK_S: Final = 2.0
"""Between two looks at files that others may change."""


class Start:
    """The start of one supervisor.

    Args:
        config: the replica's.
        folder: of the replica.
        settings: the file that its config was made from; None: nobody changes it.
        found: called once the replica is ours; what it raises is tried again where it may pass.
    """

    def __init__(
        self, config: ReplicaConfig, folder: Path, settings: SettingsFile | None, found: Callable[[], object]
    ) -> None:
        self._config = config
        self._folder = folder
        self._settings = settings
        self._found = found
        self._lock_file = -1
        self.generation = 0
        self.looked_at = 0.0  # monotonic seconds
        self.served = False  # a worker of ours has served callers

    async def when_ready(self, stopped: asyncio.Event) -> ServiceRecord | None:
        """Wait for the storage and the lock store; None: we were told to stop meanwhile.

        Raises: what `prepare` refuses to start with; SettingsChanged; OtherSupervisor; OSError.
        """
        work = asyncio.ensure_future(when_usable(self._find_out, self.check_settings))
        stopping = asyncio.ensure_future(stopped.wait())
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not work.done():
            work.cancel()
        await asyncio.wait({work, stopping})
        return None if work.cancelled() else work.result()

    async def _find_out(self) -> ServiceRecord:
        await self._take_replica()
        record = await prepare(self._config)
        self._found()
        return record

    def look(self, now: float, *, held: bool) -> None:
        """Look at the files of certificates and settings again, once in LOOK_S.

        Args:
            now: monotonic seconds.
            held: the worker is to stay stopped, whatever its settings are.

        Raises: SettingsChanged.
        """
        if now < self.looked_at + LOOK_S:
            return
        self.looked_at = now
        refresh(self._config.tls)
        if not held:
            self.check_settings()

    def check_settings(self) -> None:
        """End where no worker of ours has served and the settings are others by now. Raises: SettingsChanged."""
        if self._settings is not None and not self.served:
            self._settings.check()

    async def _take_replica(self) -> None:
        """Be the one supervisor of this replica, or of this instance of it; harmless when called again."""
        config, folder = self._config, self._folder
        if self._lock_file < 0:
            self._lock_file = lock_replica(folder, config.replica, config.instance)
        self.generation = await take_generation_after(folder, config.replica, config.instance)
        clear_former(folder, config.instance)
