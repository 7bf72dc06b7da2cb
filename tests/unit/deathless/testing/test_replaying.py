"""A recorded log is run against the code as it stands."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path

import pytest

from deathless import Service, Struct
from deathless.base.errors import Diverged, InvalidArgument, InvalidUse
from deathless.testing import Environment, replay

CODE = """
from deathless import Context, Service, Struct

class Account(Struct):
    cents: int = 0

{name} = Service("{name}", state=Account)

@{name}.handler
def pay_in(account: Account, ctx: Context, cents: int) -> int:
    account.cents += cents
    return account.cents
"""


def module_of(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> Service:
    """Write a module and import it as a test would."""
    (folder / f"{name}.py").write_text(CODE.format(name=name))
    monkeypatch.syspath_prepend(str(folder))
    importlib.invalidate_caches()
    monkeypatch.delitem(sys.modules, name, raising=False)
    found = getattr(importlib.import_module(name), name)
    assert isinstance(found, Service)
    return found


def record(service: Service, folder: Path, *, checkpoint: bool = False) -> None:
    """Leave a log with three payments."""
    with Environment(service) as env:
        alice = env.service(service)["alice"]
        alice.pay_in(5)
        alice.pay_in(7)
        if checkpoint:
            env.checkpoint(service)
        alice.pay_in(1)
        env.save(service, folder)
        with pytest.raises(InvalidUse, match="not an empty folder"):
            env.save(service, folder)


def test_the_same_code_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steady = module_of(tmp_path, "steady", monkeypatch)
    record(steady, tmp_path / "log")
    result = replay(tmp_path / "log", steady)
    assert result.keys == 1
    assert result.messages == result.lsn > 3
    assert result.notes == []
    assert replay(tmp_path / "log", steady, to=2).lsn == 2


@pytest.mark.parametrize("checkpoint", [True, False])
def test_the_first_difference_is_named_with_what_is_known_of_it(
    checkpoint: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"changed{int(checkpoint)}"
    changed = module_of(tmp_path, name, monkeypatch)
    record(changed, tmp_path / "log", checkpoint=checkpoint)
    path = tmp_path / f"{name}.py"
    path.write_text(path.read_text().replace("+= cents", "+= cents if cents < 7 else 8"))
    with pytest.raises(Diverged) as caught:
        replay(tmp_path / "log", changed)
    told = caught.value.message
    assert re.search(r"lsn \d+: handler 'pay_in' for key 'alice' gave another state or reply: here it replies 13", told)
    assert 'here alice becomes {"cents":13}' in told
    assert ('has alice as {"cents":12}' in told) is checkpoint


def test_a_package_is_found_by_its_dotted_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "ledgers"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "inner.py").write_text(CODE.format(name="inner"))
    monkeypatch.syspath_prepend(str(tmp_path))
    inner = importlib.import_module("ledgers.inner").inner
    record(inner, tmp_path / "log")
    assert replay(tmp_path / "log", inner).keys == 1


def test_what_can_not_be_run_is_refused(tmp_path: Path) -> None:
    class Nothing(Struct):
        pass

    with pytest.raises(InvalidArgument, match="holds no log"):
        replay(tmp_path, Service("nobody", state=Nothing))
    (tmp_path / "log").mkdir()
    with pytest.raises(InvalidUse, match="no module has service nobody"):
        replay(tmp_path, Service("nobody", state=Nothing))
