"""The lock store of a service: where it is, and the Secrets that open it.

    spec.lock.etcd.endpoints given    that store, with the Secrets that the spec names
    none given                        the installation's own; its Secrets are copied into the service's namespace,
                                      since a pod mounts Secrets of its own namespace alone

Guarantees: `lock` is None, with a reason, until everything that pods mount is there: a pod that waits for a Secret
waits up to two minutes longer than it needs to. Does not: talk to the store. Imports model and base only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from deathless.base.manifest import ServiceSpec
from deathless.base.manifest_parts import EtcdSpec
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.actions import Action, CopySecret
from deathless_operator.plan.objects import Lock, Objects
from deathless_operator.plan.snapshot import SecretFacts, Snapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How the lock store is reached; lock None: it can't be said yet."""

    lock: Lock | None
    reason: str = "Configured"
    message: str = ""
    actions: tuple[Action, ...] = field(default=())


def plan_access(snapshot: Snapshot, spec: ServiceSpec, settings: OperatorSettings, objects: Objects) -> Access:
    """Find the lock store of a service."""
    etcd = spec.lock.etcd or EtcdSpec()
    return _named(snapshot, etcd) if etcd.endpoints else _installed(snapshot, etcd, settings, objects)


def _named(snapshot: Snapshot, etcd: EtcdSpec) -> Access:
    found = {secret.name: secret for secret in snapshot.lock_secrets}
    tls = etcd.tls_secret_ref.name if etcd.tls_secret_ref else ""
    user = etcd.user_secret_ref.name if etcd.user_secret_ref else ""
    wanted = [
        ("tlsSecretRef", tls, ("ca.crt",)),
        ("userSecretRef", user, ("username", "password")),
    ]
    for place, name, keys in wanted:
        if not name:
            continue
        if name not in found:
            return Access(
                lock=None,
                reason="SecretMissing",
                message=f"spec.lock.etcd.{place} names Secret {name}, which is not there: create it",
            )
        missing = [key for key in keys if key not in found[name].keys]
        if missing:
            return Access(
                lock=None,
                reason="SecretIncomplete",
                message=f"Secret {name} (spec.lock.etcd.{place}) has no key {missing[0]}: add it",
            )
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


def _installed(snapshot: Snapshot, etcd: EtcdSpec, settings: OperatorSettings, objects: Objects) -> Access:
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
    copies = {secret.name: secret for secret in snapshot.lock_secrets}
    actions: list[Action] = []
    facts: dict[str, SecretFacts] = {}
    pairs = (
        (settings.lock_tls_secret, names.lock_tls_secret(name)),
        (settings.lock_user_secret, names.lock_user_secret(name)),
    )
    for source, copy in pairs:
        if not source:
            continue
        seen, made = sources.get(source), copies.get(copy)
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
        if seen is not None and (made is None or made.source != seen.digest):
            manifest = objects.make(
                "v1", "Secret", copy, {"type": "Opaque"}, annotations={names.SOURCE_ANNOTATION: seen.digest}
            )
            actions.append(CopySecret(source=source, manifest=manifest, why="the installation's Secret has changed"))
    tls = facts.get(pairs[0][1])
    named = SecretFacts(name=pairs[0][1], keys=tls.keys) if tls else None
    user = pairs[1][1] if settings.lock_user_secret else ""
    return Access(
        lock=_lock(snapshot, etcd, settings.lock_endpoints, named, user),
        actions=tuple(actions),
        message="the installation's own lock store",
    )
