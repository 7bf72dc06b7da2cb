"""The asynchronous face passes every call on as it is."""

from __future__ import annotations

import random

import pytest

from deathless.engine.lock.async_lock import SyncToAsync
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.ports import AsyncLock
from deathless.simulation.models.log_driver import RECORD
from deathless.simulation.world.disk import SimDisk


@pytest.mark.asyncio
async def test_every_call_reaches_the_lock() -> None:
    inner = DirectoryLock(SimDisk(random.Random(1)).view("r0"), process="r0", fresh_store_id="id")
    lock: AsyncLock = SyncToAsync(inner)
    assert await lock.create_service(RECORD) == RECORD
    holder = await lock.take("r0", b"n", await lock.view())
    assert holder is not None
    assert await lock.owns(holder)
    assert await lock.set_head(holder) == inner.view().revision
    assert await lock.go_live(holder)
    await lock.release(holder)
    assert not await lock.owns(holder)
    assert (await lock.view()) == inner.view()
