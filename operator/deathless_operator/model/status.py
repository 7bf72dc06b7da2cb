"""What the operator tells about a service: `status` of a DeathlessService.

Guarantees: typed, so that CRD, planner and command line speak of the same fields. Does not: decide anything.
Imports base alone.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from deathless.base.manifest_fields import told
from deathless.base.shards import SHARDS_MAX

MEMBERS_MAX = 512  # as many as there can be of 64 shards
Text = Annotated[str, Meta(max_length=4096)]
ConditionStatus = Literal["True", "False", "Unknown"]


class StatusPart(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A part of a status; what is unknown to this version is passed over."""


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One condition, as Kubernetes' conventions ask for."""

    type: Annotated[
        str, Meta(max_length=316, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"), told("The condition's type.")
    ]
    status: Annotated[ConditionStatus, told("Whether the condition is met.")]
    reason: Annotated[
        str,
        Meta(max_length=1024, pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"),
        told("Why, in one word for machines."),
    ]
    message: Annotated[str, Meta(max_length=32768), told("Why, and what to do, for people.")] = ""
    last_transition_time: Annotated[
        str, Meta(max_length=64, extra_json_schema={"format": "date-time"}), told("When status changed last.")
    ] = ""
    observed_generation: Annotated[int, Meta(ge=0), told("The generation of the spec this was found for.")] = 0


class ReplicaStatus(StatusPart, frozen=True):
    """One replica, as its pod and its own announcement show it."""

    name: Annotated[str, Meta(max_length=63), told("Its name: r0, r1, ...; with several shards 0/r0, 1/r0, ...")]
    pod: Annotated[str, Meta(max_length=253), told("Its pod.")] = ""
    node: Annotated[str, Meta(max_length=253), told("The node the pod runs on.")] = ""
    role: Annotated[str, Meta(max_length=63), told("Its role, as it announces it.")] = ""
    ready: Annotated[bool, told("Whether its pod is ready.")] = False
    epoch: Annotated[int, Meta(ge=0), told("The epoch it knows.")] = 0
    program: Annotated[
        str,
        Meta(max_length=63),
        told("How its program is: serving, loading, ended, failing; empty if the service's code is a module."),
    ] = ""
    problem: Annotated[Text, told("What prevents it from serving, in its own words.")] = ""


class ShardStatus(StatusPart, frozen=True):
    """One shard of a service that has several."""

    shard: Annotated[int, Meta(ge=0), told("Which one: 0, 1, ...")]
    ready: Annotated[str, Meta(max_length=16), told("Its ready pods of wanted pods, as text.")] = ""
    primary: Annotated[str, Meta(max_length=253), told("Its primary's pod.")] = ""
    epoch: Annotated[int, Meta(ge=0), told("The highest epoch that its replicas announced.")] = 0
    service_id: Annotated[str, Meta(max_length=64), told("Id the shard got at its first start.")] = ""
    incarnation: Annotated[int, Meta(ge=0), told("Changes when the shard is adopted anew.")] = 0
    last_takeover_time: Annotated[
        str, Meta(max_length=64, extra_json_schema={"format": "date-time"}), told("When its primary changed last.")
    ] = ""
    image: Annotated[Text, told("The image that was accepted for it.")] = ""
    module: Annotated[Text, told("The module that was accepted with the image.")] = ""
    accepted_with: Annotated[
        Text, told("Limits and peers' shards that were accepted with them, as JSON; empty: as by default.")
    ] = ""
    fingerprint: Annotated[str, Meta(max_length=64), told("Fingerprint of the code that it runs.")] = ""


class ServiceStatus(StatusPart, frozen=True):
    """The status of a DeathlessService."""

    observed_generation: Annotated[int, Meta(ge=0), told("The generation of the spec this status was made for.")] = 0
    installation: Annotated[str, Meta(max_length=63), told("Namespace of the operator that manages the service.")] = ""
    replicas: Annotated[int, Meta(ge=0), told("Pods that exist.")] = 0
    ready_replicas: Annotated[int, Meta(ge=0), told("Pods that are ready.")] = 0
    updated_replicas: Annotated[int, Meta(ge=0), told("Pods that run the current spec.")] = 0
    selector: Annotated[Text, told("Label selector of the pods, for the scale subresource.")] = ""
    ready: Annotated[str, Meta(max_length=16), told("Ready pods of wanted pods, as text.")] = ""
    primary: Annotated[
        str, Meta(max_length=253), told("The primary's pod; with several shards, how many have a primary.")
    ] = ""
    epoch: Annotated[int, Meta(ge=0), told("The highest epoch announced.")] = 0
    image: Annotated[Text, told("The image of the replicas; spec.image once it is accepted.")] = ""
    module: Annotated[Text, told("The module that was accepted with the image.")] = ""
    accepted_with: Annotated[
        Text, told("Limits and numbers of peers' shards that were accepted with the image, as JSON.")
    ] = ""
    fingerprint: Annotated[Text, told("Fingerprint of the code that serves, as the replicas announce it.")] = ""
    service_id: Annotated[str, Meta(max_length=64), told("Id the service got at its first start; see shards.")] = ""
    incarnation: Annotated[int, Meta(ge=0), told("Changes when the service is adopted anew.")] = 0
    last_takeover_time: Annotated[
        str, Meta(max_length=64, extra_json_schema={"format": "date-time"}), told("When the primary changed last.")
    ] = ""
    doing: Annotated[Text, told("What the operator is doing, in one sentence.")] = ""
    shards: Annotated[
        tuple[ShardStatus, ...], Meta(max_length=SHARDS_MAX), told("The shards, if there are several.")
    ] = ()
    members: Annotated[
        tuple[ReplicaStatus, ...], Meta(max_length=MEMBERS_MAX), told("The replicas, of all shards.")
    ] = ()
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=32), told("The conditions, with their reasons.")] = ()


def condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    """Give the condition of that type, None where there is none."""
    return next((found for found in conditions if found.type == kind), None)
