"""The pod that leads through an upgrade: it decides nothing, and where it dies another one goes on.

Guarantees: it has what a replica of the new code has, but no account's token, and no Service finds it; its name tells
what it was asked for, so that making it twice makes one. Does not: decide when it is made (`upgrade`). Imports model
and base only.
"""

from __future__ import annotations

from typing import Final

from deathless_operator.model import names
from deathless_operator.model.values import JsonObject, part
from deathless_operator.plan.service.objects import Objects
from deathless_operator.plan.service.placement import digest
from deathless_operator.plan.service.upgrading.accepted import Drive
from deathless_operator.plan.tool_pods import CONFIG, TERMINATION_FILE, pod_spec, template_of, whole

DRIVE_S: Final = 600
"""So long it waits at most for whatever is not there yet, seconds."""
DEADLINE_S: Final = 720
"""Kubernetes ends the pod after this, if it has not ended by itself."""


def driving_pod(objects_of: Objects, service: str, stateful_set: JsonObject, drive: Drive) -> JsonObject:
    """Give the pod.

    Args:
        objects_of: makes manifests of the service.
        service: its name.
        stateful_set: manifest with the template of the new code.
        drive: what the pod is to do.
    """
    template = template_of(stateful_set)
    words = ["upgrade", "drive", "-f", CONFIG]
    words += ["--upgraders", ",".join(drive.upgraders)]
    words += ["--fingerprint", drive.fingerprint]
    words += ["--only-compatible"] if drive.only_compatible else []
    words += ["--prepare-only"] if drive.prepare_only else []
    words += ["--timeout", str(DRIVE_S), "--termination-file", TERMINATION_FILE]
    pod = pod_spec(template, [whole(template, names.PURPOSE_UPGRADE, words)], DEADLINE_S)
    name = names.upgrade_pod(service, digest([drive.key, drive.attempt, *drive.upgraders]))
    noted = {names.UPGRADE_OF_ANNOTATION: drive.key, names.ATTEMPT_ANNOTATION: str(drive.attempt)}
    manifest = objects_of.make("v1", "Pod", name, {"spec": pod}, annotations=noted)
    labels = part(manifest, "metadata", "labels")
    assert isinstance(labels, dict), "a manifest has labels"
    # No replica: the Services must not find it.
    labels |= {names.LABEL_PURPOSE: names.PURPOSE_UPGRADE, names.LABEL_NAME: "deathless-upgrade"} | drive.shard
    return manifest
