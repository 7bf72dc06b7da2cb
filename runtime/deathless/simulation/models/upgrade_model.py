"""Every interleaving of upgrades, takeovers, replicas of former and new code, and power cuts.

Why it exists: an upgrade (design 0026) is a takeover with a migration inside, and almost every other order of its steps
loses something, runs a message with code that did not answer it, or leaves a log that nobody can lead. This model walks
all interleavings, for the protocol that we prescribe and for the readings of it that look just as good.

The machines. A replica of any generation takes or steals the lock at any time, its holder alive or not, and gets the
next epoch. Of head's generation it takes over; of the next one it is an upgrader; else it is none of them and goes:

    takeover   READING -> WRITING -> SYNCING -> SETTING_HEAD -> OPENING -> SYNCING_OPENING -> PROVING, and serves
    upgrade    READING -> MIGRATING -> WRITING_CHECKPOINT -> SYNCING_CHECKPOINT -> WRITING -> ... as above

A primary appends a frame, syncs it, proves that it has no successor, releases it. It says in a header what is
confirmed, and may roll to another file. Rules change the order of these steps and what each of them does.

The faults. Whoever is never scheduled again has crashed; whoever is scheduled late was frozen, also an upgrader. A
power cut ends everybody, and of what was not synced leaves any part. A migration may fail, a checkpoint may rot, the
lock store may be set back to an earlier head and be adopted then. An attempt that was let go leaves its file and its
checkpoint behind.

What must hold in every state, and after a start of everybody from it: ``Violation``. The rules that the model shows as
needed, each a field of ``Rules`` and a row of the table in design 0026:

    tail, fed_by_chain    nothing unconfirmed meets the new code; the end is read under the lock and compared by chain
    order                 first checkpoint, then cut and record, then head; each is synced before the next
    told, epoch_in_record the upgrade is a record of the log, with the epoch in it
    loading, others_passed_over   a generation loads its own chain's checkpoints, and passes over all others
    check, number_compared, from_under_lock   number and fingerprint are compared before the lock is taken and under it
    head_guarded, back_out_is_upgrade   who holds the lock sets head, and only forward
    proof_sees_upgrader   a primary stops answering once an upgrader has the lock
    collection            a former log stays until two checkpoints of the log's own chain stand

A sync is no step of its own where no power cut is left: it changes nothing then. With ``prunes`` the model also forgets
what nobody can read or release any more, for large bounds; that holds for the design, where an attempt that lost the
lock can set no head, and its files have names that no other attempt looks for. What it does NOT model: time, detection,
what is fed, several shards, seals, bytes.

``python -m deathless.simulation.models.upgrade_model --takings 4`` walks the design within larger bounds.
Imports ``upgrade_start``, ``upgrade_log``, ``upgrade_rules``, of ``takeover_log`` the files. Pure but for its command.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from enum import StrEnum
from itertools import product
from typing import NamedTuple

from deathless.simulation.models.explorer import explore
from deathless.simulation.models.takeover_log import (
    ENTRY_NOT_SYNCED,
    ROOT,
    FrameId,
    MissingFileError,
    Roll,
    SegmentOf,
    after_power_cut,
    find_file,
    get_file,
    put_file,
)
from deathless.simulation.models.upgrade_log import (
    Checkpoint,
    Cut,
    File,
    Files,
    Frame,
    Header,
    Place,
    Ran,
    Record,
    Upgraded,
    View,
    first_record,
    opened_above,
    read_log,
    route,
    without_unread,
)
from deathless.simulation.models.upgrade_rules import FIRST, Check, Collection, Generation, Order, Rules, Tail, Told
from deathless.simulation.models.upgrade_start import (
    BrokenError,
    Durable,
    Starts,
    Violation,
    check_code,
    newest_last,
    run_with,
)


class Phase(StrEnum):
    """What a replica does next. The value names the step in traces."""

    READING = "reads"
    MIGRATING = "migrates"
    WRITING_CHECKPOINT = "writes its first checkpoint"
    SYNCING_CHECKPOINT = "syncs its first checkpoint"
    WRITING = "writes cut and copies"
    SYNCING = "syncs cut and copies"
    SETTING_KEY = "sets the key of its generation"
    SETTING_HEAD = "sets head"
    OPENING = "writes the opening frame"
    SYNCING_OPENING = "syncs the opening frame"
    PROVING = "proves and serves"
    SERVING = "serves"
    APPENDED = "syncs the frame"
    SYNCED = "proves that it has no successor"
    PROVED = "releases"
    CONFIRM_WRITTEN = "syncs the header that confirms all"
    CLOSE_WRITTEN = "syncs the closing frame, and ends"
    NEXT_FILE_CREATED = "writes the roll frame"
    ROLL_WRITTEN = "syncs the roll frame"


_BEFORE_HEAD = (Phase.MIGRATING, Phase.WRITING_CHECKPOINT, Phase.SYNCING_CHECKPOINT, Phase.WRITING, Phase.SYNCING)
_BEHIND_HEAD = (Phase.OPENING, Phase.SYNCING_OPENING, Phase.PROVING)
_TAKEOVER = (*_BEFORE_HEAD[3:], Phase.SETTING_HEAD, *_BEHIND_HEAD, Phase.SERVING)
_SYNCS = frozenset({Phase.SYNCING_CHECKPOINT, Phase.SYNCING, Phase.SYNCING_OPENING})


def _path(rules: Rules) -> tuple[Phase, ...]:
    """Return the phases of an upgrader behind READING."""
    migrating, writing_checkpoint, syncing_checkpoint, writing, syncing = _BEFORE_HEAD
    checkpoint, cut, head = (writing_checkpoint, syncing_checkpoint), (writing, syncing), Phase.SETTING_HEAD
    path: tuple[Phase, ...]
    match rules.order:
        case Order.CHECKPOINT_CUT_HEAD:
            path = (migrating, *checkpoint, *cut, head)
        case Order.HEAD_THEN_CHECKPOINT:
            path = (migrating, *cut, head, *checkpoint)
        case Order.SERVES_FIRST:
            path = (migrating, *cut, head)
        case Order.CHECKPOINT_NOT_SYNCED:
            path = (migrating, writing_checkpoint, *cut, head, syncing_checkpoint)
        case Order.CUT_NOT_SYNCED:
            path = (migrating, *checkpoint, writing, head, syncing)
        case Order.HEAD_THEN_MIGRATION:
            path = (*cut, head, migrating, *checkpoint)
    if rules.told is Told.KEY_THEN_HEAD:
        path = (*path[:-1], Phase.SETTING_KEY, head)
    late = (Phase.SETTING_KEY,) if rules.told is Told.HEAD_THEN_KEY else ()
    path = (*path, *_BEHIND_HEAD, *late, Phase.SERVING)
    return path if rules.migration_may_fail else tuple(phase for phase in path if phase is not migrating)


class Replica(NamedTuple):
    """One process that has taken the lock. Fields not needed in a phase keep their defaults, so that states merge."""

    # Ordinal of its taking of the lock: the lock's value.
    epoch: int
    who: Generation
    phase: Phase
    upgrades: bool = False
    # What its state is made of.
    view: View = ()
    # Cut, copies and record, until they are written.
    plan: tuple[Record, ...] = ()
    # Name of the first checkpoint of an upgrader.
    first: tuple[Place, int] | None = None
    roll: int = 0
    written: int = 0
    # Frames that it has proved, and how many of them it has said so of.
    confirmed: int = 0
    said: int = 0


class State(NamedTuple):
    """All that is durable or shared, and the replicas, sorted by epoch. Replicas that have ended are dropped."""

    files: Files
    checkpoints: frozenset[Checkpoint]
    replicas: tuple[Replica, ...]
    # The epoch that holds the lock; 0: nobody.
    lock: int
    epochs: int
    head: int
    # The generation in a key of its own; moved by rules that have one.
    key: Generation
    # The longest order of frames that anybody outside has seen the effects of, and who served last.
    released: View
    served: int
    served_by: Generation
    power_cuts_left: int
    restores_left: int
    former_checkpoints_left: int
    rots_left: int
    # What an upgrader was fed or told before it took the lock.
    fed: View | None = None
    # Generations that have looked at the lock and found that they may take it.
    looked: frozenset[Generation] = frozenset()
    # Whether the migration works; None: nobody has tried.
    migration: bool | None = None
    # The log and the checkpoints of the former generation are gone.
    collected: bool = False
    broken: str = ""


Step = tuple[str, State]


class UpgradeModel:
    """The model of one reading of the protocol, for ``explorer.explore``."""

    def __init__(self, rules: Rules, *, prunes: bool = False) -> None:
        """Args: rules: the reading and the bounds. prunes: forget what nobody can see, see above. Raises nothing."""
        self._rules = rules
        self._prunes = prunes
        self._paths = (_TAKEOVER, _path(rules))
        self._last = max(generation.number for generation in rules.generations)
        self._starts = Starts(rules)

    def initial(self) -> State:
        """Return the state in which the first primary of the first generation serves an empty log."""
        rules = self._rules
        file: File = SegmentOf(1, 0, (Cut(ROOT, FIRST),), 1)
        return State(
            files=(file,),
            checkpoints=frozenset(),
            replicas=(Replica(1, FIRST, Phase.SERVING),),
            lock=1,
            epochs=1,
            head=1,
            key=FIRST,
            released=(),
            served=1,
            served_by=FIRST,
            power_cuts_left=rules.power_cuts_max,
            restores_left=rules.restores_max,
            former_checkpoints_left=rules.former_checkpoints_max,
            rots_left=rules.rots_max,
        )

    def fault(self, state: State) -> str:
        """Return what a step found broken, or what a start of everybody finds if all of them end now."""
        return state.broken or self._starts.judge(_durable(state), state.released)

    def steps(self, state: State) -> Iterator[Step]:
        """Yield every step of the environment and of each replica."""
        try:
            yield from self._environment(state)
            for replica in state.replicas:
                for label, after in self._act(state, replica):
                    yield f"epoch {replica.epoch} ({replica.who.number}{replica.who.code}) {label}", after
        except BrokenError as error:
            yield str(error), state._replace(broken=str(error))
        except MissingFileError as error:
            yield str(error), state._replace(broken=f"{Violation.STALL}: {error}")

    # ---- the environment

    def _environment(self, state: State) -> Iterator[Step]:
        if state.epochs < self._rules.takings_max:
            yield from self._take_lock(state)
        if state.power_cuts_left:
            yield from self._cut_power(state)
        yield from self._restore(state)
        if state.former_checkpoints_left and first_record(state.files, state.head).writer == FIRST:
            log = read_log(state.files, state.head)
            kept = log.place[: log.confirmed]
            made = Checkpoint(
                (kept, self._starts.number_in_name(FIRST)),
                FIRST,
                run_with(log, FIRST.code)[: log.confirmed],
                durable=True,
            )
            left = state.former_checkpoints_left - 1
            if made.name not in {each.name for each in state.checkpoints}:
                with_it = state._replace(checkpoints=state.checkpoints | {made}, former_checkpoints_left=left)
                yield "the former generation takes a checkpoint", with_it
        if state.rots_left:
            for checkpoint in sorted((each for each in state.checkpoints if each.of != FIRST), key=newest_last):
                rotten = state._replace(checkpoints=state.checkpoints - {checkpoint}, rots_left=state.rots_left - 1)
                yield f"a checkpoint behind {len(checkpoint.view)} frames rots", rotten

    def _take_lock(self, state: State) -> Iterator[Step]:
        check, epoch = self._rules.check, state.epochs + 1
        for who in self._rules.generations:
            start = self._starts.start(_durable(state), who, hot=True)
            name = f"a replica of generation {who.number}{who.code}"
            if check is Check.LOOK_THEN_TAKE and who not in state.looked:
                if start.may:
                    yield f"{name} looks at the lock and head", state._replace(looked=state.looked | {who})
                continue
            if check is Check.BEFORE_TAKE and not start.may:
                continue
            replicas = (*state.replicas, Replica(epoch, who, Phase.READING))
            looked = state.looked - {who}
            after = self._pruned(state._replace(replicas=replicas, lock=epoch, epochs=epoch, looked=looked))
            serving = state.lock == state.served and any(each.epoch == state.lock for each in state.replicas)
            if not start.may and serving and state.served_by != who:
                after = after._replace(broken=f"{Violation.OUTAGE}: {start.why}")
            yield f"epoch {epoch}: {name} takes the lock", after

    def _cut_power(self, state: State) -> Iterator[Step]:
        """Yield every directory that may be left; a checkpoint that is not synced is there or is not."""
        left = state.power_cuts_left - 1
        choices = [(each,) if each.durable else (each, None) for each in sorted(state.checkpoints, key=newest_last)]
        for files in after_power_cut(state.files):
            for image in product(*choices):
                kept = frozenset(each._replace(durable=True) for each in image if each is not None)
                after = state._replace(files=files, checkpoints=kept, replicas=(), power_cuts_left=left)
                yield "power cut", self._pruned(after)

    def _restore(self, state: State) -> Iterator[Step]:
        """Yield what sets head by hand: a restored lock store, its adoption, a back-out that is no upgrade."""
        newer = opened_above(state.files, state.head)
        if state.restores_left and not newer:
            for epoch in route(state.files, state.head)[1:]:
                restored = state._replace(head=epoch, lock=0, restores_left=state.restores_left - 1)
                yield f"the lock store is restored to head {epoch}", restored
        if newer and state.restores_left < self._rules.restores_max:
            yield f"head {newer} is adopted", state._replace(head=newer, lock=0)
        if not self._rules.back_out_is_upgrade and state.served_by.number > 1:
            cut = first_record(state.files, state.head)
            if cut.writer == state.served_by:
                yield f"head is set back to {cut.base.epoch}", state._replace(head=cut.base.epoch, lock=0)

    # ---- the replicas

    def _act(self, state: State, replica: Replica) -> Iterator[Step]:
        """Yield what this replica can do now."""
        label = str(replica.phase)
        if replica.phase is Phase.SYNCED and not self._rules.fed_by_chain and state.fed is None:
            yield "feeds an upgrader with what it has not proved", state._replace(fed=replica.view)
        match replica.phase:
            case Phase.READING:
                yield from self._read(state, replica)
            case Phase.MIGRATING:
                yield from self._migrate(state, replica)
            case Phase.WRITING_CHECKPOINT:
                # A checkpoint is linked exclusively: one that has the name stays.
                assert replica.first is not None
                made = Checkpoint(replica.first, replica.who, replica.view, durable=not state.power_cuts_left)
                taken = any(each.name == made.name for each in state.checkpoints)
                after = state if taken else state._replace(checkpoints=state.checkpoints | {made})
                yield label, self._go_on(after, replica)
            case Phase.WRITING:
                durable = ENTRY_NOT_SYNCED if state.power_cuts_left else len(replica.plan)
                created = SegmentOf(replica.epoch, 0, replica.plan, durable)
                after = state._replace(files=put_file(state.files, created))
                yield label, self._go_on(after, replica._replace(plan=()))
            case Phase.SYNCING_CHECKPOINT | Phase.SYNCING | Phase.SYNCING_OPENING:
                yield label, self._go_on(self._synced(state, replica), replica)
            case Phase.SETTING_KEY:
                yield label, self._go_on(state._replace(key=replica.who), replica)
            case Phase.SETTING_HEAD if state.lock != replica.epoch and (
                self._rules.head_guarded or not replica.upgrades
            ):
                yield _end(state, replica, "finds itself deposed")
            case Phase.SETTING_HEAD:
                yield label, self._pruned(self._go_on(state._replace(head=replica.epoch), replica))
            case Phase.OPENING:
                said = replica._replace(said=len(replica.view))
                after = self._appended(state, replica, Header("opening", len(replica.view)))
                yield label, self._go_on(after, said)
            case Phase.PROVING | Phase.SYNCED if self._is_deposed(state, replica):
                yield _end(state, replica, "finds itself deposed")
            case Phase.PROVING:
                confirmed = replica._replace(confirmed=len(replica.view))
                yield label, self._pruned(self._go_on(self._release(state, replica), confirmed))
            case Phase.SYNCED:
                yield label, _put(state, replica._replace(phase=Phase.PROVED))
            case Phase.PROVED:
                idle = replica._replace(phase=Phase.SERVING, confirmed=len(replica.view))
                yield label, self._pruned(_put(self._release(state, replica), idle))
            case Phase.SERVING:
                yield from self._serve(state, replica)
            case Phase.NEXT_FILE_CREATED:
                yield label, self._append(state, replica, Roll(replica.roll + 1), Phase.ROLL_WRITTEN)
            case Phase.APPENDED | Phase.CONFIRM_WRITTEN | Phase.CLOSE_WRITTEN | Phase.ROLL_WRITTEN:
                yield label, self._sync(state, replica)

    def _is_deposed(self, state: State, replica: Replica) -> bool:
        """Return whether a proof that begins now fails."""
        if state.lock == replica.epoch:
            return False
        upgrading = any(each.epoch == state.lock and each.upgrades for each in state.replicas)
        return self._rules.proof_sees_upgrader or not upgrading or state.head != replica.epoch

    def _go_on(self, state: State, replica: Replica) -> State:
        """Return the state with the replica in the next phase of its takeover; a sync that changes nothing is none."""
        path = self._paths[replica.upgrades]
        at = path.index(replica.phase) + 1
        while path[at] in _SYNCS and not state.power_cuts_left:
            at += 1
        # The name of its checkpoint is not needed behind the checkpoint, nor any of this by a primary.
        kept = replica.first if Phase.SYNCING_CHECKPOINT in path[at:] else None
        return _put(state, replica._replace(phase=path[at], first=kept))

    def _read(self, state: State, replica: Replica) -> Iterator[Step]:
        start = self._starts.start(_durable(state), replica.who, hot=True)
        if not start.may:
            yield _end(state, replica, f"refuses: {start.why}")
            return
        rules, log = self._rules, read_log(state.files, state.head)
        frames, confirmed, view = log.frames, log.confirmed, start.view
        if not start.upgrades:
            confirmed = max(confirmed, start.loaded) if rules.loaded_is_confirmed else confirmed
        elif rules.tail is Tail.AS_HANDED_OVER and state.fed is not None:
            view, frames, confirmed = state.fed, frames[: len(state.fed)], len(state.fed)
        elif (
            rules.tail is Tail.AS_HANDED_OVER
            or (rules.tail in {Tail.CONFIRMED, Tail.CLOSED} and confirmed < len(frames))
            or (rules.tail is Tail.CLOSED and not (isinstance(log.last, Header) and log.last.kind == "close"))
        ):
            yield _end(state._replace(lock=0), replica, "finds no end that it may upgrade behind, and lets go")
            return
        elif not rules.fed_by_chain and state.fed is not None and len(state.fed) == len(frames):
            view = state.fed
        elif rules.tail is Tail.NEW_CODE:
            view = view[:confirmed] + run_with(log, replica.who.code)[confirmed:]
        elif rules.tail is Tail.DROPPED:
            view, frames = view[:confirmed], frames[:confirmed]
        check_code(log, view)
        base = frames[confirmed - 1].end if confirmed else ROOT
        copies: tuple[Record, ...] = tuple(
            Frame(placed.frame.name, confirmed, placed.frame.writer) for placed in frames[confirmed:]
        )
        named = (
            None if rules.told in {Told.RECORD, Told.ONE_CUT} else self._starts.first_checkpoint(_durable(state), log)
        )
        first = None
        if start.upgrades:
            place: Place = tuple(placed.frame.name for placed in frames)
            if rules.told is Told.RECORD:
                name = Upgraded(replica.epoch if rules.epoch_in_record else 0, replica.who)
                copies, place = (*copies, Frame(name, confirmed, replica.who)), (*place, name)
                view = (*view, Ran(name, replica.who.code, 0 if rules.migration_repeats else replica.epoch))
            first = (place, self._starts.number_in_name(replica.who))
            named = None if rules.told is Told.RECORD else first
        plan = (Cut(base, replica.who, named), *copies)
        ready = replica._replace(upgrades=start.upgrades, view=view, plan=plan, first=first)
        path = self._paths[start.upgrades]
        label = (
            f"reads head {state.head} and {'upgrades' if start.upgrades else 'takes over'} behind {len(view)} frames"
        )
        yield label, _put(state, ready._replace(phase=path[0]))

    def _migrate(self, state: State, replica: Replica) -> Iterator[Step]:
        if state.migration is not False:
            yield "migrates", self._go_on(state._replace(migration=True), replica)
        if state.migration is not True:
            lock = 0 if state.lock == replica.epoch else state.lock
            yield _end(state._replace(migration=False, lock=lock), replica, "fails to migrate, and lets go")

    def _release(self, state: State, replica: Replica) -> State:
        """Return the state in which everything that the replica's state holds has been seen outside."""
        view, released = replica.view, state.released
        of_head, place = first_record(state.files, state.head).writer, read_log(state.files, state.head).place
        if of_head.number > replica.who.number and tuple(ran.name for ran in view) != place[: len(view)]:
            return state._replace(broken=f"{Violation.TWO_VERSIONS}: epoch {replica.epoch} beside head {state.head}")
        shorter = min(len(view), len(released))
        if view[:shorter] != released[:shorter]:
            return state._replace(broken=f"{Violation.LOST}: epoch {replica.epoch} releases another order")
        served, by = max((state.served, state.served_by), (replica.epoch, replica.who))
        return state._replace(released=max(view, released, key=len), served=served, served_by=by)

    def _serve(self, state: State, replica: Replica) -> Iterator[Step]:
        """Yield what a primary does between two frames, and its next frame."""
        rules, view = self._rules, replica.view
        if replica.written < rules.frames_max:
            yield self._append_frame(state, replica)
        if replica.roll < rules.rolls_max:
            created: File = SegmentOf(replica.epoch, replica.roll + 1, (), 0)
            after = state._replace(files=put_file(state.files, created))
            yield "creates the next file", _put(after, replica._replace(phase=Phase.NEXT_FILE_CREATED))
        idle, former = replica.confirmed == len(view), replica.who.number < self._last
        if former and rules.told is Told.MESSAGE:
            yield from self._switch(state, replica)
        elif former and idle and rules.tail is Tail.CONFIRMED and replica.said < replica.confirmed:
            said, header = replica._replace(said=replica.confirmed), Header("confirm", replica.confirmed)
            yield "says that all is confirmed", self._append(state, said, header, Phase.CONFIRM_WRITTEN)
        elif former and idle and rules.tail is Tail.CLOSED:
            yield "closes its log", self._append(state, replica, Header("close", len(view)), Phase.CLOSE_WRITTEN)
        elif former and idle and rules.tail is Tail.AS_HANDED_OVER and state.fed is None:
            yield "is drained and says where its log ends", state._replace(fed=view)
        if replica.who.number > 1 and rules.collection is not Collection.NEVER and not state.collected and idle:
            yield from self._collect(state, replica)

    def _append_frame(self, state: State, replica: Replica) -> Step:
        name = FrameId(replica.epoch, replica.written)
        view = (*replica.view, Ran(name, replica.who.code))
        grown = replica._replace(written=replica.written + 1, view=view, said=replica.confirmed)
        frame = Frame(name, replica.confirmed, replica.who)
        return f"appends frame {name.epoch}.{name.number}", self._append(state, grown, frame, Phase.APPENDED)

    def _switch(self, state: State, replica: Replica) -> Iterator[Step]:
        """Yield the switch by a message: this replica, as any other, runs the new code from there on."""
        to = next(each for each in self._rules.generations if each.number == replica.who.number + 1)
        name = Upgraded(replica.epoch, to)
        for works in (True, False) if self._rules.migration_may_fail else (True,):
            switched = replica._replace(who=to, view=(*replica.view, Ran(name, to.code)))
            logged = self._append(state, switched, Frame(name, replica.confirmed, to), Phase.APPENDED)
            yield f"logs the switch, which {'works' if works else 'fails'}", logged._replace(migration=works)

    def _collect(self, state: State, replica: Replica) -> Iterator[Step]:
        place, number = tuple(ran.name for ran in replica.view), self._starts.number_in_name(replica.who)
        own = frozenset(each for each in state.checkpoints if each.of == replica.who)
        if (place, number) not in {each.name for each in own}:
            made = Checkpoint((place, number), replica.who, replica.view, durable=True)
            yield "takes another checkpoint", state._replace(checkpoints=state.checkpoints | {made})
        counted = own
        if self._rules.collection is not Collection.AFTER_ANY_TWO:
            counted = frozenset(each for each in own if each.name[0] == place[: len(each.name[0])])
        if len(counted) >= (1 if self._rules.collection is Collection.AFTER_ONE else 2):
            yield "collects the former log", state._replace(checkpoints=counted, collected=True)

    # ---- files

    def _append(self, state: State, replica: Replica, record: Record, phase: Phase) -> State:
        after = _put(self._appended(state, replica, record), replica._replace(phase=phase))
        return after if state.power_cuts_left else self._sync(after, replica._replace(phase=phase))

    def _appended(self, state: State, replica: Replica, record: Record) -> State:
        segment = get_file(state.files, replica.epoch, replica.roll).append(record)
        return state._replace(files=put_file(state.files, segment if state.power_cuts_left else segment.synced()))

    def _synced(self, state: State, replica: Replica) -> State:
        """Return the state with what the replica wrote last made durable: its checkpoint, or its file."""
        if replica.phase is Phase.SYNCING_CHECKPOINT:
            synced = (each._replace(durable=each.durable or each.name == replica.first) for each in state.checkpoints)
            return state._replace(checkpoints=frozenset(synced))
        segment = find_file(state.files, replica.epoch, replica.roll)
        return state if segment is None else state._replace(files=put_file(state.files, segment.synced()))

    def _sync(self, state: State, replica: Replica) -> State:
        """Return the state after the sync of what a primary appended."""
        after = self._synced(state, replica)
        match replica.phase:
            case Phase.CLOSE_WRITTEN:
                return _end(after, replica, "")[1]
            case Phase.APPENDED:
                return _put(after, replica._replace(phase=Phase.SYNCED))
            case Phase.ROLL_WRITTEN:
                return _put(after, replica._replace(phase=Phase.SERVING, roll=replica.roll + 1))
            case _:
                return _put(after, replica._replace(phase=Phase.SERVING))

    def _pruned(self, state: State) -> State:
        """Return the state without what can neither be read nor released any more, if the model may forget it."""
        if not self._prunes or state.broken:
            return state
        head, lock = state.head, state.lock if state.replicas else 0
        replicas = tuple(
            each
            for each in state.replicas
            if each.epoch in {head, lock} or (each.epoch < head and each.phase is Phase.PROVED)
        )
        attempts = {name.epoch for name in read_log(state.files, head).place if isinstance(name, Upgraded)} | {lock}
        found = frozenset(
            each
            for each in state.checkpoints
            if all(name.epoch in attempts for name in each.name[0] if isinstance(name, Upgraded))
        )
        files = without_unread(state.files, head, lock)
        return state._replace(files=files, checkpoints=found, replicas=replicas)


def _durable(state: State) -> Durable:
    """Return what a start finds."""
    return Durable(state.files, state.checkpoints, state.head, state.key, state.collected, state.migration)


def _put(state: State, replica: Replica) -> State:
    """Return the state with the replica changed."""
    return state._replace(replicas=tuple(replica if old.epoch == replica.epoch else old for old in state.replicas))


def _end(state: State, replica: Replica, why: str) -> Step:
    """Return the step with which the replica ends."""
    return why, state._replace(replicas=tuple(old for old in state.replicas if old.epoch != replica.epoch))


def main(arguments: Sequence[str] | None = None) -> int:
    """Walk the design within the bounds that the command line gives, and print what came out; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m deathless.simulation.models.upgrade_model")
    for name, value in (("takings", 4), ("frames", 1), ("rolls", 1), ("power-cuts", 1), ("states", 3_000_000)):
        parser.add_argument(f"--{name}", type=int, default=value, metavar="N", help=f"at most (default {value})")
    parser.add_argument("--whole", action="store_true", help="forget nothing: many more states")
    given = parser.parse_args(arguments)
    rules = Rules(
        takings_max=given.takings,
        frames_max=given.frames,
        rolls_max=given.rolls,
        power_cuts_max=given.power_cuts,
    )
    begun = time.process_time()
    verdict = explore(UpgradeModel(rules, prunes=not given.whole), states_max=given.states)
    sys.stdout.write(f"{verdict}, {time.process_time() - begun:.0f} s of processor time\n")
    return 0 if verdict.holds else 1


if __name__ == "__main__":
    sys.exit(main())
