"""Opens the etcd lock that a replica's config describes.

Why it is a module of its own: `deathless.shell.lock_stores.opening` must work without the extra `[etcd]`, so everything
that needs aiohttp is imported from here, and only when a config says `lock: etcd`.

Guarantees: what is wrong with the config (files, prefix, endpoints, a missing extra) is InvalidConfig, before
anything is sent; a user that etcd refuses, or an etcd that is too old, is told before the lock is used. An etcd that
is away at this moment is not: the first use of the lock says so and may be tried again. Imports base, engine.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig
from deathless.base.lock_stores.etcd import EtcdConfig
from deathless.engine.ports import FileSystem
from deathless.shell.lock_stores.etcd.errors import EtcdUnavailable
from deathless.shell.lock_stores.etcd.settings import EtcdSettings, EtcdTls

if TYPE_CHECKING:
    from deathless.shell.lock_stores.etcd.lock import EtcdLock


@contextlib.asynccontextmanager
async def open_etcd_lock(
    config: ReplicaConfig, _filesystem: FileSystem | None = None, _process: str = ""
) -> AsyncIterator[EtcdLock]:
    """Open the lock of the replica's shard; ends its lease and connections at the end.

    Raises: InvalidConfig naming the setting; EtcdAuth or EtcdRefused when etcd says no.
    """
    try:
        from deathless.shell.lock_stores.etcd.client import EtcdClient  # noqa: PLC0415 - needs the extra [etcd]
        from deathless.shell.lock_stores.etcd.lock import EtcdLock  # noqa: PLC0415 - needs the extra [etcd]
    except ModuleNotFoundError as error:
        raise InvalidConfig(f"lock etcd needs {error.name}: pip install 'deathless[etcd]'") from error
    etcd = config.lock_settings(EtcdConfig)
    async with EtcdClient(settings_of(etcd)) as client:
        lock = EtcdLock(client, prefix=key_prefix(etcd, config.service, config.shard), lease_ttl_s=etcd.lease_ttl_s)
        with contextlib.suppress(EtcdUnavailable):
            await lock.check()
        async with lock:
            yield lock


def key_prefix(etcd: EtcdConfig, service: str, shard: int = 0) -> str:
    """Return what the keys of one shard begin with: `<etcd.prefix><service>/<shard>/`.

    No two (prefix, service, shard) give the same: a prefix without its slash, or a service with one, is refused.
    Services of one name that share an etcd (two namespaces of a cluster) need prefixes of their own.

    Raises: InvalidConfig.
    """
    if not etcd.prefix.endswith("/"):
        raise InvalidConfig(f"etcd.prefix: {etcd.prefix!r} must end in a slash, like /deathless/default/")
    if "/" in service:
        raise InvalidConfig(f"service {service!r} can't be part of an etcd key: it has a slash")
    return f"{etcd.prefix}{service}/{shard}/"


def settings_of(etcd: EtcdConfig) -> EtcdSettings:
    """Return the client's settings; reads the files of user and password.

    Raises: InvalidConfig.
    """
    tls = EtcdTls()
    if etcd.tls is not None:
        tls = EtcdTls(
            ca_file=_path(etcd.tls.ca),
            cert_file=_path(etcd.tls.certificate),
            key_file=_path(etcd.tls.key),
            server_name=etcd.tls.server_name or None,
        )
    username = _content("etcd.usernameFile", etcd.username_file) or etcd.username
    password = _content("etcd.passwordFile", etcd.password_file)
    return EtcdSettings(
        endpoints=etcd.endpoints,
        username=username or None,
        password=password,
        password_file=_path(etcd.password_file),
        tls=tls,
    )


def _content(setting: str, path: str) -> str:
    if not path:
        return ""
    try:
        return Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidConfig(f"{setting} {path}: {error}") from error


def _path(name: str) -> Path | None:
    return Path(name) if name else None
