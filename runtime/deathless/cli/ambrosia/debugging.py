"""`Ambrosia DebugInstance`: a log is run again for a program that somebody else starts, under a debugger for instance.

    Ambrosia DebugInstance -i=counter -rp=1000 -sp=1001 -l=logs/ --checkpoint=3 --currentVersion=0 --testingUpgrade

    checkpoint (8) --> [12] --> the rows behind it --> 2, which shows what is missing --> stays connected

Checkpoints are counted from 1 on, the oldest first. The rows are those that the version had: up to an upgrade to the
next one.

Guarantees: nothing is written and nothing of it leaves, whether the instance runs or not; a program that sends
something else than what was logged gets all rows; the exit code is 0 where it sent what was logged. Does not: need a
registration. Imports this folder, base and foreign.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from deathless.base.errors import (
    ApplicationStateMissing,
    DeathlessError,
    ProgramVersionDiffers,
    TopicGap,
    TopicRowsDropped,
)
from deathless.cli.ambrosia.comparison import show_replay
from deathless.cli.ambrosia.coordinator import (
    LOOPBACK,
    NO_CHECKPOINT,
    NO_LOG,
    READY,
    STOPS,
    UNEXPECTED,
    VERSION_MISMATCH,
    config_of,
    fatal,
)
from deathless.cli.ambrosia.registrations import Registration, Replica
from deathless.foreign.replay import ReplayOrder, ReplayReport, debug
from deathless.foreign.settings import settings_of
from deathless.protocols.ambrosia.patience import Patience

FOR_EVER: Final = Patience(connect_s=0.0, load_s=0.0, snapshot_s=0.0, handler_s=0.0)
"""Whoever debugs stops a program for as long as it takes."""
_NUMBERS: Final[Mapping[type[Exception], int]] = {
    ProgramVersionDiffers: VERSION_MISMATCH,
    ApplicationStateMissing: NO_CHECKPOINT,
    TopicRowsDropped: NO_LOG,
    TopicGap: NO_LOG,
}


def debug_instance(
    *, instance: str, ports: Replica, log: str, checkpoint: int, version: int, testing_upgrade: bool
) -> int:
    """Run a log again for a program that connects the two ports, until that ends; gives the exit code.

    Args:
        instance: its name.
        ports: that the program connects.
        log: folder of the log.
        checkpoint: to begin from, in [1, 2**63).
        version: of the program, in [0, 2**63).
        testing_upgrade: it goes over to its next version before the rows.
    """
    registration = Registration(instance=instance, log=log, replicas={0: ports}, version=version)
    config = config_of(registration, 0, f"{LOOPBACK}:0", ())
    if not Path(config.directory).is_dir():
        return fatal(NO_LOG, f"no log is in {config.directory}")
    assert config.binding is not None
    purpose = "rehearsal" if testing_upgrade else "replay"
    settings = settings_of(config.binding, config.make_limits(), config.replica, purpose=purpose)
    order = ReplayOrder(
        directory=config.directory,
        settings=dataclasses.replace(settings, patience=FOR_EVER),
        number=checkpoint,
        version=version,
        upgraded=testing_upgrade,
    )
    shown = Shown()
    try:
        asyncio.run(_until_stopped(order, shown))
    except (DeathlessError, OSError) as error:
        if shown.equal is None:
            return fatal(_NUMBERS.get(type(error), UNEXPECTED), str(error))
    if shown.equal is None:
        return fatal(UNEXPECTED, "it was stopped before the end of the log")
    return 0 if shown.equal else 1


class Shown:
    """What was said of a run."""

    def __init__(self) -> None:
        self.equal: bool | None = None  # None: it is not at its end

    def ready(self) -> None:
        """See foreign.replay.Watching."""
        print(READY, flush=True)

    def ran(self, report: ReplayReport) -> None:
        """See foreign.replay.Watching."""
        show_replay(report)
        print("End of the log: the program stays connected until it ends.", flush=True)
        self.equal = report.differs is None


async def _until_stopped(order: ReplayOrder, shown: Shown) -> None:
    """Run it until the program ends, or until we are told to stop."""
    loop = asyncio.get_running_loop()
    work = loop.create_task(debug(order, shown))
    for each in STOPS:
        loop.add_signal_handler(each, work.cancel)
    try:
        await asyncio.wait([work])
    finally:
        for each in STOPS:
            loop.remove_signal_handler(each)
    if not work.cancelled():
        work.result()
