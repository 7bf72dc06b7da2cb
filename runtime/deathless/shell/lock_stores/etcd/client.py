"""Our own small client of etcd >= 3.5.5: keys, transactions and leases over its JSON gateway.

Why our own: see docs/design/0004-etcd-client.md; in short, no client for Python has several endpoints, TLS,
token refresh and typed results together, and the ones over gRPC clash with what users install.

    async with EtcdClient(EtcdSettings(endpoints=("http://127.0.0.1:2379",))) as client:
        read = await client.range(b"/a/", prefix=True)
        done = await client.txn([Compare.absent(b"/a/b")], [Put(key=b"/a/b", value=b"1")])

Guarantees: reads are linearizable unless asked otherwise; a put, delete or transaction that writes is sent
at most once (a `guarded` one to each member): when its outcome is unknown it raises
`EtcdUnavailable(outcome_unknown=True)` and the caller reads what happened. Everything else is retried on the next
endpoint until `call_timeout_s`, and sent to a second one while the first says nothing.
Does not: cache, keep leases alive by itself, or hide etcd's words. One client serves one event loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import Self

from deathless.shell.lock_stores.etcd import records as wire
from deathless.shell.lock_stores.etcd.errors import LeaseNotFound
from deathless.shell.lock_stores.etcd.gateway import Gateway
from deathless.shell.lock_stores.etcd.records import (
    Compare,
    Delete,
    DeleteResult,
    Get,
    Header,
    KeyValue,
    Lease,
    Op,
    Put,
    PutResult,
    RangeResult,
    Relation,
    Target,
    TxnResult,
)
from deathless.shell.lock_stores.etcd.settings import EtcdSettings, EtcdTls


class EtcdClient:
    """A client of one etcd cluster; use it as `async with`, or `open` and `close` it.

    Every request may raise `EtcdUnavailable`, `EtcdRefused` or `EtcdAuth` (see `etcd_errors`).
    """

    def __init__(self, settings: EtcdSettings) -> None:
        self._gateway = Gateway(settings)

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def endpoint(self) -> str:
        """The endpoint that is asked first now."""
        return self._gateway.endpoint

    async def open(self) -> None:
        """Load TLS files; nothing is sent yet. Raises InvalidConfig."""
        await self._gateway.open()

    async def close(self) -> None:
        """Drop all connections."""
        await self._gateway.close()

    async def range(
        self, key: bytes, *, prefix: bool = False, limit: int = 0, serializable: bool = False
    ) -> RangeResult:
        """Read a key, or all keys that begin with `key`.

        Args:
            key: the key; empty only with `prefix`, meaning every key.
            prefix: read all keys that begin with it, in key order.
            limit: at most so many entries; 0: no limit.
            serializable: accept what any member has, stale or cut off.
        """
        body = wire.encode_range(key, prefix=prefix, limit=limit, serializable=serializable)
        return await self._gateway.call("kv/range", body, wire.RANGE, repeatable=True, leader=not serializable)

    async def put(self, key: bytes, value: bytes, *, lease: int = 0) -> PutResult:
        """Set a key, with a lease or without. Raises LeaseNotFound too; may leave the outcome unknown."""
        body = wire.encode_put(Put(key=key, value=value, lease=lease))
        return await self._gateway.call("kv/put", body, wire.PUT, repeatable=False)

    async def delete(self, key: bytes, *, prefix: bool = False) -> DeleteResult:
        """Remove a key, or all keys that begin with `key`. May leave the outcome unknown."""
        body = wire.encode_delete(Delete(key=key, prefix=prefix))
        return await self._gateway.call("kv/deleterange", body, wire.DELETE, repeatable=False)

    async def txn(
        self, compare: Sequence[Compare], success: Sequence[Op], failure: Sequence[Op] = (), *, guarded: bool = False
    ) -> TxnResult:
        """Run `success` if every comparison holds, else `failure`, as one atomic step.

        May leave the outcome unknown when either branch writes; one that only reads is simply retried.
        A key may be written once only in a branch (etcd refuses more). With `guarded` it may be sent to a second
        member while the first one is silent: its comparisons make a second execution harmless.
        """
        body = wire.encode_txn(compare, success, failure)
        only_reads = all(isinstance(op, Get) for op in (*success, *failure))
        answer = await self._gateway.call("kv/txn", body, wire.TXN, repeatable=only_reads, hedged=only_reads or guarded)
        return wire.txn_result(answer)

    async def lease_grant(self, ttl_s: int) -> Lease:
        """Get a lease that ends `ttl_s` seconds (>= 1) after its last renewal.

        Retried freely: a lease whose answer was lost holds no key and ends by itself.
        """
        answer = await self._gateway.call("lease/grant", wire.encode_lease(ttl_s=ttl_s), wire.LEASE, repeatable=True)
        return Lease(id=answer.id, ttl_s=answer.ttl)

    async def lease_keepalive(self, lease: int) -> Lease:
        """Renew a lease. Raises LeaseNotFound when it has ended; the keys it held are gone."""
        body = wire.encode_lease(lease_id=lease)
        answer = (await self._gateway.call("lease/keepalive", body, wire.KEEP_ALIVE, repeatable=True)).result
        if answer.ttl <= 0:
            raise LeaseNotFound(f"lease {lease:x} has ended")
        return Lease(id=answer.id, ttl_s=answer.ttl)

    async def lease_revoke(self, lease: int) -> bool:
        """End a lease and remove the keys it holds. False: it had ended already."""
        try:
            await self._gateway.call("lease/revoke", wire.encode_lease(lease_id=lease), wire.HEADER, repeatable=True)
        except LeaseNotFound:
            return False
        return True

    async def server_version(self) -> str:
        """Return the version of the member that answers, like `3.6.16`."""
        return (await self._gateway.call("maintenance/status", b"{}", wire.STATUS, repeatable=True)).version


__all__ = [
    "Compare",
    "Delete",
    "DeleteResult",
    "EtcdClient",
    "EtcdSettings",
    "EtcdTls",
    "Get",
    "Header",
    "KeyValue",
    "Lease",
    "Op",
    "Put",
    "PutResult",
    "RangeResult",
    "Relation",
    "Target",
    "TxnResult",
]
