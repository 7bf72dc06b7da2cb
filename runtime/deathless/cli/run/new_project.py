"""The files of a new project, and writing them.

Guarantees: what is written runs with `deathless up`, and passes its own test. A folder that holds something is left as
it is. Does not: install anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from deathless.base.errors import InvalidArgument
from deathless.codec.peer_messages import is_service_name

SERVICE: Final = '''\
"""Service @NAME@: adds up what it is told, by key, and closes the books of the main one each night."""

from deathless import CallRefused, Context, Service, Struct


class Account(Struct):
    """State of one key."""

    total: int = 0
    days: list[int] = []  # totals at the end of each day; a Struct copies its defaults


service = Service("@NAME@", state=Account)


@service.handler
def add(account: Account, ctx: Context, amount: int) -> int:
    """Add an amount; gives the new total."""
    if amount <= 0:
        raise CallRefused("an amount must be above 0")
    account.total += amount
    return account.total


@service.query
def total(account: Account) -> int:
    """Give the total of today."""
    return account.total


@service.query
def days(account: Account) -> list[int]:
    """Give the totals of the days that are over."""
    return account.days


@service.schedule("0 0 * * *", key="main")
@service.handler
def close_day(account: Account, ctx: Context) -> None:
    """Write the day's total down, and begin anew; runs at midnight UTC, exactly once."""
    account.days.append(account.total)
    account.total = 0
'''
TEST: Final = '''\
"""Service @NAME@ in one process: its handlers, a night in no time, and a kill wherever one can come."""

import pytest
from service import add, days, service, total

from deathless import CallRefused
from deathless.testing import Environment, kill_everywhere


def test_amounts_add_up() -> None:
    with Environment(service) as env:
        main = env.service(service)["main"]
        assert main.call(add, 5) == 5
        assert main.call(add, 7) == 12
        assert main.query(total) == 12


def test_an_amount_of_nothing_is_refused() -> None:
    with Environment(service) as env, pytest.raises(CallRefused, match="above 0"):
        env.service(service)["main"].call(add, 0)


def test_the_books_are_closed_at_midnight() -> None:
    with Environment(service) as env:
        main = env.service(service)["main"]
        main.call(add, 5)
        env.advance(days=2)
        assert main.query(days) == [5, 0]
        assert main.query(total) == 0


def two_amounts_and_a_night(env: Environment) -> list[int]:
    main = env.service(service)["main"]
    main.call(add, 5)
    main.call(add, 7)
    env.advance(days=1)
    return main.query(days)


def test_a_kill_changes_nothing_wherever_it_comes() -> None:
    killed = kill_everywhere(two_amounts_and_a_night, service)
    assert killed.points
'''
MANIFEST: Final = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata:
  name: @NAME@
spec:
  module: service.py:service
  replicas: 3
"""
README: Final = """\
# @NAME@

    pytest                                            the tests, in one process
    deathless up                                      three replicas, a live view; Ctrl-C stops them
    deathless dev                                     the same, and each file that is saved is upgraded to
    deathless call add --key main --arg amount=5      in a second terminal; then kill -9 whatever you like

`service.py` is the service, `service.yaml` its manifest, `test_service.py` its tests.
"""
PROJECT: Final = """\
[project]
name = "@NAME@"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["deathless"]

[dependency-groups]
dev = ["pytest"]

[tool.pytest.ini_options]
pythonpath = ["."]
"""
IGNORED: Final = """\
.deathless/
__pycache__/
"""
FILES: Final = {
    "service.py": SERVICE,
    "service.yaml": MANIFEST,
    "test_service.py": TEST,
    "README.md": README,
    "pyproject.toml": PROJECT,
    ".gitignore": IGNORED,
}


def write_project(name: str, folder: Path) -> list[str]:
    """Write a new project.

    Args:
        name: of the service.
        folder: where; it is made if it is not there.

    Returns: the names of the files.
    Raises: InvalidArgument for a name that no service can have, and for a folder that holds something; OSError.
    """
    if not is_service_name(name):
        raise InvalidArgument(
            f"NAME {name!r} must be lower-case letters, digits and inner dashes, at most 40", remedy="such as my-bank"
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidArgument(f"{folder} is there already, and is not an empty folder", remedy="give another --folder")
    folder.mkdir(parents=True, exist_ok=True)
    for file, text in FILES.items():
        (folder / file).write_text(text.replace("@NAME@", name), encoding="utf-8")
    return list(FILES)
