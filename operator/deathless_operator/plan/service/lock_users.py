"""Users of the chart's lock store: which services get one, whose go, and when everybody may be asked to log in.

    granted     a service that this installation looks after, and whose keys begin as its name says, gets a user that
                may read and write these keys alone: a prefix of the service's own choice could be another's
    gone        neither the service nor a StatefulSet or pod of it is there any more
    logins on   every StatefulSet and pod that opens the store has its service's user mounted; else it is said who has
                not

Guarantees: pure functions of what is seen. Does not: draw passwords, or talk to anything (`cluster.lock_users` does).
Imports model and base only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from deathless.base.lock_stores.etcd_settings import EtcdSpec
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import JsonObject, number, part, text, texts
from deathless_operator.plan.service.access import store_mark, with_users
from deathless_operator.plan.service.installation import owner
from deathless_operator.plan.service.reading import read_mounts
from deathless_operator.plan.snapshot import ResourceView


@dataclass(frozen=True, slots=True, kw_only=True)
class Bearer:
    """A StatefulSet or a pod of a service, with the Secrets that it mounts."""

    kind: str
    namespace: str
    name: str
    service: str
    installation: str  # whose it is; empty: it does not say so
    secrets: frozenset[str]
    seen: bool  # its controller has read it as it is; a pod: always

    @property
    def user(self) -> str:
        """The user of the lock store that it is to have."""
        return names.lock_user(self.namespace, self.service)

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def read_bearer(raw: JsonObject) -> Bearer:
    """Read a StatefulSet or a pod."""
    is_set = text(raw, "kind") == "StatefulSet"
    spec = part(raw, "spec", "template", "spec") if is_set else part(raw, "spec")
    return Bearer(
        kind=text(raw, "kind"),
        namespace=text(raw, "metadata", "namespace"),
        name=text(raw, "metadata", "name"),
        service=texts(raw, "metadata", "labels").get(names.LABEL_SERVICE, ""),
        installation=texts(raw, "metadata", "annotations").get(names.INSTALLATION_ANNOTATION, ""),
        secrets=frozenset(name for kind, name in read_mounts(spec) if kind == "Secret"),
        seen=not is_set or number(raw, "status", "observedGeneration") >= number(raw, "metadata", "generation"),
    )


def granted(resources: Iterable[ResourceView], settings: OperatorSettings) -> dict[str, str]:
    """Give the users that have to be there, each with the prefix of its keys."""
    found = {}
    for resource in resources:
        etcd = _etcd(resource)
        if owner(resource, ()) != settings.namespace or etcd is None or etcd.endpoints:
            continue
        prefix = names.lock_prefix(resource.namespace)
        if etcd.prefix in ("", prefix):
            found[names.lock_user(resource.namespace, resource.name)] = f"{prefix}{resource.name}/"
    return found


def gone(known: Iterable[str], resources: Iterable[ResourceView], bearers: Iterable[Bearer]) -> tuple[str, ...]:
    """Give the users whose services are gone.

    Args:
        known: all users that were drawn.
        resources: every service, whoever looks after it.
        bearers: what is left of services.
    """
    stay = {names.lock_user(resource.namespace, resource.name) for resource in resources}
    stay |= {bearer.user for bearer in bearers}
    return tuple(sorted(set(known) - stay))


def without_user(
    resources: Iterable[ResourceView], bearers: Iterable[Bearer], settings: OperatorSettings
) -> tuple[str, ...]:
    """Give who opens the installation's lock store and could not log in; empty: logins may be asked for.

    Args:
        resources: every service, whoever looks after it.
        bearers: every StatefulSet and pod of a service.
        settings: of the installation.
    """
    services = {names.lock_user(each.namespace, each.name): each for each in resources}
    return tuple(sorted(str(bearer) for bearer in bearers if _is_without(bearer, services.get(bearer.user), settings)))


def _is_without(bearer: Bearer, resource: ResourceView | None, settings: OperatorSettings) -> bool:
    looks_after = bearer.installation if resource is None else owner(resource, (bearer.installation,))
    if looks_after not in ("", settings.namespace):
        return False
    etcd = _etcd(resource) if resource is not None else None
    if etcd is not None and etcd.endpoints:
        # It names a store itself: where that is this one, its user has to be, too.
        return bool(set(etcd.endpoints) & set(settings.lock_endpoints)) and etcd.user_secret_ref is None
    former = names.lock_tls_secret(bearer.service)
    if not any(name == former or name.startswith(f"{former}-") for name in bearer.secrets):
        return False
    mark = store_mark(with_users(settings))
    needed = {make(bearer.service, mark) for make in (names.lock_tls_secret, names.lock_user_secret)}
    return not (needed <= bearer.secrets and bearer.seen)


def _etcd(resource: ResourceView) -> EtcdSpec | None:
    """Give how a service reaches its lock store; None: its spec can't be read."""
    return (resource.spec.lock.etcd or EtcdSpec()) if resource.spec is not None else None
