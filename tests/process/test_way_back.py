"""`deathless upgrade back-out` on a set under load: what was done since is kept, nothing is lost or doubled."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from cli_tool import read_until
from replica_set import DEADLINE_S, send_signal
from upgraded_bank import Callers, UpgradedBank, version_2

from deathless.base.errors import InvalidArgument, UpgradeRefused

PAIR = ("r0", "r1")


def test_upgraded_backed_out_and_upgraded_again_under_load(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=2) as bank:
        to = bank.code("v2", version_2(back=True))
        checked = json.loads(bank.run("upgrade", "check", "--to", to, "--json").stdout)
        assert checked["wayBack"] is True
        with Callers(bank) as callers:
            bank.upgrade(to, "--upgraders", "1")
            callers.wait_more()
            assert bank.run("call", "bonus", "--key", "new", "--arg", "amount=700").stdout.strip() == "700"
            lower = bank.json("upgrade", "check", "--to", "service.py:bank")
            assert (lower["fits"], lower["toVersion"], lower["wayBack"]) == (True, 1, None)
            said = bank.run("upgrade", "back-out", "--upgraders", "1").stdout
            callers.wait_more()
            assert "it fits: 6 keys are migrated" in said
            assert bank.head().generation == 3
            assert json.loads(bank.run("query", "look", "--key", "new", "--json").stdout)["result"]["amount"] == 7
            bank.upgrade(to, "--upgraders", "1")
            callers.wait_more()
        bank.check(callers, generation=4, factor=100, names=PAIR)
        assert json.loads(bank.run("query", "look", "--key", "new", "--json").stdout)["result"]["amount"] == 700


def test_without_a_way_down_it_is_refused_by_name_and_serves_on(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=2) as bank:
        never = bank.run("upgrade", "back-out", code=UpgradeRefused.exit_code).stderr
        assert "was never upgraded" in never
        to = bank.code("v2", version_2())
        assert json.loads(bank.run("upgrade", "check", "--to", to, "--json").stdout)["wayBack"] is False
        with Callers(bank) as callers:
            bank.upgrade(to, "--upgraders", "1")
            callers.wait_more()
            refused = bank.run("upgrade", "back-out", "--upgraders", "1", code=UpgradeRefused.exit_code).stderr
            assert "NoDownMigration: Account has no way back to version 1" in refused
            lower = bank.json("upgrade", "check", "--to", "service.py:bank", code=UpgradeRefused.exit_code)
            assert [each["word"] for each in lower["misfits"]] == ["NoDownMigration"]
            words = ("upgrade", "rehearse", "--to", "service.py:bank")
            assert "a way back is not rehearsed" in bank.run(*words, code=InvalidArgument.exit_code).stderr
            callers.wait_more()
        bank.check(callers, generation=2, factor=100, names=PAIR)


def test_command_and_upgrader_that_are_killed_on_the_way_back_leave_one_code_that_serves(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, replicas=2) as bank:
        with Callers(bank) as callers:
            bank.upgrade(bank.code("v2", version_2(back=True)), "--upgraders", "1")
            callers.wait_more()
            tool = bank.start("upgrade", "back-out", "--upgraders", "1")
            _until(tool, "cutting")
            for name in bank.upgraders():
                send_signal(bank.worker(name), signal.SIGKILL)
            tool.kill()
            tool.communicate()
            callers.wait_more()
            if bank.head().generation == 2 or bank.upgraders():  # else the command came to its end
                bank.run("upgrade", "back-out", "--upgraders", "1")
            callers.wait_more()
        bank.check(callers, generation=3, factor=1, names=PAIR)


def _until(tool: subprocess.Popen[str], phase: str) -> None:
    """Read the command's lines up to a phase; one that ends before has done what it does then."""
    try:
        read_until(tool, phase)
    except AssertionError:
        tool.wait(DEADLINE_S)
