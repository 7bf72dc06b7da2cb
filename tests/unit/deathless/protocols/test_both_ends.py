"""Coordinator and binding through cuts, kills and restarts from checkpoint and log: nothing lost, doubled, diverged.

Then the same where the application itself is at fault, and where a safeguard is left out, which has to show.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.deathless.protocols.ambrosia_service import Process, Service

from deathless.base.errors import Internal
from deathless.protocols.ambrosia import events as on
from deathless.protocols.ambrosia.delivery import Delivery
from deathless.protocols.ambrosia.lanes import Compare, Difference, Expectation, Lane, LaneState
from deathless.protocols.ambrosia.machine import ApplicationMachine
from deathless.protocols.ambrosia.states import ORDERS, Order, State

SEEDS = range(60)
MUTANT_SEEDS = range(400)


def run(seed: int, **options: object) -> Service:
    service = Service(**options)  # type: ignore[arg-type]  # each caller names them
    service.run(seed)
    return service


def no_fault_in(service: Service) -> bool:
    return service.faults() == [] and not service.stopped and service.differences == []


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_doubled_or_diverged(seed: int) -> None:
    service = run(seed)
    assert service.faults() == []
    assert no_fault_in(service)


@given(st.integers(0, 2**64))
def test_nothing_is_lost_doubled_or_diverged_in_runs_that_nobody_chose(seed: int) -> None:
    assert no_fault_in(run(seed))


def test_these_runs_reach_what_matters() -> None:
    services = [run(seed) for seed in SEEDS]
    assert sum(service.takeovers for service in services) > 20
    assert sum(service.checkpoint is not None and service.checkpoint.lsn > 0 for service in services) > 20
    assert any(state.kept for s in services if s.checkpoint for state in s.checkpoint.lanes)
    assert any(state.expected for s in services if s.checkpoint for state in s.checkpoint.lanes)
    assert sum(len(service.bank.items) for service in services) > 1000
    assert sum(len(service.selves.items) for service in services) > 500


@pytest.mark.parametrize("fault", ["fewer", "clock"])
def test_an_application_that_differs_never_makes_one_run_of_two(fault: str) -> None:
    services = [run(seed, fault=fault) for seed in SEEDS]
    assert [service.faults() for service in services] == [[]] * len(services)
    assert any(service.stopped for service in services)
    assert all(service.differences for service in services if service.stopped)


def test_bytes_that_differ_are_counted_and_served_on_where_shapes_are_compared() -> None:
    services = [run(seed, fault="clock", policy=Compare.SHAPE) for seed in SEEDS]
    assert not any(service.stopped for service in services)
    assert any(service.differences for service in services)
    assert not any(each.fatal for service in services for each in service.differences)


def test_an_owner_that_delivers_what_is_not_confirmed_is_stopped() -> None:
    with pytest.raises(Internal, match="is confirmed"):
        [run(seed, delivers_early=True) for seed in SEEDS]


def test_an_owner_that_tells_what_is_not_confirmed_is_stopped() -> None:
    with pytest.raises(Internal, match="is confirmed"):
        [run(seed, tells_early=True) for seed in SEEDS]


# ---------------------------------------------------------------- safeguards left out


def confirms_late(patch: pytest.MonkeyPatch) -> dict[str, object]:
    """What is not confirmed is delivered."""
    sane = Delivery.deliver
    patch.setattr(Delivery, "deliver", lambda self, lsn, payload, held: sane(self, lsn, payload, held=True))
    patch.setattr(ApplicationMachine, "check_invariants", lambda self: None)
    return {"delivers_early": True}


def tells_late(patch: pytest.MonkeyPatch) -> dict[str, object]:
    """A checkpoint holds what an unconfirmed log knew."""

    def hear(self: Process) -> None:
        self.machine._delivery.confirmed = 10**9
        sane(self)

    sane = Process.hear
    patch.setattr(Process, "hear", hear)
    return {"tells_early": True}


def compares_nothing(patch: pytest.MonkeyPatch) -> dict[str, object]:
    """Whatever is known of outputs is taken for equal."""

    def compare(self: Lane, known: Expectation, chain: bytes, shape: bytes) -> list[Difference]:
        self._open = self._open or known == self._receiver
        return []

    patch.setattr(Lane, "_compare", compare)
    return {"fault": "fewer"}


def sends_before_comparing(patch: pytest.MonkeyPatch) -> dict[str, object]:
    """A receiver's word opens its lane before it is compared."""

    def welcome(self: Lane, known: Expectation | None) -> list[Difference]:
        self._receiver, self._open = known, True
        return []

    patch.setattr(Lane, "welcome", welcome)
    return {"fault": "fewer"}


def _snapshot_with(patch: pytest.MonkeyPatch, **changed: Callable[[LaneState], object]) -> dict[str, object]:
    def snapshot(self: Lane) -> LaneState:
        state = sane(self)
        fields = {name: getattr(state, name) for name in LaneState.__struct_fields__}
        return LaneState(**{**fields, **{name: change(state) for name, change in changed.items()}})

    sane = Lane.snapshot
    patch.setattr(Lane, "snapshot", snapshot)
    patch.setattr(ApplicationMachine, "check_invariants", lambda self: None)
    return {}


def forgets_unconfirmed_output(patch: pytest.MonkeyPatch) -> dict[str, object]:
    """Un-acknowledged output is not in the checkpoint."""
    return _snapshot_with(patch, kept=lambda state: (), floor=lambda state: state.emitted)


def forgets_positions(patch: pytest.MonkeyPatch) -> dict[str, object]:
    """Positions begin again behind a checkpoint."""
    return _snapshot_with(patch, kept=lambda state: (), floor=lambda state: 0, emitted=lambda state: 0)


def counts_at_the_order(patch: pytest.MonkeyPatch) -> dict[str, object]:
    """The lanes are noted when a checkpoint is ordered, and not when it begins."""

    def handle(self: ApplicationMachine, event: on.Event) -> list[on.Effect]:
        noted = self._lanes.snapshot() if isinstance(event, on.TakeCheckpoint) else None
        effects = sane(self, event)
        if noted is not None:
            at_order[self] = noted
        return [
            on.CheckpointBegan(length=e.length, lsn=e.lsn, records=e.records, lanes=at_order.pop(self))
            if isinstance(e, on.CheckpointBegan) and self in at_order
            else e
            for e in effects
        ]

    at_order: dict[ApplicationMachine, tuple[LaneState, ...]] = {}
    sane = ApplicationMachine.handle
    patch.setattr(ApplicationMachine, "handle", handle)
    return {}


def delivers_within_a_snapshot(patch: pytest.MonkeyPatch) -> dict[str, object]:
    """Records follow before the checkpoint is here."""
    patch.setitem(ORDERS[State.SNAPSHOT], Order.DELIVER, State.SNAPSHOT)
    patch.setitem(ORDERS[State.LEADING_SNAPSHOT], Order.DELIVER, State.LEADING_SNAPSHOT)
    return {}


def hands_out_again(patch: pytest.MonkeyPatch) -> dict[str, object]:
    """What is known to have had its effect counts for nothing."""

    def confirm(self: Lane, known: Expectation) -> list[Difference]:
        return []

    def kept_from(self: Lane, position: int) -> list[tuple[int, object]]:
        return [(self.floor + 1 + index, kept.item) for index, kept in enumerate(self._kept)]

    patch.setattr(Lane, "confirm", confirm)
    patch.setattr(Lane, "kept_from", kept_from)
    return {}


@pytest.mark.parametrize(
    "mutant",
    [
        confirms_late,
        tells_late,
        compares_nothing,
        sends_before_comparing,
        forgets_unconfirmed_output,
        forgets_positions,
        counts_at_the_order,
        delivers_within_a_snapshot,
        hands_out_again,
    ],
    ids=lambda mutant: mutant.__name__,
)
def test_a_safeguard_that_is_left_out_shows(
    mutant: Callable[[pytest.MonkeyPatch], dict[str, object]], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = mutant(monkeypatch)
    for seed in MUTANT_SEEDS:
        with suppress(Internal):
            service = run(seed, **options)
            if service.faults() or (not service.fault and not no_fault_in(service)):
                return
    raise AssertionError(f"nothing shows that {mutant.__name__} is a fault")
