"""The pod that leads through an upgrade: it decides nothing, and where it dies another one goes on.

Guarantees: it has what a replica of the new code has, but no account's token, and no Service finds it; its name tells
what it was asked for, so that making it twice makes one. Does not: decide when it is made (`upgrade`). Imports model
and base only.
"""

from __future__ import annotations

from typing import Final

from deathless_operator.model import names
from deathless_operator.model.values import JsonObject, objects, part
from deathless_operator.plan.service.objects import Objects
from deathless_operator.plan.service.placement import digest
from deathless_operator.plan.service.upgrading.accepted import Drive

DRIVE_S: Final = 600
"""So long it waits at most for whatever is not there yet, seconds."""
DEADLINE_S: Final = 720
"""Kubernetes ends the pod after this, if it has not ended by itself."""
TERMINATION_FILE: Final = "/dev/termination-log"
KEPT: Final = ("image", "imagePullPolicy", "env", "resources", "securityContext", "volumeMounts")
"""Of the replica's container; its ports, probes and hooks are not the tool's."""
LEFT_OUT: Final = ("containers", "volumes", "serviceAccountName", "terminationGracePeriodSeconds")


def driving_pod(objects_of: Objects, service: str, stateful_set: JsonObject, drive: Drive) -> JsonObject:
    """Give the pod.

    Args:
        objects_of: makes manifests of the service.
        service: its name.
        stateful_set: manifest with the template of the new code.
        drive: what the pod is to do.
    """
    template = part(stateful_set, "spec", "template", "spec")
    assert isinstance(template, dict), "a StatefulSet has a template"
    replica = next(each for each in objects(template, "containers") if each["name"] == names.CONTAINER)
    words = ["upgrade", "drive", "-f", f"{names.CONFIG_FOLDER}/{names.CONFIG_FILE}"]
    words += ["--upgraders", ",".join(drive.upgraders)]
    words += ["--fingerprint", drive.fingerprint]
    words += ["--only-compatible"] if drive.only_compatible else []
    words += ["--prepare-only"] if drive.prepare_only else []
    words += ["--timeout", str(DRIVE_S), "--termination-file", TERMINATION_FILE]
    program: JsonObject = {key: value for key, value in replica.items() if key in KEPT}
    program |= {
        "name": names.PURPOSE_UPGRADE,
        "command": ["deathless", *words],
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    mounted = {mount["name"] for mount in objects(replica, "volumeMounts")}
    pod: JsonObject = {key: value for key, value in template.items() if key not in LEFT_OUT}
    pod |= {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "activeDeadlineSeconds": DEADLINE_S,
        "containers": [program],
        "volumes": [volume for volume in objects(template, "volumes") if volume["name"] in mounted],
    }
    name = names.upgrade_pod(service, digest([drive.key, drive.attempt, *drive.upgraders]))
    noted = {names.UPGRADE_OF_ANNOTATION: drive.key, names.ATTEMPT_ANNOTATION: str(drive.attempt)}
    manifest = objects_of.make("v1", "Pod", name, {"spec": pod}, annotations=noted)
    labels = part(manifest, "metadata", "labels")
    assert isinstance(labels, dict), "a manifest has labels"
    # No replica: the Services must not find it.
    labels |= {names.LABEL_PURPOSE: names.PURPOSE_UPGRADE, names.LABEL_NAME: "deathless-upgrade"} | drive.shard
    return manifest
