"""Elections on a store that keeps versions as an API server does; time passes when the test says so.

`tests/apiserver/test_lease_object.py` runs the same class on a real API server.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import InvalidConfig
from deathless_operator.cluster.errors import ApiUnreachable, Conflict, Forbidden, LeaseLost, NotFound
from deathless_operator.cluster.kinds import Kind
from deathless_operator.cluster.lease import DURATION_MAX_S, Election, LeaseTimes


class Store:
    """One lease, with versions; may be away, for one process or for all."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.version = 0
        self.away = False
        self.now = 0.0

    def _reach(self) -> None:
        if self.away:
            raise ApiUnreachable("away")

    def _keep(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.stored = copy.deepcopy(manifest)
        self.stored["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.stored)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> dict[str, Any]:
        self._reach()
        if self.stored is None:
            raise NotFound("none", status=404)
        return copy.deepcopy(self.stored)

    async def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        self._reach()
        if self.stored is not None:
            raise Conflict("there", status=409, reason="AlreadyExists")
        return self._keep(manifest)

    async def replace(self, manifest: dict[str, Any], *, timeout_s: float) -> dict[str, Any]:
        self._reach()
        if self.stored is None:
            raise NotFound("none", status=404)
        if manifest["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
            raise Conflict("changed", status=409)
        return self._keep(manifest)

    @property
    def holder(self) -> str:
        return str(self.stored["spec"]["holderIdentity"]) if self.stored else ""


def elect(store: Store, identity: str, *, skew: float = 0.0) -> Election:
    return Election(
        store,
        namespace="ns",
        name="lease",
        identity=identity,
        monotonic=lambda: store.now + skew,
        wall=lambda: 1e9 + store.now * 3 + skew,  # a wall clock that is worth nothing
    )


@pytest.mark.asyncio
async def test_free_lease_is_taken_and_kept_from_others() -> None:
    store = Store()
    a, b = elect(store, "a"), elect(store, "b", skew=1e6)
    assert await a.try_acquire() and a.leading
    assert not await b.try_acquire()
    assert store.holder == "a"


@pytest.mark.asyncio
async def test_silent_leader_is_followed_after_the_duration_as_the_follower_saw_it() -> None:
    store = Store()
    a, b = elect(store, "a"), elect(store, "b", skew=-500.0)
    await a.try_acquire()
    assert not await b.try_acquire()
    store.now = 14.9
    assert not await b.try_acquire()
    store.now = 15.0
    assert await b.try_acquire()
    assert store.stored is not None and store.stored["spec"]["leaseTransitions"] == 2


@pytest.mark.asyncio
async def test_lease_that_somebody_edited_does_not_keep_everybody_from_leading() -> None:
    store = Store()
    a, b = elect(store, "a"), elect(store, "b")
    await a.try_acquire()
    assert store.stored is not None
    store.stored["spec"] |= {"leaseDurationSeconds": 2**31 - 1, "leaseTransitions": 2**31 - 1}
    assert not await b.try_acquire()
    store.now = DURATION_MAX_S - 1
    assert not await b.try_acquire()
    store.now = DURATION_MAX_S
    assert await b.try_acquire()
    assert store.stored["spec"]["leaseTransitions"] == 0, "one more is refused by the API server"
    assert store.stored["spec"]["leaseDurationSeconds"] == 15


class Denying(Store):
    """A store whose policies deny every write, once they are in force."""

    denies = False

    def _keep(self, manifest: dict[str, Any]) -> dict[str, Any]:
        if self.denies:
            raise Forbidden("says the policy", status=403)
        return super()._keep(manifest)


@pytest.mark.asyncio
async def test_leader_whose_renewals_are_denied_leads_until_its_time_is_over_and_comes_back() -> None:
    store = Denying()
    a = elect(store, "a")
    await a.try_acquire()
    store.denies, store.now = True, 5.0
    await a.renew()
    assert a.leading
    store.now = 14.0
    with pytest.raises(LeaseLost):
        await a.renew()
    assert not await a.try_acquire()
    store.denies = False
    assert await a.try_acquire()


@pytest.mark.asyncio
async def test_renewing_leader_is_never_followed() -> None:
    store = Store()
    a, b = elect(store, "a"), elect(store, "b")
    await a.try_acquire()
    for second in range(1, 60, 2):
        store.now = float(second)
        await a.renew()
        assert not await b.try_acquire()


@pytest.mark.asyncio
async def test_leader_that_cannot_renew_has_lost_before_anybody_may_follow() -> None:
    store = Store()
    a, b = elect(store, "a"), elect(store, "b")
    await a.try_acquire()
    assert not await b.try_acquire()
    store.away = True
    store.now = 9.9
    await a.renew()
    store.now = 10.0
    with pytest.raises(LeaseLost, match="10 s"):
        await a.renew()
    assert not a.leading
    store.away = False
    assert not await b.try_acquire()


@pytest.mark.asyncio
async def test_leader_that_slept_finds_its_successor_and_has_lost() -> None:
    store = Store()
    a, b = elect(store, "a"), elect(store, "b")
    await a.try_acquire()
    await b.try_acquire()
    store.now = 15.0
    assert await b.try_acquire()
    a._renewed_at = store.now  # as if its clock had stood still
    with pytest.raises(LeaseLost, match="held by b"):
        await a.renew()


@pytest.mark.asyncio
async def test_lease_that_somebody_touched_is_renewed_at_the_next_try() -> None:
    store = Store()
    a = elect(store, "a")
    await a.try_acquire()
    assert store.stored is not None
    store.stored["metadata"]["resourceVersion"] = "labelled"
    store.now = 2.0
    await a.renew()
    store.now = 4.0
    await a.renew()
    assert a._renewed_at == 4.0 and a.leading


@pytest.mark.asyncio
async def test_deleted_lease_is_lost() -> None:
    store = Store()
    a = elect(store, "a")
    await a.try_acquire()
    store.stored = None
    with pytest.raises(LeaseLost, match="nobody"):
        await a.renew()


@pytest.mark.asyncio
async def test_released_lease_is_taken_at_once() -> None:
    store = Store()
    a, b = elect(store, "a"), elect(store, "b")
    await a.try_acquire()
    assert not await b.try_acquire()
    await a.release()
    assert store.holder == "" and not a.leading
    assert await b.try_acquire()


@pytest.mark.asyncio
async def test_release_without_the_lease_or_the_server_is_quiet() -> None:
    store = Store()
    a = elect(store, "a")
    await a.release()
    await a.try_acquire()
    store.away = True
    await a.release()
    assert not a.leading


@pytest.mark.asyncio
@given(steps=st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.floats(0.1, 6.0)), max_size=60))
async def test_two_never_lead_at_once_while_each_looks_at_its_clock(steps: list[tuple[str, bool, float]]) -> None:
    store = Store()
    all_of_them = {name: elect(store, name, skew=1000.0 * index) for index, name in enumerate("abc")}
    for name, away, seconds in steps:
        store.now += seconds
        store.away = away
        for each in all_of_them.values():
            if each.leading:
                try:
                    await each.renew()
                except LeaseLost:
                    assert not each.leading
        await all_of_them[name].try_acquire() if not all_of_them[name].leading else None
        assert sum(each.leading for each in all_of_them.values()) <= 1


@pytest.mark.parametrize("times", [(15, 15, 2), (15, 2, 2), (10, 12, 2), (15, 10, 0)])
def test_times_that_would_lose_a_good_lease_are_refused(times: tuple[float, float, float]) -> None:
    with pytest.raises(InvalidConfig, match="must hold"):
        LeaseTimes(duration_s=times[0], renew_s=times[1], retry_s=times[2])
