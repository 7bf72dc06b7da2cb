"""States with maps cross a cut and come back under load: each item is migrated once, and none is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from upgraded_bank import Callers, UpgradedBank

PAIR = ("r0", "r1")
ACCOUNT = '''"""A bank that keeps its deposits in a map, version {version}."""

from deathless import Context, Map, Migration, Service, Struct, field


class Look(Struct):
    amount: int = 0
    tags: list[str] = []


class Account(Struct):
    {field}: int = 0
    tags: Map[str, int] = field(default_factory=Map)


bank = Service("bank", state=Account, version={version})


@bank.handler
def deposit(account: Account, ctx: Context, amount: int, tag: str) -> int:
    """Add so much; gives how many deposits there were."""
    account.{field} += amount * {factor}
    account.tags[tag] = amount * {factor}
    return len(account.tags)


@bank.handler(keys=("source", "target"))
def transfer(accounts: dict[str, Account], ctx: Context, source: str, target: str, amount: int) -> None:
    """Move so much, whatever is there."""
    accounts[source].{field} -= amount * {factor}
    accounts[target].{field} += amount * {factor}


@bank.query
def look(account: Account) -> Look:
    """Give all of it, but for items that do not say what their tag says, or that their number leaves out."""
    right = [tag for tag, held in account.tags.items() if held == int(tag.rpartition(".")[2]) * {factor}]
    return Look(account.{field}, right if len(right) == len(account.tags) else [])
'''
BOTH_WAYS = """

class Account1(Struct):
    balance: int = 0
    tags: Map[str, int] = field(default_factory=Map)


@bank.migrate(from_=1)
def up(old: Account1, m: Migration) -> Account:
    return Account(old.balance * 100, old.tags)


@bank.migrate_map("tags", from_=1)
def tag_up(key: str, item: str, old: int) -> int:
    return old * 100


@bank.migrate(from_=2, to=1)
def down(new: Account, m: Migration) -> Account1:
    return Account1(new.cents // 100, new.tags)


@bank.migrate_map("tags", from_=2, to=1)
def tag_down(key: str, item: str, new: int) -> int:
    return new // 100
"""


@pytest.mark.process
def test_items_are_migrated_up_and_down_while_they_are_written(tmp_path: Path) -> None:
    first = ACCOUNT.format(version=1, field="balance", factor=1)
    with UpgradedBank(tmp_path, source=first, replicas=2) as bank:
        second = ACCOUNT.format(version=2, field="cents", factor=100) + BOTH_WAYS
        with Callers(bank) as callers:
            bank.upgrade(bank.code("v2", second), "--upgraders", "1")
            callers.wait_more()
            middle = bank.accounts()
            bank.run("upgrade", "back-out", "--upgraders", "1")
            callers.wait_more()
        assert all(tags for _, tags in middle.values()), "every item was of the second version then"
        bank.check(callers, generation=3, factor=1, names=PAIR)
