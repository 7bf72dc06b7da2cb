"""What can be registered, and what is refused when the service is imported."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import msgspec
import pytest

from deathless.base.errors import InvalidService
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context, QueryContext


class Account(msgspec.Struct):
    balance: int = 0


def bank() -> Service:
    return Service("bank", state=Account)


def test_registered_functions_are_described() -> None:
    service = bank()

    @service.handler
    def deposit(account: Account, ctx: Context, amount: int, note: str = "none") -> int:
        """Pay in."""
        account.balance += amount
        return account.balance

    @service.handler(keys=("source", "target"), name="move")
    def transfer(accounts: dict[str, Account], ctx: Context, source: str, target: str) -> None: ...

    @service.query
    def balance(account: Account) -> int:
        return account.balance

    assert list(service.specs) == ["deposit", "move", "balance"]
    spec = service.specs["deposit"]
    assert (spec.name, spec.kind, spec.keys, spec.doc, spec.result_type) == ("deposit", "handler", (), "Pay in.", int)
    assert spec.args_type.__struct_fields__ == ("amount", "note")
    assert msgspec.json.decode(b'{"amount": 5}', type=spec.args_type) == spec.args_type(amount=5, note="none")
    assert service.specs["move"].keys == ("source", "target")
    assert service.specs["balance"].kind == "query"
    assert not service.specs["balance"].takes_context
    assert repr(service) == "Service('bank', state=Account)"


def test_decorators_give_the_function_back() -> None:
    service = bank()

    def look(account: Account) -> int:
        return account.balance

    assert service.query(look) is look
    assert service.query(name="other")(look) is look


def test_specs_cannot_be_changed_from_outside() -> None:
    with pytest.raises(TypeError):
        bank().specs["x"] = None  # type: ignore[index]  # that is the point


def test_arguments_travel_as_a_map_and_unknown_names_are_refused() -> None:
    service = bank()

    @service.handler
    def deposit(account: Account, ctx: Context, amount: int) -> None: ...

    arguments = service.specs["deposit"].args_type
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(arguments(amount=1))) == {"amount": 1}
    with pytest.raises(msgspec.ValidationError, match="unknown field `amuont`"):
        msgspec.json.decode(b'{"amount": 1, "amuont": 2}', type=arguments)


def test_types_that_are_local_or_written_as_text_are_found() -> None:
    class Local(msgspec.Struct):
        n: int

    service = bank()

    @service.handler
    def take(account: "Account", ctx: "Context", item: "Local") -> "list[Local]":
        return [item]

    assert service.specs["take"].result_type == list[Local]


def test_arguments_may_be_by_position_or_by_keyword_only() -> None:
    service = bank()

    @service.handler
    def mixed(account: Account, ctx: Context, /, first: int, *, second: int, third: int = 3) -> None: ...

    assert service.specs["mixed"].args_type.__struct_fields__ == ("first", "second", "third")
    assert service.specs["mixed"].keywords == ("second", "third")


def test_default_that_can_be_changed_is_never_shared() -> None:
    service = bank()

    @service.handler
    def keep(
        account: Account,
        ctx: Context,
        items: list[int] = [1, 2],  # noqa: B006  it is what authors write
        tags: dict[str, int] = {},  # noqa: B006  it is what authors write
    ) -> None: ...

    first, second = (service.specs["keep"].args_type() for _ in range(2))
    assert first == second
    assert getattr(first, "items") is not getattr(second, "items")  # noqa: B009  the field is not known to a checker


def test_context_is_known_by_its_type_or_its_name() -> None:
    service = bank()

    @service.query
    def typed(account: Account, c: QueryContext) -> int:
        return c.now_us

    @service.query
    def named(account, context) -> int:  # type: ignore[no-untyped-def]  # that is the point
        return 1

    @service.query
    def neither(account: Account, amount: int) -> int:
        return amount

    assert [spec.takes_context for spec in service.specs.values()] == [True, True, False]
    assert service.specs["neither"].args_type.__struct_fields__ == ("amount",)


def test_dataclass_may_be_the_state() -> None:
    @dataclass
    class Cart:
        items: dict[str, int] = field(default_factory=dict)

    assert Service("cart", state=Cart).state is Cart


def test_type_of_the_state_need_not_be_resolved() -> None:
    service = bank()

    def deposit(account: Account, ctx: Context) -> None: ...

    deposit.__annotations__["account"] = "Nowhere"
    service.handler(deposit)

    assert "deposit" in service.specs


@pytest.mark.parametrize("name", ["", "Bank", "1bank", "bank-", "a_b", "a" * 41])
def test_service_name_that_is_no_label_is_refused(name: str) -> None:
    with pytest.raises(InvalidService, match="service name"):
        Service(name, state=Account)


class Frozen(msgspec.Struct, frozen=True):
    n: int = 0


@dataclass(frozen=True)
class FrozenData:
    n: int = 0


class Needy(msgspec.Struct):
    n: int


class Odd(msgspec.Struct):
    thing: object = object()


class Foreign:
    pass


class Holder(msgspec.Struct):
    foreign: Foreign | None = None


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        (int, "must be a Struct or a dataclass"),
        (Account(), "must be a Struct or a dataclass"),
        (Frozen, "is frozen"),
        (FrozenData, "is frozen"),
        (Needy, r"Needy\(\) must give the state of a key that was never used"),
        (Odd, r"Odd\(\) must give"),
        (Holder, "Foreign can't be encoded"),
    ],
)
def test_state_that_cannot_hold_a_keys_state_is_refused(state: type, reason: str) -> None:
    with pytest.raises(InvalidService, match=reason):
        Service("bank", state=state)


async def waits(account: Account, ctx: Context) -> None: ...


async def awaits_and_yields(account: Account, ctx: Context) -> object:
    yield 1


def yields(account: Account, ctx: Context) -> object:
    yield 1


def bare() -> None: ...


def no_context(account: Account, amount: int) -> None: ...


def keyword_context(account: Account, *, ctx: Context) -> None: ...


def only_state(account: Account) -> None: ...


def untyped(state: Account, ctx: Context, amount) -> None:  # type: ignore[no-untyped-def]  # on purpose
    ...


def no_result(account: Account, ctx: Context):  # type: ignore[no-untyped-def]  # that is the point
    ...


def unresolved(account: Account, ctx: Context, amount: int) -> None: ...


unresolved.__annotations__["amount"] = "Nowhere"


def starred(account: Account, ctx: Context, *amounts: int) -> None: ...


def named(account: Account, ctx: Context, **amounts: int) -> None: ...


def foreign(account: Account, ctx: Context, thing: Foreign) -> None: ...


def foreign_result(account: Account, ctx: Context) -> Foreign:
    return Foreign()


def odd_type(account: Account, ctx: Context, amount: int | Frozen | Account) -> None: ...


def wrong_state(account: Frozen, ctx: Context) -> None: ...


def _private(account: Account, ctx: Context) -> None: ...


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (awaits_and_yields, "can't yield"),
        (yields, "can't yield"),
        (bare, "first parameter must be the state"),
        (no_context, "second parameter must be the context"),
        (keyword_context, "second parameter must be the context"),
        (only_state, "second parameter must be the context"),
        (untyped, "parameter `amount` has no type"),
        (no_result, "-> None"),
        (unresolved, "type of `amount` can't be resolved: name 'Nowhere' is not defined"),
        (starred, r"`\*amounts`: arguments must be named"),
        (named, r"`\*amounts`: arguments must be named"),
        (foreign, "parameter `thing`: Foreign can't be encoded"),
        (foreign_result, "result: Foreign can't be encoded"),
        (odd_type, "parameter `amount`: .*union"),
        (wrong_state, "`account` is a Account, not a Frozen"),
        (_private, "can't name a handler"),
        (lambda account, ctx: None, "can't name a handler"),
        (3, "must be a function"),
    ],
)
def test_handler_that_could_not_run_is_refused(function: Callable[..., object], reason: str) -> None:
    with pytest.raises(InvalidService, match=reason):
        bank().handler(function)


def test_refusal_names_function_file_and_line() -> None:
    with pytest.raises(InvalidService, match=r"yields \(.*test_service\.py:\d+\)"):
        bank().handler(yields)


def test_handler_may_wait_but_no_query_birth_or_handler_of_several_keys() -> None:
    service = bank()
    service.handler(shared=True)(waits)
    assert (service.specs["waits"].waits, service.specs["waits"].shared) == (True, True)
    with pytest.raises(InvalidService, match="a query is a plain `def`"):
        service.query(waits)
    with pytest.raises(InvalidService, match="a birth is a plain `def`"):
        service.birth(waits)

    async def pays(accounts: Mapping[str, Account], ctx: Context, source: str) -> None: ...

    with pytest.raises(InvalidService, match="several keys is a plain `def`"):
        service.handler(keys=("source",))(pays)


def test_name_taken_by_a_handler_or_query_is_refused() -> None:
    service = bank()

    def deposit(account: Account, ctx: Context) -> None: ...

    service.handler(deposit)
    with pytest.raises(InvalidService, match="has a 'deposit' already"):
        service.handler(deposit)
    with pytest.raises(InvalidService, match="has a 'deposit' already"):
        service.query(deposit)


def two(accounts: dict[str, Account], ctx: Context, source: str, count: int) -> None: ...


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (("source", "target"), "'target', which is no argument of type str"),
        (("count",), "'count', which is no argument of type str"),
        ("source", "must be a tuple"),
    ],
)
def test_keys_must_name_text_arguments(keys: tuple[str, ...], reason: str) -> None:
    with pytest.raises(InvalidService, match=reason):
        bank().handler(keys=keys)(two)


def test_service_of_one_object_has_no_keys() -> None:
    with pytest.raises(InvalidService, match="has no keys to name"):
        Service("one", state=Account, single=True).handler(keys=("source",))(two)


def test_birth_takes_state_and_context_once() -> None:
    service = bank()

    @service.birth
    def born(account: Account, ctx: Context) -> None: ...

    assert service.birth_function is born
    assert bank().birth_function is None
    with pytest.raises(InvalidService, match="has a birth already"):
        service.birth(born)

    def greedy(account: Account, ctx: Context, amount: int) -> None: ...

    with pytest.raises(InvalidService, match="birth takes state and context"):
        bank().birth(greedy)


def test_callable_object_can_be_a_handler_with_a_name() -> None:
    class Deposit:
        def __call__(self, account: Account, ctx: Context, amount: int) -> int:
            return amount

    service = bank()
    service.handler(name="deposit")(Deposit())
    assert service.specs["deposit"].doc == ""
