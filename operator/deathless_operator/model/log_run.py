"""What a Replay and a Rehearsal have in common: a service's own log is run again in a pod of its own.

    Pending      it waits for the service, or its pod does not run yet
    Running      its pod runs the log
    Succeeded    the log was run, and nothing was found
    Failed       something was found, or the log could not be run; the reason says which

Guarantees: typed parts of spec and status, from which the CRDs are generated. Does not: run anything. Imports base
alone.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from deathless.base.manifest_fields import ObjectName, Part, told
from deathless.base.manifest_parts import Resources
from deathless.base.shards import SHARDS_MAX
from deathless_operator.model.drill import ServiceRef
from deathless_operator.model.status import Condition, StatusPart

Phase = Literal["", "Pending", "Running", "Succeeded", "Failed"]
ENDED: Final[tuple[Phase, ...]] = ("Succeeded", "Failed")
"""What is not begun again."""
EXACT_MAX: Final = (1 << 53) - 1
"""The greatest number that an API server still reads exactly as a bound."""
Time = Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})]
Lsn = Annotated[int, Meta(ge=0, le=EXACT_MAX)]
Word = Annotated[str, Meta(max_length=1024)]


class LogRunSpec(Part, frozen=True):
    """Whose log is run, and with what."""

    service_ref: Annotated[ServiceRef, told("The service.")]
    shard: Annotated[
        int, Meta(ge=0, lt=SHARDS_MAX), told("The shard whose log is run, if the service has several.")
    ] = 0
    from_lsn: Annotated[
        Lsn | None,
        told(
            "The run begins at the newest checkpoint at or below this message. When absent, it begins as early as the "
            "log of the code that serves allows."
        ),
    ] = None
    resources: Annotated[
        Resources, told("Resources of each container of the pod. What is empty is as the service's replicas have it.")
    ] = Resources()
    active_deadline_seconds: Annotated[
        int, Meta(ge=60, le=604800), told("The pod is ended after this time, and the run has failed.")
    ] = 21600
    ttl_seconds_after_finished: Annotated[
        Annotated[int, Meta(ge=0, le=31536000)] | None,
        told("The object is deleted with its pod so long after it has ended. When absent, both stay."),
    ] = None


class LogRunStatus(StatusPart, frozen=True):
    """How far a run is."""

    observed_generation: Annotated[int, Meta(ge=0), told("The generation of the spec this status was made for.")] = 0
    phase: Annotated[Phase, told("Pending, Running, then Succeeded or Failed.")] = ""
    reason: Annotated[str, Meta(max_length=128), told("Why, in one word.")] = ""
    message: Annotated[str, Meta(max_length=4096), told("Why, and what to do, in a sentence.")] = ""
    pod: Annotated[str, Meta(max_length=253), told("The pod that runs the log.")] = ""
    image: Annotated[Word, told("The image of the code that serves, which the log is of.")] = ""
    start_time: Annotated[Time, told("When its pod was made.")] = ""
    completion_time: Annotated[Time, told("When it ended.")] = ""
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16), told("The conditions, with their reasons.")] = ()


class LogRunResource(msgspec.Struct, frozen=True, kw_only=True):
    """A Replay or a Rehearsal as the API server has it; spec None: it has problems."""

    namespace: str
    name: ObjectName
    uid: str
    version: str  # at which it was read: a status is written to that one alone
    generation: int
    service: str  # whose log it is, also where the spec has problems; empty: that can't be read either
    problems: tuple[str, ...] = ()
    deleted: bool = False
    spec: LogRunSpec | None
    status: LogRunStatus = LogRunStatus()
