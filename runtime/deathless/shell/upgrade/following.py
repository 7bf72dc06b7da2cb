"""Which kept code a replica runs: the one that its log is of, whatever its config was written with.

On a machine of one's own all processes of a replica run from the copy of the code that is kept with the log. Behind an
upgrade the log is of other code, of which there is a copy as well: a replica that begins again goes on with that one,
and nobody has to tell it. In pods the image is the code, and a config names none.

Guarantees: a config that names no copy stays as it is, and so does one where the log can't be read, or its code is not
kept: the replica itself then says what is wrong. Does not: start anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError
from deathless.codec.frames import Cut
from deathless.shell.link.config_file import write_config
from deathless.shell.lock_stores.inspection import inspect
from deathless.shell.service_code.code_record import recorded

_LOG: Final = logging.getLogger("deathless.supervisor")
AGAIN_S: Final = 1.0
LOOK_S: Final = 5.0  # a lock store that has not answered by then is not waited for


def code_of_log(config: ReplicaConfig, cut: Cut | None) -> ReplicaConfig:
    """Give the config with the code that head's cut names, where that is kept.

    Args:
        config: of the replica; one that is to make an upgrade has the code behind it, until that is made.
        cut: head's; None: there is no log yet.
    """
    if not config.code or cut is None:
        return config
    if config.upgrade is not None and cut.generation == config.upgrade.from_generation:
        return config
    found = recorded(config.directory, cut.fingerprint)
    if found is None or found.folder is None or not found.record.kept:
        return config
    return msgspec.structs.replace(config, code=found.folder.name, module=found.record.module)


async def look_for_code(config: ReplicaConfig) -> ReplicaConfig | None:
    """As `code_of_log`, with a look at lock and log; None: they can't be read just now."""
    if not config.code:
        return config
    try:
        look = await asyncio.wait_for(inspect(config), LOOK_S)
        return code_of_log(config, look.reader.routes.cut(look.view.head) if look.view.head else None)
    except (DeathlessError, OSError, TimeoutError):
        return None


class CodeFollowing:
    """A supervisor's: has it end, and begin again with the code that the log is of by now.

    Args:
        config: the replica's, as its supervisor was started with.
        stop: orders an orderly stop of that supervisor.
        not_kept: is called where there is no other code to go on with.
    """

    def __init__(self, config: ReplicaConfig, stop: Callable[[], None], not_kept: Callable[[], None]) -> None:
        self.begins_again = False  # the supervisor ends in order to begin again
        self._config = config
        self._stop = stop
        self._not_kept = not_kept
        self._looking: asyncio.Task[None] | None = None

    def look(self) -> None:
        """The worker's code is not the log's: find out whether the log's is kept, and go on with that."""
        self._looking = asyncio.get_running_loop().create_task(self._follow())

    def stop_ordered(self) -> None:
        """Whoever orders a stop means it, also while the supervisor ends in order to begin again."""
        self.begins_again = False
        if self._looking is not None and self._looking is not asyncio.current_task():
            self._looking.cancel()

    async def _follow(self) -> None:
        while True:
            found = await look_for_code(self._config)
            if found is not None:
                break
            await asyncio.sleep(AGAIN_S)  # whether the code is kept, nobody knows before the log is read
        if found.code == self._config.code:
            self._not_kept()
            return
        try:
            write_config(found)
        except OSError as error:
            _LOG.warning("the config can't be written", extra={"why": str(error)})
            self._not_kept()
            return
        _LOG.info("the log is of other code, which is kept: it begins again", extra={"code": found.code})
        self._stop()
        self.begins_again = True
