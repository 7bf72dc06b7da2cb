"""What a service author imports: the documented names, cheap to import, without anything heavy behind them."""

import subprocess
import sys

import msgspec
import pytest

import deathless
from deathless import sdk
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context


def test_documented_names_are_there() -> None:
    assert deathless.Service is Service
    assert deathless.Context is Context
    assert deathless.Struct is msgspec.Struct
    assert all(hasattr(deathless, name) for name in deathless.__all__)
    assert all(hasattr(sdk, name) for name in sdk.__all__)
    assert set(deathless.__all__) <= set(dir(deathless))


def test_other_names_are_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        deathless.Nothing  # noqa: B018  the access is the test


def modules_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing() -> None:
    assert {name for name in modules_after("import deathless") if name.startswith("deathless.")} == set()


def test_author_needs_neither_event_loop_nor_terminal() -> None:
    loaded = modules_after("from deathless import Context, Service, Struct")
    assert not {"asyncio", "socket", "click", "rich", "yaml", "aiohttp", "prometheus_client"} & loaded
    assert not {name for name in loaded if name.startswith(("deathless.shell", "deathless.engine", "deathless.core"))}
