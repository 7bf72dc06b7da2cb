"""The lock of one shard kept in etcd (design 0003, "The lock and the fence"), an `AsyncLock`.

Keys, below `<prefix><service>/<shard>/` (the prefix is a setting, `/deathless/` where nothing is said), all values
readable with etcdctl:

    key      lease  value                                          written by
    service  no     JSON array of `ServiceRecord`                  create_service, go_live
    epoch    no     last epoch given, decimal                      take
    head     no     last epoch that may have released, decimal     set_head
    lock     yes    JSON array of `Holder` (epoch, replica, nonce) take; removed by release, or with its lease
    confirmed no    JSON array of `Point`: what is confirmed       set_head, witness, release

- **take** puts `epoch` and `lock` in one transaction that holds only if none of the four keys was changed,
  made or removed since the view it is based on: each is compared by its last change (mod revision), because
  a steal by put leaves the create revision as it was.
- **owns** is one linearizable read: the value of `lock` is ours, byte for byte, the answering cluster has the
  id of the one the lock was taken in, and its revision is not below one seen before the read began (a store
  restored from a backup goes back). No answer is `LockUnavailable`; any other one is a definite no, but for a
  lock that is gone while `epoch` is still ours: nobody took it, so its holder puts it back, guarded by both. An
  etcd whose frozen leader wakes may end every lease, renewed or not (design 0004).
- **confirmed** is written only while the lock is ours and the key is as we wrote or read it last (mod revision): a
  primary that was put back to an older moment while it ran would otherwise lower it. A take reads it in its own
  transaction and does not compare it; after that nobody else can move it. One that is gone is put back.
- **Unknown outcomes.** Each write here is guarded by what it changes, so sending it again does nothing a
  second time: after the first one took effect the guard no longer holds, and the other branch reads what
  stands there. That, and nothing else, makes it right to send it again `RESENDS_MAX` times, and to a second
  member while the first one says nothing.
- **The lease** is no part of any argument for safety (I2): it frees the lock of a replica that is gone for
  good, last of all ways. It is granted before it is needed and renewed by a task of this object. A stolen
  lock hangs on the thief's lease, so that the old one's end removes nothing.

Guarantees: the `AsyncLock` contract. Does not: decide when to take, watch peers, or cache an answer.
Imports engine (ports), base.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self, TypeVar

import msgspec

from deathless.base.errors import Closed, ForeignDirectory, InvalidConfig, LockUnavailable
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.untrusted import JsonReader
from deathless.codec.witness import Point, decode_point, encode_point
from deathless.core.replica.witness import another_point
from deathless.engine.ports import Holder, LockView, ServiceRecord
from deathless.shell.lock_stores.etcd.client import EtcdClient
from deathless.shell.lock_stores.etcd.errors import EtcdError, EtcdRefused, EtcdUnavailable, LeaseNotFound
from deathless.shell.lock_stores.etcd.records import (
    Compare,
    Delete,
    Get,
    KeyValue,
    Op,
    Put,
    RangeResult,
    Relation,
    Target,
    TxnResult,
)

T = TypeVar("T")

LEASE_TTL_S: Final = 10  # a replica gone for good frees the lock after this, where nobody stole it before
RENEWALS_PER_TTL: Final = 3
SENT_MAX: Final = 64  # points that a reign remembers to have sent
RESENDS_MAX: Final = 2  # of a guarded write whose outcome is unknown
VERSION_MIN: Final = (3, 5, 5)  # before, a single member could answer before its write was durable
RENEW_PAUSE_S: Final = 0.5  # after a renewal that got no answer

_LOG: Final = logging.getLogger("deathless.etcd")
_PREFIX: Final = re.compile(r"(/[A-Za-z0-9][-._A-Za-z0-9]{0,252}){1,16}/")
_RECORD: Final = JsonReader(ServiceRecord)
_HOLDER: Final = JsonReader(Holder)


@dataclass(slots=True)
class _Reign:
    """A holder, the cluster it took the lock in, and the highest revision read there since (it never sinks)."""

    holder: Holder
    cluster_id: int  # 0: not known
    revision: int
    found: Point | None = None  # what `confirmed` said at the take
    witness_revision: int = 0  # mod revision of `confirmed` as we wrote or read it last; 0: there was none
    sent: dict[bytes, int] = field(default_factory=dict)  # values sent there -> lsn, answered or not; the last few
    gone: bool = False  # somebody removed `confirmed` under this reign
    ours: bool = False  # taken by this object, and not given up: a lock that its lease took along is put back

    def in_store(self, cluster_id: int) -> bool:
        """Is this the cluster that the lock was taken in?"""
        return self.cluster_id in {0, cluster_id}


class EtcdLock:
    """The lock of one shard; `open` it in a running event loop and `close` it, or use `async with`.

    Every method of the port raises LockUnavailable when there is no answer, and also when etcd refuses user
    or request: that says nothing about who holds the lock. `check` tells the difference, for use at start.

    Args:
        client: an open client; not closed by this lock, so that several shards may share one.
        prefix: what its keys begin with, e.g. `/deathless/default/bank/0/`; ends in a slash.
        lease_ttl_s: seconds (>= 2) after which the lock of a vanished replica is free.
        safeguards: all on, but in tests.
    """

    def __init__(
        self,
        client: EtcdClient,
        *,
        prefix: str,
        lease_ttl_s: int = LEASE_TTL_S,
        safeguards: Safeguards = ALL_SAFEGUARDS,
    ) -> None:
        if not _PREFIX.fullmatch(prefix):
            raise InvalidConfig(f"etcd.prefix: {prefix!r} can't be a prefix of keys; use one like /deathless/default/")
        if lease_ttl_s < 2:
            raise InvalidConfig("etcd.leaseTtlS must be 2 or more")
        self._client = client
        self._prefix = prefix.encode()
        self._service, self._epoch, self._head, self._lock, self._confirmed = (
            self._prefix + name for name in (b"service", b"epoch", b"head", b"lock", b"confirmed")
        )
        self._safeguards = safeguards
        self._lease_ttl_s = lease_ttl_s
        self._lease: int | None = None  # None: not granted yet, or ended
        self._lease_lock = asyncio.Lock()  # one grant at a time
        self._renewer: asyncio.Task[None] | None = None
        self._asked: Holder | None = None  # what the last take asked to become, answered or not
        self._reign: _Reign | None = None  # of the last take that is known to have succeeded
        self._first_cluster_id = 0  # of the first answer; 0: none yet

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def open(self) -> None:
        """Begin to keep a lease ready; waits for nothing."""
        self._renewer = asyncio.create_task(self._renew_forever(), name="etcd lock lease")

    async def close(self) -> None:
        """Stop renewing and end the lease, and with it a lock still held; etcd being away is no error."""
        if self._renewer is not None:
            self._renewer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._renewer
            self._renewer = None
        lease, self._lease = self._lease, None
        if lease is not None:
            with contextlib.suppress(EtcdError, Closed):
                await self._client.lease_revoke(lease)

    async def check(self) -> None:
        """Read once, to find wrong settings at start.

        Raises: EtcdUnavailable, EtcdAuth, EtcdRefused (an etcd older than VERSION_MIN too), each for itself.
        """
        await self._client.range(self._prefix, prefix=True)
        version = await self._client.server_version()
        if _numbers(version) < VERSION_MIN:
            wanted = ".".join(map(str, VERSION_MIN))
            raise EtcdRefused(f"etcd is {version}, {wanted} or newer is needed")

    # ------------------------------------------------------------ the port

    async def view(self) -> LockView:
        """Read all keys at one moment, linearizable."""
        with _no_answer():
            return self._read(await self._client.range(self._prefix, prefix=True))

    async def create_service(self, record: ServiceRecord) -> ServiceRecord:
        """Write `service` if absent; give what stands there now."""
        creating = msgspec.structs.replace(record, live=False)
        write = Put(key=self._service, value=msgspec.json.encode(creating))
        look = Get(key=self._service)
        with _no_answer():
            done = await self._guarded([Compare.absent(self._service)], [write, look], [look])
        standing = done.range(-1).get(self._service)
        assert standing is not None, "both branches read the key where it exists"
        return _parse(_RECORD, self._service, standing.value)

    async def go_live(self, holder: Holder) -> bool:
        """Mark the service live, guarded by the lock. False: deposed."""
        read = await self.view()
        if read.service is None or read.holder != holder:
            return False
        live = msgspec.structs.replace(read.service, live=True)
        # The record cannot change between: only the holder of the lock writes it once it exists.
        done = await self._guarded_by(holder, [Put(key=self._service, value=msgspec.json.encode(live))])
        return done is not None

    async def take(self, replica: str, nonce: bytes, seen: LockView) -> Holder | None:
        """Take or steal if nothing changed since `seen`. None: somebody was faster.

        `nonce` must be new for each call: it is how a take whose answer was lost is recognised. After
        LockUnavailable the take may still happen; the next view shows it, with this replica as holder.
        """
        holder = Holder(seen.epoch + 1, replica, nonce)
        value = msgspec.json.encode(holder)
        self._asked = holder
        with _no_answer():
            taken = Put(key=self._epoch, value=b"%d" % holder.epoch)
            done = await self._put_lock(self._unchanged(seen), value, taken, Get(key=self._confirmed))
        if not done.succeeded:
            standing = done.range(0).get(self._lock)
            if standing is None or standing.value != value:
                return None
        if store_id(done.header.cluster_id) != seen.store_id:
            await self.release(holder)  # taken in another store than the one looked at
            return None
        reign = _Reign(holder, done.header.cluster_id, done.header.revision, ours=True)
        self._read_witness(reign, done.range(1).get(self._confirmed))
        self._reign = reign
        return holder

    async def set_head(self, holder: Holder, point: Point | None = None) -> int | None:
        """Set head to the holder's epoch, guarded by the lock. Gives the store's revision; None: deposed.

        Raises: LogTruncated when another's witness stands beside it.
        """
        return await self._guarded_by(holder, [Put(key=self._head, value=b"%d" % holder.epoch)], point)

    async def confirmed(self, holder: Holder) -> Point | None:
        """Give the witness as it stood when `holder` took the lock; asks nobody."""
        return self._reign_of(holder).found

    async def witness(self, holder: Holder, point: Point) -> bool | None:
        """See the port."""
        reign = self._reign_of(holder)
        before = reign.witness_revision
        done = await self._witnessed(reign, [], point, ours=reign.ours)
        return None if done is None else before > 0 and reign.gone

    async def owns(self, holder: Holder) -> bool:
        """Linearizable: is the lock's value still this one, in the same store? False is definite.

        A lock that its lease took along, with nobody taking it since, is put back first.
        """
        reign = self._reign_of(holder)
        floor = reign.revision  # reads that run side by side may end in any order: only earlier ones count
        with _no_answer():
            read = await self._client.range(self._lock)
        if not reign.in_store(read.cluster_id) or read.revision < floor:
            return False
        reign.revision = max(reign.revision, read.revision)
        standing = read.get(self._lock)
        if standing is None and reign.ours:
            return await self._put_back(reign)
        return standing is not None and standing.value == msgspec.json.encode(holder)

    async def release(self, holder: Holder, point: Point | None = None) -> None:
        """Give the lock up if it is still this holder's; `point` becomes the witness in the same transaction."""
        reign = self._reign_of(holder)
        ours, reign.ours = reign.ours, False
        delete = [Delete(key=self._lock)]
        if point is None:
            await self._guarded_by(holder, delete)
        else:
            await self._witnessed(reign, delete, point, ours=ours)

    @property
    def keys(self) -> frozenset[bytes]:
        """All keys that the lock may ever have."""
        return frozenset({self._service, self._epoch, self._head, self._lock, self._confirmed})

    async def erase(self, seen: LockView) -> bool:
        """Remove all keys if nothing changed since `seen` and nobody held the lock then. False: look again.

        Not part of the port: a service that is gone leaves nothing behind.
        """
        if seen.holder is not None:
            return False
        with _no_answer():
            done = await self._guarded(self._unchanged(seen), [Delete(key=key) for key in sorted(self.keys)], [])
        return done.succeeded

    # ------------------------------------------------------------ inside

    def _read(self, read: RangeResult) -> LockView:
        self._first_cluster_id = self._first_cluster_id or read.cluster_id
        values = {entry.key: entry.value for entry in read.kvs}
        record, lock = values.get(self._service), values.get(self._lock)
        holder = None if lock is None else _parse(_HOLDER, self._lock, lock)
        if holder is not None and holder == self._asked and (self._reign is None or self._reign.holder != holder):
            self._reign = _Reign(holder, read.cluster_id, read.revision, ours=True)  # a take whose answer never came
            self._read_witness(self._reign, read.get(self._confirmed))
        return LockView(
            service=None if record is None else _parse(_RECORD, self._service, record),
            epoch=_number(self._epoch, values.get(self._epoch)),
            head=_number(self._head, values.get(self._head)),
            holder=holder,
            revision=read.revision,
            store_id=store_id(read.cluster_id),
            confirmed=_point(self._confirmed, read.get(self._confirmed)),
        )

    def _read_witness(self, reign: _Reign, standing: KeyValue | None) -> None:
        """Note what `confirmed` says, and which change of it that is."""
        reign.found = _point(self._confirmed, standing)
        reign.witness_revision = 0 if standing is None else standing.mod_revision

    def _reign_of(self, holder: Holder) -> _Reign:
        """Return where and since when `holder` has the lock; of one taken elsewhere only the store is known."""
        if self._reign is not None and self._reign.holder == holder:
            return self._reign
        return _Reign(holder, self._first_cluster_id, 0)

    def _unchanged(self, seen: LockView) -> list[Compare]:
        """Return the conditions under which no key was changed, made or removed since `seen`."""
        return [
            *_unchanged(self._service, seen.service is not None, seen.revision),
            *_unchanged(self._epoch, seen.epoch > 0, seen.revision),
            *_unchanged(self._head, seen.head > 0, seen.revision),
            *_unchanged(self._lock, seen.holder is not None, seen.revision),
        ]

    async def _put_lock(self, compare: Sequence[Compare], value: bytes, *others: Op) -> TxnResult:
        """Put the lock, and what else is given, on a lease that stands; the failure branch reads the lock."""

        async def put() -> TxnResult:
            lease = await self._ready_lease()
            writes = [*others, Put(key=self._lock, value=value, lease=lease)]
            try:
                return await self._guarded(compare, writes, [Get(key=self._lock), Get(key=self._confirmed)])
            except LeaseNotFound:
                if self._lease == lease:
                    self._lease = None
                raise

        try:
            return await put()
        except LeaseNotFound:  # it ended unnoticed; nothing was done
            return await put()

    async def _put_back(self, reign: _Reign) -> bool:
        """Hold the lock again where it is gone and nobody took it; False: somebody did, or the store is another."""
        holder, floor = reign.holder, reign.revision
        value = msgspec.json.encode(holder)
        untaken = [Compare.absent(self._lock), Compare.value_is(self._epoch, b"%d" % holder.epoch)]
        with _no_answer():
            done = await self._put_lock(untaken, value)
        if not reign.in_store(done.header.cluster_id) or done.header.revision < floor:
            return False
        reign.revision = max(reign.revision, done.header.revision)
        if done.succeeded:
            _LOG.warning("the lock %s was lost with its lease and is held again", self._prefix.decode())
            return True
        standing = done.range(0).get(self._lock)  # a proof beside this one may have put it back
        return standing is not None and standing.value == value

    async def _guarded_by(self, holder: Holder, writes: Sequence[Op], point: Point | None = None) -> int | None:
        """Carry out `writes` while `holder` has the lock; give the store's revision, None: deposed.

        A `release` that took effect unanswered finds the lock gone when sent again: deposed is then true.
        """
        reign = self._reign_of(holder)
        if point is not None:
            return await self._with_witness(reign, writes, point)
        with _no_answer():
            done = await self._guarded([Compare.value_is(self._lock, msgspec.json.encode(holder))], writes, [])
        if not done.succeeded or not reign.in_store(done.header.cluster_id):
            return None
        reign.revision = max(reign.revision, done.header.revision)
        return done.header.revision

    async def _witnessed(self, reign: _Reign, writes: Sequence[Op], point: Point, *, ours: bool) -> int | None:
        """Write the witness; a lock that its lease took along, with nobody taking it since, is put back for that.

        Args:
            reign: under which it was confirmed.
            writes: in the same transaction.
            point: the witness.
            ours: the lock was not given up.
        """
        done = await self._with_witness(reign, writes, point)
        if done is None and ours and await self._put_back(reign):
            done = await self._with_witness(reign, writes, point)
        return done

    async def _with_witness(self, reign: _Reign, writes: Sequence[Op], point: Point) -> int | None:
        """Carry out `writes` and write the witness, while the holder has the lock and nobody else touched the key.

        Raises: LogTruncated when a point stands there that this reign neither wrote nor read.
        """
        value, ours = encode_point(point), msgspec.json.encode(reign.holder)
        reign.gone = False
        reign.sent[value] = point.lsn
        if len(reign.sent) > SENT_MAX:
            del reign.sent[next(iter(reign.sent))]
        while True:
            guard = [Compare.value_is(self._lock, ours)] if self._safeguards.witness_guarded or writes else []
            if self._safeguards.witness_own_revision:
                guard.append(Compare.unchanged(self._confirmed, reign.witness_revision))
            looks = [Get(key=self._lock), Get(key=self._confirmed)]
            with _no_answer():
                done = await self._guarded(guard, [*writes, Put(key=self._confirmed, value=value)], looks)
            if not reign.in_store(done.header.cluster_id):
                return None
            if done.succeeded:
                reign.revision = max(reign.revision, done.header.revision)
                reign.witness_revision = done.header.revision
                return done.header.revision
            holder, standing = done.range(0).get(self._lock), done.range(1).get(self._confirmed)
            if holder is None or holder.value != ours:
                return None
            if standing is not None and standing.value not in reign.sent:
                raise another_point(_point(self._confirmed, standing))
            reign.gone = reign.gone or standing is None
            reign.witness_revision = 0 if standing is None else standing.mod_revision
            if standing is not None and not writes and reign.sent[standing.value] >= point.lsn:
                return done.header.revision  # sent before, or a newer one overtook it
            if standing is not None and standing.value == value:
                return done.header.revision  # the answer to the first sending was lost, and with it all was written

    async def _guarded(self, compare: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op]) -> TxnResult:
        """Send a transaction whose guard makes a second sending harmless, again where its outcome is unknown."""
        for left in range(RESENDS_MAX, -1, -1):
            try:
                return await self._client.txn(compare, success, failure, guarded=True)
            except EtcdUnavailable as error:
                if left == 0 or not error.outcome_unknown:
                    raise
        raise AssertionError("the last sending returns or raises")

    async def _ready_lease(self) -> int:
        async with self._lease_lock:
            if self._lease is None:
                self._lease = (await self._client.lease_grant(self._lease_ttl_s)).id
            return self._lease

    async def _renew_forever(self) -> None:
        """Have a lease and renew it; nothing that goes wrong here may end the renewing."""
        while True:
            pause_s = self._lease_ttl_s / RENEWALS_PER_TTL
            lease = None
            try:
                lease = await self._ready_lease()
                await self._client.lease_keepalive(lease)
            except LeaseNotFound:
                _LOG.warning("the etcd lease of %s expired before it was renewed", self._prefix.decode())
                if self._lease == lease:
                    self._lease = None
                pause_s = 0.0
            except EtcdError as error:
                _LOG.warning("the etcd lease of %s was not renewed: %s", self._prefix.decode(), error)
                pause_s = RENEW_PAUSE_S
            await asyncio.sleep(pause_s)


def store_id(cluster_id: int) -> str:
    """Return a cluster's id as it stands in views and cuts."""
    return f"etcd-{cluster_id:016x}"


def _numbers(version: str) -> tuple[int, ...]:
    """Return `3.6.0-rc.1` as (3, 6, 0); a version that reads otherwise is older than any."""
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    return tuple(int(one) for one in found.groups()) if found else ()


def _unchanged(key: bytes, existed: bool, revision: int) -> list[Compare]:
    """Return the conditions under which `key` was neither changed, made nor removed after `revision`."""
    if not existed:
        return [Compare.absent(key)]
    return [
        Compare.present(key),
        Compare(key=key, target=Target.MOD, operand=revision + 1, relation=Relation.LESS),
    ]


@contextlib.contextmanager
def _no_answer() -> Iterator[None]:
    """Tell every error of etcd as the port does: there is no answer about the lock."""
    try:
        yield
    except LockUnavailable:
        raise
    except EtcdError as error:
        raise LockUnavailable(error.message) from error


def _parse(decoder: JsonReader[T], key: bytes, value: bytes) -> T:
    try:
        return decoder.decode(value)
    except msgspec.DecodeError as error:
        raise ForeignDirectory(f"etcd key {key.decode()} has a value that Deathless did not write: {error}") from error


def _point(key: bytes, entry: KeyValue | None) -> Point | None:
    if entry is None:
        return None
    try:
        return decode_point(entry.value)
    except msgspec.MsgspecError as error:
        raise ForeignDirectory(f"etcd key {key.decode()} has a value that Deathless did not write: {error}") from error


def _number(key: bytes, value: bytes | None) -> int:
    if value is None:
        return 0
    if not re.fullmatch(rb"[1-9][0-9]{0,18}", value):
        raise ForeignDirectory(f"etcd key {key.decode()} has a value that Deathless did not write: {value[:40]!r}")
    return int(value)
