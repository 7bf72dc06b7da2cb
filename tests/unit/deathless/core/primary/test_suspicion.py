"""What may kill is tried out first, for as long as there is a reason to suspect it."""

import pytest

from deathless.base.ids import SYSTEM_SESSION
from deathless.codec.frames import Run
from deathless.codec.messages import PARKED_HEADER, Kind, decode, encode
from deathless.core.primary.suspicion import (
    AFTER_S,
    HANDLER_S,
    SUSPECTS_MAX,
    UNEXPLAINED_S,
    Suspicion,
    method_of,
    set_aside,
)


def call(method: bytes) -> bytes:
    return encode(Kind.CALL, method=method, key=b"k", args=b"\x80")


def runs_of(*methods: bytes, session: int = 7, first: int = 10) -> list[tuple[Run, list[bytes]]]:
    return [(Run(session, first, 3, len(methods)), [call(method) for method in methods])]


def test_nothing_is_tried_out_without_a_death() -> None:
    assert not Suspicion({}).covers(runs_of(b"add"), 0.0)


def test_while_a_death_is_unexplained_everything_is_tried_out() -> None:
    deaths = {(7, 10): 1}
    suspicion = Suspicion(deaths)
    suspicion.died(1.0)
    assert suspicion.covers(runs_of(b"add"), 1.5)
    assert not suspicion.covers(runs_of(b"add"), 1.0 + UNEXPLAINED_S)
    deaths.clear()  # the message has completed
    assert not suspicion.covers(runs_of(b"add"), 1.5)


def test_behind_a_killer_everything_is_tried_out_for_a_while_and_its_handler_for_longer() -> None:
    suspicion = Suspicion({})
    suspicion.found([b"kill", b""], 1.0)
    assert suspicion.covers(runs_of(b"add"), 1.0 + AFTER_S / 2)
    assert not suspicion.covers(runs_of(b"add"), 1.0 + AFTER_S)
    assert suspicion.covers(runs_of(b"add", b"kill"), 1.0 + AFTER_S)
    assert not suspicion.covers(runs_of(b"kill"), 1.0 + HANDLER_S)


def test_suspects_are_bounded_and_the_oldest_goes_first() -> None:
    suspicion = Suspicion({})
    suspicion.found([b"h%d" % number for number in range(SUSPECTS_MAX + 1)], 0.0)
    assert not suspicion.covers(runs_of(b"h0"), AFTER_S)
    assert suspicion.covers(runs_of(b"h1"), AFTER_S)


def test_killer_is_replaced_by_a_record_that_carries_it_and_the_rest_stays_in_order() -> None:
    other = runs_of(b"x", session=9, first=10)
    for at in range(3):
        methods = [b"a", b"b", b"c"]
        made, method = set_aside([*other, *runs_of(*methods)], 7, 10 + at)
        assert method == methods[at]
        assert made[0] == other[0]
        seen: list[bytes] = []
        expected = 10
        for run, messages in made[1:]:
            assert run.count == len(messages)
            if run.session == SYSTEM_SESSION:
                record = decode(messages[0])
                assert record.kind == Kind.PARKED
                assert PARKED_HEADER.unpack_from(record.args) == (7, 10 + at)
                assert record.args[PARKED_HEADER.size :] == call(methods[at])
                seen.append(methods[at])
                expected += 1
            else:
                assert run.first_seq == expected
                expected += run.count
                seen += map(method_of, messages)
        assert seen == methods


def test_turn_that_no_message_stands_for_is_parked_in_front() -> None:
    made, method = set_aside(runs_of(b"a"), SYSTEM_SESSION, 55)
    assert method == b""
    assert PARKED_HEADER.unpack_from(decode(made[0][1][0]).args) == (SYSTEM_SESSION, 55)
    assert made[1:] == runs_of(b"a")


def test_what_is_no_message_calls_no_handler() -> None:
    assert method_of(b"\x01") == b""


@pytest.mark.parametrize(
    ("at", "made"),
    [
        (0, [(10, 4, 0), (0, 0, 1), (11, 10, 2)]),  # ids 5 to 9 do not exist, which the record can't say
        (1, [(10, 4, 1), (0, 0, 1), (12, 11, 1)]),
        (2, [(10, 4, 2), (0, 0, 1)]),
    ],
)
def test_what_is_set_aside_of_a_stream_keeps_what_each_part_follows(at: int, made: list[tuple[int, int, int]]) -> None:
    run = Run(7, 10, 4, 3)
    runs, _ = set_aside([(run, [encode(Kind.FORK)] * 3)], 7, 10 + at, of_stream=True)
    assert [(each.first_seq, each.acked, each.count) for each, _ in runs] == made
    assert [each.acked for each, _ in set_aside([(run, [encode(Kind.FORK)] * 3)], 7, 11)[0]] == [4, 0, 4]
