"""Methods that programs call by number: each refusal at import, what becomes of bytes, results and unknown numbers."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deathless import Context, Service, Struct, peer_bytes
from deathless.base.errors import DeathlessError, ForeignMethodRefused, InvalidArgument, InvalidService, UnknownMethod
from deathless.execution.author.foreign_methods import SERIES, read_argument
from deathless.execution.handlers.unknown_methods import READ, Unknown
from deathless.testing import Environment, kill_everywhere


class Account(Struct):
    """State of one key."""

    balance: int = 0


class Order(Struct):
    """What a method with a codec takes."""

    cents: int
    tags: frozenset[str] = frozenset()


def made(*, single: bool = False, name: str = "bank") -> Service:
    """A service with methods of all kinds."""
    bank = Service(name, state=Account, single=single)

    @bank.foreign(method=7)
    def add(account: Account, ctx: Context, args: bytes) -> bytes | None:
        """Add.

        Nothing returns nothing.
        """
        account.balance += int(args)
        return ctx.key.encode() + b"%d" % account.balance if args != b"0" else None

    @bank.foreign(method=-1, codec="json")
    def place(account: Account, ctx: Context, order: Order) -> Order:
        account.balance += order.cents
        return Order(account.balance, order.tags | {"seen"})

    @bank.foreign(method=8, codec="msgpack")
    def count(account: Account, ctx: Context, cents: int) -> None:
        account.balance += cents

    return bank


def waiting() -> Service:
    """A service one of whose methods waits."""
    bank = made()

    @bank.foreign(method=9)
    async def ask(account: Account, ctx: Context, args: bytes) -> bytes:
        other = await ctx.call(peer_bytes("bank").at("other")[7], args)
        account.balance += 1
        return (other or b"nothing") + b"!"

    return bank


def test_a_method_gets_bytes_and_gives_bytes_or_nothing() -> None:
    with Environment(made()) as env:
        alice = env.service("bank")["alice"]
        assert alice.foreign(7, b"5") == b"alice5"
        assert alice.foreign(7, b"0") is None
        assert alice.foreign(7, b"2", fork=True) is None
        assert alice.state.balance == 7


def test_a_codec_makes_a_value_of_bytes_and_bytes_of_a_value() -> None:
    with Environment(made()) as env:
        alice = env.service("bank")["alice"]
        assert alice.foreign(-1, b'{"cents": 3, "tags": ["b", "a"]}') == b'{"cents":3,"tags":["a","b","seen"]}'
        assert alice.foreign(8, msgspec.msgpack.encode(4)) is None
        assert alice.state.balance == 7


@pytest.mark.parametrize(
    ("method", "args", "why"),
    [
        (-1, b'{"cents": "3"}', r"arguments of method -1, which are json, do not fit: .* at `\$\.cents`"),
        (-1, b"\xff", "arguments of method -1, which are json, do not fit"),
        (-1, b"[" * 5000, "nested more than 200 levels"),
        (8, b"\xc1", "arguments of method 8, which are msgpack, do not fit"),
        (8, b"\x91" * 5000, "nested more than 200 levels"),
    ],
)
def test_bytes_that_are_no_such_value_are_refused_by_place(method: int, args: bytes, why: str) -> None:
    with Environment(made()) as env, pytest.raises(InvalidArgument, match=why):
        env.service("bank")["alice"].foreign(method, args)


@given(st.sampled_from([-1, 8]), st.binary(max_size=60))
def test_no_bytes_raise_anything_but_a_refusal(method: int, args: bytes) -> None:
    spec = made().methods[method]
    try:
        value = read_argument(spec)(args)
    except InvalidArgument:
        return
    assert isinstance(value, Order if method == -1 else int)


def test_a_call_of_an_unknown_number_names_those_that_are_known() -> None:
    with Environment(made()) as env:
        with pytest.raises(UnknownMethod, match="service bank has no method 9; it has -1, 7, 8") as caught:
            env.service("bank")["alice"].foreign(9)
        assert caught.value.code == "DL3120"


@pytest.mark.parametrize("make", [made, waiting])
def test_a_fork_of_an_unknown_number_is_counted_and_changes_nothing(make: Callable[[], Service]) -> None:
    with Environment(make()) as env:
        bank = env.service("bank")
        for number in (9999, -5, 9999):
            assert bank["alice"].foreign(number, b"x", fork=True) is None
        env.kill("bank")
        told = bank.query(READ, SERIES, result=Unknown, series=SERIES)
        assert told == Unknown(3, [(-5, 1), (9999, 2)])
        assert bank["alice"].foreign(7, b"1") == b"alice1"


def test_a_method_that_waits_goes_on_whenever_its_process_is_killed() -> None:
    def scenario(env: Environment) -> list[bytes | None]:
        alice = env.service("bank")["alice"]
        return [alice.foreign(9, b"5"), alice.foreign(9, b"0"), alice.foreign(9, b"1", fork=True)]

    with Environment(waiting()) as env:
        assert scenario(env) == [b"other5!", b"nothing!", None]
    kill_everywhere(scenario, waiting())


def test_a_service_of_one_object_has_methods_as_well() -> None:
    with Environment(made(single=True)) as env:
        assert env.service("bank")[""].foreign(7, b"5") == b"5"


def test_a_result_of_another_type_fails_the_call() -> None:
    bank = Service("bank", state=Account)

    @bank.foreign(method=1, codec="json")
    def lie(_account: Account, _ctx: Context, _args: int) -> int:
        return "text"  # type: ignore[return-value]

    @bank.foreign(method=2, codec="msgpack")
    def say(_account: Account, _ctx: Context, _args: int) -> None:
        return "text"  # type: ignore[return-value]

    with Environment(bank) as env:
        for method in (1, 2):
            with pytest.raises(DeathlessError, match=r"Expected `(int|null)`, got `str`"):
                env.service("bank")["alice"].foreign(method, b"1")


@pytest.mark.parametrize("number", [1 << 31, -(1 << 31) - 1, True, "7", 7.0])
def test_a_number_out_of_range_is_refused_at_import(number: int) -> None:
    with pytest.raises(ForeignMethodRefused, match="is no method number"):
        Service("bank", state=Account).foreign(method=number)(nothing)


def test_two_methods_of_one_number_are_refused_by_both_places() -> None:
    bank = made()
    with pytest.raises(ForeignMethodRefused, match=r"has a method 7 already, add \(.*test_foreign_methods.py"):

        @bank.foreign(method=7)
        def again(account: Account, ctx: Context, args: bytes) -> None: ...


def nothing(account: Account, ctx: Context, args: bytes) -> None: ...
def no_arguments(account: Account, ctx: Context) -> None: ...
def two_arguments(account: Account, ctx: Context, one: bytes, two: bytes) -> None: ...
def by_keyword(account: Account, ctx: Context, *, args: bytes) -> None: ...
def with_default(account: Account, ctx: Context, args: bytes = b"") -> None: ...
def of_text(account: Account, ctx: Context, args: str) -> None: ...
def to_text(account: Account, ctx: Context, args: bytes) -> str: ...  # type: ignore[empty-body]
def untyped(account: Account, ctx: Context, args) -> None: ...  # type: ignore[no-untyped-def]
def without_context(account: Account, args: bytes) -> None: ...


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (no_arguments, "takes state, context and one value by position, without a default; this takes none"),
        (two_arguments, "this takes one, two"),
        (by_keyword, "one value by position"),
        (with_default, "without a default"),
        (of_text, "`args` of method 1 is <class 'str'>, but without a codec it is bytes"),
        (to_text, "method 1 returns <class 'str'>, but without a codec it returns bytes or nothing"),
        (untyped, "parameter `args` has no type"),
        (without_context, "second parameter must be the context"),
    ],
)
def test_a_signature_that_cannot_be_called_is_refused_at_import(function: Callable[..., None], why: str) -> None:
    with pytest.raises(InvalidService, match=why):
        Service("bank", state=Account).foreign(method=1)(function)


def test_a_codec_that_there_is_not_is_refused_at_import() -> None:
    with pytest.raises(ForeignMethodRefused, match="has codec 'xml', which there is not") as caught:
        Service("bank", state=Account).foreign(method=1, codec="xml")(to_text)  # type: ignore[call-overload]
    assert caught.value.code == "DL3121"


@pytest.mark.parametrize("name", ["call", "send"])
def test_handwritten_handlers_of_these_names_are_refused_beside_methods(name: str) -> None:
    def handler(account: Account, ctx: Context, method: int, args: bytes) -> bytes: ...  # type: ignore[empty-body]

    bank = made()
    with pytest.raises(ForeignMethodRefused, match=f"'{name}' of service bank is the author's own"):
        bank.handler(name=name)(handler)
    other = Service("bank", state=Account)
    other.handler(name=name)(handler)
    with pytest.raises(ForeignMethodRefused, match=f"'{name}' of service bank is the author's own"):
        other.foreign(method=1)(nothing)


def test_methods_of_a_service_share_keys_all_or_none() -> None:
    bank = made()
    with pytest.raises(ForeignMethodRefused, match="method 1 has shared=True, and method 7 has not"):

        @bank.foreign(method=1, shared=True)
        def beside(account: Account, ctx: Context, args: bytes) -> None: ...


def test_functions_of_methods_stand_for_those_that_call_them() -> None:
    bank = waiting()
    assert list(bank.specs) == ["call", "send"]
    assert [each.__name__ for each in bank.functions] == ["add", "place", "count", "ask"]  # type: ignore[attr-defined]
    assert bank.specs["call"].waits
    assert bank.specs["call"].doc == "Call a method by its number: -1, 7, 8, 9."
    assert [each.doc.splitlines()[:1] for each in bank.methods.values()] == [["Add."], [], [], []]
