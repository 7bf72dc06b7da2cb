"""A synchronous lock under the face of an asynchronous one.

Why it exists: stores behind a network are awaited, the directory answers at once; the engine and the conformance
suite speak to one face, `AsyncLock`. Guarantees: every call runs whole before it returns to the loop; nothing is
retried or cached. Does not: use threads (a look-up in a local directory takes microseconds; a sync in a thread beside
busy Python starves). May import base and codec through the ports.
"""

from __future__ import annotations

from deathless.codec.witness import Point
from deathless.engine.ports import Holder, Lock, LockView, ServiceRecord


class SyncToAsync:
    """The port `AsyncLock` over a `Lock`.

    Args:
        lock: what does the work.
    """

    def __init__(self, lock: Lock) -> None:
        self.lock = lock

    async def view(self) -> LockView:
        """See the port."""
        return self.lock.view()

    async def create_service(self, record: ServiceRecord) -> ServiceRecord:
        """See the port."""
        return self.lock.create_service(record)

    async def go_live(self, holder: Holder) -> bool:
        """See the port."""
        return self.lock.go_live(holder)

    async def take(self, replica: str, nonce: bytes, seen: LockView) -> Holder | None:
        """See the port."""
        return self.lock.take(replica, nonce, seen)

    async def set_head(self, holder: Holder, point: Point | None = None) -> int | None:
        """See the port."""
        return self.lock.set_head(holder, point)

    async def owns(self, holder: Holder) -> bool:
        """See the port."""
        return self.lock.owns(holder)

    async def release(self, holder: Holder, point: Point | None = None) -> None:
        """See the port."""
        self.lock.release(holder, point)

    async def confirmed(self, holder: Holder) -> Point | None:
        """See the port."""
        return self.lock.confirmed(holder)

    async def witness(self, holder: Holder, point: Point) -> bool | None:
        """See the port."""
        return self.lock.witness(holder, point)
