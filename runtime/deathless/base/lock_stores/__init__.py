"""The lock stores there are: for each its name, its fence, where it stands, its settings and what opens it.

A new lock store is its own modules, one entry here, and its pages. The entry alone makes the manifest and the CRD
accept its name as `lock.type` and its settings as `lock.<name>`, carries these to replicas (`ReplicaConfig.<name>`),
gives services on it their fence, and lets supervisors, workers and tools open it.

    name          fence   stands                 opened by
    directory     seal    in the log's directory a lock of the file system
    etcd          etcd    outside                a transaction on its keys; needs the extra [etcd]

**Fence** is what proves that a primary is still the one (design 0003, "The lock and the fence"): SEAL, a look for the
successor's seal in the directory, or STORE, one linearizable read of the lock. The names stand in every log. An opener
is named by text, `module:function`, so that nobody loads a store that they do not use; it is called with (config,
filesystem, process) and gives an async context manager of an `AsyncLock`. `looker` is the same for tools, and leaves
no trace. **Settings** (`settings.LockSettings`) are loaded by whoever reads manifests, and what replicas are told of
them by every process, so both need nothing but base.

A cluster elects through etcd alone: there the operator brings a store along, with its certificates and users.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

import msgspec

from deathless.base.errors import InvalidConfig
from deathless.base.lock_stores.etcd import EtcdConfig

if TYPE_CHECKING:
    from deathless.base.lock_stores.settings import LockSettings

SEAL: Final = "seal"
STORE: Final = "etcd"  # so called since etcd was the only one: the name is in logs
CLUSTER_STORE: Final = "etcd"  # what elects in a cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class LockStore:
    """One kind of lock store."""

    name: str  # lock.type of a manifest, and the field of its settings
    fence: str  # SEAL or STORE, where the manifest names none
    in_directory: bool  # the lock is part of the log's directory: it is copied, moved and deleted with it
    opener: str  # `module:function`
    looker: str
    settings: str = ""  # `module:class`, of `LockSettings`: what a manifest has as spec.lock.<name>; empty: nothing
    config: type[msgspec.Struct] | None = None  # what its `config()` gives; None: the settings as they are
    explanation: str = "How to reach the lock store."  # of spec.lock.<name>, as users read it

    def settings_class(self) -> type[LockSettings] | None:
        """Load the class of the settings; None: there are none."""
        if not self.settings:
            return None
        module, _, name = self.settings.partition(":")
        return cast("type[LockSettings]", getattr(importlib.import_module(module), name))


LOCK_STORES: Final[dict[str, LockStore]] = {}
"""By name, in the order in which they are told to users."""
_MADE: Final[list[str]] = []
"""Models that were made from those."""


def register(store: LockStore) -> None:
    """Make a lock store known, before the models of manifest and config are loaded."""
    assert store.name not in LOCK_STORES, store.name
    assert store.fence == STORE or store.in_directory, "seals stand in the directory; a store elsewhere is asked"
    assert store.name.isalnum() and store.name.islower(), f"{store.name} is to be the name of a field"
    assert store.settings or store.config is None, f"{store.name} makes its config from settings"
    assert not store.settings or not _MADE, f"{store.name} comes too late: {_MADE[0]} is made, without its field"
    LOCK_STORES[store.name] = store


def lock_store(name: str) -> LockStore:
    """Find a lock store. Raises: InvalidConfig."""
    found = LOCK_STORES.get(name)
    if found is None:
        raise InvalidConfig(f"lock {name!r} is not {' or '.join(LOCK_STORES)}")
    return found


def settings_classes() -> dict[str, type[LockSettings]]:
    """Load the settings of each lock store that has some, as manifests have them."""
    found = {name: store.settings_class() for name, store in LOCK_STORES.items()}
    return {name: kind for name, kind in found.items() if kind is not None}


def config_classes() -> dict[str, type[msgspec.Struct]]:
    """Give the settings of each lock store that has some, as replicas are told them."""
    found = {name: store.config or store.settings_class() for name, store in LOCK_STORES.items()}
    return {name: kind for name, kind in found.items() if kind is not None}


def with_fields(base: type[msgspec.Struct], fields: dict[str, object]) -> type[msgspec.Struct]:
    """Make what takes the place of a struct: the same with a field for each lock store with settings, None by default.

    Args:
        base: has the other fields and everything else.
        fields: type of each field, by the name of its lock store.
    """
    for field in fields:
        assert not hasattr(base, field), f"a lock store can't be called {field}: {base.__name__} has that field"
    _MADE.append(base.__name__)
    given = [(field, kind, None) for field, kind in fields.items()]
    namespace: dict[str, object] = {"__doc__": base.__doc__}
    return msgspec.defstruct(
        base.__name__, given, bases=(base,), module=base.__module__, namespace=namespace, kw_only=True
    )


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
        settings="deathless.base.lock_stores.etcd_settings:EtcdSpec",
        config=EtcdConfig,
    )
)
