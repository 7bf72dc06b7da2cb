"""A copied folder talks to nobody of the original, says so, and becomes a service of its own or takes its place."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from cli_tool import PATIENT_LINE, PROGRAM, ROOT, Bank

from deathless.base.errors import CopiedDirectory, InvalidArgument, OtherSupervisor
from deathless.shell.directory.place import LENIENT
from deathless.shell.disk.filesystem import LOCAL_TYPES, filesystem_type

pytestmark = pytest.mark.skipif(
    filesystem_type("/tmp") not in LOCAL_TYPES - LENIENT,
    reason="/tmp lies on a file system that numbers inodes as it likes, where a copy is only warned of",
)


def deposit(bank: Bank, amount: int) -> int:
    """Put money into one account; gives its balance."""
    return int(bank.run("call", "deposit", "--key", "alice", "--arg", f"amount={amount}").stdout)


def copied(bank: Bank, folder: Path) -> Bank:
    """Copy a bank's folder as it stands, and give the copy."""
    copy = Bank(folder)
    subprocess.run(["cp", "-a", f"{bank.folder}/.", str(folder)], check=True)
    return copy


def test_a_copy_of_a_running_service_reaches_nobody_and_becomes_its_own(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank", more=PATIENT_LINE) as bank:
        bank.up()
        assert deposit(bank, 5) == 5
        with copied(bank, tmp_path / "copy") as copy:
            before = bank.json("status")
            for command in (
                ["status"],
                ["status", "--dir", str(copy.directory)],
                ["query", "balance", "--key", "alice"],
                ["call", "deposit", "--key", "alice", "--arg", "amount=100"],
                ["up", "--detach"],
                ["switchover"],
                ["adopt", "--dry-run"],
            ):
                refused = copy.run(*command, code=CopiedDirectory.exit_code).stderr
                assert CopiedDirectory.code in refused
                assert str(bank.directory) in refused
            assert "still exists" in copy.run("adopt", "--moved", "--yes", code=InvalidArgument.exit_code).stderr
            copy.run("log", "verify")
            copy.run("adopt", "--as-new", "--yes")
            copy.up()
            assert deposit(copy, 100) == 105
            assert deposit(bank, 1) == 6
            after = bank.json("status")
            assert (after["primary"], after["epoch"]) == (before["primary"], before["epoch"])
            copy.down()
            copy.run("log", "verify")
            copy.up()
            assert deposit(copy, 1) == 106
            copy.run("adopt", "--moved", "--yes", code=OtherSupervisor.exit_code)


def test_a_folder_that_was_moved_file_by_file_goes_on(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank", replicas=1) as bank:
        bank.up()
        assert deposit(bank, 5) == 5
        bank.down()
        with copied(bank, tmp_path / "copy") as copy:
            shutil.rmtree(bank.folder)
            assert "which is not there now" in copy.run("up", "-d", code=CopiedDirectory.exit_code).stderr
            copy.run("up", "--detach", "--if-copied", "moved")
            assert deposit(copy, 5) == 10


def test_a_folder_that_was_renamed_needs_no_word(tmp_path: Path) -> None:
    with Bank(tmp_path / "bank", replicas=1) as bank:
        bank.up()
        assert deposit(bank, 5) == 5
        bank.down()
        bank.folder.rename(tmp_path / "renamed")
        with Bank(tmp_path / "renamed", replicas=1) as renamed:
            renamed.up()
            assert deposit(renamed, 5) == 10


def typed(line: str, folder: Path, backups: Path) -> None:
    """Run a line of a page at a terminal, where somebody says yes to what is asked."""
    words = shlex.split(line.replace("/backups", str(backups)))
    command = [*PROGRAM, *words[1:]] if words[0] == "deathless" else words
    person, terminal = os.openpty()
    try:
        os.write(person, b"y\n")
        done = subprocess.run(command, cwd=folder, stdin=terminal, capture_output=True, text=True, check=False)
    finally:
        os.close(person)
        os.close(terminal)
    assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"


def test_commands_of_the_page_do_what_it_says(tmp_path: Path) -> None:
    """Each line of docs/copies.md, as it stands there and in its order, but for where backups lie."""
    page = (ROOT / "docs" / "copies.md").read_text()
    lines = iter([line.strip() for line in page.splitlines() if line.startswith("    ")])

    def run(folder: Path) -> None:
        typed(next(lines), folder, tmp_path / "backups")

    backup = tmp_path / "backups" / "bank"
    backup.parent.mkdir()
    with Bank(tmp_path / "bank", replicas=1) as bank:
        bank.up()
        assert deposit(bank, 5) == 5
        run(bank.folder)  # down
        run(bank.folder)  # cp
        shutil.rmtree(bank.directory)
        shutil.copytree(backup, bank.directory, symlinks=True)
        bank.up()
        assert deposit(bank, 5) == 10
        bank.down()
        shutil.rmtree(bank.folder)
    with Bank(tmp_path / "moved", replicas=1) as moved:
        shutil.copytree(backup, moved.directory, symlinks=True)
        run(moved.folder)  # adopt --moved
        moved.up()
        assert deposit(moved, 5) == 10
        with copied(moved, tmp_path / "copy") as copy:
            run(copy.folder)  # adopt --as-new
            run(copy.folder)  # up --detach
            assert (deposit(copy, 100), deposit(moved, 1)) == (110, 11)
            run(copy.folder)  # resume-outside
            assert deposit(copy, 1) == 111
    assert list(lines) == []
