"""`deathless dev`: what is saved is what runs, with its state; what can't run changes nothing, and says so."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from cli_tool import Bank, read_until
from replica_set import DEADLINE_S


def deposit(bank: Bank, amount: int) -> int:
    """Put money into one account; gives its balance."""
    return int(bank.run("call", "deposit", "--key", "alice", "--arg", f"amount={amount}").stdout)


def save(bank: Bank, old: str, new: str) -> None:
    """Change the service's file as an editor does: the whole of it at once."""
    path = bank.folder / "service.py"
    source = path.read_text()
    assert old in source, old
    other = path.with_suffix(".saved")
    other.write_text(source.replace(old, new))
    other.replace(path)


def told(dev: subprocess.Popen[str], word: str) -> str:
    """The next thing that is told of reloading and has a word in it."""
    while True:
        event = json.loads(read_until(dev, word)[-1])
        if event["event"] in ("reload", "note"):
            return str(event["text"])


def end(dev: subprocess.Popen[str], bank: Bank) -> None:
    dev.send_signal(signal.SIGINT)
    dev.communicate(timeout=DEADLINE_S)
    assert dev.returncode == 0
    assert bank.supervisors() == {}


def test_each_save_becomes_the_code_that_runs(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=2) as bank:
        dev = bank.start("dev", "service.yaml", "--json")
        read_until(dev, '"epoch":1')
        assert deposit(bank, 5) == 5
        save(bank, "balance += amount", "balance += 2 * amount")
        told(dev, "the saved code serves")
        assert deposit(bank, 5) == 15
        assert "generation 2" in told(dev, "generation 2")
        end(dev, bank)


def test_what_cannot_run_is_told_and_the_code_of_before_serves_on(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=2) as bank:
        dev = bank.start("dev", "service.yaml", "--json")
        read_until(dev, '"epoch":1')
        assert deposit(bank, 5) == 5
        save(bank, "balance", "cents")
        assert "balance" in told(dev, "FieldDropped")
        assert deposit(bank, 1) == 6
        save(bank, "cents", "balance")
        save(bank, "class Account", "class (")
        assert "SyntaxError" in told(dev, "SyntaxError")
        assert deposit(bank, 1) == 7
        save(bank, "class (", "class Account")
        save(bank, "balance += amount", "balance += 2 * amount")
        told(dev, "the saved code serves")
        assert deposit(bank, 1) == 9
        end(dev, bank)


def test_files_that_changed_while_nothing_ran_are_upgraded_to(tmp_path: Path) -> None:
    with Bank(tmp_path, replicas=2) as bank:
        bank.up()
        assert deposit(bank, 5) == 5
        bank.down()
        save(bank, "balance += amount", "balance += 2 * amount")
        dev = bank.start("dev", "service.yaml", "--json")
        assert "other code than the files" in told(dev, "other code than the files")
        told(dev, "the saved code serves")
        assert deposit(bank, 5) == 15
        end(dev, bank)
