"""Activities: what an author registers, and when one that failed is tried again.

    @shop.activity(attempts_max=5, timeout=30)
    def charge(card: str, cents: int) -> str: ...

    receipt = await ctx.run(charge, card, 500)

The policy is the code's, but every decision it leads to is taken in the turn of a record: the outcome of an attempt is
logged, and with it the logical time before which the next one is not begun. So all replicas know the same attempts.

Guarantees: the same policy and outcomes give the same attempts. Does not: run anything. Imports base and codec.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

import msgspec

from deathless.base.backoff import pause_after
from deathless.base.errors import ActivityFailed, InvalidService, NotRetryable, OutcomeUnknown
from deathless.codec.peer_messages import ActivityStart
from deathless.codec.untrusted import read_msgpack
from deathless.codec.wire import ReplyError, Status, error_reply
from deathless.execution.values.function import Function

SECOND_US: Final = 1_000_000
DURATION_MAX_US: Final = 2**62  # added to an elapsed time it still is a u64
_UNKNOWN: Final = error_reply(OutcomeUnknown.code, "", "")[: -len(b"\xa0\xa0")]
_NEVER_AGAIN: Final = error_reply(NotRetryable.code, "", "")[: -len(b"\xa0\xa0")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """How often, how long and how patiently; `Service.activity` says what each is."""

    attempts_max: int = 0
    first_delay: float = 1.0
    factor: float = 2.0
    delay_max: float = 60.0
    timeout: float = 0.0
    heartbeat: float = 0.0
    at_most_once: bool = False

    def check(self, where: str) -> None:
        """Refuse what makes no sense.

        Raises: InvalidService naming `where` and the value.
        """
        for name in ("attempts_max", "first_delay", "delay_max", "timeout", "heartbeat"):
            value: float = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise InvalidService(f"{where}: {name} must be a number of at least 0, not {value}")
        if not (math.isfinite(self.factor) and self.factor >= 1):
            raise InvalidService(f"{where}: factor must be at least 1, not {self.factor}")

    def delay_us(self, attempt: int) -> int:
        """Microseconds from the failure of an attempt (from 1) to the next one."""
        delay = pause_after(attempt - 1, first_s=self.first_delay, most_s=self.delay_max, factor=self.factor)
        return duration_us(delay)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivitySpec:
    """One registered activity."""

    name: str
    function: Function
    args_type: type[msgspec.Struct]  # named arguments
    result_type: object  # annotation of the result
    policy: Policy


def duration_us(seconds: float) -> int:
    """Give a duration of a policy in microseconds; one that no record could hold is as long as one can."""
    return int(min(seconds * SECOND_US, DURATION_MAX_US))


def next_start(policy: Policy | None, start: ActivityStart, elapsed_us: int, reply: bytes) -> ActivityStart | None:
    """Give the attempt behind one that failed; None: there is none any more.

    Args:
        policy: of the activity; None: the code has no activity of that name.
        start: the attempt.
        elapsed_us: of the shard, by which the next one is put off.
        reply: what the attempt gave; an error reply.
    """
    if policy is None or policy.at_most_once or start.attempt == policy.attempts_max:
        return None
    if reply.startswith(_NEVER_AGAIN):
        return None
    return msgspec.structs.replace(
        start, attempt=start.attempt + 1, attempted=False, not_before_us=elapsed_us + policy.delay_us(start.attempt)
    )


def is_unknown(reply: bytes) -> bool:
    """Does this, from `final_reply`, say that nobody knows whether the activity was done?"""
    return reply.startswith(_UNKNOWN)


def final_reply(start: ActivityStart, reply: bytes) -> bytes:
    """Give what the handler gets for an outcome behind which there is no further attempt."""
    if reply[:1] == bytes([Status.OK]):
        return reply
    try:
        failure = read_msgpack(reply[1:], ReplyError)
    except msgspec.MsgspecError:
        failure = ReplyError(ActivityFailed.code, ActivityFailed.__name__, "its outcome can't be read")
    if failure.code == OutcomeUnknown.code:
        return error_reply(failure.code, failure.type, failure.text)
    text = f"activity {start.name}, attempt {start.attempt}: {failure.text}"
    return error_reply(ActivityFailed.code, failure.type, text)
