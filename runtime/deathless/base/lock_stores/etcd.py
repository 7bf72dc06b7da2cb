"""What replicas are told of etcd as their lock store.

Guarantees: a frozen record that survives JSON. Does not: say what a manifest has (`etcd_settings`), or connect
(shell.lock_stores.etcd). Imports tls.
"""

from __future__ import annotations

from typing import Final

import msgspec

from deathless.base.tls import TlsConfig

LOCAL_ENDPOINT: Final = "http://127.0.0.1:2379"
LOCAL_PREFIX: Final = "/deathless/"


class EtcdConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """How to reach etcd >= 3.5.5. Services of one name that share an etcd need prefixes of their own."""

    endpoints: tuple[str, ...] = (LOCAL_ENDPOINT,)
    prefix: str = LOCAL_PREFIX  # keys are <prefix><service>/<shard>/...; begins and ends in a slash
    tls: TlsConfig | None = None
    username: str = ""
    username_file: str = ""  # holds the user's name, instead of `username`
    password_file: str = ""
    lease_ttl_s: int = 10
