"""What a supervisor knows of its worker from the page that the worker writes: how it gets on, and in what it died.

    page --> state, lsn, room, clock, proof, storage of the report
         '-> the message in it when the worker dies, or is ended for it: a death in that message (I11), told at once

Guarantees: a death is counted once, and none that the supervisor ordered. Does not: end the worker, which is
`core.supervisor.machine`'s, nor judge what one page says (`core.supervisor.progress` does).
"""

from __future__ import annotations

from typing import Final

from deathless.base.errors import DeathlessError, NoInodes, StorageReadOnly, StorageSlow
from deathless.base.limits import Limits
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.core.supervisor.detection import UNPROVED_S, Report, WorkerState
from deathless.core.supervisor.events import MessageId, PageRead
from deathless.core.supervisor.message_deaths import MessageDeaths
from deathless.core.supervisor.progress import Progress, Verdict

SLOW_TOLD_MS: Final = 1000
"""A storage that takes so long for a call is told to operators."""
_STORAGE: Final[dict[int, type[DeathlessError]]] = {1: StorageReadOnly, 2: NoInodes}


class WorkerWatch:
    """Watches the workers of one replica, one after the other.

    Args:
        report: of the replica; kept true here.
        limits: see `base.limits`.
        directory: of the service, for what operators are told of its storage.
    """

    def __init__(self, report: Report, limits: Limits, directory: str, safeguards: Safeguards = ALL_SAFEGUARDS) -> None:
        self._report = report
        self._directory = directory
        self._progress = Progress(
            turn_max_s=limits.turn_max_s, log_call_max_s=limits.log_call_max_s, safeguards=safeguards
        )
        self._deaths = MessageDeaths()
        self._storage_told = ""  # the problem that was told because of the storage alone
        self.died_in: MessageId | None = None  # the message in which this worker died, or is being ended

    def begin(self) -> None:
        """Another worker runs from now on."""
        self._progress.begin()
        self.died_in = None

    def met_death(self, running: MessageId | None, *, counts: bool) -> bool:
        """A message stood in the page when the worker died, or is ended for it (I11). True: it was counted now.

        Args:
            running: the message; None: none did. Session and seq 0 stand for no message of anybody.
            counts: the worker was not ended on order.
        """
        if running is None or running == self.died_in or not any(running):
            return False
        self.died_in = running
        if counts:
            self._deaths.met(*running)
            self._report.deaths = self._deaths.counts
        return counts

    def look(self, page: PageRead, now: float, call_max_s: float) -> tuple[Verdict, str | None]:
        """Take in what the page of a worker that runs shows.

        Args:
            page: what it shows.
            now: monotonic seconds.
            call_max_s: what a call of the file system may take just now, where that is more than `log_call_max_s`.

        Returns: how the worker gets on; and what operators are told of its storage where that is another than before:
            `DLnnnn text (remedy)`, empty: it is well. None: as before.
        """
        report = self._report
        report.slow_ms = page.slowest_ms
        verdict = self._progress.look(page.signs, now, call_max_s)
        report.state = WorkerState.RUNNING if verdict is Verdict.FINE else WorkerState.STUCK
        report.lsn = page.lsn
        report.full, report.outbox_full, report.clock = page.full, page.outbox_full, page.clock
        report.unproved = page.unproved_s >= UNPROVED_S
        return verdict, self._tell_storage(page.storage)

    def _tell_storage(self, storage: int) -> str | None:
        """What the storage is just now, as long as it is so and nothing else is wrong."""
        report = self._report
        error = _STORAGE.get(storage, StorageSlow if report.slow_ms >= SLOW_TOLD_MS else None)
        code = error.code if error is not None else ""
        if code == self._storage_told or report.problem not in ("", self._storage_told):
            return None
        self._storage_told = report.problem = code
        text = f"a write took {report.slow_ms} ms" if error is StorageSlow else self._directory
        return str(error(text)) if error is not None else ""
