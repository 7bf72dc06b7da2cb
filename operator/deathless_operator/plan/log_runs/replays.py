"""The pod of a Replay, and what it says.

    deathless replay --from oldest|LSN [--to LSN] --quiet --termination-file /dev/termination-log

Guarantees: a message that can't be read is told as it stands, cut. Does not: decide when it runs (`run`). Imports
model, plan, base and codec.
"""

from __future__ import annotations

from typing import Final, cast

import msgspec

from deathless.base.errors import Diverged
from deathless.codec.untrusted import read_json
from deathless_operator.model import names
from deathless_operator.model.log_run import LogRunSpec
from deathless_operator.model.replay import FirstDifference, ReplayResult, ReplaySpec
from deathless_operator.model.values import JsonObject
from deathless_operator.plan.log_runs.tool import Judged, Seconds, Told, Tool
from deathless_operator.plan.tool_pods import CONFIG, TERMINATION_FILE, pod_spec, reading, with_resources


class Difference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """As the pod tells it: the first message that gave something else."""

    lsn: Told = 0
    handler: str = ""
    key: str = ""
    text: str = ""


class Replayed(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """As the pod tells it: what came of the run."""

    messages: Told
    started_at: Told = 0
    lsn: Told = 0
    keys: Told = 0
    digest: str = ""
    seconds: Seconds = 0.0
    difference: Difference | None = None


def read_replayed(message: str) -> Replayed | None:
    """Read a termination message; None where it is none of a run that came to its end."""
    try:
        return read_json(message.encode(), Replayed)
    except (msgspec.MsgspecError, UnicodeEncodeError):
        return None


def replay_pod(template: JsonObject, spec: LogRunSpec) -> JsonObject:
    """Give the spec of the pod."""
    asked = cast("ReplaySpec", spec)
    words = ["replay", "-f", CONFIG, "--quiet", "--termination-file", TERMINATION_FILE]
    words += ["--from", "oldest" if asked.from_lsn is None else str(asked.from_lsn)]
    words += [] if asked.to_lsn is None else ["--to", str(asked.to_lsn)]
    program = with_resources(reading(template, names.PURPOSE_REPLAY, words), spec.resources)
    return pod_spec(template, [program], spec.active_deadline_seconds)


def judge_replay(message: str, exit_code: int) -> Judged:
    """Tell what a pod that has ended says."""
    told = read_replayed(message)
    if told is None or (exit_code == 0) != (told.difference is None):
        said = message.strip()[:2000] or f"its pod ended with exit code {exit_code}, without a word"
        return Judged(phase="Failed", reason="RunFailed", message=said)
    difference = told.difference
    result = ReplayResult(
        messages=told.messages,
        started_at=told.started_at,
        lsn=told.lsn,
        keys=told.keys,
        digest=told.digest[:128],
        seconds=told.seconds,
        first_difference=None
        if difference is None
        else FirstDifference(
            lsn=difference.lsn,
            handler=difference.handler[:1024],
            key=difference.key[:1024],
            message=difference.text[:4096],
        ),
    )
    if difference is None:
        said = f"{told.messages:,} messages up to lsn {told.lsn:,} give the same states and replies"
        return Judged(phase="Succeeded", reason="Replayed", message=said, fields={"result": result})
    where = f"handler {difference.handler}, key {difference.key}: " if difference.handler else ""
    said = f"{where}{difference.text} ({Diverged.code})"[:4096]
    return Judged(phase="Failed", reason="LogDiffers", message=said, fields={"result": result})


REPLAY: Final = Tool(kind=names.REPLAY_KIND, purpose=names.PURPOSE_REPLAY, pod_spec=replay_pod, judge=judge_replay)
