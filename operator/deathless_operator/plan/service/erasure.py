"""What a service that is deleted with its log leaves in the lock store, and how that is erased.

    lives    the spec says Delete and the claim is ours: a record (ConfigMap `NAMESPACE.NAME.erase` in the operator's
             namespace) says where the keys are, before anything that could write a key; it goes when the spec says
             Retain
    gone     its claim stays            -> its keys stay with it: the record is dropped
             claim, set or pods are     -> wait
             none of them is any more   -> a pod runs `deathless erase`; when it ended well, pod and record go
    anew     a service of the same name waits for that before anything of it is made

The keys follow the log: they are erased only where its claim is gone. The pod checks once more what the API server
can't tell: that nobody holds the lock or takes it meanwhile, and that the keys are the service's that the record names.

Guarantees: a pure function of what is seen; cut off after any action it goes on, since the record is the last thing
to go. Nothing holds the resource or its namespace back: there is no finalizer. Does not: talk to the lock store.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import msgspec

from deathless.base.errors import ForeignDirectory
from deathless.base.lock_stores.etcd import EtcdConfig
from deathless.base.manifest import ServiceSpec
from deathless.codec.untrusted import read_json
from deathless_operator.model import names
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.model.values import Json, JsonObject, text
from deathless_operator.plan.actions import Action, Apply, DeleteObject, DeletePod, Event
from deathless_operator.plan.service.objects import Lock, etcd_config
from deathless_operator.plan.service.placement import FS_GROUP, as_object, container_security, digest, where_it_runs
from deathless_operator.plan.service.pods import container, replicas
from deathless_operator.plan.snapshot import ChildView, PodView, Remains, Snapshot

RECORD_KEY: Final = "record.json"
CONTAINER: Final = "erase"
LOOK_S: Final = 2.0  # what is waited for bears no label of the record, so no watch tells of all of it
RETRY_S: Final = 30.0  # after a pod that did not get it done
WAIT_S: Final = 60  # the pod waits so long for a holder to let go and the store to answer
DEADLINE_S: Final = 300  # then a pod that did not even start is made anew
TERMINATION_FILE: Final = "/dev/termination-log"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """Whose keys are to be erased, and what opens the store; unknown fields are passed over."""

    namespace: str
    service: str
    uid: str  # of the resource: one of the same name that is made later has another
    claim: str
    lock: Lock  # its Secrets lie in `place`
    place: str  # namespace of the pod that erases
    service_id: str = ""  # hexadecimal; empty: no replica has told it, or there are several shards
    shards: int = 1
    shard_ids: tuple[str, ...] = ()  # likewise, of each of several shards
    where: dict[str, object] = {}  # nodes that its pods could run on, and as what: fields of a pod's spec


@dataclass(frozen=True, slots=True, kw_only=True)
class Erasure:
    """What is to be done about what is left of a service."""

    sentence: str
    actions: tuple[Action, ...] = ()
    events: tuple[Event, ...] = field(default=())
    requeue_s: float | None = LOOK_S


def record_of(snapshot: Snapshot, spec: ServiceSpec, settings: OperatorSettings, lock: Lock) -> Record | None:
    """Give the record of a service that lives; None: its keys stay when it is deleted, as its log does."""
    resource, storage = snapshot.resource, spec.log_storage
    if storage.claim_name or storage.deletion_policy != "Delete":
        return None
    own = bool(spec.lock.etcd is not None and spec.lock.etcd.endpoints)
    opened = lock
    if not own:  # the copies in the service's namespace go with it; their sources stay
        opened = msgspec.structs.replace(
            lock,
            tls_secret=settings.lock_tls_secret if lock.tls_secret else "",
            user_secret=settings.lock_user_secret if lock.user_secret else "",
        )
    ids = tuple(_service_id(part) for part in snapshot.parts())
    return Record(
        namespace=resource.namespace,
        service=resource.name,
        uid=resource.uid,
        claim=names.log_claim(resource.name),
        lock=opened,
        place=resource.namespace if own else settings.namespace,
        service_id=ids[0] if spec.shards == 1 else "",
        shards=spec.shards,
        shard_ids=ids if spec.shards > 1 else (),
        where={key: value for key, value in where_it_runs(spec).items() if own or key != "imagePullSecrets"},
    )


def _service_id(part: Snapshot) -> str:
    """Give the id that a shard told last."""
    spoken = [pod.announced for pod in replicas(part).values() if pod.announced is not None]
    newest = max((found for found in spoken if found.service_id), key=lambda found: found.epoch, default=None)
    if newest is not None:
        return newest.service_id
    known = part.resource.status
    if part.shards == 1:
        return known.service_id
    return next((found.service_id for found in known.shards if found.shard == part.shard), "")


def record_manifest(record: Record, settings: OperatorSettings) -> JsonObject:
    """Give the ConfigMap that holds a record."""
    told = msgspec.to_builtins(record)
    if not record.where:
        del told["where"]  # as before it was told
    data = msgspec.json.encode(told, order="sorted").decode()
    metadata = _metadata(record, names.erase_record(record.namespace, record.service), settings.namespace)
    annotations = metadata["annotations"]
    assert isinstance(annotations, dict)
    annotations[names.APPLIED_ANNOTATION] = digest(data)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {RECORD_KEY: data}}


def read_record(child: ChildView | None) -> Record | None:
    """Read a record; None where there is none, or it can't be read."""
    if child is None:
        return None
    try:
        return read_json(text(child.raw, "data", RECORD_KEY).encode(), Record)
    except msgspec.MsgspecError:
        return None


def forget(child: ChildView, settings: OperatorSettings, why: str) -> DeleteObject:
    """Give the action that drops a record."""
    return DeleteObject(
        api_version="v1", kind="ConfigMap", name=child.name, uid=child.uid, namespace=settings.namespace, why=why
    )


def pod_name(record: Record) -> str:
    """Name the pod that erases: no two resources share it."""
    return names.erase_pod(record.service, digest([record.namespace, record.service, record.uid]))


def plan_erasure(remains: Remains, settings: OperatorSettings) -> Erasure:
    """Plan the next step about a service that is gone and has a record."""
    record = read_record(remains.record)
    if record is None:
        return Erasure(
            sentence=f"ConfigMap {remains.record.name} can't be read: nothing is erased. Repair or delete it",
            requeue_s=None,
        )
    what = f"the keys of {record.namespace}/{record.service} in the lock store"
    claim = remains.claim
    if claim is not None and claim.deleted_at is None and record.uid not in claim.owner_uids:
        return _end(remains, settings, "Normal", "KeysKept", f"{what} stay, as its log does (claim {claim.name})")
    going = [f"claim {claim.name}"] if claim is not None else []
    going += [f"StatefulSet {found.name}" for found in remains.stateful_sets]
    going += [f"pod {pod.name}" for pod in remains.pods]
    if going:
        return Erasure(sentence=f"{what} are erased when {', '.join(going[:3])} is gone")
    pod = remains.eraser
    if pod is None:
        why = f"{what} are to be erased"
        return Erasure(
            sentence=f"erasing {what}", actions=(Apply(manifest=eraser_manifest(record, settings), why=why),)
        )
    if pod.phase == "Succeeded":
        return _end(remains, settings, "Normal", "KeysErased", f"{what} are erased: nothing is left")
    if pod.phase == "Failed" and pod.deleted_at is None:
        return _judge(remains, settings, pod, record, what)
    return Erasure(sentence=f"erasing {what}; waiting for pod {pod.name}")


def _judge(remains: Remains, settings: OperatorSettings, pod: PodView, record: Record, what: str) -> Erasure:
    """Read why a pod did not erase."""
    found = container(pod, CONTAINER)
    said = (found.message.strip() if found is not None else "") or pod.phase_message or pod.phase_reason or "no word"
    if said.startswith(ForeignDirectory.code):
        return _end(remains, settings, "Warning", "KeysKept", f"{what} stay: {said[:600]}")
    ended = found.finished_at if found is not None and found.finished_at is not None else pod.created_at
    left_s = ended + RETRY_S - remains.now
    told = Event(type="Warning", reason="EraseFailed", message=f"{what} are not erased yet: {said[:600]}")
    again: tuple[Action, ...] = () if left_s > 0 else (_delete(pod, record, "the operator retries"),)
    return Erasure(
        sentence=f"{what} are not erased yet: {said[:300]}",
        actions=again,
        events=(told,),
        requeue_s=max(left_s, LOOK_S),
    )


def _end(remains: Remains, settings: OperatorSettings, kind: str, reason: str, message: str) -> Erasure:
    """Drop pod and record, the record last: without it nobody would look for the pod."""
    record = read_record(remains.record)
    assert record is not None, "it has been read"
    pod = remains.eraser
    actions: list[Action] = [] if pod is None or pod.deleted_at is not None else [_delete(pod, record, message)]
    actions.append(forget(remains.record, settings, message))
    event = Event(type="Warning" if kind == "Warning" else "Normal", reason=reason, message=message)
    return Erasure(sentence=message, actions=tuple(actions), events=(event,), requeue_s=0.0)


def _delete(pod: PodView, record: Record, why: str) -> DeletePod:
    return DeletePod(name=pod.name, uid=pod.uid, grace_s=None, force=False, why=why, namespace=record.place)


def eraser_manifest(record: Record, settings: OperatorSettings) -> JsonObject:
    """Give the pod that erases: no rights, no token, nothing mounted but what opens the store."""
    lock = _opened(record, settings)
    volumes: list[Json] = []
    mounts: list[Json] = []
    secrets = (
        ("lock-tls", lock.tls_secret, names.LOCK_TLS_FOLDER),
        ("lock-user", lock.user_secret, names.LOCK_USER_FOLDER),
    )
    for volume, secret, folder in secrets:
        if secret:
            volumes.append({"name": volume, "secret": {"secretName": secret, "defaultMode": 0o440}})
            mounts.append({"name": volume, "mountPath": folder, "readOnly": True})
    program: JsonObject = {
        "name": CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "command": ["deathless"],
        "args": [
            "erase",
            "--yes",
            f"--order={_order(record, etcd_config(lock))}",
            f"--wait={WAIT_S}",
            f"--termination-file={TERMINATION_FILE}",
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": container_security(),
        "volumeMounts": mounts,
    }
    spec: JsonObject = {
        "restartPolicy": "Never",
        "activeDeadlineSeconds": DEADLINE_S,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": FS_GROUP,
            "runAsGroup": FS_GROUP,
            "fsGroup": FS_GROUP,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [program],
        "volumes": volumes,
    }
    spec |= as_object(record.where)
    if settings.pull_secrets and record.place == settings.namespace:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.pull_secrets]
    metadata = _metadata(record, pod_name(record), record.place)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _opened(record: Record, settings: OperatorSettings) -> Lock:
    """Give the lock with what opens it: the service's own user goes with it, so the administrator's takes its place."""
    ours = (record.place, record.lock.tls_secret) == (settings.namespace, settings.lock_tls_secret)
    if not settings.lock_users or not ours:
        return record.lock
    return msgspec.structs.replace(
        record.lock, tls_secret=names.LOCK_USERS_TLS_SECRET, user_secret=names.LOCK_ADMIN_SECRET
    )


def _order(record: Record, etcd: EtcdConfig) -> str:
    order: dict[str, object] = {"service": record.service, "serviceId": record.service_id, "etcd": etcd}
    if record.shards > 1:
        order |= {"shards": record.shards, "shardIds": record.shard_ids}
    return msgspec.json.encode(order, order="sorted").decode()


def _metadata(record: Record, name: str, namespace: str) -> JsonObject:
    # Not the label of the service: what bears it is taken for one of its objects.
    return {
        "name": name,
        "namespace": namespace,
        "labels": {
            names.LABEL_NAME: "deathless",
            names.LABEL_MANAGED_BY: names.FIELD_MANAGER,
            names.LABEL_PURPOSE: names.PURPOSE_ERASE,
        },
        "annotations": {names.ERASE_ANNOTATION: f"{record.namespace}/{record.service}"},
    }
