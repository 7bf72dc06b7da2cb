"""What operators are shown of sources: streams, refused rows, and what an order did."""

from __future__ import annotations

import msgspec

from deathless.base.listings.sources import (
    COLUMNS,
    DROP,
    FORGET,
    PROBLEM_MAX,
    REFUSED_COLUMNS,
    RETRY,
    RUN,
    SKIP,
    WHY_MAX,
    Refused,
    Replayed,
    StreamOfShard,
    Streams,
    chosen,
    discarded,
    forgotten,
    gone_on,
    gone_on_told,
    meaning,
    more_refused,
    of_shard,
    refused_rows,
    replayed,
    stream_rows,
)
from deathless.codec.peer_messages import DROP_INPUT, FORGET_STREAM, RETRY_INPUT, RUN_INPUT, SKIP_INPUT

ROW = Refused(
    lsn=9, stream=3, session=1, seq=6, id=5, at_us=1_000_000, code="DL3084", why="w" * 500, key="JFK", row="r" * 500,
    stands=True,
)  # fmt: skip
LATE = msgspec.structs.replace(ROW, id=-1, seq=0, stream=4, stands=False, shard=2)


def told() -> Streams:
    stream = StreamOfShard(stream=3, session=1, taken_in=4, on_refusal="stop", refused=1, stands=True)
    refused, standing = msgspec.structs.replace(LATE), msgspec.structs.replace(ROW)
    return Streams(streams=[stream], refused=[refused], standing=[standing], count=2, more=True)


def test_streams_are_a_table_with_problems_cut_to_fit() -> None:
    entry = {"source": "s", "stream": "0", "input": "i", "state": "reading", "takenIn": 4, "behind": 2}
    (row,) = stream_rows([{**entry, "problem": "p" * 500}])
    assert len(row) == len(COLUMNS)
    assert row == ("s", "0", "i", "reading", 4, 2, "p" * PROBLEM_MAX)


def test_refused_rows_say_whether_a_stream_stands_at_them() -> None:
    standing, late = refused_rows([ROW, LATE])
    assert len(standing) == len(REFUSED_COLUMNS)
    assert standing[:6] == (0, 9, 3, 5, "yes", "1970-01-01 00:00:01.000")
    assert (late[0], late[3], late[4]) == (2, "late", "")
    assert [len(str(each)) for each in standing[6:]] == [WHY_MAX, WHY_MAX]


def test_rows_of_one_stream_are_told_with_those_at_which_it_stands_first() -> None:
    assert told().rows(None) == [ROW, LATE]
    assert told().rows(4) == [LATE]
    assert told().rows(5) == []


def test_shard_is_noted_wherever_there_is_an_entry() -> None:
    noted = of_shard(told(), 7)
    assert [each.shard for each in noted.streams] == [7]
    assert [each.shard for each in noted.rows(None)] == [7, 7]
    assert more_refused(noted).startswith("shard 7 has more of them: --from 10 ")


def test_what_was_done_is_said_for_people_and_programs() -> None:
    orders = (RETRY_INPUT, SKIP_INPUT, RUN_INPUT, DROP_INPUT, FORGET_STREAM)
    assert orders == (RETRY, SKIP, RUN, DROP, FORGET), "as the orders are called"
    assert gone_on("flights", ROW, RETRY) == "source flights, stream 3, shard 0: row 5 is tried again"
    assert gone_on("flights", LATE, SKIP).endswith("shard 2: a row that had waited is passed over")
    assert gone_on_told("flights", [ROW, LATE], SKIP) == {
        "source": "flights", "done": "skip",
        "rows": [{"shard": 0, "stream": 3, "row": 5}, {"shard": 2, "stream": 4, "row": -1}],
    }  # fmt: skip


def test_rows_that_are_kept_are_chosen_or_those_that_are_named() -> None:
    kept = msgspec.structs.replace(LATE, lsn=11, kept=True)
    answer = msgspec.structs.replace(told(), refused=[LATE, kept])
    assert chosen(answer, None, ()) == [kept], "of the other the reason alone is kept"
    assert chosen(answer, 5, ()) == []
    assert chosen(answer, None, [9]) == [LATE]


def test_what_became_of_rows_that_were_run_again_is_said() -> None:
    done = Replayed(3)
    done.again(9, "DL3084", "too late")
    done.again(9, "DL3084", "of another shard")
    assert replayed("flights", done) == "source flights: 3 taken in, 2 refused again"
    assert done.lines()[0] == "lsn 9 is refused again: DL3084 too late"
    told = {"ran": 3, "refusedAgain": [9, 9], "why": ["DL3084 too late", "DL3084 of another shard"]}
    assert done.told("flights") == {"source": "flights", **told}
    assert discarded("flights", 2) == "source flights: 2 discarded"


def test_what_it_means_to_forget_a_stream_is_said() -> None:
    [stream] = told().streams
    [line] = meaning("flights", [stream])
    assert line.startswith(
        "source flights, stream 3, shard 0: it is not known any more that rows up to 4 were taken in"
    )
    assert forgotten("flights", stream) == "source flights, stream 3, shard 0: forgotten"
