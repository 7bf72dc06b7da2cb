"""`deathless log export` of a bank that is called and killed; elsewhere the imported log gives the same to the byte."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from cli_tool import PROGRAM, Bank, run
from replica_set import send_signal, wait_for
from test_cli_adopt import deposit, etcd

from deathless.base.errors import InvalidArgument, InvalidConfig

Lock = Callable[[], AbstractContextManager[tuple[object, str]]]


def imported(file: Path, folder: Path) -> dict[str, Any]:
    """Import it where nothing of the service is; gives what is told."""
    told = json.loads(run("log", "import", str(file), "log", "--json", cwd=folder).stdout)
    assert isinstance(told, dict)
    return told


def replayed(folder: Path, *more: str) -> dict[str, Any]:
    """Run the imported log again, by the code that is in it."""
    done = run("replay", "--dir", "log", "--json", *more, cwd=folder)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Did two runs end in the same state?"""
    return all(one[name] == other[name] for name in ("lsn", "chain", "digest", "state", "timeUs"))


@contextlib.contextmanager
def directory_lock() -> Iterator[tuple[None, str]]:
    """The lock that stands in the log's directory."""
    yield None, ""


@pytest.mark.parametrize("lock", [directory_lock, etcd], ids=["directory", "etcd"])
def test_log_of_a_killed_bank_gives_the_same_state_where_nothing_of_it_is(lock: Lock, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with lock() as (_, more), Bank(tmp_path / "bank", replicas=2, more=more) as bank:
        bank.up()
        deposit(bank, 5)
        bank.run("checkpoint", "take")
        before = bank.json("status")
        send_signal(bank.supervisors()[before["primary"]], signal.SIGKILL)
        wait_for(lambda: bank.json("status")["epoch"] > before["epoch"] or None, "a takeover")
        deposit(bank, 7)
        told = bank.json("log", "export", str(tmp_path / "bank.dlog"))
        assert told["code"] is True
        found = imported(tmp_path / "bank.dlog", elsewhere)
        assert (found["firstLsn"], found["lastLsn"]) == (told["firstLsn"], told["lastLsn"])
        lsn = str(told["confirmedLsn"])
        original = bank.json("replay", "--to", lsn)
        assert same(original, replayed(elsewhere, "--to", lsn))
        assert run("log", "verify", "--dir", "log", cwd=elsewhere).stdout.endswith("verdict: sound\n")


def test_export_goes_through_a_pipe_and_ends_where_it_was_asked_to(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with Bank(tmp_path / "bank", replicas=1) as bank:
        bank.up()
        deposit(bank, 6)
        lsn = bank.json("status")["replicas"][0]["lsn"] - 2
        with (tmp_path / "piped").open("wb") as out:
            words = [*PROGRAM, "log", "export", "-", "--from", "0", "--to", str(lsn), "-f", str(bank.manifest)]
            subprocess.run(words, stdout=out, check=True)
        bank.down()
        with (tmp_path / "piped").open("rb") as source:
            subprocess.run([*PROGRAM, "log", "import", "-", "log"], stdin=source, cwd=elsewhere, check=True)
        assert same(bank.json("replay", "--to", str(lsn)), replayed(elsewhere, "--to", str(lsn)))
        refused = bank.run("log", "export", str(tmp_path / "piped"), code=InvalidArgument.exit_code)
        assert "piped exists" in refused.stderr


def test_nothing_is_started_in_the_folder_of_an_exported_log(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank", replicas=1) as bank:
        bank.up()
        deposit(bank, 2)
        bank.run("log", "export", str(tmp_path / "bank.dlog"))
        bank.down()
    with Bank(tmp_path / "other", replicas=1) as other:
        other.directory.parent.mkdir()
        told = run("log", "import", str(tmp_path / "bank.dlog"), str(other.directory), cwd=tmp_path)
        assert f"deathless replay --dir {other.directory}" in told.stdout
        done = other.run("up", "--detach", code=InvalidConfig.exit_code)
        assert "holds an exported log" in done.stderr
        assert same(other.json("replay"), other.json("replay", "--dir", str(other.directory)))
