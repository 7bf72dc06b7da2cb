"""What a supervisor tells its worker of the other replicas, each thing once: the primary, divergences, deaths.

It also has the worker ask the lock about an epoch that others claim (core.supervisor.claims).

Guarantees: a worker that was started anew is told everything again. Does not: order takeovers.
"""

from __future__ import annotations

from collections.abc import Callable

from deathless.core.supervisor.detection import Detector
from deathless.core.supervisor.records import AskLock, Deaths, Diverged, PrimaryIs, ToWorker


class WorkerNews:
    """What one worker has been told."""

    def __init__(self) -> None:
        self._primary: PrimaryIs | None = None
        self._divergences: dict[str, int] = {}  # by replica
        self._deaths: dict[tuple[int, int], int] = {}  # (session, seq) -> deaths

    def worker_started(self) -> None:
        """Forget what a former worker was told; a divergence is told once, whichever worker runs."""
        self._primary = None
        self._deaths.clear()

    def tell(self, send: Callable[[ToWorker], None], detector: Detector, now: float) -> None:
        """Send what the worker does not know yet; `now` is in monotonic seconds."""
        claim = detector.primary
        if claim is not None:
            told = PrimaryIs(claim.epoch, claim.replica, claim.client, claim.replication, detector.unproved(now))
            if told != self._primary:
                self._primary = told
                send(told)
        for report in detector.reports.values():
            if len(report.divergences) > self._divergences.get(report.replica, 0):
                send(Diverged(report.replica, report.divergences[-1]))
            self._divergences[report.replica] = len(report.divergences)
        deaths: dict[tuple[int, int], int] = {}
        for report in detector.reports.values():
            for session, seq, count in report.deaths:
                deaths[session, seq] = deaths.get((session, seq), 0) + count
        for (session, seq), total in deaths.items():
            if self._deaths.get((session, seq)) != total:
                send(Deaths(session, seq, total))
        for session, seq in sorted(self._deaths.keys() - deaths.keys()):
            send(Deaths(session, seq, 0))  # whoever said so takes it back
        self._deaths = deaths
        if detector.claims.question_due(now):
            send(AskLock())
