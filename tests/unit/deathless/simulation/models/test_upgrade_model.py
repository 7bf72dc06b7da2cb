"""One upgrade step by step; what the model proves about all of them is in tests/models."""

from deathless.simulation.models.takeover_log import FrameId, Position
from deathless.simulation.models.upgrade_log import Cut, Frame, Header, Ran, Upgraded
from deathless.simulation.models.upgrade_model import Phase, State, UpgradeModel
from deathless.simulation.models.upgrade_rules import FIRST, SECOND, Rules

MODEL = UpgradeModel(Rules(power_cuts_max=1))


def follow(model: UpgradeModel, state: State, *labels: str) -> State:
    """Take the steps whose labels begin as given."""
    for label in labels:
        after = [changed for name, changed in model.steps(state) if name.startswith(label)]
        assert len(after) == 1, (label, [name for name, _ in model.steps(state)])
        state = after[0]
        assert model.fault(state) == ""
    return state


WORK = (
    "epoch 1 (1a) appends",
    "epoch 1 (1a) syncs the frame",
    "epoch 1 (1a) proves",
    "epoch 1 (1a) releases",
)
CONFIRM = ("epoch 1 (1a) says that all is confirmed", "epoch 1 (1a) syncs the header")
TAKE = "epoch 2: a replica of generation 2b takes"
UPGRADE = (
    "epoch 2 (2b) reads head 1 and upgrades",
    "epoch 2 (2b) writes its first checkpoint",
    "epoch 2 (2b) syncs its first checkpoint",
    "epoch 2 (2b) writes cut and copies",
    "epoch 2 (2b) syncs cut and copies",
    "epoch 2 (2b) sets head",
)
SERVE = (
    "epoch 2 (2b) writes the opening",
    "epoch 2 (2b) syncs the opening",
    "epoch 2 (2b) proves and serves",
)


def test_upgrade_goes_through_the_steps_of_the_design_and_serves_what_was_released() -> None:
    state = follow(MODEL, MODEL.initial(), *WORK, *CONFIRM, TAKE, *UPGRADE, *SERVE)
    record = Upgraded(2, SECOND)
    assert state.files[1].records == (
        Cut(Position(1, 0, 2), SECOND),
        Frame(record, 1, SECOND),
        Header("opening", 2),
    )
    assert [each.name for each in state.checkpoints] == [((FrameId(1, 0), record), 0)]
    assert state.released == (Ran(FrameId(1, 0), "a"), Ran(record, "b", 2))
    assert (state.head, state.served_by) == (2, SECOND)


def test_upgrader_lets_go_where_something_is_not_confirmed_by_a_header() -> None:
    state = follow(MODEL, MODEL.initial(), *WORK, TAKE, "epoch 2 (2b) finds no end that it may upgrade behind")
    assert (state.lock, state.head) == (0, 1)
    assert [each.who for each in state.replicas] == [FIRST]


def test_former_primary_is_deposed_by_an_upgrader_and_no_other_of_its_generation_takes_the_lock_behind_head() -> None:
    state = follow(MODEL, MODEL.initial(), TAKE, *UPGRADE, *WORK[:2], "epoch 1 (1a) finds itself deposed")
    assert [each.who for each in state.replicas] == [SECOND]
    labels = [label for label, _ in MODEL.steps(state)]
    assert any("generation 2b takes the lock" in label for label in labels)
    assert not any("generation 1a takes the lock" in label for label in labels)


def test_upgrader_that_wakes_behind_a_takeover_finds_itself_deposed_at_head() -> None:
    stolen = follow(MODEL, MODEL.initial(), TAKE, *UPGRADE[:5], "epoch 3: a replica of generation 1a takes")
    state = follow(MODEL, stolen, "epoch 2 (2b) finds itself deposed")
    assert state.head == 1
    assert len(state.checkpoints) == 1


def test_power_cut_ends_everybody_and_leaves_or_takes_a_checkpoint_that_is_not_synced() -> None:
    state = follow(MODEL, MODEL.initial(), TAKE, *UPGRADE[:2])
    cuts = [after for label, after in MODEL.steps(state) if label == "power cut"]
    assert {len(after.checkpoints) for after in cuts} == {0, 1}
    assert all(after.replicas == () and MODEL.fault(after) == "" for after in cuts)


def test_sync_is_no_step_where_no_power_cut_is_left() -> None:
    model = UpgradeModel(Rules())
    state = follow(model, model.initial(), TAKE, UPGRADE[0], UPGRADE[1], UPGRADE[3], UPGRADE[5])
    assert state.replicas[1].phase is Phase.OPENING
    assert all(each.durable for each in state.checkpoints)


def test_model_that_prunes_forgets_an_attempt_that_lost_the_lock() -> None:
    model = UpgradeModel(Rules(power_cuts_max=1), prunes=True)
    state = follow(model, model.initial(), TAKE, *UPGRADE[:5], "epoch 3: a replica of generation 1a takes")
    assert [each.epoch for each in state.replicas] == [1, 3]
    assert [each.epoch for each in state.files] == [1]
    assert state.checkpoints == frozenset()
