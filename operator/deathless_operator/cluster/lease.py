"""Election among the operator's processes: one leads, by a Lease object; the others wait.

    acquire   a follower looks at the lease every `retry_s`. It takes it when nobody holds it, or when its record has
              not changed for the holder's `leaseDurationSeconds` *as this process saw it* on its own monotonic clock:
              clocks of two machines are never compared (as in client-go's leaderelection, whose figures these are).
    hold      the leader renews every `retry_s`. When no renewal went through for `renew_s`, it has lost: the rest of
              `duration_s` is its time to end before anybody else begins.
    release   a leader that ends politely empties the record, so that the next one starts at once.

Guarantees: two processes lead at once only when one of them was stopped (frozen, starved) for longer than
`duration_s - renew_s` and has not noticed yet. Plans stand that: applying is idempotent and deletes name a uid.
A write carries the version that was read, so of two that see a lease run out only one gets it.

Does not: end the process (its caller does, on `LeaseLost`), or fence anything: the data path has its own fence.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from deathless.base.errors import InvalidConfig
from deathless_operator.cluster.errors import ApiRefused, ApiUnreachable, Conflict, LeaseLost, NotFound
from deathless_operator.cluster.kinds import LEASE, Kind

Record = dict[str, Any]

TOLD_S = 30.0
DURATION_MAX_S = 600.0
"""No holder is waited for any longer, whatever the lease says: more than any installation's, so a hand wrote it."""
TRANSITIONS_MAX = (1 << 31) - 1  # what the field holds; it is counted anew from there

logger = logging.getLogger(__name__)


class LeaseApi(Protocol):
    """The part of `api.Api` that an election needs."""

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Record:
        """See `Api.get`."""
        ...

    async def create(self, manifest: Record) -> Record:
        """See `Api.create`."""
        ...

    async def replace(self, manifest: Record, *, timeout_s: float) -> Record:
        """See `Api.replace`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimes:
    """How long a lease lives.

    Invariant: retry_s * 1.2 < renew_s < duration_s, else a leader could lose a lease that nothing is wrong with.
    """

    duration_s: float = 15.0  # others wait this long after the last renewal they saw
    renew_s: float = 10.0  # the leader gives up after this long without a renewal
    retry_s: float = 2.0  # between renewals, and between looks

    def __post_init__(self) -> None:
        if not 0 < self.retry_s * 1.2 < self.renew_s < self.duration_s:
            raise InvalidConfig(
                f"lease: retry {self.retry_s} s x 1.2 < renew {self.renew_s} s < duration {self.duration_s} s must hold"
            )


class Election:
    """One process in the election.

    Args:
        api: the API server, with short patience: this class repeats by itself.
        namespace: of the lease.
        name: of the lease.
        identity: this process; no other may ever bear it.
        times: see there.
        monotonic: this process's own clock, seconds.
        wall: wall seconds, for people who read the lease; nothing is decided by it.
    """

    def __init__(
        self,
        api: LeaseApi,
        *,
        namespace: str,
        name: str,
        identity: str,
        times: LeaseTimes | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self.identity = identity
        self.times = times or LeaseTimes()
        self._monotonic = monotonic
        self._wall = wall
        self._seen: Record | None = None  # the lease as read or written last
        self._seen_at = 0.0  # when its record changed last, on our clock
        self._renewed_at = 0.0  # when the last renewal that went through was sent
        self._told_at = float("-inf")  # when a failure was told last
        self.leading = False

    async def acquire(self) -> None:
        """Wait until this process leads."""
        while True:
            if await self.try_acquire():
                return
            await asyncio.sleep(self.times.retry_s * (1.0 + random.random() * 0.2))  # noqa: S311 - jitter is no secret

    async def try_acquire(self) -> bool:
        """Look once, and take the lease where it is free; False when another holds it or nothing can be learnt."""
        started = self._monotonic()
        try:
            await self._look()
            if not self._free():
                return False
            await self._write(self._record(self.identity, self.times.duration_s))
        except (ApiUnreachable, ApiRefused, TimeoutError) as error:
            # Losing to another is the ordinary case; anything else is told now and then.
            if not isinstance(error, Conflict) and started - self._told_at >= TOLD_S:
                self._told_at = started
                logger.warning("the lease cannot be acquired: %s", str(error) or "no answer in time")
            return False
        self._renewed_at, self.leading = started, True
        return True

    async def hold(self) -> None:
        """Renew for as long as it goes.

        Raises:
            LeaseLost: no renewal went through in time, or another process holds the lease.
        """
        while True:
            await asyncio.sleep(self.times.retry_s)
            await self.renew()

    async def renew(self) -> None:
        """Renew once; what fails is tried again by the next call.

        Raises:
            LeaseLost: see `hold`; `leading` is False from then on.
        """
        assert self.leading, "only a leader renews"
        started = self._monotonic()
        if started - self._renewed_at < self.times.renew_s:
            try:
                await self._write(self._record(self.identity, self.times.duration_s))
                self._renewed_at = started
            except (Conflict, NotFound):
                await self._look_again()
            except (ApiUnreachable, ApiRefused, TimeoutError):
                pass
        if self._monotonic() - self._renewed_at >= self.times.renew_s:
            self.leading = False
            raise LeaseLost(f"the lease {self._namespace}/{self._name} was not renewed for {self.times.renew_s:g} s")

    async def release(self) -> None:
        """Give the lease up, so that the next leader need not wait; failing to do so costs its waiting time alone."""
        if not self.leading:
            return
        self.leading = False
        try:
            await self._write(self._record("", 1.0))
        except (ApiUnreachable, ApiRefused, TimeoutError):
            return

    # ------------------------------------------------------------ the record

    async def _look(self) -> None:
        """Read the lease and note when its record changed."""
        try:
            found = await self._api.get(LEASE, self._namespace, self._name)
        except NotFound:
            self._seen = None
            return
        if self._seen is None or self._seen.get("spec") != found.get("spec"):
            self._seen_at = self._monotonic()
        self._seen = found

    async def _look_again(self) -> None:
        """Learn why a renewal was refused: another holder, or only another version (somebody labelled the lease)."""
        try:
            await self._look()
        except (ApiUnreachable, ApiRefused, TimeoutError):
            return
        # A lease that somebody deleted is free to all: also then this process has lost it.
        holder = self._holder()
        if holder != self.identity:
            self.leading = False
            raise LeaseLost(f"the lease {self._namespace}/{self._name} is held by {holder or 'nobody'}")

    def _holder(self) -> str:
        return str(((self._seen or {}).get("spec") or {}).get("holderIdentity") or "")

    def _free(self) -> bool:
        """Tell whether the lease may be taken."""
        if self._seen is None or self._holder() in {"", self.identity}:
            return True
        spec = self._seen["spec"]
        told = float(spec.get("leaseDurationSeconds") or self.times.duration_s)
        duration = min(told, max(DURATION_MAX_S, self.times.duration_s))
        return self._monotonic() - self._seen_at >= duration

    def _record(self, holder: str, duration_s: float) -> Record:
        """Return the lease as it is to be written."""
        now = datetime.fromtimestamp(self._wall(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = (self._seen or {}).get("spec") or {}
        same = old.get("holderIdentity") == holder
        count = int(old.get("leaseTransitions") or 0)
        moved = 0 if same or not holder else 1
        meta = dict((self._seen or {}).get("metadata") or {"namespace": self._namespace, "name": self._name})
        meta.pop("managedFields", None)
        return {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": meta,
            "spec": {
                "holderIdentity": holder,
                "leaseDurationSeconds": max(1, round(duration_s)),
                "acquireTime": old.get("acquireTime") if same and old.get("acquireTime") else now,
                "renewTime": now,
                "leaseTransitions": count + moved if count + moved <= TRANSITIONS_MAX else 0,
            },
        }

    async def _write(self, record: Record) -> None:
        """Create or replace the lease; raises Conflict when another process was first."""
        if self._seen is None:
            written = await self._api.create(record)
        else:
            written = await self._api.replace(record, timeout_s=max(0.5, self.times.renew_s / 2))
        self._seen, self._seen_at = written, self._monotonic()
