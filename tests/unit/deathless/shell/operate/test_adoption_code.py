"""Which of what does not fit is refused, and which is told; real logs: tests/process/test_cli_adopt.py."""

from __future__ import annotations

import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import UpgradeRefused
from deathless.execution.interface.misfit import Misfit
from deathless.shell.operate import adoption_code
from deathless.shell.operate.adoption_code import LOSES, fit_code
from deathless.shell.operate.upgrading.upgrade_check import Checked

CONFIG = ReplicaConfig(service="bank", module="bank:bank", directory="/none", replica="r0")


def fitted(monkeypatch: pytest.MonkeyPatch, found: Checked | UpgradeRefused) -> list[str]:
    def check(*_: object) -> Checked:
        if isinstance(found, UpgradeRefused):
            raise found
        return found

    monkeypatch.setattr(adoption_code, "check_upgrade", check)
    return fit_code(CONFIG)


@pytest.mark.parametrize("word", sorted(LOSES))
def test_what_is_stored_and_would_be_lost_is_refused_beside_what_is_not(
    monkeypatch: pytest.MonkeyPatch, word: str
) -> None:
    misfits = [Misfit("HandlerGone", "close", "close is not there"), Misfit(word, "Account.x", "x is gone", count=3)]
    with pytest.raises(UpgradeRefused, match=f"^DL1023 {word}: x is gone, 3 keys hold it") as found:
        fitted(monkeypatch, Checked(from_version=1, to_version=1, misfits=misfits))
    assert "HandlerGone" not in str(found.value)
    assert "deathless upgrade" in found.value.advice


@pytest.mark.parametrize("word", ["HandlerGone", "ArgumentGone", "ScheduleGone", "ActivityGone", "KindChanged"])
def test_what_waits_and_does_not_fit_is_told(monkeypatch: pytest.MonkeyPatch, word: str) -> None:
    misfits = [Misfit(word, "close", "close is not there", count=2, unit="message")]
    told = fitted(monkeypatch, Checked(from_version=1, to_version=1, misfits=misfits))
    assert told == [f"{word}: close is not there, 2 messages wait"]


def test_nothing_is_migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UpgradeRefused, match="state is of version 1, and the code of version 2"):
        fitted(monkeypatch, Checked(from_version=1, to_version=2))
    assert fitted(monkeypatch, Checked(from_version=2, to_version=2)) == []


def test_log_without_an_interface_is_told_and_not_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fitted(monkeypatch, UpgradeRefused("no interface is recorded")) == ["no interface is recorded"]
