"""A LiveUpgrade: code that a service is to be upgraded to, when, and what came of it.

It asks for what an edit of `spec.image` asks for, and more: that everything is made ready and tried first, that the
service is handed over at a certain time or at a person's word, and the way back.

Guarantees: typed spec and status, from which the CRD is generated; what one field can't show is found by
`live_upgrade_problems`. Does not: upgrade. Imports base alone.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Final, Literal, get_args

import msgspec
from msgspec import Meta

from deathless.base.manifest_fields import ObjectName, Part, Text, told
from deathless.base.shards import SHARDS_MAX
from deathless_operator.model.drill import ServiceRef
from deathless_operator.model.status import Condition, StatusPart

Action = Literal["Hold", "Go", "Abort", "BackOut"]
ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
Phase = Literal[
    "",
    "Pending",
    "Checking",
    "Preparing",
    "Ready",
    "Upgrading",
    "Ramping",
    "Succeeded",
    "Refused",
    "Aborting",
    "Aborted",
    "BackingOut",
    "BackedOut",
]
ENDED: Final[tuple[Phase, ...]] = ("Succeeded", "Refused", "Aborted", "BackedOut")
"""What is not asked for any more."""
METRICS_MAX: Final = 8
"""Of one step of a ramp."""
Time = Annotated[str, Meta(max_length=64, extra_json_schema={"format": "date-time"})]


class UpgradeCode(Part, frozen=True):
    """The code that is upgraded to."""

    image: Annotated[Annotated[str, Meta(min_length=1, max_length=1024)], told("The image that holds it.")]
    module: Annotated[
        Annotated[
            str,
            Meta(
                pattern=r"^([^:]+:[A-Za-z_][A-Za-z0-9_]*)?$",
                max_length=1024,
                description="package.module:attribute or path/to/file.py:attribute",
            ),
        ],
        told("Its module and attribute in the image; when empty, the service's spec.module."),
    ] = ""


class FormerCode(Part, frozen=True):
    """What has to serve before the upgrade."""

    image: Annotated[Text, told("The image that serves; when empty, whichever does.")] = ""


class Window(Part, frozen=True):
    """When the service may be handed over to the new code; everything is made ready at any time."""

    schedule: Annotated[
        Annotated[str, Meta(max_length=128)],
        told("When the window opens, as a cron expression: minute hour day month weekday."),
    ]
    duration_seconds: Annotated[int, Meta(ge=60, le=604800), told("How long it stays open.")] = 3600
    time_zone: Annotated[Annotated[str, Meta(max_length=64)], told("Time zone of the schedule; if empty, UTC.")] = ""


class MetricGate(Part, frozen=True):
    """A number of the installation's Prometheus that has to be within bounds."""

    name: Annotated[
        Annotated[str, Meta(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$")],
        told("What it is called in messages."),
    ]
    query: Annotated[
        Annotated[str, Meta(min_length=1, max_length=4096)],
        told("A PromQL expression that gives one number, such as an error rate over the last minutes."),
    ]
    min: Annotated[float | None, told("The least that it may be.")] = None
    max: Annotated[float | None, told("The most that it may be.")] = None


class RampStep(Part, frozen=True):
    """Shards that are upgraded together, and what has to be seen before the next ones are."""

    shards: Annotated[
        Annotated[int, Meta(ge=1, le=SHARDS_MAX)],
        told("How many shards, counted from shard 0, run the new code once this step is done."),
    ]
    hold_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=604800)],
        told("How long these shards serve with the new code before the next ones are upgraded."),
    ] = 600
    drill: Annotated[
        Annotated[str, Meta(max_length=253)],
        told(
            "A FailoverDrill of the service: the next shards wait until a run of it that began after this step was "
            "done has passed. When empty, none is waited for."
        ),
    ] = ""
    metrics: Annotated[
        tuple[MetricGate, ...],
        Meta(max_length=METRICS_MAX),
        told(
            "The next shards wait, after holdSeconds, until each of these numbers is within its bounds. One that can't "
            "be told, for whatever reason, is not."
        ),
    ] = ()


class LiveUpgradeSpec(Part, frozen=True):
    """Which service is upgraded to which code, and when."""

    service_ref: Annotated[ServiceRef, told("The service.")]
    to: Annotated[UpgradeCode, told("The code that is upgraded to.")]
    from_: Annotated[
        FormerCode, told("What has to serve before; the upgrade is refused where something else does.")
    ] = msgspec.field(name="from", default=FormerCode())
    action: Annotated[
        Action,
        told(
            "Go: upgrade. Hold: make everything ready and try it, then wait for Go; also stops an upgrade that was not "
            "handed over yet. Abort: call it off; once the new code serves, only BackOut undoes it. BackOut: "
            "return to the code that served before, as another upgrade. The annotation deathless.dev/action on the "
            "LiveUpgrade is followed in its place."
        ),
    ] = "Go"
    window: Annotated[
        Window | None, told("When the service may be handed over to the new code; when absent, at any time.")
    ] = None
    rehearsal: Annotated[
        Annotated[str, Meta(max_length=253)],
        told(
            "A Rehearsal of the service with the same image and module: nothing is begun until it has passed. When "
            "empty, none is waited for."
        ),
    ] = ""
    ramp: Annotated[
        tuple[RampStep, ...],
        Meta(max_length=16),
        told(
            "Where the upgrade stops between two shards. Shards behind the last step are upgraded once it is over. "
            "When empty, each shard is upgraded as soon as the one before it is whole."
        ),
    ] = ()


class ShardUpgrade(StatusPart, frozen=True):
    """How far one shard is."""

    shard: Annotated[int, Meta(ge=0), told("Which one: 0, 1, ...")]
    phase: Annotated[Phase, told("How far it is.")] = ""
    message: Annotated[str, Meta(max_length=4096), told("The same in a sentence.")] = ""
    generation: Annotated[int, Meta(ge=0), told("The generation of its log that the new code began.")] = 0
    unavailable_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | None,
        told("From the former code's last answer to the new code's first; absent when nobody measured it."),
    ] = None
    completion_time: Annotated[Time, told("Since when it runs the code that is asked for.")] = ""


class CodeStatus(StatusPart, frozen=True):
    """Code, as it was accepted."""

    image: Annotated[Text, told("Its image.")] = ""
    module: Annotated[Text, told("Its module.")] = ""


class LiveUpgradeStatus(StatusPart, frozen=True):
    """The status of a LiveUpgrade."""

    observed_generation: Annotated[int, Meta(ge=0), told("The generation of the spec this status was made for.")] = 0
    phase: Annotated[
        Phase,
        told(
            "Pending, Checking, Preparing, Ready, Upgrading, Ramping (some shards run the new code, and the next ones "
            "wait), then Succeeded, Refused or Aborted; BackingOut, then BackedOut."
        ),
    ] = ""
    reason: Annotated[str, Meta(max_length=128), told("Why, in one word.")] = ""
    message: Annotated[str, Meta(max_length=4096), told("Why, and what to do, in a sentence.")] = ""
    former: Annotated[CodeStatus | None, told("The code that served before; BackOut returns to it.")] = None
    start_time: Annotated[Time, told("When it was begun.")] = ""
    completion_time: Annotated[Time, told("When it ended.")] = ""
    unavailable_seconds: Annotated[
        Annotated[float, Meta(ge=0)] | None, told("The longest time that a shard served nobody for the upgrade.")
    ] = None
    shards: Annotated[tuple[ShardUpgrade, ...], Meta(max_length=SHARDS_MAX), told("The service's shards.")] = ()
    conditions: Annotated[tuple[Condition, ...], Meta(max_length=16), told("The conditions, with their reasons.")] = ()


class LiveUpgradeResource(msgspec.Struct, frozen=True, kw_only=True):
    """A LiveUpgrade as the API server has it; spec None: it has problems."""

    namespace: str
    name: ObjectName
    uid: str
    version: str  # at which it was read: a status is written to that one alone
    generation: int
    service: str  # whom it is about, also where the spec has problems; empty: that can't be read either
    spec: LiveUpgradeSpec | None
    problems: tuple[str, ...] = ()
    annotations: dict[str, str] = {}
    deleted: bool = False
    created_at: float = 0.0
    status: LiveUpgradeStatus = LiveUpgradeStatus()


def live_upgrade_problems(spec: LiveUpgradeSpec) -> list[str]:
    """Find what contradicts itself; the CRD's rules refuse the same."""
    found = []
    if spec.window is not None and len(spec.window.schedule.split(" ")) != 5:
        found.append("spec.window.schedule has five fields, with one space between: minute hour day month weekday")
    counts = [step.shards for step in spec.ramp]
    if any(later <= earlier for earlier, later in pairwise(counts)):
        found.append("spec.ramp: shards of each step must be more than those of the step before it")
    metrics = [(at, metric) for at, step in enumerate(spec.ramp) for metric in step.metrics]
    for at, metric in metrics:
        if metric.min is None and metric.max is None:
            found.append(f"spec.ramp[{at}].metrics: {metric.name} has neither min nor max")
        if metric.min is not None and metric.max is not None and metric.min > metric.max:
            found.append(f"spec.ramp[{at}].metrics: min of {metric.name} is above its max")
    return found
