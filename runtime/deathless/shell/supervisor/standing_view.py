"""How a replica stands, as the processes beside its supervisor and `deathless status` are told.

Guarantees: a record is the whole truth at its moment. Does not: decide anything; it reads machine and page.
"""

from __future__ import annotations

import time

from deathless.base.config import ReplicaConfig
from deathless.core.supervisor.machine import SupervisorMachine
from deathless.engine.ports import ServiceRecord
from deathless.shell.link.settings_file import SettingsFile
from deathless.shell.link.standing import SHARED, Program, Standing
from deathless.shell.link.status_page import PROVED, Page, waits_of


class StandingView:
    """Of one replica.

    Args:
        config: the replica's.
        settings: the file that the config was made from; None: nobody changes it.
    """

    def __init__(self, config: ReplicaConfig, settings: SettingsFile | None) -> None:
        self.record: ServiceRecord | None = None  # who the service is; None: not known yet
        self.fingerprint = ""  # of the worker's code, hexadecimal
        self._config = config
        self._settings = settings
        self._since = (time.time(), "")  # wall seconds, and the role that began then

    def standing(
        self, machine: SupervisorMachine, page: Page | None, now: float, program: Program | None = None
    ) -> Standing:
        """How the replica stands.

        Args:
            machine: what its supervisor knows and decides.
            page: its worker's; None: there is none yet.
            now: monotonic seconds.
            program: how the program beside it is; None: there is none, or it is not known.
        """
        report, record, detector = machine.report, self.record, machine.detector
        proved_s = now - page.cells[PROVED] / 1e9 if page is not None else float("inf")
        if report.role != self._since[1]:
            self._since = (time.time(), report.role)
        return Standing(
            **{name: getattr(report, name) for name in SHARED},
            service=self._config.service,
            lag=max((each.lsn for each in detector.reports.values()), default=report.lsn) - report.lsn,
            text=machine.last_error,
            fingerprint=self.fingerprint,
            service_id=record.service_id.hex() if record is not None else "",
            incarnation=record.incarnation if record is not None else 0,
            since=self._since[0],
            settings=self._settings.hash if self._settings else "",
            takeovers=machine.takeovers,
            stopping=machine.stop.ordered,
            others=tuple(sorted(set(detector.reports) - {report.replica})),
            program=program,
            led=report.role == "primary" or detector.led(now),
            silent=detector.silent(now, proved_s),
            **(waits_of(page) if page is not None and report.role == "primary" else {}),
        )
