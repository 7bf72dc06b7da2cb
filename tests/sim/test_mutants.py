"""Every defect that others' messaging had, or ours could get, is seen by a checker in a run of services.

Each case is a defect: a safeguard switched off, or a patch of tests/sim/mutants.py. Its seed fails with the defect, by
the checker that is named, and passes without it. The cases are those of AMBROSIA's rules and of COVR's (at most once,
eventual delivery, one reply for each retry, a restart consistent with what was released, outputs attempted at least
once), and the defects that were found in other systems that promise the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Final

import pytest
from tests.sim import mutants
from tests.sim.defects import RULES
from tests.sim.recorded_seeds import check_recorded
from tests.sim.test_safeguards import ELSEWHERE, SHOWN

from deathless.base.safeguards import ALL_SAFEGUARDS
from deathless.simulation.nodes import worker_node
from deathless.simulation.runs import services
from deathless.simulation.runs.faults import FaultKind
from deathless.simulation.runs.run import Options, Result
from deathless.simulation.workload.visits import VisitProfile, draw_visits

SEEDS_TRIED_MAX: Final = 40
BOTH: Final = {"kinds": (), "between": ("both",)}
KEPT: Final = BOTH | {"limits": {"checkpoint_every_messages": 12}}
FLAPS: Final = {"kinds": (), "between": ("flap",)}
SPILLED: Final = FLAPS | {"limits": {"outbox_memory_bytes_max": 400, "frame_messages_max": 1}}
DOUBTS: Final = {"kinds": (), "between": ("doubt",), "fence": "etcd", "replicas": 3}
CUT_OFF: Final = {"kinds": (), "between": ("apart", "both"), "limits": {"checkpoint_every_messages": 12}}
APART: Final = {"kinds": (), "between": ("apart",)}
SPACELESS: Final = {"kinds": (FaultKind.DISK_FULL,), "between": ()}
FULL: Final = FLAPS | {"replicas": 3, "limits": {"pending_messages_max": 1, "follower_lag_messages_max": 1}}


@dataclass(frozen=True, kw_only=True)
class Case:
    """A defect, how the run is that shows it, and the checker that does."""

    defect: str | mutants.Mutant  # a switch's name, or a patch
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    checker: str
    text: str = ""  # of the violation, in part
    services: int = 2
    busy: bool = False  # most visits run an activity, which takes long

    @property
    def name(self) -> str:
        """For the test's."""
        return self.defect if isinstance(self.defect, str) else self.defect.__name__

    def shows(self, result: Result) -> bool:
        """Does the checker say what is expected?"""
        return any(each.checker == self.checker and self.text in each.text for each in result.violations)

    def run(self, seed: int, *, broken: bool) -> Result:
        """Run a seed with the defect, or without."""
        with pytest.MonkeyPatch.context() as patch:
            if self.busy:
                patch.setattr(services, "draw_visits", _draw_busy)
                patch.setattr(worker_node, "ACTIVITY_MAX_S", 0.5)
            # The comparison of histories stands behind others, and would stop what they let pass; so it is off as well.
            safeguards = replace(ALL_SAFEGUARDS, peer_history=not broken)
            if broken and isinstance(self.defect, str):
                safeguards = replace(safeguards, **{self.defect: False})
            elif broken and not isinstance(self.defect, str):
                self.defect(patch)
            return services.run_services(seed, self.services, Options(safeguards=safeguards, **self.options))


def _draw_busy(*arguments: Any, **named: Any) -> VisitProfile:
    return replace(draw_visits(*arguments, **named), dense=True, act_share=0.8)


CASES: Final = (
    # A restart is consistent with what was released.
    Case(defect="send_confirmed_only", options=DOUBTS, seed=90, checker="wire"),
    Case(defect="reack_confirmed_only", seed=1, options=DOUBTS, checker="released"),
    Case(defect="prove_before_release", options=DOUBTS, checker="released"),
    Case(defect="proof_after_sync", options=DOUBTS, checker="released"),
    Case(defect="sync_before_release", seed=1, options=BOTH, checker="recovery"),
    Case(defect=mutants.acknowledged_from_memory, options=DOUBTS, checker="released"),
    Case(defect=mutants.checkpoints_without_outbox, seed=9, options=CUT_OFF, checker="pairs"),
    Case(defect=mutants.positions_outside_the_commit, options=KEPT, checker="pairs"),
    Case(defect=mutants.pieces_released_too_early, seed=2, options=SPILLED, checker="crash"),
    # What is sent arrives.
    Case(defect=mutants.deleted_when_sent, seed=4, options=BOTH, checker="pairs"),
    Case(defect=mutants.retries_with_a_maximum, seed=1, options=APART, checker="settling"),
    Case(defect=mutants.outbox_in_memory, seed=15, options=BOTH, checker="settling"),
    Case(defect=mutants.calls_given_up, options=APART, checker="effects"),
    # It arrives once, in order.
    Case(defect="next_expected_only", seed=5, options=FULL, checker="pairs"),
    Case(defect="fence_peer_connections", options=FLAPS, checker="told"),
    Case(defect="dedup", options=FLAPS, seed=0, checker="pairs"),
    Case(defect=mutants.runs_without_order, options=FLAPS, checker="pairs"),
    Case(defect=mutants.positions_persisted_first, seed=3, options=KEPT, checker="pairs"),
    Case(defect=mutants.positions_in_a_bounded_cache, options=FLAPS, seed=0, checker="pairs"),
    Case(defect=mutants.checkpoints_without_peers_positions, options=KEPT, checker="crash", text="position"),
    Case(defect=mutants.peers_forgotten_by_time, options=APART, seed=2, checker="crash", text="position"),
    Case(defect=mutants.positions_not_rolled_back, seed=1, options=SPACELESS, checker="crash", text="position"),
    Case(defect=mutants.keys_on_another_shard, options={"kinds": (), "between": (), "shards": 2}, checker="effects"),
    # Each input is processed once.
    Case(defect=mutants.second_message_nested, options=BOTH, checker="effects"),
    Case(defect=mutants.read_positions_after_the_effect, seed=1, options=KEPT, checker="agreement"),
    Case(defect=mutants.inputs_logged_again_on_reconnect, seed=20, options=BOTH, checker="effects"),
    # Each request has one reply, the same for every retry.
    Case(defect=mutants.replies_computed_again, seed=16, options=BOTH, checker="replies"),
    Case(defect="record_replies", seed=3, options=BOTH, checker="agreement"),
    Case(defect=mutants.replies_in_memory, seed=3, options=BOTH, checker="settling"),
    Case(defect=mutants.results_unrecorded, seed=2, options=BOTH, checker="effects"),
    Case(defect=mutants.results_forgotten_by_time, options=BOTH, seed=8, checker="effects"),
    Case(defect=mutants.replies_trimmed_unacknowledged, seed=3, options=BOTH, checker="liveness"),
    Case(defect=mutants.errors_unrecorded, options=FLAPS, checker="answers"),
    Case(defect=mutants.progress_leaked, options=FLAPS, checker="effects"),
    # Outputs to the outside are attempted, and those that must not be twice are not.
    Case(defect="log_attempt_first", seed=1, busy=True, options=BOTH, checker="activities"),
    Case(defect=mutants.activities_not_begun_again, seed=1, busy=True, options=BOTH, checker="settling"),
    Case(defect=mutants.activities_done_before_begun, seed=8, busy=True, options=BOTH, checker="activities"),
)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_checker_sees_the_defect_and_nothing_without_it(case: Case) -> None:
    """The recorded seed does; where it no longer does the program has changed, and the seed to record is named."""

    def shows(seed: int) -> bool:
        return case.shows(case.run(seed, broken=True))

    check_recorded(case.seed, shows, f"{case.name} to {case.checker}", tried_max=SEEDS_TRIED_MAX)
    sound = case.run(case.seed, broken=False)
    assert sound.good, "\n".join(map(str, sound.violations[:5]))


def test_every_patch_is_a_case() -> None:
    patches = [value for value in vars(mutants).values() if getattr(value, "__module__", "") == mutants.__name__]
    named = {value.__name__ for value in patches if not value.__name__.startswith("_")}
    assert named == {case.name for case in CASES if not isinstance(case.defect, str)}


@pytest.mark.parametrize("defect", RULES)
def test_a_known_defect_has_its_case_or_its_switch(defect: str) -> None:
    assert RULES[defect] in {case.name for case in CASES} | {name for name, _, _ in SHOWN} | set(ELSEWHERE)


def test_every_case_is_of_a_known_defect() -> None:
    assert {case.name for case in CASES} <= set(RULES.values())
