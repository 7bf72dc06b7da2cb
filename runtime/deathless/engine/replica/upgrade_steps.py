"""An upgrader: a follower whose frames the former code runs, until it makes the upgrade (design 0026).

    follows ---------------- every confirmed frame ---------------> Former.apply
    handed over, lock taken, log read to its end: Migrate --------> Former.migrated
       the shard restores what came; UPGRADED is run by the new code; its checkpoint is written, and read back
    WriteCut (cut, and UPGRADED behind it) -> SetHead: from here on the log is of the next generation

So whatever holds for a follower holds for an upgrader: it is on the chain, it is told of every frame once it is
confirmed, and the primary knows how far it is.

Guarantees: until head is set nothing that others read was changed; the shard of the new code holds nothing before that
checkpoint does. Does not: know how the former code runs, or how a state is migrated. May import core, codec and base.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from deathless.base.errors import CorruptFrame, DeathlessError, UpgradeCalledOff, UpgradeRequired
from deathless.base.ids import SYSTEM_SESSION, ChainHash, Epoch, Incarnation, Lsn
from deathless.base.safeguards import Safeguards
from deathless.base.times import NEVER
from deathless.codec.frames import Cut, Frame, FrameKind, Run, chain_after, decode_data
from deathless.codec.generations import Generation, Upgraded, encode_upgraded, raised
from deathless.codec.messages import Kind, decode, decode_time
from deathless.codec.snapshot import Snapshot
from deathless.core import events as ev
from deathless.core.replica.replica import ShardPlace
from deathless.engine.replica.applying import Code
from deathless.engine.replica.failures import as_ours
from deathless.engine.replica.outside import Former
from deathless.engine.shard.shard import Shard, cut_runs
from deathless.execution.ready import Ready

if TYPE_CHECKING:
    from deathless.engine.replica.replica_engine import ReplicaEngine


class Upgrade(NamedTuple):
    """An upgrade that is to be made.

    Attributes:
        id: 16 bytes; the primary is asked by it, and the log names it.
        from_generation: of the log that it is made of; behind any other it is made, or can't be.
        former: the code of before, which runs on until then.
        code: that runs behind it.
        from_version, to_version: what the author calls the two.
        time_us: what migrations are shown as the time, one for all of them.
    """

    id: bytes
    from_generation: int
    former: Former
    code: Code
    from_version: int
    to_version: int
    time_us: int


def to_be_made(cut: Cut | None, upgrade: Upgrade) -> bool:
    """Is the log still of the generation before? Else who was started for the upgrade is a replica like others.

    Args:
        cut: of head; None: there is no log yet.
        upgrade: what it was started for.
    """
    return cut is None or cut.generation == upgrade.from_generation


class FormerRunner:
    """Runs confirmed frames by the former code; where that stands is known from the frames.

    Args:
        place: of the shard that the new code will go on with.
    """

    def __init__(self, former: Former, place: ShardPlace) -> None:
        self._former = former
        self._place = place

    def restore(self, snapshot: Snapshot, *, same_code: bool) -> None:
        """See Runner; whether it fits the new code is asked when that goes on with it."""
        del same_code
        place = self._place
        place.lsn, place.chain, place.digest = snapshot.lsn, snapshot.chain, snapshot.digest
        place.times, place.due, place.generation = snapshot.times, NEVER, snapshot.generation
        self._former.restore(snapshot)

    def apply(self, frame: Frame) -> None:
        """See Runner; whether the former code gave the same is told when the state is asked for.

        Raises: CorruptFrame; UpgradeRequired for the record of an upgrade, which another replica made.
        """
        place = self._place
        if frame.first_lsn != place.lsn + 1 or frame.prev_chain != place.chain:
            raise CorruptFrame(f"frame at lsn {frame.first_lsn} does not follow lsn {place.lsn} on the chain")
        data = decode_data(frame)
        for run, messages in cut_runs(data):
            for message in messages if run.session == SYSTEM_SESSION else ():
                self._take_record(message, frame.first_lsn)
        place.digest = data.digest
        place.lsn, place.chain = frame.last_lsn, frame.chain
        self._former.apply(frame)

    def _take_record(self, message: bytes, lsn: int) -> None:
        """Keep the time, by which it is told what passes until the new code leads; and run across no upgrade."""
        kind, _, _, _, body = decode(message)
        if kind == Kind.TIME:
            self._place.times = self._place.times.later(decode_time(body))
        elif kind == Kind.UPGRADED:
            raise UpgradeRequired(f"another upgrade was made, at lsn {lsn}")


class UpgradeSteps:
    """The step of a takeover that is an upgrade's alone.

    Args:
        engine: of the upgrader.
        behind: takes the frame of the record, which goes behind the cut.
        safeguards: all on, but in tests.
    """

    def __init__(
        self, engine: ReplicaEngine, upgrade: Upgrade, behind: Callable[[Frame], None], safeguards: Safeguards
    ) -> None:
        self._engine = engine
        self._upgrade = upgrade
        self._behind = behind
        self._safeguards = safeguards
        self._ready: Ready | None = None  # the new code's states and handlers, as they were ahead of the cut

    @property
    def is_ready(self) -> bool:
        """Was something made ready, which the new code has not gone on with yet?"""
        return self._ready is not None

    def make_ready(self, ready: Ready) -> Iterator[None]:
        """Make ready ahead of the cut, in short steps, what the new code goes on with.

        Its name is `Begun.digest` of the states that were written ahead: what is restored then says since which it is.
        """
        self._drop()
        yield from self._engine.shard.make_ready(ready)
        self._ready = ready

    def _drop(self) -> None:
        ready, self._ready = self._ready, None
        if ready is not None:
            ready.drop(self._engine.shard.executor)

    def migrate(self, epoch: int) -> None:
        """Make what the new code goes on with."""
        self._upgrade.former.migrated(lambda answer: self._made(epoch, answer))

    def _made(self, epoch: int, answer: Snapshot | DeathlessError) -> None:
        place, complete = self._engine.place, self._engine.outside.process.complete
        if isinstance(answer, DeathlessError):
            complete(ev.UpgradeFailed(answer))
            return
        if (answer.lsn, answer.chain) != (place.lsn, place.chain) and self._safeguards.compare_former:
            text = f"the former code stands at lsn {answer.lsn}, the log ends at lsn {place.lsn}"
            complete(ev.UpgradeFailed(UpgradeCalledOff(text)))
            return
        try:
            frame = self._run_record(epoch, answer)
        except Exception as error:  # noqa: BLE001 whatever it is that the new code can't go on with
            text = (
                f"the new code can't go on with what was made of the former code's state: {as_ours(error, 'restore')}"
            )
            complete(ev.UpgradeFailed(UpgradeCalledOff(text)))
            return
        self._behind(frame)

        def written(problem: str) -> None:
            if problem:
                complete(ev.UpgradeFailed(UpgradeCalledOff(f"the first checkpoint is not good: {problem}")))
            else:
                complete(ev.Migrated(frame.last_lsn))

        def snapshot() -> Snapshot:
            if answer.since is None:
                return self._engine.snapshot()
            # The record changes nothing but the place, and to copy it all once more takes as long as there is of it.
            return self._engine.here(answer)

        write = self._engine.outside.checkpoints.write_first
        if not self._safeguards.checkpoint_before_head:
            written("")
            write(snapshot, lambda _: None)
            return
        write(snapshot, written)

    def _run_record(self, epoch: int, snapshot: Snapshot) -> Frame:
        """Restore what was made, and have the new code run the record; gives its frame."""
        engine, upgrade = self._engine, self._upgrade
        since, level = snapshot.since, engine.place.generation.level
        if self._ready is not None and (since is None or since.begun.digest != self._ready.name):
            self._drop()  # it is of other states
        engine.shard.restore(snapshot, same_code=False, ready=self._ready)
        self._ready = None
        record = Upgraded(
            engine.place.generation.number + 1,
            epoch,
            upgrade.id,
            upgrade.from_version,
            engine.fingerprint,
            upgrade.to_version,
            upgrade.code.fingerprint,
            upgrade.time_us,
            raised(level, upgrade.code.level, upgrade.former.level),
        )
        frame = run_record(engine.shard, record, engine.service.incarnation)
        engine.applying.goes_on(upgrade.code, engine.shard)
        engine.applying.log_epoch = epoch
        engine.witness.applied(frame)
        return frame


def run_record(shard: Shard, record: Upgraded, incarnation: int) -> Frame:
    """Have a shard that holds what was migrated run the record; gives its frame, the only one behind the cut."""
    place = shard.place
    before = place.chain
    payload = begin_generation(shard, record)
    return Frame(
        FrameKind.DATA,
        Epoch(record.epoch),
        Lsn(place.lsn),
        Lsn(place.lsn - 1),
        1,
        Incarnation(incarnation),
        ChainHash(before),
        ChainHash(place.chain),
        0,
        payload,
    )


def begin_generation(shard: Shard, record: Upgraded) -> bytes:
    """Have a shard that holds what was migrated run the record; gives the payload of the record's frame."""
    place = shard.place
    executed = shard.execute([(Run(0, 0, 0, 1), [encode_upgraded(record)])])
    place.chain = chain_after(ChainHash(place.chain), Lsn(place.lsn), executed.payload)
    place.generation = Generation(record.generation, place.lsn, place.chain, record.level)
    return executed.payload
