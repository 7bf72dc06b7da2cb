"""One takeover step by step; what the model proves about all of them is in tests/models."""

from deathless.simulation.models.takeover_log import Cut, Frame, FrameId, Opening, Position, Segment
from deathless.simulation.models.takeover_model import Phase, State, TakeoverModel, opening_above
from deathless.simulation.models.takeover_rules import DIRECTORY_LOCK, Rules


def follow(model: TakeoverModel, state: State, *labels: str) -> State:
    """Take the steps whose labels begin as given."""
    for label in labels:
        after = [changed for name, changed in model.steps(state) if name.startswith(label)]
        assert len(after) == 1, (label, [name for name, _ in model.steps(state)])
        state = after[0]
    return state


WORK = ("epoch 1 appends", "epoch 1 syncs the frame", "epoch 1 proves", "epoch 1 releases")
TAKEOVER = (
    "epoch 2 reads",
    "epoch 2 writes cut",
    "epoch 2 syncs cut",
    "epoch 2 sets head",
    "epoch 2 writes the opening",
    "epoch 2 syncs the opening",
    "epoch 2 proves and serves",
)


def test_takeover_goes_through_the_steps_of_the_design_and_serves_what_was_released() -> None:
    model = TakeoverModel(Rules())
    state = follow(model, model.initial(), *WORK, "epoch 2 takes the lock", *TAKEOVER)
    assert state.head == 2
    assert state.released == (FrameId(1, 0),)
    assert state.files[1].records == (Cut(Position(1, 0, 1)), Frame(FrameId(1, 0), 0), Opening())
    assert [(replica.epoch, replica.phase) for replica in state.replicas] == [(1, Phase.SERVING), (2, Phase.SERVING)]


def test_old_primary_that_proves_after_a_steal_finds_itself_deposed() -> None:
    model = TakeoverModel(Rules())
    state = follow(model, model.initial(), *WORK[:2], "epoch 2 takes the lock", "epoch 1 finds itself deposed")
    assert state.released == ()
    assert [replica.epoch for replica in state.replicas] == [2]


def test_seal_and_not_the_lock_deposes_under_the_directory_lock() -> None:
    model = TakeoverModel(DIRECTORY_LOCK)
    stolen = follow(model, model.initial(), *WORK[:2], "epoch 2 takes the lock")
    assert follow(model, stolen, *WORK[2:]).released == (FrameId(1, 0),)
    sealed = follow(model, stolen, "epoch 2 seals")
    assert sealed.seals == {1}
    follow(model, sealed, "epoch 1 finds itself deposed")


def test_power_cut_ends_every_replica_and_is_bounded() -> None:
    model = TakeoverModel(Rules(power_cuts_max=1))
    cut = follow(model, model.initial(), "power cut")
    assert cut.replicas == ()
    assert [label for label, _ in model.steps(cut)] == ["epoch 2 takes the lock"]


def test_opening_frame_above_head_means_that_the_lock_store_is_older() -> None:
    opened: Segment = Segment(1, 0, (Cut(Position(1, 0, 1)), Opening()), 2)
    files = (opened,)
    assert not opening_above(files, 1)
    assert opening_above(files, 0)
