"""`deathless ambrosia upgrade`: which programs it takes for the former and the next one, and what it prints."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import BindingConfig, ReplicaConfig
from deathless.cli.main import main
from deathless.foreign import upgrade as upgrading
from deathless.foreign.upgrade import UpgradeOrder, UpgradeReport

SERVICE = """\
apiVersion: deathless.dev/v1alpha1
kind: DeathlessService
metadata: {name: counter}
spec: {binding: {command: [./counter-2]}}
"""


@pytest.fixture(name="orders")
def orders_that_are_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[UpgradeOrder]:
    """Orders that came to the upgrade, of a service whose replicas ran ./counter-1."""
    orders: list[UpgradeOrder] = []

    async def upgrade(order: UpgradeOrder, _told: object) -> UpgradeReport:
        orders.append(order)
        return UpgradeReport(position=34, rows=1, former_bytes=24, next_bytes=29, upgraded=not order.dry)

    monkeypatch.setattr(upgrading, "upgrade", upgrade)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "service.yaml").write_text(SERVICE)
    directory = tmp_path / ".deathless" / "counter"
    (directory / "replicas" / "r0").mkdir(parents=True)
    ran = BindingConfig(command=("./counter-1",), instance="counter", folder="/before")
    config = ReplicaConfig(service="counter", module="", directory=str(directory), replica="r0", binding=ran)
    (directory / "replicas" / "r0" / "config.json").write_bytes(msgspec.json.encode(config))
    return orders


def test_what_ran_last_is_the_former_program(orders: list[UpgradeOrder], capsys: pytest.CaptureFixture[str]) -> None:
    """And what the manifest says is the next one."""
    assert main(["ambrosia", "upgrade"]) == 0
    assert capsys.readouterr().out == (
        "the former program ran 1 row, up to position 34\n"
        "the next one goes on from there: its checkpoint has 29 bytes\n"
    )
    (order,) = orders
    assert (order.former.command, order.former.folder, order.former.purpose) == (("./counter-1",), "/before", "replay")
    assert (order.next.command, order.next.purpose, order.dry) == (("./counter-2",), "upgrade", False)


def test_both_may_be_named(orders: list[UpgradeOrder], capsys: pytest.CaptureFixture[str]) -> None:
    """The former one as for a shell, and the next one behind the options."""
    assert main(["ambrosia", "upgrade", "--former", "./old '-v 1'", "--dry-run", "--json", "./new", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["upgraded"] is False
    (order,) = orders
    assert (order.former.command, order.next.command, order.dry) == (("./old", "-v 1"), ("./new", "--json"), True)
    assert main(["ambrosia", "upgrade", "--dry-run"]) == 0
    assert "nothing was changed" in capsys.readouterr().out


def test_what_can_not_be_run_is_refused(
    orders: list[UpgradeOrder], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A service of ours, and a command that no shell would take."""
    assert main(["ambrosia", "upgrade", "--former", "'"]) == 64
    (tmp_path / "a.py").write_text("")
    (tmp_path / "service.yaml").write_text(SERVICE.replace("binding: {command: [./counter-2]}", "module: a.py:b"))
    assert main(["ambrosia", "upgrade"]) == 64
    assert "is no program" in capsys.readouterr().err
    assert not orders
