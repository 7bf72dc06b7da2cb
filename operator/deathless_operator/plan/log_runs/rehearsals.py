"""The pod of a Rehearsal, and what it says.

    container `former`      the image that serves: `deathless former --listen SOCKET`, as beside an upgrader
    container `rehearsal`   the new image: `deathless upgrade rehearse --former SOCKET --termination-file FILE`, with
                            `--follow SECONDS` where it follows the log as it grows

Container `former` is a sidecar: it is started first, and ended by the kubelet once the rehearsal has ended. Both mount
the scratch folder, through which the former code gives all that it holds: so that has no limit.

Guarantees: a message that can't be read is told as it stands, cut. Does not: decide when it runs (`run`). Imports
model, plan, base and codec.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, cast

import msgspec

from deathless.codec.untrusted import read_json
from deathless_operator.model import names
from deathless_operator.model.log_run import LogRunSpec
from deathless_operator.model.rehearsal import (
    LIST_MAX,
    Coverage,
    FollowedLog,
    RehearsalResult,
    RehearsalSpec,
    RehearsedDifference,
    Verdict,
)
from deathless_operator.model.values import Json, JsonObject, objects
from deathless_operator.plan.log_runs.tool import Judged, Seconds, Told, Tool
from deathless_operator.plan.tool_pods import CONFIG, READ_ALONE, RUN, TERMINATION_FILE, pod_spec, reading
from deathless_operator.plan.tool_pods import with_resources as sized

WORD_MAX: Final = 1024
SHOWN: Final = 3
"""Differences that the message names."""


class Differs(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """As the pod tells it: all differences of one kind of one handler."""

    kind: str
    handler: str = ""
    lsn: Told = 0
    key: str = ""
    count: Told = 1
    expected: str = ""
    found: str = ""
    declared: str = ""


class Covered(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """As the pod tells it: how often a handler was met."""

    handler: str
    turns: Told = 0
    left_out: Told = 0


class Followed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """As the pod tells it: how much of a growing log was compared."""

    seconds: Seconds = 0.0
    messages: Told = 0
    compared: Told = 0
    behind_max: Told = 0
    ended: str = ""


class Rehearsed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """As the pod tells it: what came of the run."""

    passed: bool
    messages: Told
    same_code: bool = False
    from_version: Told = 0
    to_version: Told = 0
    started_at: Told = 0
    lsn: Told = 0
    seconds: Seconds = 0.0
    differences: tuple[Differs, ...] = ()
    misfits: tuple[str, ...] = ()
    coverage: tuple[Covered, ...] = ()
    not_covered: tuple[str, ...] = ()
    left_off: Told = 0
    fingerprint: str = ""
    by_digests: bool = False
    followed: Followed | None = None
    shard: Told = 0
    of: Told = 1


def read_rehearsed(message: str) -> Rehearsed | None:
    """Read a termination message; None where it is none of a run that came to its end."""
    try:
        return read_json(message.encode(), Rehearsed)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None


def rehearsal_pod(template: JsonObject, spec: LogRunSpec) -> JsonObject:
    """Give the spec of the pod."""
    asked = cast("RehearsalSpec", spec)
    words = ["upgrade", "rehearse", "-f", CONFIG, "--former", names.FORMER_SOCKET]
    words += ["--termination-file", TERMINATION_FILE]
    words += ["--to", asked.module] if asked.module else []
    words += [] if asked.from_lsn is None else ["--from", str(asked.from_lsn)]
    words += [] if asked.messages is None else ["--messages", str(asked.messages)]
    words += [] if asked.follow_seconds is None else ["--follow", str(asked.follow_seconds)]
    program = sized(reading(template, names.PURPOSE_REHEARSAL, words, asked.image), spec.resources)
    listens = ["former", "--listen", names.FORMER_SOCKET, "-f", CONFIG]
    former = sized(reading(template, names.FORMER_CONTAINER, listens, only=READ_ALONE), spec.resources)
    pod = pod_spec(template, [program, former], spec.active_deadline_seconds)
    sidecar: list[Json] = [former | {"restartPolicy": "Always"}]
    volumes: list[Json] = [
        each | {"emptyDir": {}} if each.get("name") == RUN else each for each in objects(pod, "volumes")
    ]
    return pod | {"initContainers": sidecar, "containers": [program], "volumes": volumes}


def judge_rehearsal(message: str, exit_code: int) -> Judged:
    """Tell what a pod that has ended says."""
    told = read_rehearsed(message)
    if told is None or told.passed != (exit_code == 0):
        said = message.strip()[:2000] or f"its pod ended with exit code {exit_code}, without a word"
        return inconclusive(Judged(phase="Failed", reason="RunFailed", message=said))
    fields = {"result": _result(told)}
    if told.passed:
        said = f"{told.messages:,} messages up to lsn {told.lsn:,} give the same, or what is declared"
        if told.followed is not None:
            new = told.followed
            said += f"; {new.compared:,} of the {new.messages:,} that came in {new.seconds:.0f} s are among them"
        if told.not_covered:
            said += f"; not covered: {', '.join(told.not_covered)}"
        if told.of > 1:
            said += f"; this is shard {told.shard} of {told.of}, and no other was rehearsed by it"
        return Judged(phase="Succeeded", reason="Rehearsed", message=said, fields=fields | _verdict("Passed"))
    undeclared = [each for each in told.differences if not each.declared]
    named = [*told.misfits, *(f"{each.kind}: {each.handler}, {each.count:,} times" for each in undeclared)]
    more = f"; and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    said = f"{'; '.join(named[:SHOWN])}{more}"
    reason = "CodeDiffers" if undeclared else "DoesNotFit"
    return Judged(phase="Failed", reason=reason, message=said, fields=fields | _verdict("Failed"))


def inconclusive(judged: Judged) -> Judged:
    """Complete what is told of a run that came to no verdict."""
    return replace(judged, fields=dict(judged.fields) | _verdict("Inconclusive"))


def _verdict(verdict: Verdict) -> dict[str, object]:
    return {"verdict": verdict}


def _result(told: Rehearsed) -> RehearsalResult:
    """Give it as the status has it."""
    differences = tuple(
        RehearsedDifference(
            kind=each.kind[:WORD_MAX],
            handler=each.handler[:WORD_MAX],
            count=each.count,
            lsn=each.lsn,
            key=each.key[:WORD_MAX],
            expected=each.expected[:WORD_MAX],
            found=each.found[:WORD_MAX],
            declared=each.declared[:WORD_MAX],
        )
        for each in told.differences[:LIST_MAX]
    )
    return RehearsalResult(
        same_code=told.same_code,
        fingerprint=told.fingerprint[:WORD_MAX],
        by_digests=told.by_digests,
        from_version=told.from_version,
        to_version=told.to_version,
        messages=told.messages,
        started_at=told.started_at,
        lsn=told.lsn,
        seconds=told.seconds,
        differences=differences,
        misfits=tuple(each[:WORD_MAX] for each in told.misfits[:LIST_MAX]),
        coverage=tuple(
            Coverage(handler=each.handler[:WORD_MAX], turns=each.turns, left_out=each.left_out)
            for each in told.coverage[:LIST_MAX]
        ),
        not_covered=tuple(each[:WORD_MAX] for each in told.not_covered[:LIST_MAX]),
        left_off=told.left_off,
        followed=None if told.followed is None else _followed(told.followed),
    )


def _followed(told: Followed) -> FollowedLog:
    return FollowedLog(
        seconds=told.seconds,
        messages=told.messages,
        compared=told.compared,
        behind_max=told.behind_max,
        ended=told.ended[:WORD_MAX],
    )


REHEARSAL: Final = Tool(
    kind=names.REHEARSAL_KIND,
    purpose=names.PURPOSE_REHEARSAL,
    pod_spec=rehearsal_pod,
    judge=judge_rehearsal,
    without_word=inconclusive,
)
