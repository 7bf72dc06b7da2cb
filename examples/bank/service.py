"""A bank: accounts that no kill -9 makes lose or double a cent."""

from deathless import CallRefused, Context, Service, Struct


class Account(Struct):
    """State of one account."""

    balance: int = 0  # cents
    deposits: int = 0  # how many there were


class NotEnough(CallRefused):
    """The account holds less than was asked for; nothing was moved."""

    code = "BANK01"


bank = Service("bank", state=Account)


@bank.handler
def deposit(account: Account, ctx: Context, amount: int) -> int:
    """Add `amount` cents; gives the new balance."""
    if amount <= 0:
        raise CallRefused("a deposit must be above 0")
    account.balance += amount
    account.deposits += 1
    return account.balance


@bank.handler
def withdraw(account: Account, ctx: Context, amount: int) -> int:
    """Take `amount` cents; gives the new balance."""
    if amount <= 0:
        raise CallRefused("a withdrawal must be above 0")
    if account.balance < amount:
        raise NotEnough(f"{ctx.key} holds {account.balance}, not {amount}")
    account.balance -= amount
    return account.balance


@bank.handler(keys=("source", "target"))
def transfer(accounts: dict[str, Account], ctx: Context, source: str, target: str, amount: int) -> None:
    """Move `amount` cents from one account to another: both change, or none."""
    if amount <= 0:
        raise CallRefused("a transfer must be above 0")
    if accounts[source].balance < amount:
        raise NotEnough(f"{source} holds {accounts[source].balance}, not {amount}")
    accounts[source].balance -= amount
    accounts[target].balance += amount


@bank.query
def balance(account: Account) -> int:
    """Give the balance in cents."""
    return account.balance


@bank.query
def deposits(account: Account) -> int:
    """Give how many deposits there were."""
    return account.deposits
