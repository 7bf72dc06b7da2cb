"""Erases what a lock store knows of a service that is gone, so that nothing of it stays and its name is free.

    look     nothing there: done
             other keys than the lock's four, or another service's: refused, for good
             held by a replica: wait, refused at the deadline
    quiet    nobody changes a key for QUIET_S: a replica that lives and finds no holder would have taken the lock
    erase    one transaction for each shard, which holds only if none of its keys changed since the look

Guarantees: no key of a service that is held, or that began while this ran, is ever erased; what stands below the
service's prefix and is no key of its lock is never touched. Running it again is harmless. Does not: look at the log,
which can't be started without its keys but by `deathless adopt`. Needs the extra [etcd]; imports engine and base.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final, Self

import msgspec

from deathless.base.errors import ForeignDirectory, InvalidArgument, LockUnavailable, StillServing
from deathless.base.lock_stores.etcd import EtcdConfig
from deathless.base.shards import shard_name
from deathless.codec.untrusted import read_json
from deathless.engine.ports import LockView
from deathless.shell.lock_stores.etcd.client import EtcdClient
from deathless.shell.lock_stores.etcd.lock import EtcdLock
from deathless.shell.lock_stores.etcd.opening import key_prefix, settings_of

QUIET_S: Final = 3.0  # a replica that finds nobody holding the lock takes it well within this
AGAIN_S: Final = 0.5  # after a store that gave no answer
LOOK_EVERY_S: Final = 1.0  # while one waits; one read for the service and one for each shard


class EraseOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Whose keys go, and how the store is reached."""

    service: str
    etcd: EtcdConfig
    service_id: str = ""  # hexadecimal; only this one's keys. Empty: whoever's they are
    shards: int = 1
    shard_ids: tuple[str, ...] = ()  # likewise, of each of several shards


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What stands in the store, or stood there before it was erased; of several shards, the first that is there."""

    keys: tuple[str, ...]  # none: there was nothing
    service_id: str = ""  # hexadecimal
    epoch: int = 0
    head: int = 0
    holder: str = ""  # the replica that holds the lock


def read_order(text: str) -> EraseOrder:
    """Read an order. Raises: InvalidArgument."""
    try:
        return read_json(text.encode(errors="replace"), EraseOrder)
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"--order: {error}") from None


async def look(order: EraseOrder) -> Found:
    """Give what is there; nothing is changed.

    Raises: LockUnavailable, EtcdAuth, ForeignDirectory, InvalidConfig.
    """
    async with _Eraser(order) as eraser:
        return found_in(await eraser.views(), eraser.keys)


async def erase(order: EraseOrder, *, wait_s: float, quiet_s: float = QUIET_S) -> Found:
    """Erase the service's keys; gives what was there.

    Args:
        order: whose.
        wait_s: how long a holder may take to let go, and the store to answer, in seconds.
        quiet_s: how long nobody may change a key before, in seconds.

    Raises:
        StillServing: a replica holds the lock, or takes it again and again.
        ForeignDirectory: the keys are another service's, or not ours at all.
        LockUnavailable, EtcdAuth, InvalidConfig: as the lock.
    """
    async with _Eraser(order) as eraser:
        return await eraser.erase(wait_s, quiet_s)


def found_in(views: list[LockView], keys: tuple[str, ...]) -> Found:
    """Put a look at each shard into words."""
    view = next((each for each in views if each.service is not None), views[0])
    return Found(
        keys=keys,
        service_id=view.service.service_id.hex() if view.service is not None else "",
        epoch=view.epoch,
        head=view.head,
        holder=next((each.holder.replica for each in views if each.holder is not None), ""),
    )


class _Eraser:
    """One run: a client, each shard's lock without a lease, and whose keys they are once that was seen."""

    def __init__(self, order: EraseOrder) -> None:
        self._order = order
        self._whole = f"{order.etcd.prefix}{order.service}/".encode()  # every shard's
        self._client = EtcdClient(settings_of(order.etcd))
        shards = range(order.shards)
        self._locks = [EtcdLock(self._client, prefix=key_prefix(order.etcd, order.service, shard)) for shard in shards]
        self._names = [shard_name(order.service, shard, order.shards) for shard in shards]
        # Those that are seen first, where none was named.
        self._ids = [order.service_id] if order.shards == 1 else [*order.shard_ids] or [""] * order.shards
        self.keys: tuple[str, ...] = ()  # at the last look

    async def __aenter__(self) -> Self:
        await self._client.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()

    async def views(self) -> list[LockView]:
        """Look at each shard, and refuse what is not this service's."""
        stands = await self._client.range(self._whole, prefix=True)
        self.keys = tuple(entry.key.decode(errors="replace") for entry in stands.kvs)
        ours = {key for lock in self._locks for key in lock.keys}
        foreign = [entry.key for entry in stands.kvs if entry.key not in ours]
        if foreign:
            raise ForeignDirectory(
                f"etcd key {foreign[0].decode(errors='replace')} below {self._whole.decode()} is not this service's",
                remedy="look at it with etcdctl; nothing was erased",
            )
        return [await self._view(shard) for shard in range(self._order.shards)]

    async def _view(self, shard: int) -> LockView:
        view = await self._locks[shard].view()
        if view.service is None:
            return view
        found = view.service.service_id.hex()
        self._ids[shard] = self._ids[shard] or found
        if found != self._ids[shard] or view.service.name != self._names[shard]:
            raise ForeignDirectory(
                f"the keys below {self._whole.decode()} are those of service {view.service.name!r}, id {found}, "
                f"not of id {self._ids[shard]}: a service of this name was created anew",
                remedy="nothing was erased, and nothing needs to be: these keys are its own",
            )
        return view

    async def erase(self, wait_s: float, quiet_s: float) -> Found:
        """See `erase`; nothing goes before each shard was seen without a holder, and all were quiet."""
        now = asyncio.get_running_loop().time
        deadline = now() + wait_s
        before = Found(keys=())
        while True:
            try:
                views = await self.views()
                if not self.keys:
                    return before
                before = found_in(views, self.keys)
                if any(view.holder is not None for view in views):
                    await asyncio.sleep(min(max(deadline - now(), 0.0), LOOK_EVERY_S))
                elif await self._stays_quiet(views, quiet_s) and await self._erase_seen(views):
                    return before
            except LockUnavailable:
                if now() >= deadline:
                    raise
                await asyncio.sleep(AGAIN_S)
                continue
            if now() >= deadline:
                raise StillServing(
                    f"replica {before.holder} holds the lock of {self._order.service!r} at epoch {before.epoch}"
                    if before.holder
                    else f"the lock of {self._order.service!r} changes again and again"
                )

    async def _stays_quiet(self, seen: list[LockView], quiet_s: float) -> bool:
        """Look for `quiet_s`; False, at once: a shard's keys are not what they were. Erasing finds what comes later."""
        now = asyncio.get_running_loop().time
        end = now() + quiet_s
        while (left_s := end - now()) > 0:
            await asyncio.sleep(min(left_s, LOOK_EVERY_S))
            if [_keys_of(view) for view in await self.views()] != [_keys_of(view) for view in seen]:
                return False
        return True

    async def _erase_seen(self, views: list[LockView]) -> bool:
        """Erase each shard's keys as they were seen; False: one changed, and those of the shards behind it stay."""
        for lock, view in zip(self._locks, views, strict=True):
            if not await lock.erase(view):
                return False
        return True


def _keys_of(view: LockView) -> LockView:
    """Give what the shard's keys say, without the store's revision, which other services move too."""
    return view._replace(revision=0)
