"""The built-in probe: what was applied, once or twice, is told exactly, and no user's key or state comes near it."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.deathless.execution.executor_bench import Bench, error, value

from deathless.base.errors import InvalidArgument, TooLarge
from deathless.execution.author.service import Service
from deathless.execution.handlers import probe as module
from deathless.execution.handlers.probe import DOUBLED_MAX, KEY, RANGES_MAX, SERIES_MAX, Held, Series
from deathless.execution.turn.context import Context


class Account(msgspec.Struct):
    balance: int = 0


bank = Service("bank", state=Account)
lone = Service("lone", state=Account, single=True)


@bank.handler
@lone.handler
def deposit(account: Account, ctx: Context, amount: int) -> int:
    account.balance += amount
    return account.balance


@bank.query
def balance(account: Account) -> int:
    return account.balance


def send(bench: Bench, number: int, series: str = "s") -> bytes:
    return bench.send("deathless.probe", series, series=series, number=number)


def held(bench: Bench, series: str = "s") -> Held:
    return msgspec.msgpack.decode(bench.ask("deathless.probe.read", series, series=series)[1:], type=Held)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 30), max_size=60))
def test_what_is_held_is_what_was_applied(numbers: list[int]) -> None:
    bench = Bench(bank)
    for at, number in enumerate(numbers):
        assert value(send(bench, number)) == len(set(numbers[: at + 1]))
    found = held(bench)
    assert {n for first, last in found.ranges for n in range(first, last + 1)} == set(numbers)
    assert all(one[1] + 1 < two[0] for one, two in zip(found.ranges, found.ranges[1:], strict=False))
    assert (found.count, found.doubled_count) == (len(set(numbers)), len(numbers) - len(set(numbers)))
    assert sorted(found.doubled) == sorted(n for at, n in enumerate(numbers) if n in numbers[:at])


def test_lost_and_doubled_numbers_are_named() -> None:
    bench = Bench(bank)
    for number in (0, 1, 3, 3, 4):
        send(bench, number)
    assert held(bench) == Held(4, [(0, 1), (3, 4)], 1, [3])


@pytest.mark.parametrize("service", [bank, lone])
def test_every_service_has_it_beside_its_own(service: Service) -> None:
    bench = Bench(service)
    bench.call("deposit", "alice", amount=5)
    send(bench, 0, "alice")
    assert (held(bench, "alice").count, bench.executor.count()) == (1, 1)
    assert bench.call("deposit", "alice", amount=1) == 6
    assert sorted(bench.executor.state()) == sorted([KEY + b"alice", b"" if service.single else b"alice"])


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"series": "s", "number": -1}, InvalidArgument.code),
        ({"series": "s", "number": 2**53}, InvalidArgument.code),
        ({"series": "", "number": 0}, InvalidArgument.code),
        ({"series": "\0x", "number": 0}, InvalidArgument.code),
        ({"series": "s" * 600, "number": 0}, TooLarge.code),
        ({"series": "s"}, InvalidArgument.code),
    ],
)
def test_what_does_not_fit_is_refused_and_not_counted(arguments: dict[str, object], code: str) -> None:
    bench = Bench(bank)
    assert error(bench.send("deathless.probe", "s", **arguments)).code == code
    assert bench.executor.state() == {}


def test_repeated_call_under_one_idempotency_key_is_answered_and_not_applied_again() -> None:
    bench = Bench(bank)
    replies = {bench.send("deathless.probe", "s", b"one", series="s", number=0) for _ in range(3)}
    assert len(replies) == 1
    assert held(bench) == Held(1, [(0, 0)], 0, [])


def test_no_message_of_a_user_reaches_what_the_probe_holds() -> None:
    bench = Bench(bank)
    send(bench, 0)
    key = (KEY + b"s").decode()
    before = dict(bench.executor.state())
    assert bench.fail("deposit", key, amount=1).code == InvalidArgument.code
    assert error(bench.ask("balance", key)).code == InvalidArgument.code
    assert bench.executor.state() == before


def test_series_longest_untouched_goes_first() -> None:
    bench = Bench(bank)
    for number in range(SERIES_MAX):
        send(bench, 0, f"s{number}")
    send(bench, 1, "s0")
    send(bench, 0, "new")
    assert (held(bench, "s0").count, held(bench, "s1").count, held(bench, "new").count) == (2, 0, 1)
    assert len(bench.executor.state()) == SERIES_MAX


def test_checkpoint_brings_back_what_was_held_and_who_goes_next() -> None:
    bench, other = Bench(bank), Bench(bank)
    for number in range(SERIES_MAX):
        send(bench, 0, f"s{number}")
    send(bench, 1, "s0")
    bench.call("deposit", "alice", amount=5)
    other.executor.restore(dict(bench.executor.state()))
    other.lsn = bench.lsn
    replies = [(send(each, 0, "new"), each.call("deposit", "alice", amount=1)) for each in (bench, other)]
    assert replies[0] == replies[1]
    assert bench.executor.state() == other.executor.state()
    other.executor.discard()
    assert other.executor.state() == {}


def test_gaps_and_doubled_numbers_are_bounded() -> None:
    state, context = Series(), None
    for number in range(RANGES_MAX):
        module.probe(state, context, "s", 2 * number)  # type: ignore[arg-type]  # it is not looked at
    with pytest.raises(TooLarge):
        module.probe(state, context, "s", 2 * RANGES_MAX)  # type: ignore[arg-type]  # as above
    state = Series()
    for _ in range(DOUBLED_MAX + 5):
        module.probe(state, context, "s", 7)  # type: ignore[arg-type]  # as above
    assert (len(state.doubled), state.doubled_count) == (DOUBLED_MAX, DOUBLED_MAX + 4)


def test_digest_covers_what_the_probe_wrote() -> None:
    one, two = Bench(bank), Bench(bank)
    send(one, 0)
    send(two, 1)
    assert one.executor.rolling_update() != two.executor.rolling_update()
