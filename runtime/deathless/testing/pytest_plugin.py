"""The fixture `deathless_env`, for tests of services: an environment that is closed, and looked at, behind the test.

    def test_deposit(deathless_env):
        env = deathless_env(bank)
        assert env.service(bank)["alice"].deposit(5) == 5

pytest finds it by the entry point of this package. Guarantees: importing it costs nothing but pytest. Does not: close
an environment whose test failed, which would hide why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from deathless.execution.author.service import Service
    from deathless.testing.environment import Environment

_FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Remember whether the test itself failed."""
    report = yield
    if call.when == "call":
        item.stash[_FAILED] = call.excinfo is not None
    return report


@pytest.fixture
def deathless_env(request: pytest.FixtureRequest) -> Iterator[Callable[..., Environment]]:
    """Make environments: `deathless_env(bank, seed=2)`; arguments as of `deathless.testing.Environment`."""
    from deathless.testing.environment import Environment  # noqa: PLC0415 - for tests that want one

    made: list[Environment] = []

    def make(*services: Service, **settings: Any) -> Environment:
        env = Environment(*services, **settings)
        env.open()
        made.append(env)
        return env

    yield make
    if not request.node.stash.get(_FAILED, False):
        for env in made:
            env.close()
