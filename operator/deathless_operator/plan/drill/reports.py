"""What a drill's pods leave in their termination messages, as the planner reads it and the pods write it.

Guarantees: one type for both sides; what can't be read is None, never an error: a pod may have been killed before it
said anything. At most `MESSAGE_BYTES_MAX`, the limit of a termination message. Imports nothing of ours.
"""

from __future__ import annotations

from typing import Final, Literal, TypeVar

import msgspec

from deathless.codec.untrusted import read_json

MESSAGE_BYTES_MAX: Final = 4096

RunnerVerdict = Literal["Passed", "Failed", "Aborted", "Inconclusive"]


class RunnerReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What the calls showed. Times are wall seconds of the runner's node."""

    run: str  # the run's mark: namespace/drill/run
    verdict: RunnerVerdict
    reason: str
    message: str = ""
    began_at: float = 0.0
    warm_at: float = 0.0  # 0: never warm
    ended_at: float = 0.0
    unavailable_seconds: float = 0.0
    unavailable_from: float = 0.0  # 0: no wait at all
    calls: int = 0
    answered: int = 0
    lost: int = 0
    doubled: int = 0
    attempts: int = 0


class AgentReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was broken. Times are wall seconds of the victim's node."""

    fault: str
    began: float = 0.0  # 0: it did not
    ended: float = 0.0  # when it was undone; a kill ends as it begins
    touched: int = 0  # processes killed or stopped; 1 for a cut
    problem: str = ""  # empty: all went well


Report = TypeVar("Report", RunnerReport, AgentReport)


def encode_report(report: RunnerReport | AgentReport) -> bytes:
    """Give the termination message; a text that is too long for it is cut."""
    encoded = msgspec.json.encode(report)
    while len(encoded) > MESSAGE_BYTES_MAX:
        over = len(encoded) - MESSAGE_BYTES_MAX
        if isinstance(report, RunnerReport):
            report = msgspec.structs.replace(report, message=report.message[: -over - 1])
        else:
            report = msgspec.structs.replace(report, problem=report.problem[: -over - 1])
        encoded = msgspec.json.encode(report)
    return encoded


def read_report(message: str, kind: type[Report]) -> Report | None:
    """Read a termination message; None where it is none of ours."""
    try:
        return read_json(message.encode(), kind)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return None
