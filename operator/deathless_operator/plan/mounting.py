"""Why a pod has not begun: its node can't mount what the spec names, in Kubernetes' words and with the field's name.

A kubelet tells of a Secret that is missing by an event alone; in its status the pod is being created, however long.

Guarantees: nothing is told of a pod that has begun, since a kubelet warns of what passes as well. Does not: look
whether a Secret exists, which the operator may not see. Imports base and the snapshot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from deathless.base.manifest import ServiceSpec
from deathless_operator.plan.snapshot import PodView, Warned

REASONS: Final = ("FailedMount", "FailedAttachVolume")
LOG_VOLUME: Final = "deathless-log"
TEXT_MAX: Final = 600  # characters of Kubernetes' words
_VOLUME: Final = re.compile(r'volume "([^"]+)"')


def secret_fields(spec: ServiceSpec) -> dict[str, str]:
    """Give which field names the Secret of a volume, by the volume's name as `service.placement` gives it."""
    found = {
        "deathless-token": "spec.tokenSecretRef",
        "deathless-callers": "spec.ingress.authentication",
        "deathless-issuer-ca": "spec.ingress.authentication",
        "deathless-lock-tls": "spec.lock.etcd.tlsSecretRef",
        "deathless-lock-user": "spec.lock.etcd.userSecretRef",
    }
    named = {
        "driver": [each.name for each in spec.drivers],
        "sink": [each.name for each in spec.sinks],
        "source": [each.name for each in spec.sources],
    }
    for kind, parts in named.items():
        for index, name in enumerate(parts):
            found[f"deathless-{kind}-{index}"] = f"spec.{kind}s[{index}].secretRef (of {name})"
    return found


def why_not_begun(pod: PodView, warnings: Iterable[Warned], fields: Mapping[str, str]) -> str:
    """Say what keeps a pod from its first container, and what to do; empty: nothing that its node has told.

    Args:
        pod: which.
        warnings: of Kubernetes, of any objects.
        fields: which field names the Secret of a volume, by the volume's name.
    """
    if any(each.running or each.terminated or each.restarts for each in pod.containers):
        return ""
    told = [each for each in warnings if (each.kind, each.name) == ("Pod", pod.name) and each.reason in REASONS]
    newest = max((each for each in told if each.at >= pod.created_at), key=lambda each: each.at, default=None)
    if newest is None:
        return ""
    found = _VOLUME.search(newest.message)
    volume = found[1] if found is not None else ""
    if volume == LOG_VOLUME:
        return ""  # that is of the storage
    field = fields.get(volume, "")
    remedy = (
        f"create it in this namespace, or correct {field}" if field else "create what is missing, or correct the spec"
    )
    return f"{pod.name} can't mount what it needs: {newest.message[:TEXT_MAX]}. What to do: {remedy}"
