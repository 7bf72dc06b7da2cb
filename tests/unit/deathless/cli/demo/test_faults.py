"""How long clients waited, seen from their answers alone."""

from __future__ import annotations

from deathless.base.config import ReplicaConfig
from deathless.cli.demo.faults import SETTLE_S, Faults, Incident, is_whole
from deathless.shell.operate.status import ReplicaView, ServiceView
from deathless.shell.operate.target import Target


def faults(at: float) -> Faults:
    """Nothing broken yet; the last answer came at `at`."""
    config = ReplicaConfig(service="bank", module="m:a", directory="/d", replica="r0")
    made = Faults(Target(config, "/d", None), lambda _: None)
    made.last_answer = at
    return made


def test_gap_is_the_longest_time_between_two_answers_since() -> None:
    made = faults(100.0)
    incident = Incident("kill", "primary", "r0", at=100.05, epoch=1)
    made.incidents.append(incident)
    for now in (100.1, 100.4, 100.45):
        made.answered(now)
    assert round(incident.gap_s, 3) == 0.3
    assert not incident.over


def test_incident_is_over_when_answers_came_for_a_while() -> None:
    made = faults(100.0)
    incident = Incident("kill", "primary", "r0", at=100.0, epoch=1)
    made.incidents.append(incident)
    made.answered(100.0 + SETTLE_S + 0.1)
    assert incident.over
    gap = incident.gap_s
    made.answered(200.0)
    assert incident.gap_s == gap


def test_line_tells_the_seconds_or_the_problem() -> None:
    incident = Incident("kill -9 of the primary", "primary", "r0", at=0.0, epoch=1, gap_s=0.123)
    assert incident.line == "kill -9 of the primary (r0): 0.12 s without service"
    incident.problem = "nobody took over"
    assert incident.line == "kill -9 of the primary (r0): nobody took over"


def test_set_is_whole_with_one_of_each_role() -> None:
    views = [
        ReplicaView(replica=f"r{index}", state="running", role=role)
        for index, role in enumerate(("primary", "standby", "checkpointer"))
    ]
    view = ServiceView("bank", "/d", "r0", 1, views)
    assert is_whole(view, 3)
    views[1].state = "dead"
    assert not is_whole(view, 3)
    views[1].state, views[1].role = "running", "recovering"
    assert not is_whole(view, 3)
