"""The etcd client against a real etcd: every operation, and members that are killed, frozen, restarted or wiped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from etcd_server import EtcdCluster, EtcdMember, TlsFiles, wait_until

from deathless.shell.lock_stores.etcd.client import (
    Compare,
    Delete,
    EtcdClient,
    EtcdSettings,
    EtcdTls,
    Get,
    Put,
    Relation,
    Target,
)
from deathless.shell.lock_stores.etcd.errors import EtcdAuth, EtcdRefused, EtcdUnavailable, LeaseNotFound

pytestmark = [pytest.mark.asyncio, pytest.mark.etcd]

ANSWERED_WITHIN_S = 60.0  # nothing measures time here: a test that waits for longer hangs


@pytest.fixture(name="single")
def one_member(tmp_path: Path) -> Iterator[EtcdMember]:
    with EtcdCluster(tmp_path) as cluster:
        yield cluster.members[0]


@pytest.fixture(name="three")
def three_members(tmp_path: Path) -> Iterator[EtcdCluster]:
    with EtcdCluster(tmp_path, members=3) as cluster:
        yield cluster


@asynccontextmanager
async def client_of(*urls: str, **more: object) -> AsyncIterator[EtcdClient]:
    settings = EtcdSettings(endpoints=urls, **more)  # type: ignore[arg-type]  # checked by use
    async with asyncio.timeout(ANSWERED_WITHIN_S), EtcdClient(settings) as client:
        yield client


async def put_for_certain(client: EtcdClient, key: bytes, value: bytes) -> int:
    """Put until it is answered; give the number of puts that may have happened besides."""
    unknown = 0
    while True:
        try:
            await client.put(key, value)
        except EtcdUnavailable as error:
            unknown += error.outcome_unknown
        else:
            return unknown


# ---------------------------------------------------------------- operations


async def test_keys_are_put_read_and_deleted(single: EtcdMember) -> None:
    async with client_of(single.url) as client:
        first = await client.put(b"/a/1", b"one")
        await client.put(b"/a/2", bytes(range(256)))
        await client.put(b"/b", b"")
        read = await client.range(b"/a/", prefix=True)
        assert [(entry.key, entry.value) for entry in read.kvs] == [(b"/a/1", b"one"), (b"/a/2", bytes(range(256)))]
        assert read.kvs[0].create_revision == read.kvs[0].mod_revision == first.header.revision
        assert read.cluster_id == first.header.cluster_id != 0
        assert read.revision == first.header.revision + 2
        limited = await client.range(b"", prefix=True, limit=1)
        assert (len(limited.kvs), limited.count, limited.more) == (1, 3, True)
        assert (await client.range(b"/b")).kvs[0].value == b""
        assert (await client.delete(b"/a/", prefix=True)).deleted == 2
        assert (await client.range(b"/a/", prefix=True)).kvs == ()


async def test_each_comparison_decides_its_transaction(single: EtcdMember) -> None:
    async with client_of(single.url) as client:
        await client.put(b"k", b"v")
        revision = (await client.put(b"k", b"w")).header.revision
        holding = [
            Compare.absent(b"none"),
            Compare.present(b"k"),
            Compare.value_is(b"k", b"w"),
            Compare.unchanged(b"k", revision),
            Compare.unchanged(b"none", 0),
            Compare(key=b"k", target=Target.VERSION, operand=2),
            Compare(key=b"k", target=Target.CREATE, operand=revision, relation=Relation.LESS),
            Compare(key=b"k", target=Target.LEASE, operand=0),
            Compare(key=b"k", target=Target.VALUE, operand=b"x", relation=Relation.NOT_EQUAL),
        ]
        assert (await client.txn(holding, [Get(key=b"k")])).succeeded
        for failing in (
            Compare.absent(b"k"),
            Compare.present(b"none"),
            Compare.value_is(b"k", b"v"),
            Compare.value_is(b"none", b""),
            Compare.unchanged(b"k", revision - 1),
        ):
            done = await client.txn([*holding, failing], [Delete(key=b"k")], [Get(key=b"k")])
            assert not done.succeeded
            assert done.range(0).kvs[0].value == b"w"


async def test_transaction_is_one_revision(single: EtcdMember) -> None:
    async with client_of(single.url) as client:
        await client.put(b"/c", b"old")
        done = await client.txn(
            [Compare.absent(b"/a")],
            [Put(key=b"/a", value=b"1"), Put(key=b"/b", value=b"2"), Delete(key=b"/c"), Get(key=b"/", prefix=True)],
        )
        assert [entry.key for entry in done.range(3).kvs] == [b"/a", b"/b"]
        read = await client.range(b"/", prefix=True)
        assert {(entry.key, entry.mod_revision) for entry in read.kvs} == {
            (b"/a", done.header.revision),
            (b"/b", done.header.revision),
        }
        assert read.revision == done.header.revision


async def test_lease_holds_its_keys_until_it_ends(single: EtcdMember) -> None:
    async with client_of(single.url) as client:
        lease = await client.lease_grant(30)
        await client.put(b"k", b"v", lease=lease.id)
        assert (await client.range(b"k")).kvs[0].lease == lease.id
        assert (await client.lease_keepalive(lease.id)).ttl_s == 30
        assert await client.lease_revoke(lease.id)
        assert (await client.range(b"k")).kvs == ()
        assert not await client.lease_revoke(lease.id)
        with pytest.raises(LeaseNotFound):
            await client.lease_keepalive(lease.id)
        with pytest.raises(LeaseNotFound):
            await client.put(b"k", b"v", lease=lease.id)


async def test_lease_that_is_not_renewed_ends_by_itself(single: EtcdMember) -> None:
    async with client_of(single.url) as client:
        lease = await client.lease_grant(1)
        await client.put(b"k", b"v", lease=lease.id)
        while (await client.range(b"k")).kvs:
            pass


async def test_request_that_etcd_refuses_is_refused_in_its_words(single: EtcdMember) -> None:
    async with client_of(single.url) as client:
        with pytest.raises(EtcdRefused, match="key is not provided"):
            await client.put(b"", b"v")
        with pytest.raises(EtcdRefused, match="duplicate key"):
            await client.txn([], [Put(key=b"k", value=b"1"), Put(key=b"k", value=b"2")])


# ---------------------------------------------------------------- TLS, user and password


def tls_of(files: TlsFiles, **changed: object) -> EtcdTls:
    values = {"ca_file": files.ca_file, "cert_file": files.client_cert, "key_file": files.client_key, **changed}
    return EtcdTls(**values)  # type: ignore[arg-type]  # the fields are named above


@pytest.mark.parametrize("server_name", [None, "etcd.test"])
async def test_tls_with_client_certificate_and_login_serves_everything(tmp_path: Path, server_name: str | None) -> None:
    with EtcdCluster(tmp_path, tls=True, password="secret") as cluster:
        assert cluster.tls is not None
        tls = tls_of(cluster.tls, server_name=server_name)
        async with client_of(*cluster.urls, username="root", password="secret", tls=tls) as client:
            await client.put(b"k", b"v")
            assert (await client.txn([Compare.value_is(b"k", b"v")], [Put(key=b"k", value=b"w")])).succeeded
            lease = await client.lease_grant(5)
            assert (await client.lease_keepalive(lease.id)).ttl_s == 5
            assert (await client.range(b"k")).kvs[0].value == b"w"


async def test_wrong_certificates_and_names_are_refused(tmp_path: Path) -> None:
    other = TlsFiles.create(tmp_path / "other")
    short = {"attempt_timeout_s": 0.5, "call_timeout_s": 1.0}
    with EtcdCluster(tmp_path, tls=True) as cluster:
        assert cluster.tls is not None
        wrongs: list[dict[str, object]] = [{"ca_file": other.ca_file}, {"server_name": "another.test"}]
        for wrong in wrongs:
            async with client_of(*cluster.urls, tls=tls_of(cluster.tls, **wrong), **short) as client:
                with pytest.raises(EtcdAuth, match="certificate"):
                    await client.range(b"k")
        wrongs = [
            {"cert_file": None, "key_file": None},
            {"cert_file": other.client_cert, "key_file": other.client_key},
        ]
        for wrong in wrongs:
            async with client_of(*cluster.urls, tls=tls_of(cluster.tls, **wrong), **short) as client:
                with pytest.raises((EtcdAuth, EtcdUnavailable)):  # the server just hangs up
                    await client.range(b"k")


async def test_wrong_or_missing_password_is_told(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path, password="secret") as cluster:
        async with client_of(*cluster.urls, username="root", password="wrong") as client:
            with pytest.raises(EtcdAuth, match="root"):
                await client.range(b"k")
        async with client_of(*cluster.urls) as client:
            with pytest.raises(EtcdAuth, match="no user"):
                await client.range(b"k")


async def test_token_that_ended_is_replaced(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path, password="secret", token_ttl_s=1) as cluster:
        member = cluster.members[0]
        async with client_of(member.url, username="root", password="secret") as client:
            await client.put(b"k", b"1")
            token = client._gateway._token
            assert token is not None

            def refused() -> bool:
                try:
                    member.request("/v3/kv/range", {"key": "aw=="}, token=token)
                except ValueError as error:
                    return "invalid auth token" in str(error)
                return False

            # Each use gives a token its whole time again, so it is asked for in steps longer than that.
            wait_until(refused, "the token ends", poll_s=2.5)
            await client.put(b"k", b"2")
            assert client._gateway._token != token


async def test_user_without_access_is_refused(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path, password="secret") as cluster:
        member, token = cluster.members[0], cluster.token()
        member.request("/v3/auth/user/add", {"name": "guest", "password": "guest"}, token=token)
        async with client_of(member.url, username="guest", password="guest") as client:
            with pytest.raises(EtcdAuth, match="permission"):
                await client.put(b"k", b"v")
            with pytest.raises(EtcdAuth, match="permission"):
                await client.range(b"k")


async def test_password_that_was_switched_on_later_is_used(single: EtcdMember) -> None:
    async with client_of(single.url, username="root", password="secret") as client:
        await client.put(b"k", b"1")
        single.request("/v3/auth/user/add", {"name": "root", "password": "secret"})
        single.request("/v3/auth/user/grant", {"user": "root", "role": "root"})
        single.request("/v3/auth/enable", {})
        await client.put(b"k", b"2")


# ---------------------------------------------------------------- members that die, freeze, come back


async def test_killed_leader_loses_no_answered_put(three: EtcdCluster) -> None:
    async with client_of(*three.urls) as client:
        unknown = 0
        for number in range(60):
            if number == 20:
                three.leader().kill()
            unknown += await put_for_certain(client, b"k", b"%d" % number)
        # An unknown put may have happened as well; none is missing.
        (entry,) = (await client.range(b"k")).kvs
        assert entry.value == b"59"
        assert 60 <= entry.version <= 60 + unknown


@pytest.mark.parametrize("leader", [True, False], ids=["leader", "follower"])
async def test_frozen_member_is_left_by_requests(three: EtcdCluster, leader: bool) -> None:
    frozen = three.leader() if leader else three.follower()
    urls = (frozen.url, *(url for url in three.urls if url != frozen.url))
    async with client_of(*urls) as client:
        await client.put(b"k", b"0")
        assert client.endpoint == frozen.url
        frozen.freeze()
        await put_for_certain(client, b"k", b"1")
        assert client.endpoint != frozen.url
        assert (await client.range(b"k")).kvs[0].value == b"1"
        frozen.thaw()
        await put_for_certain(client, b"k", b"2")
        # The put that waited in the frozen process's socket may come to pass now, behind the last one.
        (entry,) = (await client.range(b"k")).kvs
        assert entry.version >= 3 and entry.value in (b"1", b"2")


async def test_member_without_a_majority_serves_stale_reads_only(three: EtcdCluster) -> None:
    survivor, *others = three.members
    async with client_of(survivor.url, call_timeout_s=3.0) as client:
        await client.put(b"k", b"v")
        for other in others:
            other.kill()
        with pytest.raises(EtcdUnavailable):
            await client.range(b"k")
        assert (await client.range(b"k", serializable=True)).kvs[0].value == b"v"
        with pytest.raises(EtcdUnavailable):
            await client.put(b"k", b"w")
        for other in others:
            other.start()
        await put_for_certain(client, b"k", b"x")
        assert (await client.range(b"k")).kvs[0].value == b"x"


async def test_restarted_member_is_used_again_with_all_that_was_answered(single: EtcdMember) -> None:
    async with client_of(single.url) as client:
        await client.put(b"k", b"0")
        lease = await client.lease_grant(60)
        await asyncio.to_thread(single.restart)
        assert (await client.range(b"k")).kvs[0].value == b"0"
        await put_for_certain(client, b"k", b"1")
        assert (await client.lease_keepalive(lease.id)).ttl_s == 60


async def test_put_to_a_frozen_store_is_unknown_and_never_sent_twice(single: EtcdMember) -> None:
    async with client_of(single.url, attempt_timeout_s=0.3, call_timeout_s=1.0) as client:
        await client.put(b"k", b"0")
        single.freeze()
        with pytest.raises(EtcdUnavailable) as caught:
            await client.put(b"k", b"1")
        assert caught.value.outcome_unknown
        single.thaw()
        # It waited in the frozen process's socket: it may come to pass now, once.
        await put_for_certain(client, b"other", b"1")
        assert (await client.range(b"k")).kvs[0].version <= 2
