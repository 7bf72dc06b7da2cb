"""What a check draws, compares and says; real programs are driven in tests/process/test_ambrosia_check.py."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless.base.errors import ApplicationEnded, InvalidConfig
from deathless.protocols.ambrosia.errors import ProtocolViolated
from deathless.protocols.ambrosia.life import Cause
from deathless.protocols.ambrosia.messages import SELF, Kind, Oversized, Rpc, make_call, make_return
from deathless.shell.foreign.application import ApplicationSettings, Death
from deathless.shell.foreign.check.comparing import find_parting, show
from deathless.shell.foreign.check.plan import (
    BATCH_BYTES,
    BATCH_CALLS_MAX,
    CALLS,
    LARGE_BYTES,
    CallSpec,
    any_calls,
    batches,
    cut_again,
    read_calls,
    rpcs_of,
)
from deathless.shell.foreign.check.program import Failed, Program, Saved
from deathless.shell.foreign.check.report import Finding, Report
from deathless.shell.foreign.check.scenarios import describe_end, differ


def fork(method: int, arguments: bytes) -> Rpc:
    return make_call(SELF, method, Kind.FORK, arguments)


# ---------------------------------------------------------------- calls


def test_calls_are_read_line_by_line() -> None:
    text = '{"method": 1, "text": "ö"}\n\n{"method": -2, "hex": "00ff", "kind": "async"}\n'
    calls = read_calls(text.encode())
    assert [(call.method, call.arguments, call.kind) for call in calls] == [
        (1, "ö".encode(), "fork"),
        (-2, b"\x00\xff", "async"),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no call"),
        ("{", "line 1"),
        ('{"method": 1}\n{"method": "x"}', "line 2"),
        ('{"method": 1, "hex": "0"}', "line 1"),
        ('{"method": 1, "sort": "fork"}', "sort"),
        ('{"method": 4294967296}', "32 bits"),
    ],
)
def test_what_is_no_call_is_named_with_its_line(text: str, said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        read_calls(text.encode())


def test_one_seed_gives_one_plan_with_a_long_argument_and_awaited_calls() -> None:
    plans = [any_calls([1, 2], random.Random(seed)) for seed in (7, 7, 8)]
    assert plans[0] == plans[1] != plans[2]
    assert max(len(call.arguments) for call in plans[0]) == LARGE_BYTES
    assert {call.kind for call in plans[0]} == {"fork", "async"}
    assert {call.method for call in plans[0]} == {1, 2}


def test_few_calls_are_repeated_and_one_record_holds_very_many() -> None:
    few = [CallSpec(method=1, text="x"), CallSpec(method=2)]
    cut = batches(few, random.Random(1))
    assert sum(len(batch) for batch in cut) >= CALLS
    assert max(len(batch) for batch in cut) == BATCH_CALLS_MAX
    large = batches([CallSpec(method=1, text="x" * BATCH_BYTES)], random.Random(1))
    assert {1} <= {len(batch) for batch in large}


@given(st.integers(0, 60), st.integers(0, 80), st.integers())
def test_a_log_that_is_cut_again_is_the_same_log(count: int, after: int, seed: int) -> None:
    log = [fork(1, bytes([number])) for number in range(count)]
    records = cut_again(log, after, 2, random.Random(seed))
    assert [rpc for record in records for rpc in record.rpcs] == log[max(0, after - 1) :]
    assert [record.lsn for record in records] == sorted({record.lsn for record in records})
    if records:
        assert records[-1].lsn == 1 + count
        assert records[0].lsn == max(1, after) + len(records[0].rpcs)


def test_awaited_calls_have_numbers_of_their_own() -> None:
    rpcs = rpcs_of([CallSpec(method=1), CallSpec(method=1, kind="async"), CallSpec(method=3, kind="impulse")], first=5)
    assert [(rpc.kind, rpc.name, rpc.sequence) for rpc in rpcs] == [
        (Kind.FORK, "", 0),
        (Kind.ASYNC, "check", 6),
        (Kind.IMPULSE, "", 0),
    ]


# ---------------------------------------------------------------- comparing


def test_equal_runs_do_not_part_also_from_a_checkpoint_on() -> None:
    run = {"": [fork(1, b"a"), fork(1, b"b")], "bank": [fork(2, b"")]}
    assert find_parting(run, run, {}) is None
    assert find_parting(run, {"": [fork(1, b"b")]}, {"": 1, "bank": 1}) is None


def test_the_first_message_that_differs_is_named_with_both() -> None:
    found = find_parting({"": [fork(1, b"a"), fork(3, b"abc")]}, {"": [fork(1, b"a"), fork(3, b"abd")]}, {})
    assert found is not None
    assert (found.target, found.position, found.method) == ("", 2, 3)
    assert found.expected == "a fork of method 3 with 3 bytes: 616263"
    assert found.got == "a fork of method 3 with 3 bytes: 616264; it differs from byte 2 on"
    assert not found.fewer
    assert not found.more


def test_a_message_that_is_missing_and_one_too_many_are_told_apart() -> None:
    one, two = {"bank": [fork(1, b"a")]}, {"bank": [fork(1, b"a"), fork(2, b"")]}
    fewer, more = find_parting(two, one, {}), find_parting(one, two, {})
    assert fewer is not None
    assert more is not None
    assert (fewer.fewer, fewer.position, fewer.method, fewer.got) == (True, 2, 2, "no message")
    assert (more.more, more.position, more.expected) == (True, 2, "no message")


def test_a_run_that_was_killed_may_be_a_beginning_and_nothing_else() -> None:
    whole = {"": [fork(1, b"a"), fork(1, b"b")]}
    assert find_parting(whole, {"": [fork(1, b"a")]}, {}, prefix=True) is None
    assert find_parting(whole, {}, {}, prefix=True) is None
    assert find_parting(whole, {"": [fork(1, b"b")]}, {}, prefix=True) is not None
    assert find_parting({}, whole, {}, prefix=True) is not None


def test_each_kind_of_message_is_shown_in_words() -> None:
    value = make_return("check", Kind.VALUE, bytes(30), name="me", sequence=4)
    assert show(value) == f"a value to call 4 with 30 bytes: {'00' * 24}..."
    assert show(make_call("", 5, Kind.ASYNC, b"", name="me", sequence=1)) == "an awaited call of method 5 with 0 bytes"
    long = Oversized(destination="", kind=Kind.FORK, method=5, name="", sequence=0, size=9)
    assert show(long) == "a fork of method 5, 9 bytes, which is too long"


# ---------------------------------------------------------------- words


def test_an_end_is_told_with_what_the_program_was_doing_and_what_to_change() -> None:
    death = Death(
        cause=Cause.WRONG,
        error=ProtocolViolated("an impulse in state FOLLOWING, where it is not allowed"),
        exit_code=-9,
        last_lines=("a line",),
    )
    found = describe_end("replay", Failed(death, "running message 3"))
    assert (found.rule, found.scenario, found.output) == ("protocol", "replay", ("a line",))
    assert found.what.endswith("not allowed; this was running message 3")
    assert "a handler forks" in found.remedy
    ended = Death(cause=Cause.EXITED, error=ApplicationEnded("its process ended"), exit_code=1, last_lines=())
    assert describe_end("x", Failed(ended, "y")).rule == "ended"
    assert describe_end("x", Failed(ended, "y")).remedy == ApplicationEnded.remedy


def test_a_report_is_clean_without_findings() -> None:
    report = Report(seed=1)
    assert report.clean
    report.findings.append(Finding(rule="x", scenario="y", what="z", remedy=""))
    assert not report.clean


def test_states_are_compared_to_their_first_difference() -> None:
    assert differ(b"abc", b"abd") == "3 and 3 bytes, from byte 2 on"
    assert differ(b"abc", b"ab") == "3 and 2 bytes, from byte 2 on"


def test_a_checkpoint_knows_how_many_messages_lie_before_it() -> None:
    assert Saved(lsn=1, records=1, lanes=(), state=b"").emitted == {}


@pytest.mark.asyncio
async def test_a_program_that_was_never_started_can_be_ended() -> None:
    program = Program(ApplicationSettings(command=("true",), instance="x"))
    await program.end()
    assert program.take_inputs(3) == []
