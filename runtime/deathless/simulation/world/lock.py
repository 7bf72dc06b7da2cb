"""The lock store of one shard, in memory: linearizable, sometimes without an answer, sometimes restored.

Why it exists: takeovers, proofs and heads go through the lock, and what a replica does when the store is slow, gone,
or older than the log decides whether anything is lost. The simulation needs all of that on command.

Guarantees: every method is one transaction on ``SimLockStore``, at the moment it is called there; ``SimLock`` adds
the way there and back: time passes before and after, the store may not answer, and then the outcome is unknown to
the caller: nothing happened, or all of it. Ownership is compared by value and store id, never by a revision.

Does not: have leases (they play no part in safety, I2). The record that stands in the store is never changed in
place. May import scheduler, engine.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from deathless.base.errors import LockUnavailable
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.witness import Point
from deathless.core.replica.witness import another_point
from deathless.engine.ports import Holder, LockView, ServiceRecord
from deathless.simulation.world.scheduler import Process

ANSWER_TIMEOUT_US: Final = 500_000


@dataclass(frozen=True, slots=True, kw_only=True)
class _Keys:
    """Everything the store holds, at one revision."""

    service: ServiceRecord | None = None
    epoch: int = 0
    head: int = 0
    holder: Holder | None = None
    revision: int = 1
    confirmed: Point | None = None  # the witness; its changes do not count in `revision`, as no take compares it
    confirmed_revision: int = 0  # of its last change; 0: there is none


class SimLockStore:
    """What stands in the store; shared by all replicas of a run.

    Args:
        store_id: id of the store's cluster.
    """

    def __init__(self, store_id: str = "store-1") -> None:
        self.store_id = store_id
        self.available = True  # False: nobody gets an answer
        self._keys = _Keys()
        self._backup = self._keys

    def backup(self) -> None:
        """Remember the present keys for ``restore``."""
        self._backup = self._keys

    def restore(self) -> None:
        """Put the last backup back, as an operator does with ``etcdctl snapshot restore``."""
        self._keys = self._backup

    def read(self) -> LockView:
        """Read everything."""
        keys = self._keys
        return LockView(keys.service, keys.epoch, keys.head, keys.holder, keys.revision, self.store_id, keys.confirmed)

    def _write(self, keys: _Keys) -> None:
        self._keys = replace(keys, revision=self._keys.revision + 1)

    def create_service(self, record: ServiceRecord) -> ServiceRecord:
        """See ``Lock.create_service``."""
        if self._keys.service is None:
            self._write(replace(self._keys, service=record))
        standing = self._keys.service
        assert standing is not None
        return standing

    def go_live(self, holder: Holder) -> bool:
        """See ``Lock.go_live``."""
        keys = self._keys
        if keys.holder != holder or keys.service is None:
            return False
        self._write(replace(keys, service=msgspec.structs.replace(keys.service, live=True)))
        return True

    def take(self, replica: str, nonce: bytes, seen: LockView) -> Holder | None:
        """See ``Lock.take``."""
        keys = self._keys
        if keys.revision != seen.revision or self.store_id != seen.store_id:
            return None
        holder = Holder(keys.epoch + 1, replica, nonce)
        self._write(replace(keys, epoch=holder.epoch, holder=holder))
        return holder

    def set_head(self, holder: Holder, point: Point | None = None, known: int = 0) -> int | None:
        """See ``Lock.set_head``; `known` is the revision of the witness that the holder wrote or read last."""
        if self._keys.holder != holder:
            return None
        if point is not None:
            self.put_witness(holder, point, known, ALL_SAFEGUARDS)
        self._write(replace(self._keys, head=holder.epoch))
        return self._keys.revision

    @property
    def witness_revision(self) -> int:
        """Of the witness's last change."""
        return self._keys.confirmed_revision

    @property
    def confirmed(self) -> Point | None:
        """The witness that stands."""
        return self._keys.confirmed

    def put_witness(self, holder: Holder, point: Point, known: int, safeguards: Safeguards) -> bool | None:
        """See ``Lock.witness``."""
        keys = self._keys
        if keys.holder != holder and safeguards.witness_guarded:
            return None
        gone = keys.confirmed is None and known > 0
        changed = keys.confirmed_revision != known and keys.confirmed != point
        if changed and not gone and safeguards.witness_own_revision:
            raise another_point(keys.confirmed)
        self._keys = replace(keys, confirmed=point, confirmed_revision=keys.confirmed_revision + 1)
        return gone

    def owns(self, holder: Holder) -> bool:
        """See ``Lock.owns``."""
        return self._keys.holder == holder

    def release(self, holder: Holder, point: Point | None = None, known: int = 0) -> None:
        """See ``Lock.release``."""
        if self._keys.holder == holder:
            if point is not None:
                self.put_witness(holder, point, known, ALL_SAFEGUARDS)
            self._write(replace(self._keys, holder=None))


@dataclass(frozen=True, slots=True, kw_only=True)
class LockProfile:
    """How the way to the store is on a fair day: one way takes between min and max microseconds."""

    latency_min_us: int = 100
    latency_max_us: int = 1_000
    lost_answers_share: float = 0.0  # calls that are carried out and not answered, [0, 1]


class SimLock:
    """One replica's client of the store (port ``Lock``).

    Args:
        store: shared by all.
        process: blocked while it waits; None for tests of the store alone: no time passes.
        chance: generator for latency and loss.
        profile: how it is on a fair day.
    """

    def __init__(
        self,
        store: SimLockStore,
        process: Process | None = None,
        chance: random.Random | None = None,
        profile: LockProfile | None = None,
        safeguards: Safeguards = ALL_SAFEGUARDS,
    ) -> None:
        self._store = store
        self._process = process
        self._chance = chance or random.Random(0)
        self._profile = profile or LockProfile()
        self._safeguards = safeguards
        self._found: Point | None = None  # the witness as it stood at our last take
        self._known = 0  # revision of the witness that we wrote or read last
        self.reachable = True  # False: this replica alone is cut from the store
        self.unheard = ""  # operation of this replica that does not get there, `witness` or `set_head`; empty: all do

    def _travel(self) -> None:
        if self._process is not None:
            profile = self._profile
            self._process.pause(self._chance.randrange(profile.latency_min_us, profile.latency_max_us + 1))

    def _go(self, operation: str = "-") -> None:
        """The way there. Raises: LockUnavailable after a while when there is none; nothing happened then."""
        self._travel()
        if not (self._store.available and self.reachable and operation != self.unheard):
            self._give_up("no answer from the lock store")

    def _back(self) -> None:
        """The way back. Raises: LockUnavailable when the answer is lost; what was asked has happened."""
        self._travel()
        lost = self._chance.random() < self._profile.lost_answers_share
        if lost or not (self._store.available and self.reachable):
            self._give_up("the lock store's answer was lost")

    def _give_up(self, why: str) -> None:
        if self._process is not None:
            self._process.pause(ANSWER_TIMEOUT_US)
        raise LockUnavailable(why)

    def view(self) -> LockView:
        """See ``Lock.view``."""
        self._go()
        answer = self._store.read()
        self._back()
        return answer

    def create_service(self, record: ServiceRecord) -> ServiceRecord:
        """See ``Lock.create_service``."""
        self._go()
        answer = self._store.create_service(record)
        self._back()
        return answer

    def go_live(self, holder: Holder) -> bool:
        """See ``Lock.go_live``."""
        self._go()
        answer = self._store.go_live(holder)
        self._back()
        return answer

    def take(self, replica: str, nonce: bytes, seen: LockView) -> Holder | None:
        """See ``Lock.take``."""
        self._go()
        answer = self._store.take(replica, nonce, seen)
        self._found, self._known = self._store.confirmed, self._store.witness_revision
        self._back()
        return answer

    def set_head(self, holder: Holder, point: Point | None = None) -> int | None:
        """See ``Lock.set_head``."""
        self._go("set_head")
        answer = self._store.set_head(holder, point, self._known)
        if answer is not None:
            self._known = self._store.witness_revision
        self._back()
        return answer

    def confirmed(self, holder: Holder) -> Point | None:
        """See ``Lock.confirmed``."""
        return self._found

    def witness(self, holder: Holder, point: Point) -> bool | None:
        """See ``Lock.witness``."""
        self._go("witness")
        answer = self._store.put_witness(holder, point, self._known, self._safeguards)
        if answer is not None:
            self._known = self._store.witness_revision
        self._back()
        return answer

    def owns(self, holder: Holder) -> bool:
        """See ``Lock.owns``."""
        self._go()
        answer = self._store.owns(holder)
        self._back()
        return answer

    def release(self, holder: Holder, point: Point | None = None) -> None:
        """See ``Lock.release``."""
        self._go()
        self._store.release(holder, point, self._known)
        self._back()
