"""What pods are told by ConfigMaps and Secrets of ours, so that a pod goes on with what its template was made with.

A ConfigMap or Secret that is changed in place changes under every pod that mounts it, a minute or two later: a pod of
an older template would then show the new lock store's certificate to the old lock store, and one whose container starts
again would begin with settings that its template never had. So what may differ between two templates has a name of its
own, and the template refers to exactly that:

    ConfigMap NAME-config-MARK           replica.json and nothing else; immutable; MARK is its hash
    Secret    NAME-lock-tls-MARK         the installation's Secrets for its lock store; MARK tells the store, so that
              NAME-lock-user-MARK        a renewal for the same store reaches running pods, and another store never does

Former operators used one name each. A service whose template is as they made it keeps them, and with them its pods,
until its template changes for another reason.

    what a template, StatefulSet or pod refers to    stays
    the rest, once no pod is missing or outdated     is deleted, a Secret before the ConfigMap that tells of it

Guarantees: nothing is deleted that a pod refers to, or that a StatefulSet's controller might still make pods with.
Does not: make manifests (`objects`), or copy Secrets (`access`). Imports model and base only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from deathless.base.manifest import ServiceSpec
from deathless_operator.model import names
from deathless_operator.model.values import JsonObject, part, text
from deathless_operator.plan.actions import DeleteObject, Target
from deathless_operator.plan.safeguards import ALL_PLAN_SAFEGUARDS, PlanSafeguards
from deathless_operator.plan.service.objects import Lock, caller_secrets, claim_of, tls_of
from deathless_operator.plan.service.placement import Mounted, template_hash
from deathless_operator.plan.service.pods import replicas
from deathless_operator.plan.service.reading import read_mounts
from deathless_operator.plan.service.shards import Shard, is_seen
from deathless_operator.plan.snapshot import ChildView, ResourceView, Snapshot


def mounted(resource: ResourceView, spec: ServiceSpec, lock: Lock, config_map: str) -> Mounted:
    """Name what the pods of a shard mount.

    Args:
        resource: the service.
        spec: of the service.
        lock: its lock store.
        config_map: with the shard's settings.
    """
    token = spec.token_secret_ref
    callers, issuer_ca = caller_secrets(spec)
    return Mounted(
        config_map=config_map,
        claim=claim_of(resource, spec),
        tls=names.tls_secret(resource.name) if tls_of(spec).issuer != "Off" else "",
        lock_tls=lock.tls_secret,
        lock_user=lock.user_secret,
        token=token.name if token else "",
        callers=callers,
        issuer_ca=issuer_ca,
        operator_token=names.operator_token_secret(resource.name),
    )


def template_of(manifest: JsonObject) -> str:
    """Give the hash of a StatefulSet's template."""
    template = part(manifest, "spec", "template")
    assert isinstance(template, dict), "a StatefulSet has a template"
    return template_hash(template)


def keeps_former(snapshot: Snapshot, templates: Mapping[int, str]) -> bool:
    """Tell whether every StatefulSet stands as a former operator would make it now; without one, whether its pods do.

    Args:
        snapshot: of the service.
        templates: by shard: hash of the template with the names that former operators used.
    """
    stand = [mark for part in snapshot.parts() if (mark := _template(part)) is not None]
    known = set(templates.values())
    return bool(stand) and all(mark in known for mark in stand)


def _template(shard: Snapshot) -> str | None:
    """Give the hash of the template that a shard's pods are made from; None: there is neither set nor pod."""
    child = shard.stateful_set()
    if child is not None:
        return text(child.raw, "spec", "template", "metadata", "labels", names.LABEL_TEMPLATE)
    made = [pod.labels.get(names.LABEL_TEMPLATE, "") for pod in replicas(shard).values()]
    return made[0] if made else None


def remove_unused(
    snapshot: Snapshot, shards: Iterable[Shard], safeguards: PlanSafeguards = ALL_PLAN_SAFEGUARDS
) -> list[DeleteObject]:
    """Delete ConfigMaps and copied Secrets of ours that nothing refers to any more.

    Args:
        snapshot: of the service.
        shards: as they are to be; nothing is deleted while one of them is on the way there.
        safeguards: all but in tests.
    """
    pods = snapshot.pods if safeguards.keep_mounted else ()
    used: set[tuple[str, str]] = set().union(*(pod.mounts for pod in pods))
    for shard in shards:
        rests = shard.is_applied and shard.child is not None and is_seen(shard.child)
        if safeguards.keep_mounted and (not rests or shard.missing or shard.outdated):
            return []
        used |= read_mounts(part(shard.manifest, "spec", "template", "spec"))
    sets = [names.of_shard(snapshot.resource.name, part.shard) for part in snapshot.parts()]
    bases = [Target("ConfigMap", names.config_map(each)) for each in sets]
    bases += [
        Target("Secret", make(snapshot.resource.name)) for make in (names.lock_tls_secret, names.lock_user_secret)
    ]
    found = [child for child in snapshot.children if _is_one_of(child, snapshot, bases)]
    return [_delete(child) for child in sorted(found, key=_secrets_first) if (child.kind, child.name) not in used]


def _is_one_of(child: ChildView, snapshot: Snapshot, bases: Iterable[Target]) -> bool:
    """Tell whether an object is ours, and one of these or has the name of one and a mark."""
    ours = child.controller_uid == snapshot.resource.uid and child.deleted_at is None
    return ours and any(child.kind == kind and _is_marked(child.name, name) for kind, name in bases)


def _is_marked(name: str, base: str) -> bool:
    return name == base or (name.startswith(f"{base}-") and "-" not in name.removeprefix(f"{base}-"))


def _secrets_first(child: ChildView) -> tuple[bool, str]:
    return child.kind != "Secret", child.name


def _delete(child: ChildView) -> DeleteObject:
    """Delete an object; a ConfigMap not while a Secret stays that it alone tells of."""
    held = child.annotations.get(names.LOCK_SECRETS_ANNOTATION, "").split(",") if child.kind == "ConfigMap" else []
    return DeleteObject(
        api_version=child.api_version,
        kind=child.kind,
        name=child.name,
        uid=child.uid,
        why="no pod refers to it any more",
        needs=frozenset(Target("Secret", name) for name in held if name),
    )
