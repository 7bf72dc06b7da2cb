"""Elections by a real Lease: two processes' clients, a deletion, and a release."""

from __future__ import annotations

import time

import pytest
from real_api_server import RealApiServer

from deathless_operator.cluster.api import Api
from deathless_operator.cluster.errors import LeaseLost
from deathless_operator.cluster.kinds import LEASE
from deathless_operator.cluster.lease import Election

pytestmark = [pytest.mark.apiserver, pytest.mark.asyncio]


def elect(api: Api, namespace: str, identity: str, ahead: list[float]) -> Election:
    """Return one process's election; `ahead[0]` is how far its clock has been moved."""
    return Election(
        api, namespace=namespace, name="lease", identity=identity, monotonic=lambda: time.monotonic() + ahead[0]
    )


async def test_one_of_two_gets_the_lease_and_the_other_follows(api_server: RealApiServer, namespace: str) -> None:
    ahead = [0.0]
    async with Api(api_server.connection()) as one, Api(api_server.connection()) as two:
        a, b = elect(one, namespace, "a", [0.0]), elect(two, namespace, "b", ahead)
        assert await a.try_acquire() and not await b.try_acquire()
        await a.renew()
        assert not await b.try_acquire()
        ahead[0] = 16.0
        assert await b.try_acquire()
        with pytest.raises(LeaseLost, match="held by b"):
            await a.renew()
        lease = await one.get(LEASE, namespace, "lease")
        assert lease["spec"]["holderIdentity"] == "b" and lease["spec"]["leaseTransitions"] == 2


async def test_lease_somebody_labelled_is_kept_and_a_deleted_one_is_lost(
    api_server: RealApiServer, namespace: str
) -> None:
    async with Api(api_server.connection()) as api:
        a = elect(api, namespace, "a", [0.0])
        assert await a.try_acquire()
        await api.patch(LEASE, namespace, "lease", {"metadata": {"labels": {"touched": "yes"}}})
        await a.renew()
        await a.renew()
        lease = await api.get(LEASE, namespace, "lease")
        assert a.leading and lease["metadata"]["labels"] == {"touched": "yes"}
        await api.delete(LEASE, namespace, "lease")
        with pytest.raises(LeaseLost, match="nobody"):
            await a.renew()


async def test_released_lease_is_free_at_once(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection()) as one, Api(api_server.connection()) as two:
        a, b = elect(one, namespace, "a", [0.0]), elect(two, namespace, "b", [0.0])
        assert await a.try_acquire() and not await b.try_acquire()
        await a.release()
        assert await b.try_acquire()


async def test_account_without_the_right_never_leads(api_server: RealApiServer, namespace: str) -> None:
    async with Api(api_server.connection("nobody")) as api:
        assert not await elect(api, namespace, "n", [0.0]).try_acquire()
