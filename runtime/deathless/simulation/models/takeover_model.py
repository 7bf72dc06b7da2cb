"""Every interleaving of primaries, successors, power cuts and a lock store restored from a backup.

Why it exists: takeover (design 0003, "Takeover") is an order of eight steps, and almost every other order loses
something in some run that no test meets by chance. This model explores all of them, for the order that we
prescribe and for the readings of it that look just as good.

The machines. A replica takes or steals the lock at any time, its holder alive or not, and gets the next epoch.
It then goes through the takeover, one phase a step:

    LOCKED -> [SEALING] -> READING -> WRITING -> SYNCING -> SETTING_HEAD -> [OPENING -> SYNCING_OPENING] -> PROVING

and serves. A primary works in a ring, one frame at a time: SERVING appends a frame, APPENDED syncs it, SYNCED
proves that no successor has taken over, PROVED releases what the frame caused. From SERVING it may also roll to
a new file. Rules change the order of the phases and what each of them does.

The faults. A replica that is never scheduled again has crashed or is frozen; one that wakes up late is one that
is scheduled late. A power cut ends every replica, and leaves of each file any length between what was synced and
what was written. A restore sets the lock store back to an older ``head``.

Who sees what. All replicas share the files (``takeover_log``). With the fence ETCD a replica owns the log while
the lock's value is its own. With the fence SEAL it owns the log until it finds a seal; nobody asks the lock.
The lock store survives power cuts, as do the links of the directory lock, which are synced before they count.

What must hold (I1, I2): a primary that serves has every frame ever released in its view, in the same order; two
primaries never release different orders; a successor never finds a part of the log missing; it refuses to start
only after a restore.

What it does NOT model: confirmed lsns asked of other replicas, checkpoints and collection, switchover, bytes.
Imports ``takeover_log`` and ``takeover_rules``. Pure.
"""

from collections.abc import Iterator
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from deathless.simulation.models.takeover_log import (
    ENTRY_NOT_SYNCED,
    ROOT,
    Cut,
    Files,
    Frame,
    FrameId,
    MissingFileError,
    Opening,
    Placed,
    Record,
    Roll,
    Segment,
    SegmentOf,
    after_power_cut,
    find_file,
    get_file,
    put_file,
    read_log,
)
from deathless.simulation.models.takeover_rules import (
    Backup,
    Fence,
    HeadOrder,
    HeadRule,
    Predecessor,
    Proof,
    RollOrder,
    Rules,
    SealOrder,
    SealRule,
    Tail,
)


class Phase(StrEnum):
    """What a replica does next. The value names the step in traces."""

    SEALING = "seals"
    READING = "reads"
    WRITING = "writes cut and copies"
    SYNCING = "syncs cut and copies"
    SETTING_HEAD = "sets head"
    OVERWRITING_HEAD = "overwrites head"
    OPENING = "writes the opening frame"
    SYNCING_OPENING = "syncs the opening frame"
    PROVING = "proves and serves"
    SERVING = "serves"
    ALLOWED = "appends, having proved"
    APPENDED = "syncs the frame"
    SYNCED = "proves that it has no successor"
    PROVED = "releases"
    NEXT_FILE_CREATED = "writes the roll frame"
    ROLL_FRAME_WRITTEN = "syncs the roll frame"
    ROLL_FRAME_FIRST_WRITTEN = "syncs the roll frame, which has no file yet"
    NEXT_FILE_DUE = "creates the next file"


class Replica(NamedTuple):
    """One process that has taken the lock. Fields not needed in a phase keep their defaults, so that states merge."""

    epoch: int
    # Ordinal of its taking of the lock: the lock's value. Differs from the epoch only after a restore.
    turn: int
    phase: Phase
    # Frames it has read or written, in order: what it has executed.
    view: tuple[FrameId, ...] = ()
    # Cut and copies, until they are written.
    plan: tuple[Record, ...] = ()
    roll: int = 0
    written: int = 0
    confirmed: int = 0


class State(NamedTuple):
    """All that is durable or shared, and the replicas, sorted by turn. Replicas that have ended are dropped."""

    files: Files
    replicas: tuple[Replica, ...]
    # The turn that holds the lock; 0: nobody.
    lock: int
    turns: int
    epochs: int
    head: int
    seals: frozenset[int]
    # The longest order of frames that anybody outside has seen the effects of.
    released: tuple[FrameId, ...]
    power_cuts_left: int
    restores_left: int
    # Why this state must never be reached; empty: nothing wrong.
    broken: str = ""


Step = tuple[str, State]

LOST = "a released frame is lost"
DIVERGED = "two primaries released different orders"
NEEDLESS = "a successor refuses to start although nothing was restored"
STUCK = "a successor finds a part of the log missing"


class TakeoverModel:
    """The model of one reading of the protocol, for ``explorer.explore``."""

    def __init__(self, rules: Rules) -> None:
        """Args: rules: the reading and the bounds. Raises nothing."""
        self._rules = rules
        order = [Phase.READING, Phase.WRITING]
        if rules.fence is Fence.SEAL:
            order.insert(0 if rules.seal_order is SealOrder.SEAL_THEN_READ else 1, Phase.SEALING)
        head_last = rules.head_order is HeadOrder.AFTER_SYNC
        order += [Phase.SYNCING, Phase.SETTING_HEAD] if head_last else [Phase.SETTING_HEAD, Phase.SYNCING]
        if rules.opening_frame:
            order += [Phase.OPENING, Phase.SYNCING_OPENING]
        order.append(Phase.PROVING)
        self._first = order[0]
        self._after = dict(pairwise(order))

    def initial(self) -> State:
        """Return the state in which the first primary serves an empty log."""
        rules = self._rules
        records: tuple[Record, ...] = (Cut(ROOT), Opening()) if rules.opening_frame else (Cut(ROOT),)
        return State(
            files=(Segment(1, 0, records, len(records)),),
            replicas=(Replica(1, 1, Phase.SERVING),),
            lock=1,
            turns=1,
            epochs=1,
            head=1,
            seals=frozenset(),
            released=(),
            power_cuts_left=rules.power_cuts_max,
            restores_left=rules.restores_max,
        )

    def fault(self, state: State) -> str:
        """Return what a step found broken."""
        return state.broken

    def steps(self, state: State) -> Iterator[Step]:
        """Yield every step of the environment and of each replica."""
        if state.turns < self._rules.locks_max:
            yield self._take_lock(state)
        if state.power_cuts_left:
            left = state.power_cuts_left - 1
            for files in after_power_cut(state.files):
                yield "power cut", state._replace(files=files, replicas=(), power_cuts_left=left)
        if state.restores_left:
            yield from self._restore(state)
        for replica in state.replicas:
            for label, after in self._act(state, replica):
                yield f"epoch {replica.epoch} {label}", after

    # ---- the environment

    def _take_lock(self, state: State) -> Step:
        epoch, turn = state.epochs + 1, state.turns + 1
        replica = Replica(epoch, turn, self._first)
        after = state._replace(replicas=(*state.replicas, replica), lock=turn, turns=turn, epochs=epoch)
        return f"epoch {epoch} takes the lock", after

    def _restore(self, state: State) -> Iterator[Step]:
        left = state.restores_left - 1
        if state.head == 1:
            return
        if self._rules.backup is Backup.ANY_LOWER_HEAD:
            for head in range(1, state.head):
                yield f"lock store restored to head {head}", state._replace(head=head, lock=0, restores_left=left)
            return
        after = state._replace(head=1, lock=0, restores_left=left)
        if self._rules.backup is Backup.FIRST_HEAD_AND_COUNTER:
            after = after._replace(epochs=1)
        elif self._rules.backup is Backup.FIRST_HEAD_AND_HOLDER:
            after = after._replace(lock=1)
        yield "lock store restored to head 1", after

    # ---- a replica: one case per phase

    def _act(self, state: State, replica: Replica) -> Iterator[Step]:
        match replica.phase:
            case Phase.SEALING:
                yield self._seal(state, replica)
            case Phase.READING:
                yield from self._read(state, replica)
            case Phase.WRITING:
                yield self._write_cut(state, replica)
            case Phase.SYNCING | Phase.SYNCING_OPENING:
                yield self._sync(state, replica, self._after[replica.phase])
            case Phase.SETTING_HEAD:
                yield from self._set_head(state, replica)
            case Phase.OVERWRITING_HEAD:
                yield self._move(state._replace(head=replica.epoch), replica, self._after[Phase.SETTING_HEAD])
            case Phase.OPENING:
                yield self._append(state, replica, Opening(), self._after[replica.phase])
            case Phase.PROVING:
                yield self._begin_to_serve(state, replica)
            case Phase.SERVING | Phase.ALLOWED:
                yield from self._serve(state, replica)
            case Phase.APPENDED:
                after = Phase.SYNCED if self._rules.proof is Proof.AFTER_EACH_SYNC else Phase.PROVED
                yield self._sync(state, replica, after)
            case Phase.SYNCED:
                yield self._prove(state, replica, Phase.PROVED)
            case Phase.PROVED:
                yield self._release(state, replica)
            case Phase.NEXT_FILE_CREATED:
                yield self._append_roll(state, replica)
            case Phase.ROLL_FRAME_WRITTEN:
                yield self._sync(state, replica._replace(roll=replica.roll + 1), Phase.SERVING, roll=replica.roll)
            case Phase.ROLL_FRAME_FIRST_WRITTEN:
                yield self._sync(state, replica, Phase.NEXT_FILE_DUE)
            case Phase.NEXT_FILE_DUE:
                rolled = replica._replace(roll=replica.roll + 1)
                yield self._move(_create(state, rolled, durable=0), rolled, Phase.SERVING)

    def _move(self, state: State, replica: Replica, phase: Phase) -> Step:
        """Return the step that ends the replica's present phase."""
        return _label(state, replica), _put(state, replica._replace(phase=phase))

    def _owns(self, state: State, replica: Replica) -> bool:
        """Return what the fence answers to "own?"."""
        if self._rules.fence is Fence.ETCD:
            return state.lock == replica.turn
        match self._rules.seal_rule:
            case SealRule.CLOSES_EACH_EPOCH:
                return replica.epoch not in state.seals
            case SealRule.ANY_HIGHER:
                return all(seal <= replica.epoch for seal in state.seals)
            case SealRule.NEXT_ONLY:
                return replica.epoch + 1 not in state.seals

    def _prove(self, state: State, replica: Replica, phase: Phase) -> Step:
        """Return the step that asks the fence; a replica without a successor goes on to ``phase``."""
        if not self._owns(state, replica):
            return _depose(state, replica)
        return "proves that it has no successor", _put(state, replica._replace(phase=phase))

    def _seal(self, state: State, replica: Replica) -> Step:
        if self._rules.seal_rule is SealRule.CLOSES_EACH_EPOCH:
            seals = frozenset(range(state.head, replica.epoch))
        else:
            seals = frozenset((replica.epoch,))
        return self._move(state._replace(seals=state.seals | seals), replica, self._after[replica.phase])

    def _read(self, state: State, replica: Replica) -> Iterator[Step]:
        if self._rules.opening_frame and opening_above(state.files, state.head):
            untouched = state.restores_left == self._rules.restores_max
            ended = _depose(state, replica)[1]
            yield "refuses: the log is newer than the lock store", ended._replace(broken=NEEDLESS if untouched else "")
            return
        for files in self._listings(state.files):
            for head in self._predecessors(state, replica):
                try:
                    log = read_log(files, head, self._rules.absent_file)
                except MissingFileError as error:
                    if files == state.files:  # Otherwise it reads again: an error is not an answer.
                        yield f"reads from head {head}: {error}", state._replace(broken=STUCK)
                    continue
                yield f"reads from head {head}: {len(log)} frames", _put(state, self._plan(replica, log))

    def _listings(self, files: Files) -> Iterator[Files]:
        """Yield the directories that a reader may be shown."""
        yield files
        if self._rules.stale_listing:
            for segment in files:
                if segment.roll and find_file(files, segment.epoch, segment.roll + 1) is None:
                    yield tuple(other for other in files if other != segment)

    def _predecessors(self, state: State, replica: Replica) -> list[int]:
        """Return the epochs that the replica may take for the end of the log."""
        cuts = sorted({segment.epoch for segment in state.files if segment.records and segment.epoch < replica.epoch})
        match self._rules.predecessor:
            case Predecessor.HEAD:
                return [state.head]
            case Predecessor.HEAD_IN_STALE_LISTING:
                return [epoch for epoch in cuts if epoch <= state.head]
            case Predecessor.HIGHEST_CUT:
                return cuts[-1:]
            case Predecessor.ANY_CUT:
                return cuts

    def _plan(self, replica: Replica, log: tuple[Placed, ...]) -> Replica:
        """Return the replica with its view, its cut behind the last confirmed frame, and copies of what follows."""
        confirmed = max((placed.frame.confirmed for placed in log), default=0)
        kept = log[:confirmed] if self._rules.tail is Tail.VOIDED else log
        end = len(log) if self._rules.tail is Tail.LEFT_IN_PLACE else confirmed
        copies = (Frame(placed.frame.name, confirmed) for placed in kept[end:])
        plan: tuple[Record, ...] = (Cut(log[end - 1].end if end else ROOT), *copies)
        view = tuple(placed.frame.name for placed in kept)
        return replica._replace(phase=self._after[Phase.READING], view=view, plan=plan)

    def _write_cut(self, state: State, replica: Replica) -> Step:
        if find_file(state.files, replica.epoch, 0) is not None:
            return "finds its file taken", _depose(state, replica)[1]
        after = _create(state, replica, durable=ENTRY_NOT_SYNCED, records=replica.plan)
        return self._move(after, replica._replace(plan=()), self._after[replica.phase])

    def _set_head(self, state: State, replica: Replica) -> Iterator[Step]:
        after = self._after[replica.phase]
        match self._rules.head_rule:
            case HeadRule.GUARDED if state.lock != replica.turn:
                yield _depose(state, replica)
            case HeadRule.GUARDED | HeadRule.OVERWRITE:
                yield self._move(state._replace(head=replica.epoch), replica, after)
            case HeadRule.CHECK_THEN_SET:
                if state.lock == replica.turn:
                    yield "looks at the lock", _put(state, replica._replace(phase=Phase.OVERWRITING_HEAD))
            case HeadRule.HIGHEST_LINK:
                yield self._move(state._replace(head=max(state.head, replica.epoch)), replica, after)

    def _begin_to_serve(self, state: State, replica: Replica) -> Step:
        """Prove, then send again whatever the log says was sent: all of it counts as released."""
        if not self._owns(state, replica):
            return _depose(state, replica)
        if replica.view[: len(state.released)] != state.released:
            return "serves without a released frame", state._replace(broken=LOST)
        served = replica._replace(confirmed=len(replica.view))
        return self._move(state._replace(released=replica.view), served, Phase.SERVING)

    def _serve(self, state: State, replica: Replica) -> Iterator[Step]:
        """Append a frame, or roll to the next file."""
        rules = self._rules
        if replica.written < rules.frames_max:
            if rules.proof is Proof.BEFORE_APPEND and replica.phase is Phase.SERVING:
                yield self._prove(state, replica, Phase.ALLOWED)
            else:
                yield self._append_frame(state, replica)
        if replica.phase is Phase.SERVING and replica.roll < rules.rolls_max:
            match rules.roll_order:
                case RollOrder.FRAME_FIRST:
                    first = self._append(state, replica, Roll(replica.roll + 1), Phase.ROLL_FRAME_FIRST_WRITTEN)
                    yield "writes the roll frame", first[1]
                case order:
                    durable = ENTRY_NOT_SYNCED if order is RollOrder.ENTRY_NOT_SYNCED else 0
                    created = _create(state, replica._replace(roll=replica.roll + 1), durable=durable)
                    yield "creates the next file", _put(created, replica._replace(phase=Phase.NEXT_FILE_CREATED))

    def _append_frame(self, state: State, replica: Replica) -> Step:
        name = FrameId(replica.epoch, replica.written)
        grown = replica._replace(written=replica.written + 1, view=(*replica.view, name))
        after = Phase.APPENDED if self._rules.frame_synced else Phase.SYNCED
        _, appended = self._append(state, grown, Frame(name, replica.confirmed), after)
        return f"appends frame {name.epoch}.{name.number}", appended

    def _append_roll(self, state: State, replica: Replica) -> Step:
        roll = Roll(replica.roll + 1)
        if self._rules.roll_order is not RollOrder.FRAME_NOT_SYNCED:
            return self._append(state, replica, roll, Phase.ROLL_FRAME_WRITTEN)
        label, after = self._append(state, replica, roll, Phase.SERVING)
        return label, _put(after, replica._replace(phase=Phase.SERVING, roll=roll.roll))

    def _append(self, state: State, replica: Replica, record: Record, phase: Phase) -> Step:
        segment = get_file(state.files, replica.epoch, replica.roll).append(record)
        return self._move(state._replace(files=put_file(state.files, segment)), replica, phase)

    def _sync(self, state: State, replica: Replica, phase: Phase, *, roll: int | None = None) -> Step:
        segment = get_file(state.files, replica.epoch, replica.roll if roll is None else roll).synced()
        return self._move(state._replace(files=put_file(state.files, segment)), replica, phase)

    def _release(self, state: State, replica: Replica) -> Step:
        view, released = replica.view, state.released
        shorter = min(len(view), len(released))
        if view[:shorter] != released[:shorter]:
            return "releases another order", state._replace(broken=DIVERGED)
        proved = replica._replace(confirmed=len(view))
        return self._move(state._replace(released=max(view, released, key=len)), proved, Phase.SERVING)


def _label(state: State, replica: Replica) -> str:
    """Return what the replica does in the phase in which the state still has it."""
    return next(str(old.phase) for old in state.replicas if old.turn == replica.turn)


def _put(state: State, replica: Replica) -> State:
    """Return the state with the replica changed."""
    return state._replace(replicas=tuple(replica if old.turn == replica.turn else old for old in state.replicas))


def _depose(state: State, replica: Replica) -> Step:
    """Return the step in which the replica learns that it has a successor, and ends."""
    others = tuple(old for old in state.replicas if old.turn != replica.turn)
    return "finds itself deposed", state._replace(replicas=others)


def _create(state: State, replica: Replica, *, durable: int, records: tuple[Record, ...] = ()) -> State:
    """Return the state with the replica's present file created."""
    segment: Segment = SegmentOf(replica.epoch, replica.roll, records, durable)
    return state._replace(files=put_file(state.files, segment))


def opening_above(files: Files, head: int) -> bool:
    """Return whether an epoch above head has begun to release: the lock store is then older than the log."""
    return any(segment.epoch > head and Opening() in segment.records for segment in files)
