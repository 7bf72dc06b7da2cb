"""What a service sends to itself goes into its primary's next frame, within the frame's maximums."""

from __future__ import annotations

import struct

from deathless.base.limits import Limits
from deathless.codec.frames import Run
from deathless.codec.messages import Kind, decode
from deathless.codec.peer_messages import SELF, SELF_SESSION, Target
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.own_work import OwnWork


def work(*messages: bytes, deaths: dict[tuple[int, int], int] | None = None) -> tuple[OwnWork, Outbox]:
    outbox = Outbox()
    for message in messages:
        outbox.append(SELF, message)
    return OwnWork(outbox=outbox, limits=Limits(), deaths={} if deaths is None else deaths), outbox


def test_nothing_waits_in_an_empty_outbox() -> None:
    own, outbox = work()
    outbox.append(Target("other", 0), b"for somebody else")
    assert not own.waiting
    assert own.take(10, 100, alone=True) == []


def test_the_run_continues_where_the_last_one_trimmed() -> None:
    own, outbox = work(b"a", b"b", b"c")
    outbox.trim(SELF, 1)
    assert own.waiting
    assert own.take(10, 100, alone=False) == [(Run(SELF_SESSION, 2, 0, 2), [b"b", b"c"])]


def test_the_run_keeps_within_count_and_bytes() -> None:
    own, _ = work(b"aa", b"bb", b"cc")
    assert own.take(2, 100, alone=False) == [(Run(SELF_SESSION, 1, 0, 2), [b"aa", b"bb"])]
    assert own.take(10, 5, alone=False) == [(Run(SELF_SESSION, 1, 0, 2), [b"aa", b"bb"])]


def test_a_large_message_waits_for_a_frame_that_begins_with_it() -> None:
    own, outbox = work(b"large")
    assert own.take(10, 4, alone=False) == []
    assert own.passed_over
    assert own.take(10, 4, alone=True) == [(Run(SELF_SESSION, 1, 0, 1), [b"large"])]
    assert own.take(10, 0, alone=False) == []
    outbox.trim(SELF, 1)
    assert own.take(10, 4, alone=False) == []
    assert not own.passed_over


def test_a_message_that_killed_twice_is_parked_between_its_neighbours() -> None:
    deaths = {(SELF_SESSION, 2): 2, (SELF_SESSION, 3): 1, (7, 1): 9}
    own, _ = work(b"a", b"b", b"c", deaths=deaths)
    first, parked, rest = own.take(10, 100, alone=False)
    assert first == (Run(SELF_SESSION, 1, 0, 1), [b"a"])
    assert rest == (Run(SELF_SESSION, 3, 0, 1), [b"c"])
    assert parked[0] == Run(0, 0, 0, 1)
    record = decode(parked[1][0])
    assert record.kind == Kind.PARKED
    assert record.args == struct.pack("<QQ", SELF_SESSION, 2) + b"b"


def test_killers_at_both_ends_leave_no_empty_runs() -> None:
    own, _ = work(b"a", b"b", deaths={(SELF_SESSION, 1): 2, (SELF_SESSION, 2): 3})
    assert [run for run, _ in own.take(10, 100, alone=False)] == [Run(0, 0, 0, 1)] * 2
