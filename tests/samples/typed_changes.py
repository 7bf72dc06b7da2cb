"""Migrations as a type checker sees them: the lines with a comment that silences it are wrong, all others are right."""

from __future__ import annotations

from deathless import Context, Continue, Map, Migration, Service, Struct, Suspended, field


class AccountV1(Struct):
    balance: float = 0.0


class Account(Struct):
    cents: int = 0
    orders: Map[str, int] = field(default_factory=Map)


class DepositV1(Struct):
    amount: float


bank = Service("bank", state=Account, version=2)


@bank.handler
def deposit(account: Account, ctx: Context, cents: int) -> int:
    account.cents += cents
    return account.cents


@bank.migrate(from_=1)
def up(old: AccountV1, m: Migration) -> Account:
    return Account(cents=round(100 * old.balance))


@bank.migrate(from_=2, to=1)
def down(new: Account, m: Migration) -> AccountV1:
    return AccountV1(new.cents / 100)


@bank.migrate_map("orders", from_=1)
def order(key: str, item: str, old: str) -> int | None:
    return int(old) if old else None


@bank.migrate_key(from_=1)
def key(old: str) -> str:
    return old.removeprefix("acct-")


@bank.accepts("deposit", from_=1, args=DepositV1, result=float)
def deposit_v1(old: DepositV1) -> dict[str, int]:
    return {"cents": round(100 * old.amount)}


@bank.carry("transfer_saga", from_=1)
def saga(old: Suspended, account: Account) -> Continue:
    amount: int = old.given("reserve", int)
    return Continue("deposit", cents=amount + account.cents, told=old.given("charge"))


bank.changes(
    from_=1,
    renamed={"take": "deposit"},
    removed={"close": "fail", "bonus": "refuse"},
    drops=["Account.note"],
    changed={"deposit": {"reply": "fees are rounded half up"}},
)

bank.migrate()(up)  # type: ignore[call-arg]  # pyrefly: ignore
bank.migrate(from_="1")(up)  # type: ignore[arg-type]  # pyrefly: ignore
bank.migrate(from_=1)(key)  # type: ignore[arg-type]  # pyrefly: ignore
bank.migrate_key(from_=1)(order)  # type: ignore[arg-type]  # pyrefly: ignore
bank.accepts("deposit", from_=1, args=DepositV1)(up)  # type: ignore[arg-type]  # pyrefly: ignore
bank.carry("transfer_saga", from_=1)(up)  # type: ignore[arg-type]  # pyrefly: ignore
bank.carry("transfer_saga")(saga)  # type: ignore[call-arg]  # pyrefly: ignore
bank.changes(from_=1, removed={"close": "drop"})  # type: ignore[dict-item]  # pyrefly: ignore
up(Account(), "m")  # type: ignore[arg-type]  # pyrefly: ignore
