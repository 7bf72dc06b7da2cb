"""The lock stores there are: for each its name, its fence, where it stands and what opens it.

A new lock store is its own module, one entry here, and its pages. The entry alone makes the manifest and the CRD accept
its name as `lock.type`, gives services on it their fence, and lets supervisors, workers and tools open it.

    name          fence   stands                 opened by
    directory     seal    in the log's directory a lock of the file system
    etcd          etcd    outside                a transaction on its keys; needs the extra [etcd]

**Fence** is what proves that a primary is still the one (design 0003, "The lock and the fence"): SEAL, a look for the
successor's seal in the directory, or STORE, one linearizable read of the lock. The names stand in every log. An opener
is named by text, `module:function`, so that nobody loads a store that they do not use; it is called with (config,
filesystem, process) and gives an async context manager of an `AsyncLock`. `looker` is the same for tools, and leaves
no trace.

Does not: hold a store's settings (`spec.lock` and `ReplicaConfig` have a field for those of etcd).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deathless.base.errors import InvalidConfig

SEAL: Final = "seal"
STORE: Final = "etcd"  # so called since etcd was the only one: the name is in logs


@dataclass(frozen=True, slots=True, kw_only=True)
class LockStore:
    """One kind of lock store."""

    name: str  # lock.type of a manifest
    fence: str  # SEAL or STORE, where the manifest names none
    in_directory: bool  # the lock is part of the log's directory: it is copied, moved and deleted with it
    opener: str  # `module:function`
    looker: str


LOCK_STORES: Final[dict[str, LockStore]] = {}
"""By name, in the order in which they are told to users."""


def register(store: LockStore) -> None:
    """Make a lock store known, before the manifest's model is loaded."""
    assert store.name not in LOCK_STORES, store.name
    assert store.fence == STORE or store.in_directory, "seals stand in the directory; a store elsewhere is asked"
    LOCK_STORES[store.name] = store


def lock_store(name: str) -> LockStore:
    """Find a lock store. Raises: InvalidConfig."""
    found = LOCK_STORES.get(name)
    if found is None:
        raise InvalidConfig(f"lock {name!r} is not {' or '.join(LOCK_STORES)}")
    return found


register(
    LockStore(
        name="directory",
        fence=SEAL,
        in_directory=True,
        opener="deathless.shell.lock_stores.opening:open_directory_lock",
        looker="deathless.shell.lock_stores.opening:look_at_directory_lock",
    )
)
register(
    LockStore(
        name="etcd",
        fence=STORE,
        in_directory=False,
        opener="deathless.shell.lock_stores.etcd.opening:open_etcd_lock",
        looker="deathless.shell.lock_stores.etcd.opening:open_etcd_lock",
    )
)
