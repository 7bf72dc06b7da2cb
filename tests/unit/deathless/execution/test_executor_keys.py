"""Handlers of several keys, services of one object, births, and queries."""

import msgspec
import pytest
from tests.unit.deathless.execution.executor_bench import Bench, error, value

from deathless.base.limits import Limits
from deathless.codec.messages import Kind, encode
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context, QueryContext
from deathless.execution.values.failure import ProcessEnds


class Account(msgspec.Struct):
    balance: int = 0
    born: str = ""


bank = Service("bank", state=Account)


@bank.birth
def born(account: Account, ctx: Context) -> None:
    if ctx.key == "never":
        raise ValueError("not this one")
    account.born = f"{ctx.key} at {ctx.lsn}"


@bank.handler
def deposit(account: Account, ctx: Context, amount: int) -> int:
    account.balance += amount
    return account.balance


@bank.handler(keys=("source", "target"))
def transfer(accounts: dict[str, Account], ctx: Context, source: str, target: str, amount: int) -> str:
    accounts[target].balance += amount
    accounts[source].balance -= amount
    if amount == 13:
        raise ValueError("no luck")
    if amount == 14:
        accounts[target].balance = None  # type: ignore[assignment]  # a bug of an author
    return f"{ctx.key}: {', '.join(accounts)}"


@bank.handler(keys=("source", "target"))
def same(accounts: dict[str, Account], ctx: Context, source: str, target: str) -> bool:
    return accounts[source] is accounts[target]


@bank.handler(keys=("source",))
def meddle(accounts: dict[str, Account], ctx: Context, source: str) -> None:
    accounts["other"] = Account()


@bank.query
def balance(account: Account) -> int:
    account.balance += 1000
    return account.balance - 1000


@bank.query
def seen(account: Account, ctx: QueryContext, plus: int = 0) -> tuple[str, int, str]:
    return ctx.key, ctx.now_us + plus, account.born


@bank.query(keys=("one", "two"))
def total(accounts: dict[str, Account], one: str, two: str) -> int:
    return sum(account.balance for account in accounts.values())


@bank.query
def broken(account: Account, kind: str) -> int:
    if kind == "deep":
        return broken(account, kind)
    if kind == "exit":
        raise SystemExit
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "ends":
        raise ProcessEnds
    return "text"  # type: ignore[return-value]  # a bug of an author


@bank.query
def long(account: Account, size: int) -> str:
    return "x" * size


def balances(bench: Bench) -> dict[str, int]:
    return {
        key.decode(): msgspec.msgpack.decode(encoded, type=Account).balance
        for key, encoded in bench.executor.state().items()
    }


def test_several_keys_change_in_one_turn() -> None:
    bench = Bench(bank)
    bench.call("deposit", "a", amount=10)
    assert bench.call("transfer", "addressed", source="a", target="b", amount=4) == "addressed: a, b"
    assert balances(bench) == {"a": 6, "b": 4}


@pytest.mark.parametrize(("amount", "kind"), [(13, "ValueError"), (14, "ValidationError")])
def test_several_keys_change_all_or_none(amount: int, kind: str) -> None:
    bench = Bench(bank)
    bench.call("deposit", "a", amount=100)
    before = dict(bench.executor.state())
    assert bench.fail("transfer", "", source="a", target="b", amount=amount).type == kind
    assert bench.executor.state() == before


def test_equal_keys_are_one_object() -> None:
    bench = Bench(bank)
    assert bench.call("same", "", source="a", target="a") is True
    assert bench.call("same", "", source="a", target="b") is False
    bench.call("transfer", "", source="a", target="a", amount=5)
    assert balances(bench) == {"a": 0, "b": 0}


def test_mapping_of_several_keys_cannot_be_changed_itself() -> None:
    assert Bench(bank).fail("meddle", "", source="a").type == "TypeError"


def test_state_of_any_of_several_keys_over_its_maximum_rolls_all_back() -> None:
    bench = Bench(bank, Limits(entity_bytes_max=40, key_bytes_max=30))
    assert bench.fail("same", "", source="a", target="b" * 30).code == "DL3006"
    assert bench.executor.state() == {}


@pytest.mark.parametrize(("key", "code"), [("", "DL3003"), ("k" * 513, "DL3006")])
def test_named_key_that_can_name_nothing_is_refused_with_its_argument(key: str, code: str) -> None:
    failure = Bench(bank).fail("same", "", source="a", target=key)
    assert failure.code == code
    assert "$.target" in failure.text


def test_birth_runs_once_before_the_first_handler_and_knows_its_key() -> None:
    bench = Bench(bank)
    bench.call("deposit", "a", amount=1)
    bench.call("deposit", "a", amount=1)
    bench.call("same", "addressed", source="a", target="b")
    assert [value(bench.ask("seen", key)) for key in "ab"] == [["a", 7, "a at 1"], ["b", 7, "b at 3"]]


def test_failed_birth_fails_the_turn() -> None:
    bench = Bench(bank)
    assert bench.fail("deposit", "never", amount=1).text == "not this one"
    assert bench.fail("same", "", source="a", target="never").text == "not this one"
    assert bench.executor.state() == {}


def test_query_sees_the_last_completed_turn_and_changes_nothing() -> None:
    bench = Bench(bank)
    bench.call("deposit", "a", amount=10)
    before = dict(bench.executor.state())
    assert [value(bench.ask("balance")) for _ in range(3)] == [10, 10, 10]
    assert bench.executor.state() == before
    assert bench.running is None


def test_query_of_a_key_never_used_sees_the_default_and_makes_no_key() -> None:
    bench = Bench(bank)
    assert value(bench.ask("seen", "new")) == ["new", 7, ""]
    assert bench.executor.state() == {}


def test_query_may_look_at_several_keys() -> None:
    bench = Bench(bank)
    bench.call("deposit", "a", amount=10)
    bench.call("deposit", "b", amount=5)
    assert value(bench.ask("total", "", one="a", two="b")) == 15


def test_query_leaves_no_trace_in_digests() -> None:
    asked, silent = Bench(bank), Bench(bank)
    for bench in (asked, silent):
        bench.call("deposit", "a", amount=10)
    asked.ask("balance")
    assert asked.executor.rolling_update() == silent.executor.rolling_update()


@pytest.mark.parametrize(
    ("method", "arguments", "code", "kind"),
    [
        ("nope", {}, "DL3004", "UnknownHandler"),
        ("deposit", {"amount": 1}, "DL3004", "UnknownHandler"),
        ("seen", {"plus": "x"}, "DL3003", "InvalidArgument"),
        ("broken", {"kind": "deep"}, "DL3014", "RecursionError"),
        ("broken", {"kind": "exit"}, "DL3014", "SystemExit"),
        ("broken", {"kind": "lie"}, "DL3014", "ValidationError"),
        ("long", {"size": 5 << 20}, "DL3006", "TooLarge"),
    ],
)
def test_query_that_fails_is_answered(method: str, arguments: dict[str, object], code: str, kind: str) -> None:
    failure = error(Bench(bank).ask(method, "a", **arguments))
    assert (failure.code, failure.type) == (code, kind)


def test_query_that_raises_what_is_no_exception_is_answered() -> None:
    assert error(Bench(bank).ask("broken", kind="interrupt")).type == "KeyboardInterrupt"


def test_query_that_runs_while_its_process_ends_is_not_answered() -> None:
    with pytest.raises(ProcessEnds):
        Bench(bank).ask("broken", kind="ends")


def test_handler_asked_as_a_query_is_named_as_a_handler() -> None:
    assert "'deposit' is a handler" in error(Bench(bank).ask("deposit", amount=1)).text


@pytest.mark.parametrize("message", [b"", b"\x01\x00\xff\xff", encode(Kind.TIME, method=b"balance", key=b"a")])
def test_malformed_query_is_refused(message: bytes) -> None:
    assert error(Bench(bank).executor.query(message, 7)).text == "the message is malformed"


@pytest.mark.parametrize(("key", "code"), [("", "DL3003"), ("k" * 513, "DL3006")])
def test_query_of_a_key_that_can_name_nothing_is_refused(key: str, code: str) -> None:
    assert error(Bench(bank).ask("balance", key)).code == code


def test_service_of_one_object_takes_any_address() -> None:
    one = Service("one", state=Account, single=True)
    births = []

    @one.birth
    def born(account: Account, ctx: Context) -> None:
        births.append(ctx.key)

    @one.handler
    def add(account: Account, ctx: Context, amount: int) -> int:
        account.balance += amount
        return account.balance

    @one.query
    def total(account: Account, ctx: QueryContext) -> str:
        return f"{ctx.key}{account.balance}"

    bench = Bench(one)
    assert [bench.call("add", key, amount=1) for key in ("", "x", "y")] == [1, 2, 3]
    assert value(bench.ask("total", "z")) == "3"
    assert list(bench.executor.state()) == [b""]
    assert births == [""]
