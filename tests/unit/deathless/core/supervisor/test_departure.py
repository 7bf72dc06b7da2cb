"""When the process of a replica that has handed over ends."""

from __future__ import annotations

from deathless.base.limits import LEAVE_MAX_S
from deathless.core.supervisor.departure import SETTLED_S, Leave


def test_process_ends_once_its_successor_has_led_for_a_moment() -> None:
    leave = Leave(waits=True)
    assert not leave.is_due(10.0, handed_over=True, led=False)
    assert not leave.is_due(10.2, handed_over=True, led=True)
    assert not leave.is_due(10.1 + SETTLED_S, handed_over=True, led=True)
    assert leave.is_due(10.2 + SETTLED_S, handed_over=True, led=True)


def test_successor_that_is_not_heard_or_comes_late_is_not_waited_for_longer() -> None:
    leave = Leave(waits=True)
    assert not leave.is_due(10.0, handed_over=True, led=False)
    late = 10.0 + LEAVE_MAX_S - 0.1
    assert not leave.is_due(late, handed_over=True, led=True)
    assert leave.is_due(10.0 + LEAVE_MAX_S, handed_over=True, led=True)


def test_process_without_successor_or_outside_a_pod_ends_at_once() -> None:
    assert Leave(waits=True).is_due(10.0, handed_over=False, led=False)
    assert Leave(waits=False).is_due(10.0, handed_over=True, led=False)
