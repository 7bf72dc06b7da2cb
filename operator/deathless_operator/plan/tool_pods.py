"""The pods of tools that work on a service's log: what such a pod has of a replica's, and what it must not have.

    adopt, upgrade     `whole`: mounts and credentials of a replica, since they write, or speak to replicas
    replay, rehearsal  `reading`: settings, the log read-only, the lock store's credentials, what the spec itself mounts
    former             `reading` with `READ_ALONE`: the same without credentials

The lock store is needed for reading as well: it holds the place where the log ends, and the seeds of the service.

Guarantees: no token of an account, no ports, probes or hooks; what reads mounts no certificate, token or other Secret
that opens a replica or a driver's target. Does not: name pods or say who owns them. Imports model and base only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from deathless.base.manifest_parts import Resources
from deathless_operator.model import names
from deathless_operator.model.values import Json, JsonObject, objects, part

TERMINATION_FILE: Final = "/dev/termination-log"
CONFIG: Final = f"{names.CONFIG_FOLDER}/{names.CONFIG_FILE}"
KEPT: Final = ("image", "imagePullPolicy", "env", "resources", "securityContext", "volumeMounts")
"""Of the replica's container; its ports, probes and hooks are not the tool's."""
LEFT_OUT: Final = ("containers", "volumes", "serviceAccountName", "serviceAccount", "terminationGracePeriodSeconds")
OURS: Final = "deathless-"
LOG: Final = "deathless-log"
RUN: Final = "deathless-run"
READ: Final = ("deathless-config", LOG, RUN, "deathless-lock-tls", "deathless-lock-user")
"""Of the volumes of ours, those of a tool that only reads."""
READ_ALONE: Final = READ[:3]
"""Of these, those of one that needs no lock store: it is told what to read."""


def template_of(stateful_set: Mapping[str, Json]) -> JsonObject:
    """Give the pod spec in a StatefulSet's template."""
    template = part(stateful_set, "spec", "template", "spec")
    assert isinstance(template, dict), "a StatefulSet has a template"
    return template


def replica_in(template: JsonObject) -> JsonObject:
    """Give the replica's container in a template."""
    return next(each for each in objects(template, "containers") if each["name"] == names.CONTAINER)


def whole(template: JsonObject, name: str, words: Sequence[str], image: str = "") -> JsonObject:
    """Give the container of a tool that has all that a replica has.

    Args:
        template: pod spec of the replicas.
        name: of the container.
        words: of the command, behind `deathless`.
        image: instead of the template's; empty: that one.
    """
    program: JsonObject = {key: value for key, value in replica_in(template).items() if key in KEPT}
    program |= {
        "name": name,
        "command": ["deathless", *words],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return program | ({"image": image} if image else {})


def reading(
    template: JsonObject, name: str, words: Sequence[str], image: str = "", *, only: Sequence[str] = READ
) -> JsonObject:
    """Give the container of a tool that reads the log and changes nothing.

    Args:
        template: see `whole`, as for the next three.
        name: of the container.
        words: of the command.
        image: instead of the template's.
        only: of the volumes of ours, those that it mounts.
    """
    program = whole(template, name, words, image)
    mounts: list[Json] = []
    for mount in objects(program, "volumeMounts"):
        volume = str(mount["name"])
        if volume in only or not volume.startswith(OURS):
            mounts.append(mount | {"readOnly": True} if volume == LOG else mount)
    program["volumeMounts"] = mounts
    if image:
        variables: list[Json] = [
            each | {"value": image} if each.get("name") == "POD_IMAGE" else each for each in objects(program, "env")
        ]
        program["env"] = variables
    return program


def pod_spec(template: JsonObject, containers: Sequence[JsonObject], deadline_s: int) -> JsonObject:
    """Give the spec of a tool's pod, with the volumes that its containers mount.

    Args:
        template: pod spec of the replicas.
        containers: those of the tool.
        deadline_s: Kubernetes ends the pod after this.
    """
    mounted = {mount["name"] for each in containers for mount in objects(each, "volumeMounts")}
    pod: JsonObject = {key: value for key, value in template.items() if key not in LEFT_OUT}
    made: list[Json] = list(containers)
    volumes: list[Json] = [volume for volume in objects(template, "volumes") if volume["name"] in mounted]
    return pod | {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "activeDeadlineSeconds": deadline_s,
        "containers": made,
        "volumes": volumes,
    }


def with_resources(program: JsonObject, wanted: Resources) -> JsonObject:
    """Give a container with other resources; of what is empty it keeps those that it has."""
    asked: JsonObject = {key: str(value) for key, value in wanted.requests.items()}
    allowed: JsonObject = {key: str(value) for key, value in wanted.limits.items()}
    kept = part(program, "resources")
    resources: JsonObject = dict(kept) if isinstance(kept, dict) else {}
    resources |= {key: value for key, value in (("requests", asked), ("limits", allowed)) if value}
    return program | {"resources": resources}
