"""A watch hands out each event once and in order, whatever ends its streams."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from etcd_fake import CLUSTER_ID, NO_LEADER, FakeMember, Fault, canceled, created, events

from deathless.base.errors import Closed
from deathless.shell.etcd_client import EtcdClient, EtcdSettings, Watch
from deathless.shell.etcd_errors import EtcdAuth, EtcdCompacted, EtcdError, EtcdRefused

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture(name="members")
async def two_members() -> AsyncIterator[tuple[FakeMember, FakeMember]]:
    async with FakeMember() as first, FakeMember() as second:
        yield first, second


def client_of(*members: FakeMember, user: str | None = None) -> EtcdClient:
    urls = tuple(member.url for member in members)
    settings = EtcdSettings(
        endpoints=urls, username=user, password="pw" if user else "", attempt_timeout_s=1, call_timeout_s=3,
        watch_idle_s=1,
    )  # fmt: skip
    return EtcdClient(settings)


def starts(member: FakeMember) -> list[Any]:
    return [body["create_request"]["start_revision"] for path, body, _ in member.requests if path == "watch"]


async def revisions(watch: Watch, count: int) -> list[int]:
    async with asyncio.timeout(30):
        return [(await anext(watch)).revision for _ in range(count)]


async def test_watch_goes_on_at_the_next_endpoint_one_above_what_it_handed_out(
    members: tuple[FakeMember, FakeMember],
) -> None:
    first, second = members
    first.watches.append([created(9), events((b"a", b"1", 4), (b"b", b"2", 4)), events((b"a", None, 6))])
    second.watches.append([created(9), events((b"a", b"3", 9)), Fault.SILENCE])
    async with client_of(*members) as client, client.watch(b"a", from_revision=3) as watch:
        assert await revisions(watch, 3) == [4, 6, 9]
        assert (starts(first), starts(second)) == ([3], [7])
        assert watch.next_revision == 10


async def test_half_a_message_is_not_handed_out_and_comes_again_whole(members: tuple[FakeMember, FakeMember]) -> None:
    first, second = members
    first.watches.append([created(9), events((b"a", b"1", 4)), events((b"a", b"2", 5))[:-9]])
    second.watches.append([created(9), events((b"a", b"2", 5)), Fault.SILENCE])
    async with client_of(*members) as client, client.watch(b"a", from_revision=3) as watch:
        assert await revisions(watch, 2) == [4, 5]
        assert starts(second) == [5]


async def test_silent_stream_is_opened_anew_and_a_member_that_confirms_is_kept(
    members: tuple[FakeMember, FakeMember],
) -> None:
    first, second = members
    first.watches.extend([[created(9), Fault.SILENCE], [created(9), events((b"a", b"1", 10)), Fault.SILENCE]])
    async with client_of(*members) as client, client.watch(b"a", from_revision=5) as watch:
        assert await revisions(watch, 1) == [10]
        assert (starts(first), starts(second)) == ([5, 5], [])


async def test_member_that_confirms_nothing_is_left(members: tuple[FakeMember, FakeMember]) -> None:
    first, second = members
    first.watches.append([Fault.SILENCE])  # answers the request, then stands still
    second.watches.append([created(9), events((b"a", b"1", 10)), Fault.SILENCE])
    async with client_of(*members) as client, client.watch(b"a", from_revision=5) as watch:
        assert await revisions(watch, 1) == [10]


async def test_member_without_a_leader_is_left(members: tuple[FakeMember, FakeMember]) -> None:
    first, second = members
    no_leader = b'{"error":{"code":14,"message":"etcdserver: no leader"}}\n'
    first.watches.append([created(9), no_leader, Fault.SILENCE])
    second.plan("watch", NO_LEADER)
    first.watches.append([created(9), events((b"a", b"1", 10)), Fault.SILENCE])
    async with client_of(*members) as client, client.watch(b"a", from_revision=5) as watch:
        assert await revisions(watch, 1) == [10]
        assert all("Grpc-Metadata-hasleader" in headers for _, _, headers in first.requests)


async def test_watch_outlives_a_time_without_any_member(members: tuple[FakeMember, FakeMember]) -> None:
    for member in members:
        member.plan("watch", *[NO_LEADER] * 12)  # longer than one call may take
        member.watches.append([created(9), events((b"a", b"1", 10)), Fault.SILENCE])
    async with client_of(*members) as client, client.watch(b"a", from_revision=5) as watch:
        assert await revisions(watch, 1) == [10]


async def test_compaction_is_told_with_what_is_left_and_ends_the_watch() -> None:
    async with FakeMember() as member, client_of(member) as client:
        member.watches.append([created(9), canceled(compact_revision=8), Fault.SILENCE])
        watch = client.watch(b"a", from_revision=5)
        with pytest.raises(EtcdCompacted) as caught:
            await anext(watch)
        assert caught.value.revision == 8
        with pytest.raises(Closed):
            await anext(watch)


async def test_store_that_was_replaced_is_told(members: tuple[FakeMember, FakeMember]) -> None:
    first, second = members
    first.watches.append([created(9), events((b"a", b"1", 9))])
    second.watches.append([created(9, cluster_id=CLUSTER_ID + 1), Fault.SILENCE])
    async with client_of(*members) as client, client.watch(b"a", from_revision=5) as watch:
        assert await revisions(watch, 1) == [9]
        with pytest.raises(EtcdCompacted, match="replaced") as caught:
            await anext(watch)
        assert caught.value.revision == 0


async def test_store_that_went_back_is_told() -> None:
    async with FakeMember() as member, client_of(member) as client:
        member.store.revision = 7  # restored from a backup; the watch has seen revision 11
        member.watches.append([created(7), Fault.SILENCE])
        with pytest.raises(EtcdCompacted, match="went back"):
            await anext(client.watch(b"a", from_revision=12))


async def test_member_that_only_lags_is_waited_for() -> None:
    async with FakeMember() as member, client_of(member) as client:
        member.store.revision = 11  # the cluster has it, the member's watch not yet
        member.watches.append([created(7), events((b"a", b"1", 12)), Fault.SILENCE])
        assert await revisions(client.watch(b"a", from_revision=12), 1) == [12]


@pytest.mark.parametrize(
    "reason",
    [
        "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token",
        "rpc error: code = InvalidArgument desc = etcdserver: user name is empty",
    ],
)
async def test_watch_whose_token_ended_logs_in_again(reason: str) -> None:
    async with FakeMember(password="pw") as member, client_of(member, user="u") as client:
        member.watches.append([canceled(reason), Fault.SILENCE])
        member.watches.append([created(9), events((b"a", b"1", 10)), Fault.SILENCE])
        assert await revisions(client.watch(b"a", from_revision=5), 1) == [10]
        assert member.logins == 2


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        (canceled("rpc error: code = PermissionDenied desc = etcdserver: permission denied"), EtcdAuth),
        (events((b"a", b"1", 3)), EtcdRefused),  # below what was asked for
        (b"{}\n", EtcdRefused),
    ],
)
async def test_watch_that_can_never_go_on_ends_with_the_reason(line: bytes, kind: type[EtcdError]) -> None:
    async with FakeMember() as member, client_of(member) as client:
        member.watches.append([created(9), line, Fault.SILENCE])
        with pytest.raises(kind):
            await anext(client.watch(b"a", from_revision=5))


@pytest.mark.parametrize("line", [canceled("etcdserver: watch canceled"), b"not json\n"])
async def test_stream_that_goes_wrong_is_replaced(line: bytes) -> None:
    async with FakeMember() as member, client_of(member) as client:
        member.watches.append([created(9), line, Fault.SILENCE])
        member.watches.append([created(9), events((b"a", b"1", 10)), Fault.SILENCE])
        assert await revisions(client.watch(b"a", from_revision=5), 1) == [10]


async def test_cancelled_wait_loses_no_event() -> None:
    async with FakeMember() as member, client_of(member) as client:
        member.watches.extend([[created(9), Fault.SILENCE], [created(9), events((b"a", b"1", 10)), Fault.SILENCE]])
        watch = client.watch(b"a", from_revision=5)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(watch), 0.1)
        assert await revisions(watch, 1) == [10]


async def test_closed_watch_says_so_and_leaves_its_connection() -> None:
    async with FakeMember() as member, client_of(member) as client:
        async with client.watch(b"a", prefix=True, from_revision=5) as watch:
            pass
        with pytest.raises(Closed):
            await anext(watch)


async def test_loop_over_a_watch_hands_out_batches() -> None:
    async with FakeMember() as member, client_of(member) as client:
        member.watches.append([created(9), events((b"a", b"1", 10), (b"b", None, 10)), Fault.SILENCE])
        async with client.watch(b"", prefix=True, from_revision=5) as watch:
            async for batch in watch:
                assert [event.kv.key for event in batch.events] == [b"a", b"b"]
                assert batch.cluster_id == CLUSTER_ID
                break
