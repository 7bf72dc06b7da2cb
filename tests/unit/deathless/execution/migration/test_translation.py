"""What a suspended handler kept, in the words of a new version."""

from __future__ import annotations

import msgspec
import pytest

from deathless import Context, Service, Struct
from deathless.base.errors import InvalidService
from deathless.base.limits import Limits
from deathless.execution.author.migration import Migration
from deathless.execution.interface.interface import interface_of
from deathless.execution.migration.messages import Fitting
from deathless.execution.migration.state import Migrator
from deathless.execution.migration.translation import Versions

pack = msgspec.msgpack.encode


class Account(Struct):
    balance: float = 0.0


class Cents(Struct):
    cents: int = 0


class Paid(Struct):
    amount: float


def old() -> Service:
    made = Service("bank", state=Account)

    @made.handler
    def deposit(account: Account, ctx: Context, amount: float) -> None: ...

    return made


def new(*, keys: bool = False) -> Service:
    made = Service("bank", state=Cents, version=2)

    @made.handler
    def pay_in(account: Cents, ctx: Context, cents: int) -> None: ...

    @made.migrate(from_=1)
    def account(old: Account, m: Migration) -> Cents:
        if old.balance < 0:
            raise ValueError("nobody owes us")
        return Cents(round(100 * old.balance))

    @made.accepts("pay_in", from_=1, args=Paid)
    def paid(old: Paid) -> dict[str, object]:
        return {"cents": round(100 * old.amount)}

    if keys:

        @made.migrate_key(from_=1)
        def key(old: str) -> str:
            return old.upper()

    made.changes(from_=1, renamed={"deposit": "pay_in", "mail": "post"}, removed={"bonus": "fail"})
    return made


def versions(service: Service) -> Versions:
    before = interface_of(old(), Limits())
    return Versions(Migrator(service, before, time_us=1, limits=Limits()), Fitting(service, before), before)


def test_states_arguments_and_names_are_those_of_the_new_version() -> None:
    made = versions(new())
    assert made.state(b"ann", pack(Account(1.5))) == pack(Cents(150))
    assert made.arguments("deposit", pack({"amount": 2.5})) == pack({"cents": 250})
    assert (made.handler("deposit"), made.activity("mail"), made.schedule("mail")) == ("pay_in", "post", "post")


def test_what_is_removed_keeps_its_name_so_that_it_is_told_by_it() -> None:
    made = versions(new())
    assert (made.handler("bonus"), made.activity("bonus"), made.schedule("bonus")) == ("bonus", "bonus", "bonus")


def test_a_state_that_can_not_be_migrated_or_whose_key_is_held_is_refused() -> None:
    with pytest.raises(InvalidService, match="its state can't be migrated"):
        versions(new()).state(b"ann", pack(Account(-1.0)))
    with pytest.raises(InvalidService, match="its key is renamed"):
        versions(new(keys=True)).state(b"ann", pack(Account(1.0)))
