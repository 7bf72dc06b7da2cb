"""A rehearsal finds what others would see otherwise, puts it down to its handler, and finds nothing else."""

from __future__ import annotations

import itertools
import random
from datetime import timedelta
from typing import Any

import pytest
from tests.unit.deathless.execution.rehearsal.rehearsed import (
    MINUTE,
    Account,
    Cents,
    Found,
    Given,
    Log,
    LongReceipt,
    Receipt,
    bank,
    clock,
)

from deathless import Context, Continue, Migration, Service, Suspended

TRANSFER = {"CallsDiffer:transfer"}
MONEY = {"ReplyDiffers:deposit", "StateDiffers:deposit"}
WAITS = {"CallsDiffer:transfer", "CallsDiffer:watch", "CallsDiffer:chain"}
BUGS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "another_fee": ({"fee": 0.02}, MONEY),
    "other_rounding": ({"digits": 0}, MONEY),
    "another_error_text": ({"refusal": "too little"}, {"ReplyDiffers:withdraw"}),
    "too_deep_for_a_recorded_message": ({"depth": 1500}, {"Raised:withdraw", "StateDiffers:withdraw"}),
    "a_message_is_forgotten": ({"forks": ("log",)}, {"CallsDiffer:bonus"}),
    "a_message_more": ({"forks": ("log", "audit", "log")}, {"CallsDiffer:bonus"}),
    "messages_in_another_order": ({"forks": ("audit", "log")}, {"CallsDiffer:bonus"}),
    "a_message_to_another": ({"forks": ("log", "audits")}, {"CallsDiffer:bonus"}),
    "another_default": ({"bonus": 2.0}, {"CallsDiffer:bonus", "StateDiffers:bonus"}),
    "awaits_swapped": ({"calls": ("carol", "bob")}, TRANSFER),
    "a_call_inserted": ({"calls": ("dora", "bob", "carol")}, TRANSFER),
    "a_call_left_out": ({"calls": ("bob",)}, TRANSFER),
    "another_timer": ({"wait": timedelta(minutes=1)}, WAITS),
    "another_item": ({"item": 2}, {"StateDiffers:put"}),
    "the_wall_clock": ({"marks": clock}, {"ReplyDiffers:bonus"}),
    "memory_of_the_process": ({"marks": itertools.count().__next__}, {"ReplyDiffers:bonus"}),
}
HARMLESS: dict[str, dict[str, Any]] = {
    "the_same": {},
    "a_default_more_in_a_result": {"receipt": LongReceipt},
    "the_same_result_in_another_class": {"receipt": type("Other", (Receipt,), {})},
    "the_same_digits": {"digits": 7, "fee": 0.0100000001},
}


def day() -> Log:
    """A log with every handler in it."""
    log = Log(bank())
    for key, amount in (("alice", 100.37), ("bob", 1.5), ("bob", 3.0)):
        log.call("deposit", key, amount=amount)
    log.call("bonus", "alice")
    log.call("withdraw", "bob", amount=1e6)
    log.call("withdraw", "bob", amount=1.0)
    log.call("put", "alice", name="x")
    log.call("transfer", "alice", amount=2.0)
    log.call("deposit", "alice", amount=1.0)
    log.call("watch", "carol")
    log.call("chain", "carol", links=1)
    log.charged()
    for _ in range(3):
        log.passes(6 * MINUTE)
    log.call("deposit", "alice", amount=1.0)
    return log


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_found_and_put_down_to_its_handler(name: str) -> None:
    changes, words = BUGS[name]
    assert day().found(bank(**changes)).words == words


@pytest.mark.parametrize("name", HARMLESS)
def test_nothing_is_found_where_nothing_differs(name: str) -> None:
    found = day().found(bank(**HARMLESS[name]))
    assert (found.words, found.misfits, found.left_out) == (set(), [], {})
    assert found.turns["deposit"] == 7  # of clients five, of the transfer two


def test_what_differs_is_shown_with_its_first_place_and_counted() -> None:
    reply, state = day().found(bank(fee=0.02)).differences
    assert (reply.kind, reply.handler, reply.lsn, reply.key, reply.count) == ("ReplyDiffers", "deposit", 3, "alice", 7)
    assert (reply.expected, reply.found) == ('{"balance":99.37}', '{"balance":98.36}')
    assert (state.kind, state.expected, state.found) == ("StateDiffers", "balance = 99.37", "balance = 98.36")


def test_one_bug_does_not_make_everything_behind_it_differ() -> None:
    log = Log(bank())
    log.call("put", "alice", name="x")
    for _ in range(5):
        log.call("put", "alice", name="y")
    log.call("withdraw", "alice", amount=1.0)
    log.call("deposit", "alice", amount=1.0)
    new = bank(fee=0.02)
    assert [each.count for each in log.found(new).differences] == [1, 1]
    for _ in range(5):
        log.call("deposit", "alice", amount=0.0)
    assert [each.count for each in log.found(new).differences] == [1, 1]
    _, without, end = log.found(new, resync=False).differences
    assert without.count == 6, "each message behind it differs where the state is not set"
    assert (end.kind, end.handler, end.lsn) == ("StateDiffers", "", 0)


def test_handler_that_asks_for_something_else_leaves_until_it_has_ended() -> None:
    log = day()
    found = log.found(bank(calls=("bob",)))
    assert [each.count for each in found.differences] == [1]
    assert found.left_out == {"transfer": 3, "deposit": 1}, "its last turns, and the deposit that waits for its key"
    assert found.turns["deposit"] == 6, "the one behind it is compared again"


def test_handlers_that_no_message_is_for_are_not_covered() -> None:
    found = day().found(bank())
    assert set(found.turns) == {"deposit", "withdraw", "bonus", "put", "transfer", "watch", "chain"}


def test_reader_of_the_clock_does_something_else_in_each_run() -> None:
    log = day()
    one, other = (log.found(bank(marks=clock)).prints for _ in range(2))
    assert len(one) == len(other)
    assert sum(a != b for a, b in zip(one, other, strict=True)) == 1
    same, again = (log.found(bank()).prints for _ in range(2))
    assert same == again


# ---- another version ---------------------------------------------------------------------------------------------


def second(**changes: Any) -> Service:
    """Version 2 counts in hundredths."""
    made = bank(2, state=Cents, field="cents", unit=100, **changes)

    @made.migrate(from_=1)
    def up(old: Account, m: Migration) -> Cents:
        return Cents(round(100 * old.balance, 2), old.items)

    return made


def test_states_are_compared_with_what_the_migration_gives() -> None:
    assert day().found(second()).words == set()
    assert day().found(second(fee=0.02)).words == MONEY


def test_rehearsal_may_begin_in_the_middle_with_handlers_that_wait() -> None:
    log = Log(bank())
    log.call("deposit", "alice", amount=10.0)
    log.call("approve", "bob")
    log.call("deposit", "bob", amount=10.0)
    log.begin_here()
    log.call("complete", "carol", promise="4.1")
    log.call("deposit", "bob", amount=1.0)
    found = log.found(bank())
    assert (found.words, found.misfits) == (set(), [])
    assert found.turns == {"approve": 1, "complete": 1, "deposit": 2}
    assert log.found(bank(digits=0)).words == MONEY


def test_handler_that_would_be_carried_leaves_with_its_key_until_it_has_ended() -> None:
    log = Log(bank())
    log.call("approve", "alice")
    log.begin_here()
    invocation = log.recorder.invocations()[0].invocation
    log.call("deposit", "bob", amount=5)
    log.call("deposit", "alice", amount=5)
    log.order("resume", invocation)
    log.call("deposit", "alice", amount=7)
    new = bank(2, without=("approve",))

    @new.carry("approve", from_=1)
    def carry(old: Suspended, account: Account) -> Continue:
        return Continue("chain", links=0)

    found = log.found(new)
    assert (found.words, found.misfits) == (set(), [])
    assert found.turns["deposit"] >= 1, "of other keys"
    assert found.left_out == {"deposit": 1}, "it had waited for the key"


def test_what_is_declared_is_counted_apart_and_the_rest_is_not() -> None:
    new = second(fee=0.02, refusal="too little")
    new.changes(from_=1, changed={"deposit": {"reply": "higher fees"}, "withdraw": {"reply": "another text"}})
    found = day().found(new)
    assert found.words == {"StateDiffers:deposit"}
    assert found.declared == {"ReplyDiffers:deposit", "ReplyDiffers:withdraw"}
    assert {each.declared for each in found.differences} == {"higher fees", "another text", ""}


def test_calls_in_the_former_words_are_run_in_the_new_ones() -> None:
    new = second(names={"deposit": "pay_in"})
    new.changes(from_=1, renamed={"deposit": "pay_in"})
    assert day().found(new).words == set()

    new = second(names={"deposit": "pay_in"}, fee=0.02)
    new.changes(from_=1, renamed={"deposit": "pay_in"})
    assert day().found(new).words == {"ReplyDiffers:pay_in", "StateDiffers:pay_in"}


def test_removed_handler_is_no_difference() -> None:
    new = second(without=("bonus",))
    new.changes(from_=1, removed={"bonus": "fail"})
    assert day().found(new).words == set()


def test_message_that_can_not_be_said_in_the_new_words_is_not_run() -> None:
    def noted(account: Account, ctx: Context, name: str) -> None:
        account.balance += 1

    def noted_in_words(account: Account, ctx: Context, names: list[str]) -> None:
        account.balance += len(names)

    old, new = Service("bank", state=Account), Service("bank", state=Account, version=2)
    old.handler(name="note")(noted)
    new.handler(name="note")(noted_in_words)

    @new.accepts("note", from_=1, args=Given)
    def note_v1(old: Given) -> dict[str, list[str]]:
        if old.name == "x":
            raise ValueError("no x")
        return {"names": [old.name]}

    log = Log(old)
    for name in "xyx":
        log.call("note", name=name)
    [difference] = log.found(new).differences
    assert (difference.kind, difference.handler, difference.count) == ("NotRun", "note", 2)
    assert "ValueError: no x" in difference.found


def test_code_whose_types_do_not_fit_is_not_run() -> None:
    assert day().found(bank(without=("put",))).misfits == ["HandlerGone"]


# ---- any log ------------------------------------------------------------------------------------------------------


def traffic(seed: int, count: int = 120) -> Log:
    """Calls, time, outcomes and orders as they come."""
    rng = random.Random(seed)
    log = Log(bank())
    for at in range(count):
        if seed % 2 and at == count // 3:
            log.begin_here()
        key, begun = rng.choice(("alice", "bob", "carol")), rng.randrange(1, int(log.shard.place.lsn) + 1)
        calls: list[tuple[str, dict[str, object]]] = [
            ("deposit", {"amount": 10 * rng.random()}),
            ("withdraw", {"amount": 10 * rng.random()}),
            ("put", {"name": rng.choice("abc")}),
            ("transfer", {"amount": 1.0}),
            ("chain", {"links": 2}),
            ("complete", {"promise": f"{begun}.{rng.randrange(2)}"}),
            ("move", {"source": key, "target": rng.choice(("alice", "bob"))}),
            *((name, {}) for name in ("bonus", "approve", "watch", "ask", "nothing")),
        ]
        match rng.randrange(len(calls) + 4):
            case 0:
                log.passes(rng.choice((1000, MINUTE, 6 * MINUTE)))
            case 1:
                log.charged()
            case 2:
                log.order(rng.choice(("kill", "cancel", "resume")), begun)
            case 3:
                log.call("deposit", key, bytes([rng.randrange(3)]), amount=1.0)
            case other:
                name, arguments = calls[other - 4]
                log.call(name, key, **arguments)
    return log


@pytest.mark.parametrize("seed", range(16))
def test_the_same_code_does_the_same_on_any_log(seed: int) -> None:
    found = traffic(seed).found(bank())
    assert (found.words, found.misfits, found.left_out) == (set(), [], {})


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("bug", ["a_call_left_out", "another_timer", "other_rounding", "another_item"])
def test_a_bug_is_told_of_its_handlers_alone_on_any_log(seed: int, bug: str) -> None:
    changes, words = BUGS[bug]
    found: Found = traffic(seed).found(bank(**changes))
    assert found.words <= words
