"""What a service may change about its pods: a bounded part of Kubernetes' pod template.

Why bounded: command, ports, probes and mounts carry the guarantees, so they are the operator's. Everything here is
about where a pod runs and what stands beside the code. Run locally none of it has an effect.

Guarantees: field names and meanings are those of Kubernetes' core/v1. Does not: check what Kubernetes checks. Imports
`manifest_parts` alone.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from deathless.base.manifest_fields import AsIs, LongText, NonEmpty, ObjectName, Part, SecretRef, Text, Texts, told

Names = Annotated[tuple[SecretRef, ...], Meta(max_length=16)]


class Toleration(Part, frozen=True):
    """A taint that pods put up with."""

    key: Annotated[Text, told("Key of the taint; every taint when empty, with operator Exists.")] = ""
    operator: Annotated[Literal["Exists", "Equal"], told("How the value is compared.")] = "Equal"
    value: Annotated[Text, told("Value of the taint.")] = ""
    effect: Annotated[
        Literal["", "NoSchedule", "PreferNoSchedule", "NoExecute"], told("Effect of the taint; all when empty.")
    ] = ""
    toleration_seconds: Annotated[
        int | None, told("How long a NoExecute taint is put up with; for ever when absent.")
    ] = None


class SpreadConstraint(Part, frozen=True):
    """How evenly pods are spread; the selector is the operator's."""

    topology_key: Annotated[NonEmpty, told("Label of nodes that makes one domain, for example a zone.")]
    max_skew: Annotated[int, Meta(ge=1), told("By how many pods two domains may differ.")] = 1
    when_unsatisfiable: Annotated[
        Literal["DoNotSchedule", "ScheduleAnyway"], told("Whether a pod waits when it can't be placed evenly.")
    ] = "ScheduleAnyway"


class EnvVar(Part, frozen=True):
    """A variable of a replica's environment."""

    name: Annotated[NonEmpty, told("Its name; those that begin with DEATHLESS_ or POD_ are the operator's.")]
    value: Annotated[LongText, told("Its value.")] = ""
    value_from: Annotated[AsIs | None, told("Where its value comes from: secretKeyRef, configMapKeyRef, fieldRef.")] = (
        None
    )


class VolumeMount(Part, frozen=True):
    """Where a volume stands in a replica's container."""

    name: Annotated[ObjectName, told("Name of the volume.")]
    mount_path: Annotated[Annotated[str, Meta(min_length=1, max_length=1024)], told("Folder in the container.")]
    sub_path: Annotated[Text, told("Folder of the volume.")] = ""
    read_only: Annotated[bool, told("Whether it can't be written.")] = False


class PodSecurity(Part, frozen=True):
    """Users and groups of a pod; the rest of its security context is fixed to the restricted standard."""

    run_as_user: Annotated[Annotated[int, Meta(ge=1)] | None, told("User id; the image's own when absent.")] = None
    run_as_group: Annotated[Annotated[int, Meta(ge=1)] | None, told("Group id; the image's own when absent.")] = None
    fs_group: Annotated[Annotated[int, Meta(ge=1)] | None, told("Group that owns volumes; 65532 when absent.")] = None
    fs_group_change_policy: Annotated[
        Literal["OnRootMismatch", "Always"], told("When ownership of a volume is changed.")
    ] = "OnRootMismatch"
    supplemental_groups: Annotated[
        tuple[Annotated[int, Meta(ge=1)], ...], Meta(max_length=16), told("Further groups.")
    ] = ()


class PodTemplate(Part, frozen=True):
    """What may be changed about a replica's pod."""

    labels: Annotated[Texts, told("Further labels; those of the operator win.")] = msgspec.field(default_factory=dict)
    annotations: Annotated[Texts, told("Further annotations; those of the operator win.")] = msgspec.field(
        default_factory=dict
    )
    node_selector: Annotated[Texts, told("Labels that nodes must have.")] = msgspec.field(default_factory=dict)
    tolerations: Annotated[tuple[Toleration, ...], Meta(max_length=32), told("Taints that pods put up with.")] = ()
    affinity: Annotated[
        AsIs | None, told("Affinity as core/v1 has it. When absent: replicas avoid each other's nodes.")
    ] = None
    topology_spread_constraints: Annotated[
        tuple[SpreadConstraint, ...], Meta(max_length=8), told("Spread over domains. When empty: evenly over zones.")
    ] = ()
    priority_class_name: Annotated[Text, told("Priority of the pods.")] = ""
    runtime_class_name: Annotated[Text, told("Runtime of the pods.")] = ""
    scheduler_name: Annotated[Text, told("Scheduler of the pods.")] = ""
    service_account_annotations: Annotated[Texts, told("Annotations of the pods' ServiceAccount.")] = msgspec.field(
        default_factory=dict
    )
    image_pull_secrets: Annotated[Names, told("Secrets to pull the image with.")] = ()
    security_context: Annotated[PodSecurity, told("Users and groups.")] = PodSecurity()
    env: Annotated[tuple[EnvVar, ...], Meta(max_length=128), told("Further variables of the environment.")] = ()
    volumes: Annotated[
        tuple[AsIs, ...], Meta(max_length=32), told("Further volumes as core/v1 has them, each with its name.")
    ] = ()
    volume_mounts: Annotated[tuple[VolumeMount, ...], Meta(max_length=32), told("Where they stand.")] = ()
    termination_grace_period_seconds: Annotated[
        int, Meta(ge=5, le=600), told("Seconds between SIGTERM and SIGKILL; a primary hands over in them.")
    ] = 30
