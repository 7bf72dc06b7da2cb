"""A checkpoint counts when it is of confirmed frames, durable before it has its name, and read back by another.

design 0003, "Checkpoints". A primary appends, syncs and proves frames. A checkpointer writes the state
at some position under a temporary name, syncs, links, and another replica reads it back; then it counts, and the
primary may collect frames below. One power cut ends everybody and leaves of the log any length between synced and
written; a checkpoint that was not synced is then empty. Once, a medium may fail: a write that reports success and
is bad, or a checkpoint that rots later.

What must hold: a successor after the power cut restores from a checkpoint, or from the empty state, and from the
frames behind it; all it needs is there, the result is the state of the log, and the log holds all released.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import pytest

from deathless.simulation.models.explorer import explore, find

FRAMES = 4
STUCK = "frames behind the newest usable checkpoint are gone"
NOT_THE_LOG = "the restored state is not the state of the log"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The defaults are the design; each field switches one part of it off."""

    confirmed_only: bool = True
    # A checkpoint whose (lsn, chain hash) is not on the log's chain is refused.
    chain_checked: bool = True
    synced_before_linked: bool = True
    read_back: bool = True
    # Collect below the older of the two newest that count.
    two_kept: bool = True
    media_faults: int = 1


class Stage(StrEnum):
    """How far a checkpoint has come. Each stage from LINKED on is visible to a successor."""

    WRITTEN = "written"
    LINKED = "linked"
    COUNTS = "counts"


class Checkpoint(NamedTuple):
    """State after ``lsn`` frames, of which the last was ``frame``."""

    lsn: int
    frame: str
    stage: Stage = Stage.WRITTEN
    synced: bool = False
    good: bool = True


class Phase(StrEnum):
    """What the primary does next."""

    APPEND = "appends"
    SYNC = "syncs"
    PROVE = "proves"
    ENDED = "has ended"


class State(NamedTuple):
    """The log, its checkpoints oldest first, the primary."""

    phase: Phase = Phase.APPEND
    log: tuple[str, ...] = ()
    synced: int = 0
    confirmed: int = 0
    collected: int = 0
    checkpoints: tuple[Checkpoint, ...] = ()
    media_faults_left: int = 0
    # What a successor after the power cut has restored; None: none has.
    restored: tuple[str, ...] | None = None
    stuck: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """One primary with its checkpointer, one power cut, one successor."""

    rules: Rules

    def initial(self) -> State:
        return State(media_faults_left=self.rules.media_faults)

    def fault(self, state: State) -> str:
        if state.stuck:
            return STUCK
        return NOT_THE_LOG if state.restored is not None and state.restored != state.log else ""

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if state.phase is Phase.ENDED:
            if state.restored is None:
                yield from self.restore(state)
            return
        yield from self.write_log(state)
        yield from self.write_checkpoint(state)
        for index, checkpoint in enumerate(state.checkpoints):
            for label, after in self.move(state, index, checkpoint):
                yield f"checkpoint {checkpoint.lsn} {label}", after
        below = self.collectable(state)
        if below > state.collected:
            yield f"primary collects below {below}", state._replace(collected=below)
        yield from self.cut_power(state)

    def write_log(self, state: State) -> Iterator[tuple[str, State]]:
        match state.phase:
            case Phase.APPEND if len(state.log) < FRAMES:
                log = (*state.log, f"frame {len(state.log)}")
                yield f"primary appends {log[-1]}", state._replace(phase=Phase.SYNC, log=log)
            case Phase.SYNC:
                yield "primary syncs", state._replace(phase=Phase.PROVE, synced=len(state.log))
            case Phase.PROVE:
                yield "primary proves and releases", state._replace(phase=Phase.APPEND, confirmed=len(state.log))
            case Phase.APPEND | Phase.ENDED:
                return

    def write_checkpoint(self, state: State) -> Iterator[tuple[str, State]]:
        lsn = state.confirmed if self.rules.confirmed_only else len(state.log)
        last = max((each.lsn for each in state.checkpoints), default=0)
        under_way = any(each.stage is Stage.WRITTEN for each in state.checkpoints)
        if lsn <= last or under_way:
            return
        written = Checkpoint(lsn, state.log[lsn - 1])
        yield f"checkpoint {lsn} is written", state._replace(checkpoints=(*state.checkpoints, written))
        if state.media_faults_left:
            checkpoints = (*state.checkpoints, written._replace(good=False))
            faults = state.media_faults_left - 1
            yield (
                f"checkpoint {lsn} is written badly",
                state._replace(checkpoints=checkpoints, media_faults_left=faults),
            )

    def move(self, state: State, index: int, checkpoint: Checkpoint) -> Iterator[tuple[str, State]]:
        """Yield what happens to one checkpoint next."""
        if not checkpoint.synced:
            yield "is synced", set_checkpoint(state, index, checkpoint._replace(synced=True))
        if checkpoint.stage is Stage.WRITTEN and (checkpoint.synced or not self.rules.synced_before_linked):
            yield "is linked", set_checkpoint(state, index, checkpoint._replace(stage=Stage.LINKED))
        if checkpoint.stage is Stage.LINKED and (checkpoint.good or not self.rules.read_back):
            label = "is read back and counts" if self.rules.read_back else "counts"
            yield label, set_checkpoint(state, index, checkpoint._replace(stage=Stage.COUNTS))
        if checkpoint.good and state.media_faults_left:
            rotten = set_checkpoint(state, index, checkpoint._replace(good=False))
            yield "rots", rotten._replace(media_faults_left=state.media_faults_left - 1)

    def collectable(self, state: State) -> int:
        counting = [each.lsn for each in state.checkpoints if each.stage is Stage.COUNTS]
        kept = 2 if self.rules.two_kept else 1
        return counting[-kept] if len(counting) >= kept else 0

    def cut_power(self, state: State) -> Iterator[tuple[str, State]]:
        left = tuple(
            each._replace(good=each.good and each.synced, synced=True)
            for each in state.checkpoints
            if each.stage is not Stage.WRITTEN
        )
        for length in range(state.synced, len(state.log) + 1):
            yield (
                f"power cut leaves {length} frames",
                state._replace(phase=Phase.ENDED, log=state.log[:length], checkpoints=left),
            )

    def restore(self, state: State) -> Iterator[tuple[str, State]]:
        """Restore from the newest checkpoint that is usable; the empty state always is."""
        usable = [each for each in state.checkpoints if each.good and self.on_chain(state, each)]
        lsn = usable[-1].lsn if usable else 0
        if lsn < state.collected:
            yield f"successor restores from {lsn}", state._replace(stuck=True)
            return
        held = (*state.log[: lsn - 1], usable[-1].frame) if usable else ()
        yield f"successor restores from {lsn}", state._replace(restored=(*held, *state.log[lsn:]))

    def on_chain(self, state: State, checkpoint: Checkpoint) -> bool:
        return not self.rules.chain_checked or checkpoint.lsn <= len(state.log)


def set_checkpoint(state: State, index: int, checkpoint: Checkpoint) -> State:
    checkpoints = (*state.checkpoints[:index], checkpoint, *state.checkpoints[index + 1 :])
    return state._replace(checkpoints=checkpoints)


DESIGN = Rules()
SOUND_MEDIA = Rules(media_faults=0, two_kept=False)


@pytest.mark.parametrize(
    "rules",
    [
        pytest.param(DESIGN, id="as designed, one fault of a medium"),
        pytest.param(SOUND_MEDIA, id="one kept, no fault of a medium"),
    ],
)
def test_checkpoints_that_count_can_always_be_restored(rules: Rules) -> None:
    model = Checkpoints(rules)
    verdict = explore(model)
    assert verdict.holds, str(verdict)
    assert find(model, lambda state: state.restored is not None and state.collected > 0) is not None


@pytest.mark.parametrize(
    ("reason", "rules", "step"),
    [
        pytest.param(
            NOT_THE_LOG,
            replace(DESIGN, confirmed_only=False, chain_checked=False),
            "power cut leaves 0 frames",
            id="of unconfirmed frames, chain not checked",
        ),
        pytest.param(
            STUCK,
            replace(SOUND_MEDIA, confirmed_only=False),
            "checkpoint 1 is read back and counts",
            id="of unconfirmed frames, and the log collected below",
        ),
        pytest.param(
            STUCK,
            replace(DESIGN, confirmed_only=False),
            "checkpoint 1 rots",
            id="of unconfirmed frames, two kept, and the older rots",
        ),
        pytest.param(
            STUCK,
            replace(SOUND_MEDIA, synced_before_linked=False),
            "checkpoint 1 is linked",
            id="linked before it is synced",
        ),
        pytest.param(
            STUCK,
            replace(DESIGN, read_back=False, two_kept=False),
            "checkpoint 1 is written badly",
            id="counted without being read back",
        ),
        pytest.param(STUCK, replace(DESIGN, two_kept=False), "checkpoint 1 rots", id="one kept, and it rots"),
    ],
)
def test_checkpoint_that_counts_too_early_cannot_be_restored(reason: str, rules: Rules, step: str) -> None:
    verdict = explore(Checkpoints(rules))
    assert not verdict.holds
    assert verdict.reason == reason, str(verdict)
    assert step in verdict.trace, str(verdict)
