"""A set runs the code that was kept with its log: an edited file changes nothing until somebody says so."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from cli_tool import Bank
from replica_set import wait_for

from deathless.base.errors import FormerCodeMissing, UpgradeRequired

ADDED = "account.balance += amount"
CHANGED = "account.balance += amount + 1000"


def deposit(bank: Bank, amount: int, code: int | None = 0) -> int:
    said = bank.run("call", "deposit", "--key", "alice", "--arg", f"amount={amount}", code=code).stdout
    return int(json.loads(said))


def edit(bank: Bank, before: str = ADDED, after: str = CHANGED) -> None:
    source = bank.folder / "service.py"
    text = source.read_text()
    assert before in text
    source.write_text(text.replace(before, after))


def workers(bank: Bank) -> dict[str, tuple[str, int]]:
    """Role and process of each worker that runs."""
    told = bank.json("status", code=None)["replicas"]
    return {one["replica"]: (one["role"], one["workerPid"]) for one in told if one["state"] == "running"}


def kill_worker(bank: Bank, name: str) -> None:
    _, pid = workers(bank)[name]
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: workers(bank).get(name, ("", pid))[1] not in (0, pid), f"another worker of {name}")


def primary(bank: Bank) -> str:
    return wait_for(
        lambda: next((name for name, (role, _) in workers(bank).items() if role == "primary"), None), "a primary"
    )


def test_killed_workers_and_supervisors_come_back_with_the_code_that_runs(tmp_path: Path) -> None:
    with Bank(tmp_path) as bank:
        up = bank.start("up", "service.yaml")
        first = primary(bank)
        assert deposit(bank, 5) == 5
        edit(bank)
        for name in ("r0", "r1", "r2"):
            kill_worker(bank, name)
        assert deposit(bank, 5) == 10, "as the code says that was there at the start"
        (bank.folder / "service.py").write_text("this is no code at all\n")
        os.kill(bank.supervisors()[first], signal.SIGKILL)
        wait_for(lambda: len(workers(bank)) == 3, "all replicas")
        kill_worker(bank, primary(bank))
        assert deposit(bank, 5) == 15
        assert {one["condition"] for one in bank.json("status")["replicas"]} == {""}
        bank.down()
        up.communicate()


def test_whoever_joins_a_set_that_runs_joins_its_code_and_is_told(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=2) as bank:
        bank.up()
        assert deposit(bank, 5) == 5
        edit(bank)
        os.kill(bank.supervisors()["r0"], signal.SIGKILL)
        wait_for(lambda: "r0" not in bank.supervisors(), "its end")
        said = bank.run("up", "--detach", "service.yaml").stdout
        assert f"edited since the set was started, and not used by it: {bank.folder / 'service.py'}" in said
        wait_for(lambda: len(workers(bank)) == 2, "both replicas")
        assert deposit(bank, 5) == 10


def copies(bank: Bank) -> list[Path]:
    """Folders with kept code; records of interfaces stand beside them."""
    return [each for each in (bank.directory / "code").iterdir() if each.is_dir()]


def test_crash_and_any_change_start_again_with_the_kept_code(tmp_path: Path) -> None:
    with Bank(tmp_path) as bank:
        bank.up()
        assert deposit(bank, 5) == 5
        for pid in bank.supervisors().values():
            os.kill(pid, signal.SIGKILL)
        edit(bank)
        refused = bank.run("up", "--detach", "service.yaml", code=UpgradeRequired.exit_code).stderr
        assert "service changed (file service.py)" in refused
        for word in ("`deathless up --kept-code`", "`deathless upgrade --offline`"):
            assert word in refused, "what to type"
        assert bank.supervisors() == {}, "nothing was started"
        assert len(copies(bank)) == 1, "refused code is not kept"
        bank.run("up", "--detach", "--kept-code", "service.yaml")
        assert deposit(bank, 5) == 10
        kill_worker(bank, primary(bank))
        assert deposit(bank, 5) == 15
        bank.down()
        bank.run("upgrade", "--offline", "--yes")
        bank.up()
        assert deposit(bank, 5) == 1020, "the new code, on the state that the old one left"
        assert len(copies(bank)) == 2


def test_comments_docstrings_and_formatting_are_no_change(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        bank.up()
        assert deposit(bank, 5) == 5
        bank.down()
        text = (bank.folder / "service.py").read_text()
        (bank.folder / "service.py").write_text(f'"""Another docstring."""\n\n\n# A comment.\n{text}\n\n\n')
        bank.up()
        assert deposit(bank, 5) == 10
        told = bank.json("fingerprint", "service.py:bank", "--dir", str(bank.directory))
        assert told["kept"] is True


def test_kept_code_that_is_not_there_is_told(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=1) as bank:
        done = bank.run("up", "--detach", "--kept-code", "service.yaml", code=FormerCodeMissing.exit_code)
        assert "error DL4018 FormerCodeMissing" in done.stderr
        bank.up()
        bank.down()
        (copy,) = (bank.directory / "code").glob("*/files/service.py")
        copy.write_text(copy.read_text() + "\n# by another hand\n")
        done = bank.run("up", "--detach", "--kept-code", "service.yaml", code=FormerCodeMissing.exit_code)
        assert "is not what was kept there" in done.stderr
        bank.up()  # the files are still the code that wrote the log
        assert deposit(bank, 5) == 5
