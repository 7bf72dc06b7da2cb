"""Each operation of the client: what it gives, and what it does when its answer is lost."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from etcd_fake import FakeMember, Fault

from deathless.shell.lock_stores.etcd.client import Compare, Delete, EtcdClient, EtcdSettings, Get, Put
from deathless.shell.lock_stores.etcd.errors import EtcdUnavailable, LeaseNotFound

pytestmark = pytest.mark.asyncio

Request = Callable[[EtcdClient], Awaitable[object]]

WRITES: dict[str, tuple[str, Request]] = {
    "put": ("kv/put", lambda client: client.put(b"k", b"v")),
    "delete": ("kv/deleterange", lambda client: client.delete(b"k")),
    "txn that writes": ("kv/txn", lambda client: client.txn([], [Put(key=b"k", value=b"v")])),
    "txn that may write": ("kv/txn", lambda client: client.txn([Compare.absent(b"k")], [], [Delete(key=b"k")])),
}
OTHERS: dict[str, tuple[str, Request]] = {
    "range": ("kv/range", lambda client: client.range(b"k")),
    "txn that reads": ("kv/txn", lambda client: client.txn([Compare.absent(b"k")], [Get(key=b"k")], [Get(key=b"k")])),
    "lease_grant": ("lease/grant", lambda client: client.lease_grant(5)),
}


def client_of(*members: FakeMember) -> EtcdClient:
    urls = tuple(member.url for member in members)
    return EtcdClient(EtcdSettings(endpoints=urls, attempt_timeout_s=1, call_timeout_s=5))


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST, Fault.SILENCE, Fault.DONE_THEN_SILENCE])
@pytest.mark.parametrize("name", WRITES)
async def test_write_without_an_answer_is_told_as_unknown_and_sent_once(name: str, fault: Fault) -> None:
    path, request = WRITES[name]
    async with FakeMember() as member, client_of(member) as client:
        member.plan(path, fault)
        with pytest.raises(EtcdUnavailable) as caught:
            await request(client)
        assert caught.value.outcome_unknown
        assert member.count(path) == 1


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.ANSWER_LOST, Fault.SILENCE])
@pytest.mark.parametrize("name", OTHERS)
async def test_request_that_may_be_repeated_is_repeated_until_answered(name: str, fault: Fault) -> None:
    path, request = OTHERS[name]
    async with FakeMember() as member, client_of(member) as client:
        member.plan(path, fault, fault)
        await request(client)
        assert member.count(path) == 3


async def test_end_of_a_lease_is_told_the_same_when_its_answer_was_lost() -> None:
    async with FakeMember() as member, client_of(member) as client:
        lease = await client.lease_grant(5)
        member.plan("lease/revoke", Fault.ANSWER_LOST)
        assert not await client.lease_revoke(lease.id)  # ended by the first sending
        with pytest.raises(LeaseNotFound):
            await client.lease_keepalive(lease.id)


async def test_lease_is_granted_renewed_and_ended() -> None:
    async with FakeMember() as member, client_of(member) as client:
        lease = await client.lease_grant(5)
        assert lease.ttl_s == 5
        assert (await client.lease_keepalive(lease.id)).ttl_s == 10
        assert await client.lease_revoke(lease.id)


async def test_stale_read_is_asked_for_and_demands_no_leader() -> None:
    async with FakeMember() as member, client_of(member) as client:
        await client.range(b"k", serializable=True)
        await client.range(b"k")
        bodies = [
            (body.get("serializable", False), "Grpc-Metadata-hasleader" in head) for _, body, head in member.requests
        ]
        assert bodies == [(True, False), (False, True)]


async def test_client_goes_on_with_the_endpoint_that_answered() -> None:
    async with FakeMember() as first, FakeMember() as second, client_of(first, second) as client:
        first.plan("kv/range", Fault.LOST)
        await client.range(b"k")
        await client.range(b"k")
        assert client.endpoint == second.url
        assert (first.count("kv/range"), second.count("kv/range")) == (1, 2)
