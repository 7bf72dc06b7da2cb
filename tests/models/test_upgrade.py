"""Upgrades, every interleaving: the protocol that the design prescribes holds, other readings of it break.

docs/design/0026-upgrades.md, "What the model shows". The model, its machines and faults are described in
``deathless.simulation.models.upgrade_model``; ``Rules()`` is the design. A row of BROKEN changes what its name says and
must stay red, with the violation given: it is the test that the rule is needed and that the model can see it. In every
row the lock is stolen at any moment, by replicas of any generation, from holders that are alive, frozen or dead.

Bounds: at most four takings of the lock; one frame per primary. A row with a power cut contains all runs without one.
"""

from dataclasses import replace

import pytest

from deathless.simulation.models.explorer import explore, find
from deathless.simulation.models.upgrade_log import Checkpoint, Name, Upgraded, first_record, read_log, route
from deathless.simulation.models.upgrade_model import Phase, State, UpgradeModel, main
from deathless.simulation.models.upgrade_rules import (
    FIRST,
    SECOND,
    Check,
    Collection,
    Generation,
    Loading,
    Order,
    Rules,
    Tail,
    Told,
)
from deathless.simulation.models.upgrade_start import Violation

DESIGN = Rules()
POWER = Rules(power_cuts_max=1)
# Upgraders of two codes, both from the first generation.
TWO_CODES = replace(DESIGN, generations=(FIRST, SECOND, Generation(2, "c")))
# The third generation is the code of the first again.
BACK_OUT = replace(DESIGN, generations=(FIRST, SECOND, Generation(3, "a")))
# Cuts name the checkpoint, and its generation stands in its name: what the record makes needless.
CUTS = Rules(told=Told.EVERY_CUT, generation_in_name=True)
# A checkpoint may rot, and the former code runs the log again where its migration gives the same bytes again.
ROT = Rules(rots_max=1, former_code_again=True, migration_repeats=True)

HOLDS = {
    "the design": POWER,
    "a checkpoint of the former generation at any place": replace(DESIGN, former_checkpoints_max=1),
    "the migration may fail": replace(DESIGN, migration_may_fail=True),
    "upgraders of two codes at once": TWO_CODES,
    "back-out as an upgrade to a third generation with the first code": BACK_OUT,
    "the lock store is set back to an earlier head, and adopted": replace(DESIGN, restores_max=1),
    "a successor copies the record": replace(POWER, loaded_is_confirmed=False),
    "the former primary closes its log": replace(POWER, tail=Tail.CLOSED),
    "the former code runs what is not confirmed": replace(POWER, tail=Tail.FORMER_CODE),
    "every cut names the checkpoint": replace(CUTS, power_cuts_max=1),
    "no epoch in the record, where a migration gives the same bytes again": replace(
        DESIGN, epoch_in_record=False, migration_repeats=True
    ),
    "a checkpoint rots, and the former code runs again": ROT,
    "the former log is collected behind two checkpoints": replace(ROT, collection=Collection.AFTER_TWO),
}

# Here the model forgets what nobody can see: as many runs, fewer states.
LARGE = {
    "the design, four takings, with rolls": replace(POWER, takings_max=4, rolls_max=1),
    "two frames for each primary": replace(DESIGN, frames_max=2),
    "the migration may fail, four takings": replace(POWER, takings_max=4, migration_may_fail=True),
    "upgraders of two codes at once, four takings": replace(TWO_CODES, takings_max=4, power_cuts_max=1),
    "back-out, four takings": replace(BACK_OUT, takings_max=4, power_cuts_max=1),
}

BROKEN = {
    # The end of the log.
    "the new code runs what is not confirmed": (Violation.OTHER_CODE, replace(DESIGN, tail=Tail.NEW_CODE)),
    "what is not confirmed is left out": (Violation.LOST, replace(DESIGN, tail=Tail.DROPPED)),
    "cut where the primary said, and not read under the lock": (
        Violation.LOST,
        replace(DESIGN, tail=Tail.AS_HANDED_OVER),
    ),
    "what was fed is compared by its lsn": (Violation.LOST, replace(DESIGN, fed_by_chain=False)),
    "the former primary goes on answering until head is set": (
        Violation.LOST,
        replace(DESIGN, proof_sees_upgrader=False),
    ),
    # The order.
    "head before the first checkpoint": (Violation.STALL, replace(DESIGN, order=Order.HEAD_THEN_CHECKPOINT)),
    "the first checkpoint after serving": (Violation.STALL, replace(DESIGN, order=Order.SERVES_FIRST)),
    "the first checkpoint synced behind head": (Violation.STALL, replace(POWER, order=Order.CHECKPOINT_NOT_SYNCED)),
    "the cut synced behind head": (Violation.STALL, replace(POWER, order=Order.CUT_NOT_SYNCED)),
    "the migration behind head": (
        Violation.STALL,
        replace(DESIGN, order=Order.HEAD_THEN_MIGRATION, migration_may_fail=True),
    ),
    # Where the upgrade is told.
    "the cut of the upgrade alone names the checkpoint": (Violation.STALL, replace(CUTS, told=Told.ONE_CUT)),
    "a key of its own, set before head": (Violation.STALL, replace(CUTS, told=Told.KEY_THEN_HEAD)),
    "a key of its own, set behind head": (Violation.OTHER_CODE, replace(CUTS, told=Told.HEAD_THEN_KEY)),
    "a message that every replica runs, and whose migration fails": (
        Violation.STALL,
        replace(DESIGN, told=Told.MESSAGE, migration_may_fail=True),
    ),
    "no epoch in the record": (Violation.LOST, replace(DESIGN, epoch_in_record=False)),
    # Checkpoints.
    "cuts name a place alone, and the former generation has a checkpoint there": (
        Violation.OTHER_CODE,
        replace(CUTS, generation_in_name=False, former_checkpoints_max=1),
    ),
    "a replica stops at the newest checkpoint if it is of another generation": (
        Violation.STALL,
        replace(DESIGN, others_passed_over=False),
    ),
    "the newest checkpoint of its generation, whatever its chain": (
        Violation.LOST,
        replace(DESIGN, loading=Loading.NEWEST),
    ),
    "the former code runs again, though its migration gives other bytes": (
        Violation.LOST,
        replace(ROT, migration_repeats=False),
    ),
    "the former log is collected behind one checkpoint": (
        Violation.STALL,
        replace(ROT, collection=Collection.AFTER_ONE),
    ),
    "the former log is collected behind two, one of an attempt that was let go": (
        Violation.STALL,
        replace(ROT, collection=Collection.AFTER_ANY_TWO),
    ),
    # Who may lead.
    "the generation is compared when a process starts": (Violation.OTHER_CODE, replace(DESIGN, check=Check.AT_START)),
    "standbys of the former code go on running the log": (Violation.OTHER_CODE, replace(DESIGN, check=Check.NEVER)),
    "the generation is compared under the lock alone": (Violation.OUTAGE, replace(DESIGN, check=Check.UNDER_LOCK)),
    "the generation is compared, then whatever lock is there is taken": (
        Violation.OUTAGE,
        replace(DESIGN, check=Check.LOOK_THEN_TAKE),
    ),
    "what an upgrader upgrades from is compared when it starts": (
        Violation.OTHER_CODE,
        replace(TWO_CODES, from_under_lock=False),
    ),
    "generations are told by their fingerprint": (Violation.OTHER_CODE, replace(BACK_OUT, number_compared=False)),
    # Head.
    "an upgrader that wakes up overwrites head": (Violation.TWO_VERSIONS, replace(DESIGN, head_guarded=False)),
    "a back-out that sets head back": (Violation.LOST, replace(DESIGN, back_out_is_upgrade=False)),
}


@pytest.mark.parametrize("reading", HOLDS)
def test_upgrade_holds_in_every_interleaving(reading: str) -> None:
    verdict = explore(UpgradeModel(HOLDS[reading]))
    assert verdict.holds, str(verdict)


@pytest.mark.parametrize("reading", LARGE)
def test_upgrade_holds_in_every_interleaving_within_larger_bounds(reading: str) -> None:
    verdict = explore(UpgradeModel(LARGE[reading], prunes=True))
    assert verdict.holds, str(verdict)


@pytest.mark.parametrize("reading", BROKEN)
def test_upgrade_that_drops_a_rule_breaks(reading: str) -> None:
    violation, rules = BROKEN[reading]
    verdict = explore(UpgradeModel(rules))
    assert not verdict.holds
    assert verdict.reason.startswith(violation), str(verdict)


@pytest.mark.parametrize(
    "rules", [POWER, replace(POWER, rolls_max=1, takings_max=2), TWO_CODES, replace(DESIGN, migration_may_fail=True)]
)
def test_what_the_model_forgets_can_not_be_seen(rules: Rules) -> None:
    def seen(*, prunes: bool) -> set[object]:
        """Return everything that outsiders and starts meet: what was released, head and the log that it leads to."""
        views: set[object] = set()

        def note(state: State) -> bool:
            views.add((state.released, state.head, read_log(state.files, state.head).place, state.served_by))
            return False

        assert find(UpgradeModel(rules, prunes=prunes), note) is None
        return views

    assert seen(prunes=True) == seen(prunes=False)


@pytest.mark.parametrize("rules", [replace(DESIGN, proof_sees_upgrader=False), replace(DESIGN, head_guarded=False)])
def test_two_versions_release_at_once_where_the_lock_does_not_decide(rules: Rules) -> None:
    def wanted(state: State) -> bool:
        return state.broken.startswith(Violation.TWO_VERSIONS)

    assert find(UpgradeModel(rules), wanted) is not None
    assert find(UpgradeModel(DESIGN), wanted) is None


def released(state: State) -> list[Name]:
    return [ran.name for ran in state.released]


def test_model_reaches_a_new_generation_that_answers_behind_what_the_former_released() -> None:
    def wanted(state: State) -> bool:
        codes = [ran.code for ran in state.released]
        return codes == ["a", "b", "b"] and isinstance(released(state)[1], Upgraded)

    trace = find(UpgradeModel(DESIGN), wanted)
    assert trace is not None
    head = trace.index("epoch 2 (2b) sets head")
    assert (
        trace.index("epoch 2 (2b) writes its first checkpoint")
        < trace.index("epoch 2 (2b) writes cut and copies")
        < head
    )


def test_model_reaches_a_checkpoint_that_an_attempt_left_beside_the_one_that_leads() -> None:
    def of_second(state: State) -> list[Checkpoint]:
        return [each for each in state.checkpoints if each.of == SECOND]

    def wanted(state: State) -> bool:
        return len(of_second(state)) == 2 and state.served_by == SECOND

    assert find(UpgradeModel(DESIGN), wanted) is not None


def test_model_reaches_a_frozen_upgrader_that_wakes_behind_the_upgrade_of_another() -> None:
    def wanted(state: State) -> bool:
        frozen = any(each.epoch == 2 and each.phase is Phase.SETTING_HEAD for each in state.replicas)
        return frozen and state.head == 3 and state.served_by == SECOND

    assert find(UpgradeModel(DESIGN), wanted) is not None


def test_model_reaches_a_replica_of_the_former_code_that_leads_behind_an_attempt_that_failed() -> None:
    def wanted(state: State) -> bool:
        return state.migration is False and state.served == 3 and state.served_by == FIRST and bool(state.released)

    assert find(UpgradeModel(HOLDS["the migration may fail"]), wanted) is not None


def test_model_reaches_a_back_out_that_answers_with_the_first_code() -> None:
    def wanted(state: State) -> bool:
        upgrades = [name.to.number for name in released(state) if isinstance(name, Upgraded)]
        return upgrades == [2, 3] and state.released[-1].code == "a" and not isinstance(released(state)[-1], Upgraded)

    assert find(UpgradeModel(BACK_OUT), wanted) is not None


def test_model_reaches_an_upgrade_across_files_and_a_successor_inside_the_new_generation() -> None:
    def wanted(state: State) -> bool:
        rolled = any(file.epoch == 1 and file.roll == 1 and file.records for file in state.files)
        upgraded = state.head == 3 and 2 in route(state.files, 3) and first_record(state.files, 2).writer == SECOND
        return rolled and upgraded and state.served == 3

    assert find(UpgradeModel(replace(DESIGN, rolls_max=1)), wanted) is not None


def test_command_walks_the_design_within_the_bounds_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--takings", "2", "--rolls", "0"]) == 0
    assert capsys.readouterr().out.startswith("holds (")
