"""The lock store of a service: where it is, and the Secrets that open it.

    spec.lock.etcd.endpoints given    that store, with the Secrets that the spec names
    none given                        the installation's own; its Secrets are copied into the service's namespace,
                                      since a pod mounts Secrets of its own namespace alone. A copy's name tells the
                                      store, so that another store's never takes its place under a pod (pod_settings)
    and `lock_users` set            likewise, with a certificate without a name, and the service's own login instead of
                                    the installation's, as soon as it is granted (`in_force`, lock_users)

Guarantees: `lock` is None, with a reason, until everything that pods mount is there: a pod that waits for a Secret
waits up to two minutes longer than it needs to. Does not: talk to the store. Imports model and base only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from deathless.base.lock_stores.etcd_settings import EtcdSpec
from deathless.base.manifest import ServiceSpec
from deathless.codec.untrusted import read_json
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import part, text
from deathless_operator.plan.actions import Action, CopySecret
from deathless_operator.plan.service.objects import Lock, Objects
from deathless_operator.plan.service.placement import digest
from deathless_operator.plan.service.reading import read_mounts
from deathless_operator.plan.snapshot import SecretFacts, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How the lock store is reached; lock None: it can't be said yet."""

    lock: Lock | None
    reason: str = "Configured"
    message: str = ""
    actions: tuple[Action, ...] = field(default=())


def store_mark(settings: OperatorSettings) -> str:
    """Tell the installation's lock store, and the Secrets that open it, from any other."""
    return digest([*sorted(settings.lock_endpoints), settings.lock_tls_secret, settings.lock_user_secret])


def copies(name: str, settings: OperatorSettings, mark: str) -> tuple[tuple[str, str], ...]:
    """Name the Secrets of the installation's lock store, each with its copy for service `name`.

    Args:
        name: of the service.
        settings: of the installation.
        mark: of the store; empty: as former operators named copies.
    """
    pairs = (
        (settings.lock_tls_secret, names.lock_tls_secret(name, mark)),
        (settings.lock_user_secret, names.lock_user_secret(name, mark)),
    )
    return tuple(pair for pair in pairs if pair[0])


def with_users(settings: OperatorSettings) -> OperatorSettings:
    """Give the settings under which a service opens the installation's lock store as a user of its own."""
    return msgspec.structs.replace(
        settings, lock_tls_secret=names.LOCK_USERS_TLS_SECRET, lock_user_secret=names.LOCK_USERS_SECRET
    )


def in_force(snapshot: Snapshot, settings: OperatorSettings) -> OperatorSettings | None:
    """Give the settings under which a service opens the installation's lock store now.

    A service that serves goes on as its template has it until its user is granted; one that has no template of this
    store yet waits, since a pod without a user may be refused.

    Returns:
        With a user or without one; None: wait for the user.
    """
    if not settings.lock_users or snapshot.lock_users_withdrawn:
        return settings
    logging_in = with_users(settings)
    if names.LOCK_USERS_SECRET in {secret.name for secret in snapshot.lock_sources}:
        return logging_in
    name = snapshot.resource.name
    children = (shard.stateful_set() for shard in snapshot.parts())
    mounts = {
        mounted
        for child in children
        if child is not None
        for _, mounted in read_mounts(part(child.raw, "spec", "template", "spec"))
    }
    if names.lock_user_secret(name, store_mark(logging_in)) in mounts:
        return logging_in
    former = names.lock_tls_secret(name) in mounts and _is_former_store(snapshot, settings)
    return settings if former or names.lock_tls_secret(name, store_mark(settings)) in mounts else None


def plan_access(
    snapshot: Snapshot, spec: ServiceSpec, settings: OperatorSettings, objects: Objects, *, former: bool = False
) -> Access:
    """Find the lock store of a service.

    Args:
        snapshot: of the service.
        spec: of the service.
        settings: of the installation.
        objects: makes manifests.
        former: the service's template has the names of former operators (`pod_settings.keeps_former`).
    """
    etcd = spec.lock.etcd or EtcdSpec()
    if etcd.endpoints:
        return _named(snapshot, etcd)
    found = in_force(snapshot, settings)
    if found is None:
        user = names.lock_user(snapshot.resource.namespace, snapshot.resource.name)
        return Access(
            lock=None,
            reason="UserNotGranted",
            message=f"the lock store has no user {user} yet: kubectl -n {settings.namespace} logs "
            "deployment/deathless-lock-users",
        )
    return _installed(snapshot, etcd, found, objects, former=former)


def _named(snapshot: Snapshot, etcd: EtcdSpec) -> Access:
    found = {secret.name: secret for secret in snapshot.lock_secrets}
    for place, name, keys, is_read in etcd.secrets():
        if name not in found:
            return Access(
                lock=None,
                reason="SecretMissing",
                message=f"spec.lock.etcd.{place} names Secret {name}, which does not exist: create it",
            )
        if found[name].hidden and is_read:
            return Access(
                lock=None,
                reason="SecretHidden",
                message=f"Secret {name} (spec.lock.etcd.{place}) may not be read by the operator, so whether it "
                f"holds a client certificate can't be said: kubectl label secret {name} {names.LABEL_READABLE}=true",
            )
        if found[name].hidden:
            continue
        missing = [key for key in keys if key not in found[name].keys]
        if missing:
            return Access(
                lock=None,
                reason="SecretIncomplete",
                message=f"Secret {name} (spec.lock.etcd.{place}) has no key {missing[0]}: add it",
            )
    tls = etcd.tls_secret_ref.name if etcd.tls_secret_ref else ""
    user = etcd.user_secret_ref.name if etcd.user_secret_ref else ""
    return Access(lock=_lock(snapshot, etcd, etcd.endpoints, found.get(tls), user))


def _lock(snapshot: Snapshot, etcd: EtcdSpec, endpoints: tuple[str, ...], tls: SecretFacts | None, user: str) -> Lock:
    return Lock(
        endpoints=endpoints,
        prefix=etcd.prefix or names.lock_prefix(snapshot.resource.namespace),
        tls_secret=tls.name if tls else "",
        tls_has_certificate=tls is not None and {"tls.crt", "tls.key"} <= set(tls.keys),
        user_secret=user,
        lease_ttl_s=etcd.lease_ttl_s,
    )


def _installed(
    snapshot: Snapshot, etcd: EtcdSpec, settings: OperatorSettings, objects: Objects, *, former: bool
) -> Access:
    if not settings.lock_endpoints:
        return Access(
            lock=None,
            reason="NoLockStore",
            message=(
                "the installation has no lock store of its own: name one in spec.lock.etcd.endpoints, or install the "
                "chart with etcd"
            ),
        )
    name = snapshot.resource.name
    sources = {secret.name: secret for secret in snapshot.lock_sources}
    there = {secret.name: secret for secret in snapshot.lock_secrets}
    mark = "" if former else store_mark(settings)
    login = names.lock_user(snapshot.resource.namespace, name)
    actions: list[Action] = []
    facts: dict[str, SecretFacts] = {}
    for source, copy in copies(name, settings, mark):
        seen, made = sources.get(source), there.get(copy)
        if made is not None and not made.managed:
            return Access(
                lock=None,
                reason="SecretNotOurs",
                message=f"Secret {copy} exists and is not the operator's: delete it, or rename the service",
            )
        if seen is None and made is None:
            return Access(
                lock=None,
                reason="SecretMissing",
                message=f"Secret {source} of the installation ({settings.namespace}) is not there yet: see the chart",
            )
        # Without its source a copy stays as it is: what runs goes on.
        facts[copy] = seen or made or SecretFacts(name=copy)
        if seen is not None and (made is None or _differs(made, seen)):
            actions.append(_copy(copy, seen, objects, login))
    if not former and _is_former_store(snapshot, settings):
        # Pods of the former template are there until they are rolled, and their certificate is renewed like others'.
        for source, copy in copies(name, settings, ""):
            seen, made = sources.get(source), there.get(copy)
            if seen is not None and made is not None and made.managed and _differs(made, seen):
                actions.append(_copy(copy, seen, objects, login))
    tls_name = names.lock_tls_secret(name, mark)
    tls = facts.get(tls_name)
    named = SecretFacts(name=tls_name, keys=tls.keys) if tls else None
    user = names.lock_user_secret(name, mark) if settings.lock_user_secret else ""
    return Access(
        lock=_lock(snapshot, etcd, settings.lock_endpoints, named, user),
        actions=tuple(actions),
        message="the installation's own lock store",
    )


def _differs(made: SecretFacts, seen: SecretFacts) -> bool:
    """Tell whether a copy is of another content than its source, or was changed by somebody since it was made."""
    return made.source != seen.digest or made.digest != seen.digest


def _copy(name: str, source: SecretFacts, objects: Objects, user: str) -> CopySecret:
    noted = {names.SOURCE_ANNOTATION: source.digest}
    manifest = objects.make("v1", "Secret", name, {"type": "Opaque"}, annotations=noted)
    return CopySecret(
        source=source.name,
        manifest=manifest,
        why="the installation's Secret has changed",
        user=user if source.name == names.LOCK_USERS_SECRET else "",
    )


class _Reached(msgspec.Struct, frozen=True):
    """Where the lock store is that a replica.json names."""

    endpoints: tuple[str, ...] = ()


class _Configured(msgspec.Struct, frozen=True):
    """What a replica.json tells of the lock store."""

    etcd: _Reached = _Reached()


def _is_former_store(snapshot: Snapshot, settings: OperatorSettings) -> bool:
    """Tell whether the ConfigMap of a former operator names the lock store that the installation has now."""
    child = snapshot.child("ConfigMap", names.config_map(snapshot.resource.name))
    try:
        found = read_json((text(child.raw, "data", names.CONFIG_FILE) if child else "").encode(), _Configured)
    except msgspec.MsgspecError:
        return False
    return sorted(found.etcd.endpoints) == sorted(settings.lock_endpoints)
