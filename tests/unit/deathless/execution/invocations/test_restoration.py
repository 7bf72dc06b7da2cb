"""Code that does not fit what a handler waits for: that one is held, with its reason, and nothing else is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import Keys
from tests.unit.deathless.execution.messaging_bench import Hub, Target, error, executor_of, kinds, reference
from tests.unit.deathless.execution.saga_versions import (
    STOCK,
    ParcelOfTwo,
    ShelfOfTwo,
    begun,
    make,
    response,
)

from deathless.base.errors import CorruptCheckpoint, Diverged
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import Attempt, Order, Outcome, Reference, Request, encode_body, encode_request
from deathless.codec.wire import error_reply
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.invocations.journal import (
    SuspendedHeld,
    SuspendedInvocation,
    SuspendedLooks,
    decode_record,
    decode_suspended,
    encode_record,
)
from deathless.execution.invocations.misfits import UnfitInvocation

GOLDEN = Path(__file__).parents[4] / "golden"
SAGA, QUICK, LATER = 3, 5, 6
"""Ids of what waits, see `begun`."""
KEPT = begun()
STATE, SUSPENDED = dict(KEPT.executor.state()), KEPT.executor.suspended()
[RECORD] = [data for data in SUSPENDED if isinstance(decode_record(data), SuspendedInvocation)]


def restored(service: Service, *, same_code: bool = False, suspended: list[bytes] | None = None) -> HandlerExecutor:
    executor = executor_of(service, Keys())
    executor.restore(dict(STATE), SUSPENDED if suspended is None else suspended, same_code=same_code)
    return executor


def hub_of(service: Service, suspended: list[bytes] | None = None) -> Hub:
    """Go on with other code."""
    hub = Hub(service)
    hub.executor = restored(service, suspended=suspended)
    hub.lsn, hub.now_us = KEPT.lsn, KEPT.now_us
    return hub


def again(hub: Hub, service: Service, *, same_code: bool) -> None:
    """Go on from a checkpoint of this hub."""
    state, suspended = dict(hub.executor.state()), hub.executor.suspended()
    hub.service = service
    hub.executor = executor_of(service, Keys())
    hub.executor.restore(state, suspended, same_code=same_code)


def held_of(executor: HandlerExecutor) -> list[SuspendedHeld]:
    records = map(decode_record, executor.suspended())
    return [record for record in records if isinstance(record, SuspendedHeld)]


MISFITS: Mapping[str, tuple[dict[str, object], str, str]] = {
    "another handler": (
        {"second": "take"},
        "InFlightDiffers",
        "saga (lsn 3, key a) asks for stock.take in turn 2, had asked for stock.reserve",
    ),
    "gone": ({"without": ("saga",)}, "HandlerGone", "waits, and the service has no `async def` of that name"),
    "no coroutine": ({"plain": True}, "HandlerGone", "waits, and the service has no `async def` of that name"),
    "no activity": (
        {"activity": ""},
        "ActivityGone",
        "asks for a promise in turn 2, had asked for activity charge, which the service has no more",
    ),
    "renamed activity": ({"activity": "pay"}, "ActivityGone", "asks for activity pay in turn 2"),
    "result": ({"result": str, "second": "take"}, "ResultType", "was given by stock/0/apples take what does not fit"),
    "state": ({"mark": "started"}, "StateDiffers", "leaves another state in turn 2"),
    "item": ({"item": "c"}, "InFlightDiffers", "looks at items['c'] in turn 1, had looked at items['a']"),
    "more items": ({"looks": 2, "item": "a"}, "", ""),  # the map gives an item once a turn
    "ends": ({"ends": True}, "InFlightDiffers", "ends in turn 2, had asked for shop.take"),
    "shared": ({"shared": True}, "InFlightDiffers", "shares its key with others now"),
}


@pytest.mark.parametrize("name", MISFITS)
def test_what_does_not_fit_is_held_and_named_and_the_others_go_on(name: str) -> None:
    version, code, text = MISFITS[name]
    executor = restored(make(**version))  # type: ignore[arg-type]  # by name
    misfits = executor.restoration.misfits()
    if not code:
        assert misfits == []
        return
    [misfit] = misfits
    assert (misfit.code, misfit.handler, misfit.invocation, misfit.key) == (code, "saga", SAGA, "a")
    assert text in str(misfit)
    assert executor.held_count() == 1
    assert executor.crowd()[:2] == (3, 1)
    [view] = [view for view in executor.invocations() if view.misfit]
    assert view.misfit == f"{code}: {misfit}"
    assert (view.invocation, view.handler, view.key, view.since_us) == (SAGA, "saga", "a", 1)
    assert "stock.reserve" in view.waits_for
    history = executor.history(SAGA, 9)
    assert history is not None
    assert (history.count, [each.operation for each in history.given]) == (1, [2])
    [held] = held_of(executor)
    assert held.record == RECORD


def test_expected_and_found_are_kept_apart() -> None:
    [misfit] = restored(make(second="take")).restoration.misfits()
    assert (misfit.turn, misfit.expected, misfit.found) == (2, "stock.reserve", "stock.take")


@pytest.mark.parametrize(
    "version",
    [
        {"timeout": 30.0},
        {"deadline": 60.0},
        {"parcel": ParcelOfTwo},
        {"shelf": ShelfOfTwo},
        {"shelf": ShelfOfTwo, "parcel": ParcelOfTwo, "timeout": 3.0},
        {"without": ("quick", "later", "take")},
    ],
    ids=str,
)
def test_code_that_asks_for_the_same_by_value_fits(version: dict[str, object]) -> None:
    service = make(**version)  # type: ignore[arg-type]  # by name
    hub = hub_of(service)
    assert hub.executor.held_count() == 0
    again(hub, service, same_code=True)  # and what it keeps then is in the words of this code
    assert hub.executor.held_count() == 0
    if version.get("timeout"):
        [start] = hub.executor.activities()
        assert start.timeout_us == version["timeout"] * 1_000_000  # type: ignore[operator]  # a number


@pytest.mark.parametrize("name", [name for name, (_, code, _) in MISFITS.items() if code])
def test_i6_the_same_code_that_does_something_else_has_diverged(name: str) -> None:
    with pytest.raises((Diverged, CorruptCheckpoint), match="invocation 3: "):
        restored(make(**MISFITS[name][0]), same_code=True)  # type: ignore[arg-type]  # by name


@pytest.mark.parametrize("version", [{"timeout": 30.0}, {"deadline": 60.0}, {"parcel": ParcelOfTwo}], ids=str)
def test_i6_of_the_same_code_policy_and_bytes_are_the_same_as_well(version: dict[str, object]) -> None:
    with pytest.raises(Diverged):
        restored(make(**version), same_code=True)  # type: ignore[arg-type]  # by name


# ---- version 1 ----------------------------------------------------------------------------------------------------


def version_1() -> tuple[dict[bytes, bytes], list[bytes]]:
    data = (GOLDEN / "suspended_version_1.bin").read_bytes()
    return msgspec.msgpack.decode(data, type=tuple[dict[bytes, bytes], list[bytes]])


def test_golden_bytes_are_what_is_written() -> None:
    data = (GOLDEN / "suspended.bin").read_bytes()
    assert data == msgspec.msgpack.encode([STATE, SUSPENDED])


@pytest.mark.parametrize("same_code", [True, False])
def test_record_of_version_1_is_read_and_run_again_as_it_was(same_code: bool) -> None:
    state, suspended = version_1()
    assert state == STATE
    assert any(isinstance(decode_record(data), SuspendedLooks) for data in suspended)
    executor = restored(make(), same_code=same_code, suspended=suspended)
    assert executor.held_count() == 0
    assert executor.suspended() == SUSPENDED  # in version 2 from here on


@pytest.mark.parametrize(
    ("version", "text"),
    [({"second": "take"}, "asks for something else in turn 2"), ({"mark": "started"}, "leaves another state")],
)
def test_record_of_version_1_that_does_not_fit_is_held_or_has_diverged(version: dict[str, object], text: str) -> None:
    _, suspended = version_1()
    service = make(**version)  # type: ignore[arg-type]  # by name
    with pytest.raises(Diverged, match=text):
        restored(service, same_code=True, suspended=suspended)
    executor = restored(service, suspended=suspended)
    [misfit] = executor.restoration.misfits()
    assert text in str(misfit)
    [held] = held_of(executor)
    assert held.record in suspended
    assert held.holds
    back = restored(make(), suspended=executor.suspended())
    assert back.suspended() == SUSPENDED


# ---- held ones ----------------------------------------------------------------------------------------------------


def test_held_one_stays_held_in_every_replica_of_the_code_and_keeps_its_key() -> None:
    service = make(without=("saga",))
    hub = hub_of(service)
    hub.send("quick", "a", text="later")
    assert hub.value_of() == {"seen": ["began"], "items": msgspec.msgpack.decode(STATE[b"a"])["items"]}
    assert hub.executor.crowd()[:2] == (4, 2)
    crowd, suspended, views = hub.executor.crowd(), hub.executor.suspended(), hub.executor.invocations()
    hub.restart()  # compares the records, too
    assert (hub.executor.crowd(), hub.executor.invocations()) == (crowd, views)
    assert hub.executor.suspended() == suspended


def test_code_that_fits_again_brings_it_back() -> None:
    hub = hub_of(make(without=("saga",)))
    again(hub, make(second="take"), same_code=False)
    [misfit] = hub.executor.restoration.misfits()
    assert misfit.code == "InFlightDiffers"
    again(hub, make(), same_code=False)
    assert hub.executor.held_count() == 0
    assert hub.executor.suspended() == SUSPENDED
    assert hub.executor.crowd() == KEPT.executor.crowd()


def test_what_came_while_it_was_held_is_given_to_it_with_the_next_time_record() -> None:
    hub = hub_of(make(without=("saga",)))
    [start] = KEPT.executor.activities()
    hub.receive(response(SAGA, 3, 1))
    hub.receive(response(SAGA, 5, 2), peer=STOCK)
    hub.receive(response(SAGA, 5, 99), peer=STOCK)  # a second one is nobody's
    hub.receive(response(SAGA, 5, 98), peer=Target("other", 0))  # nor one of who was not asked
    hub.record(Outcome(SAGA, start.operation, 1, b"\x00\xa15"))
    hub.record(Order("resume", SAGA, 0, b"\x00\x04"))
    hub.call("beside", "a")  # another's turn of its key
    assert hub.results == {}
    assert len(held_of(hub.executor)[0].came) == 4
    hub.restart()
    again(hub, make(), same_code=False)
    assert hub.executor.held_count() == 1  # until a record of the log runs its turns
    assert hub.executor.restoration.misfits() == []
    [view] = [view for view in hub.executor.invocations() if view.invocation == SAGA]
    assert view.waits_for[0] == "the next record of time"
    hub.restart()
    hub.tick(hub.now_us + 1)
    assert hub.result(SAGA) == "done"
    value = hub.value_of()
    assert isinstance(value, dict)
    assert value["seen"] == ["began", "beside", "ended", "behind"]
    assert hub.executor.held_count() == 0


def test_timer_and_activity_of_one_that_comes_back_go_on() -> None:
    hub = hub_of(make(without=("saga",)))
    hub.receive(response(SAGA, 3, 1))
    assert hub.executor.activities() == []
    assert hub.executor.timers_due().first_us == 0
    again(hub, make(), same_code=False)
    hub.tick(hub.now_us + 1)
    [start] = hub.starts
    assert start == KEPT.executor.activities()[0]
    assert hub.executor.timers_due().first_us == KEPT.executor.timers_due().first_us


def test_at_most_once_activity_that_may_have_begun_is_unknown_when_it_comes_back() -> None:
    service = make(at_most_once=True)
    hub = begun(service)
    again(hub, make(without=("saga",)), same_code=False)
    hub.record(Attempt(SAGA, 4, 1))
    again(hub, service, same_code=False)
    hub.tick(hub.now_us + 1)
    [unknown] = hub.unknown
    assert (unknown.invocation, unknown.operation, unknown.activity) == (SAGA, 4, "charge")
    assert hub.failure(SAGA) == "DL3014 OutcomeUnknown"
    assert hub.starts[1:] == []  # nobody begins it again


@pytest.mark.parametrize("command", ["cancel", "kill"])
def test_operator_ends_one_that_is_held_and_its_caller_is_told(command: str) -> None:
    hub = hub_of(make(without=("saga",)))
    hub.record(Order(command, SAGA))
    failed = error(hub.results[SAGA])
    assert (failed.code, failed.type) == ("DL3019", "Cancelled")
    if command == "cancel":
        assert "(HandlerGone): saga (lsn 3, key a) waits" in failed.text
    assert hub.executor.held_count() == 0
    assert hub.executor.crowd()[:2] == (1, 0)  # the message behind it ran
    assert hub.value_of() == {"seen": ["began", "behind"], "items": msgspec.msgpack.decode(STATE[b"a"])["items"]}
    assert kinds([message for _, message in hub.sent]) == ["CANCEL"]
    assert kinds(hub.own) == ["CANCEL"]
    assert [reference(message).operation for _, message in hub.sent] == [5]
    assert hub.stops == [Reference(SAGA, 4)]
    assert hub.executor.suspended() == [data for data in hub.executor.suspended() if data != RECORD]


def test_caller_that_waits_no_more_is_kept_in_mind() -> None:
    hub = Hub(make())
    hub.tick()
    request = encode_body(Reference(77, 1))
    args = msgspec.msgpack.encode({"parcel": {"name": "box"}})
    hub.receive(encode_request(Request(77, 1, 0, ()), method=b"saga", key=b"a", args=args), peer=STOCK)
    [saga] = [view.invocation for view in hub.executor.invocations()]
    again(hub, make(without=("saga",)), same_code=False)
    hub.receive(encode(Kind.CANCEL, idempotency_key=request), peer=STOCK)
    again(hub, make(), same_code=False)
    hub.tick(hub.now_us + 1)
    assert saga not in hub.waiting()
    assert kinds([message for _, message in hub.sent])[-1] == "RESPONSE"


def test_caller_or_callee_that_is_created_anew_is_kept_in_mind() -> None:
    hub = hub_of(make(without=("saga",)))
    hub.record(STOCK)
    again(hub, make(), same_code=False)
    hub.tick(hub.now_us + 1)
    assert hub.failure(SAGA).endswith(" PeerReplaced")


def test_i6_all_replicas_of_the_code_do_the_same_wherever_they_restart() -> None:
    """The log behind the change of code, run by one that never stops and by one that restarts behind each step."""
    hub = hub_of(make(without=("saga",)))
    hub.receive(response(SAGA, 5, 2), peer=STOCK)
    hub.send("quick", "a", text="later")
    hub.record(Outcome(SAGA, 4, 1, b"\x00\xa15"))
    hub.record(STOCK)
    hub.tick(hub.now_us + 1)
    hub.record(Order("cancel", SAGA))
    hub.record(Outcome(SAGA, 4, 1, b"\x00\xa15"))
    traces = []
    for restarts in (False, True):
        other = hub_of(make(without=("saga",)))
        digests = []
        for entry in hub.log:
            other.step(entry)
            digests.append(other.executor.rolling_update())
            if restarts:
                other.restart()
        traces.append((digests, other.results, other.sent, other.own, other.stops, other.executor.suspended()))
        assert dict(other.executor.state()) == dict(hub.executor.state())
    assert traces[0] == traces[1]
    assert SAGA in hub.results


# ---- messages that wait -------------------------------------------------------------------------------------------


def test_message_whose_handler_is_gone_gets_an_error_when_its_turn_comes() -> None:
    hub = hub_of(make(without=("quick",)))
    hub.record(Order("kill", SAGA))
    failed = error(hub.results[QUICK])
    assert (failed.code, failed.type) == ("DL3024", "HandlerGone")
    assert "'quick'" in failed.text
    assert hub.executor.crowd()[:2] == (1, 0)


def test_promised_reply_of_a_handler_that_is_gone_is_given() -> None:
    hub = hub_of(make(without=("later",)))
    hub.call("complete", "c", promise=f"{LATER}.0", value=11)
    assert hub.result(LATER) == 11


def test_outcome_of_an_activity_that_is_gone_is_given() -> None:
    hub = hub_of(make(activity=""))
    hub.record(Outcome(SAGA, 4, 1, error_reply("DL3014", "ValueError", "no")))
    hub.record(Attempt(SAGA, 4, 2))
    assert len(held_of(hub.executor)[0].came) == 2


def test_record_that_is_no_record_is_refused() -> None:
    broken = encode_record(SuspendedHeld(3, SUSPENDED[0], None, holds=True))
    with pytest.raises(CorruptCheckpoint):
        restored(make(), same_code=True, suspended=[broken])
    with pytest.raises(CorruptCheckpoint):
        decode_suspended(SUSPENDED[0])


def test_misfit_reads_as_a_sentence() -> None:
    misfit = UnfitInvocation("InFlightDiffers", "transfer_saga", 4711, "bob", "asks for stock.take in turn 2")
    assert str(misfit) == "transfer_saga (lsn 4711, key bob) asks for stock.take in turn 2"
