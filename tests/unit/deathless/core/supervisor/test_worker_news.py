"""A worker is told of the other replicas what it does not know yet, and nothing twice."""

from __future__ import annotations

import msgspec

from deathless.base.limits import Limits
from deathless.core.supervisor.detection import Detector, Report, WorkerState
from deathless.core.supervisor.records import AskLock, Deaths, Diverged, PrimaryIs
from deathless.core.supervisor.worker_news import WorkerNews

R1 = Report(replica="r1", state=WorkerState.RUNNING, role="primary", epoch=3, lsn=9, client="c", replication="f")


def told_of(*reports: Report) -> tuple[WorkerNews, Detector, list[msgspec.Struct]]:
    """News about these reports, told once."""
    detector = Detector(replica="r0", limits=Limits(), now=0.0)
    for report in reports:
        assert detector.report_received(report, 0.0)
    news, sent = WorkerNews(), list[msgspec.Struct]()
    news.tell(sent.append, detector, 0.0)
    return news, detector, sent


def test_primary_divergences_and_deaths_are_told_once() -> None:
    report = msgspec.structs.replace(R1, divergences=["lsn 4"], deaths=[(7, 1, 1)])
    news, detector, sent = told_of(report)
    assert sent == [PrimaryIs(3, "r1", "c", "f", False), Diverged("r1", "lsn 4"), Deaths(7, 1, 1), AskLock()]
    news.tell(sent.append, detector, 0.0)
    assert len(sent) == 4


def test_deaths_of_several_replicas_in_a_message_are_added_up() -> None:
    deaths = [(7, 1, 1)]
    _, _, sent = told_of(
        msgspec.structs.replace(R1, deaths=deaths), msgspec.structs.replace(R1, replica="r2", deaths=deaths)
    )
    assert Deaths(7, 1, 2) in sent


def test_new_worker_is_told_the_primary_and_deaths_again() -> None:
    news, detector, sent = told_of(msgspec.structs.replace(R1, deaths=[(7, 1, 1)]))
    news.worker_started()
    news.tell(sent.append, detector, 0.0)
    assert sent[3:] == sent[:2]


def test_deaths_that_are_taken_back_are_told() -> None:
    news, detector, sent = told_of(msgspec.structs.replace(R1, deaths=[(7, 1, 9)]))
    detector.report_received(R1, 0.1)
    news.tell(sent.append, detector, 0.1)
    assert sent[-1] == Deaths(7, 1, 0)
