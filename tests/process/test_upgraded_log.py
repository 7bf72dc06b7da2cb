"""`replay`, `log verify`, `log export` of a log whose code changed: right behind the upgrade, and before it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cli_tool import run
from upgraded_bank import UpgradedBank, version_1, version_2


def deposit(bank: UpgradedBank, first: int, count: int) -> None:
    for number in range(first, first + count):
        bank.run("call", "deposit", "--key", "alice", "--arg", "amount=1", "--arg", f"tag=t{number}.1")


def state_of(told: Any) -> dict[str, Any]:
    """What the one account holds."""
    found: dict[str, Any] = told["state"]["alice"]
    return {name: value for name, value in found.items() if name != "tags"}


def upgraded(bank: UpgradedBank) -> int:
    """Three deposits by version 1, the upgrade to version 2, and two more; gives the lsn of its record."""
    deposit(bank, 0, 3)
    bank.upgrade(bank.code("v2", version_2()), "--upgraders", "1")
    lsn = bank.head().upgraded_lsn
    deposit(bank, 3, 2)
    (bank.folder / "service.py").write_text(version_2())  # as the command says at its end
    return lsn


def test_log_is_run_again_on_both_sides_of_an_upgrade(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=1) as bank:
        at = upgraded(bank)
        now = bank.json("replay")
        assert (now["startedAt"], state_of(now)) == (at, {"cents": 500})
        early = bank.json("replay", "--from", "0")
        assert (early["startedAt"], early["digest"]) == (at, now["digest"])
        assert any("written by other code" in note for note in early["notes"])
        assert state_of(bank.json("replay", "--to", str(at))) == {"cents": 300}
        before = bank.json("replay", "--from", "0", "--to", str(at - 1))
        assert (before["startedAt"], state_of(before)) == (0, {"balance": 3})
        verified = bank.json("log", "verify")
        assert verified["problems"] == []
        assert verified["executedFrom"] == at
        assert verified["digest"] == now["digest"]


def test_exported_log_of_a_service_that_was_upgraded_is_run_again_elsewhere(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with UpgradedBank(tmp_path / "bank", replicas=1) as bank:
        at = upgraded(bank)
        now = bank.json("replay")
        for name, more, first in (("newest", (), at), ("whole", ("--from", "0"), 0)):
            bank.run("log", "export", str(tmp_path / f"{name}.dlog"), *more)
            run("log", "import", str(tmp_path / f"{name}.dlog"), name, cwd=elsewhere)
            told = json.loads((elsewhere / name / "exported.json").read_text())
            assert told["firstLsn"] == first
            found = json.loads(run("replay", "--dir", name, "--json", cwd=elsewhere).stdout)
            assert (found["startedAt"], state_of(found)) == (at, state_of(now))
            assert run("log", "verify", "--dir", name, cwd=elsewhere).stdout.endswith("verdict: sound\n")
        before = run("replay", "--dir", "whole", "--to", str(at - 1), "--json", cwd=elsewhere).stdout
        assert state_of(json.loads(before)) == {"balance": 3}


def test_other_code_in_the_files_is_refused_by_name_but_not_for_what_it_wrote(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=1) as bank:
        at = upgraded(bank)
        (bank.folder / "service.py").write_text(version_1())
        bank.down()
        assert "are not those that wrote the log" in bank.run("replay", code=None).stderr
        assert state_of(bank.json("replay", "--to", str(at - 1))) == {"balance": 3}
