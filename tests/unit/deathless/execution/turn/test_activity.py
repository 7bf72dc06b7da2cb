"""Activities as they are registered, and when one is tried again."""

from typing import Any

import msgspec
import pytest

from deathless.base.errors import InvalidService, NotRetryable
from deathless.codec.peer_messages import ActivityStart
from deathless.codec.wire import ReplyError, error_reply, ok_reply
from deathless.execution.author.service import Service
from deathless.execution.turn.activity import Policy, duration_us, final_reply, next_start
from deathless.execution.values.failure import activity_failed, not_retryable

DECLINED = error_reply("DL3014", "ValueError", "declined")


class State(msgspec.Struct):
    count: int = 0


def start(attempt: int = 1) -> ActivityStart:
    return ActivityStart(7, 1, attempt, "work", b"", "key", at_most_once=False, attempted=True)


class Stolen(NotRetryable):
    """An author's own."""


def charge(card: str, cents: int = 5) -> str:
    return card


async def wait(seconds: float) -> None: ...


def test_activity_is_registered_with_its_policy() -> None:
    service = Service("svc", state=State)
    assert service.activity(charge) is charge
    assert service.activity(name="pause", attempts_max=3, timeout=2.5)(wait) is wait
    specs = service.activities
    assert list(specs) == ["charge", "pause"]
    assert specs["charge"].args_type.__struct_fields__ == ("card", "cents")
    assert (specs["charge"].result_type, specs["pause"].result_type) == (str, type(None))
    assert specs["pause"].policy == Policy(attempts_max=3, timeout=2.5)


def test_name_is_taken_once() -> None:
    service = Service("svc", state=State)
    service.activity(charge)
    with pytest.raises(InvalidService, match="has an activity 'charge' already"):
        service.activity(charge)


def positional(card: str, /) -> None: ...


def untyped(card) -> None:  # type: ignore[no-untyped-def]  # on purpose
    ...


def yields() -> Any:
    yield 1


def starred(*cards: str) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (positional, "can't be given by name"),
        (untyped, "parameter `card` has no type"),
        (yields, "can't yield"),
        (starred, "named one by one"),
        (lambda: None, "can't name an activity"),
        (3, "must be a function"),
    ],
)
def test_activity_that_could_not_run_is_refused(function: Any, reason: str) -> None:
    with pytest.raises(InvalidService, match=reason):
        Service("svc", state=State).activity(function)


@pytest.mark.parametrize(
    "policy",
    [
        {"attempts_max": -1},
        {"first_delay": float("nan")},
        {"delay_max": float("inf")},
        {"timeout": -0.5},
        {"heartbeat": -1},
        {"factor": 0.5},
        {"factor": float("inf")},
    ],
)
def test_policy_that_makes_no_sense_is_refused(policy: dict[str, Any]) -> None:
    with pytest.raises(InvalidService, match=next(iter(policy))):
        Policy(**policy).check("here")


@pytest.mark.parametrize("seconds", [1e13, 1e20, 1e308])
def test_a_delay_that_no_record_could_hold_is_as_long_as_one_can(seconds: float) -> None:
    policy = Policy(first_delay=seconds, delay_max=seconds)
    policy.check("here")
    again = next_start(policy, start(), 1 << 61, DECLINED)
    assert again is not None
    assert again.not_before_us == (1 << 61) + (1 << 62)
    assert msgspec.msgpack.encode(again)
    assert duration_us(seconds) == 1 << 62


def test_policy_is_checked_where_the_activity_is_registered() -> None:
    with pytest.raises(InvalidService, match=r"charge \(.*test_activity\.py:\d+\): factor must be at least 1, not 0"):
        Service("svc", state=State).activity(factor=0)(charge)


def test_delay_grows_up_to_its_maximum() -> None:
    policy = Policy(first_delay=0.5, factor=3, delay_max=10)
    assert [policy.delay_us(attempt) for attempt in range(1, 6)] == [
        500_000,
        1_500_000,
        4_500_000,
        10_000_000,
        10_000_000,
    ]
    assert Policy(factor=1).delay_us(10**9) == 1_000_000
    assert Policy(first_delay=0).delay_us(3) == 0
    assert Policy(first_delay=99).delay_us(1) == 60_000_000


def test_further_attempt_begins_behind_its_delay() -> None:
    further = next_start(Policy(attempts_max=3), start(2), 1000, DECLINED)
    assert further is not None
    assert (further.attempt, further.attempted, further.not_before_us) == (3, False, 2_001_000)
    assert next_start(Policy(attempts_max=3), start(3), 1000, DECLINED) is None
    assert next_start(Policy(at_most_once=True), start(), 1000, DECLINED) is None
    assert next_start(Policy(), start(10**6), 1000, DECLINED) is not None


def test_what_can_not_succeed_is_tried_no_more_whatever_the_policy() -> None:
    assert next_start(Policy(), start(), 1000, not_retryable("InvalidResult", "no")) is None
    assert next_start(Policy(), start(), 1000, activity_failed(NotRetryable("card is stolen"))) is None
    assert next_start(Policy(), start(), 1000, activity_failed(Stolen("by somebody"))) is None
    assert next_start(None, start(), 1000, DECLINED) is None, "the code has no such activity any more"
    told = msgspec.msgpack.decode(final_reply(start(), activity_failed(Stolen("by somebody")))[1:], type=ReplyError)
    assert told == ReplyError("DL3030", "Stolen", "activity work, attempt 1: by somebody")


def test_handler_gets_the_result_or_a_failure_of_the_activity() -> None:
    assert final_reply(start(), ok_reply(b"\x05")) == ok_reply(b"\x05")
    failed = msgspec.msgpack.decode(final_reply(start(2), error_reply("X", "Kind", "why"))[1:], type=ReplyError)
    assert (failed.code, failed.type, failed.text) == ("DL3030", "Kind", "activity work, attempt 2: why")
    unknown = error_reply("DL1006", "OutcomeUnknown", "gone")
    assert final_reply(start(), unknown) == unknown
    unreadable = msgspec.msgpack.decode(final_reply(start(), b"\x02")[1:], type=ReplyError)
    assert unreadable.code == "DL3030"
