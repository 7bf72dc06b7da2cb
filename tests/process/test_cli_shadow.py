"""`deathless upgrade shadow`: new code beside a service that serves, through takeovers, and what ends it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from replica_set import DEADLINE_S, send_signal, wait_for
from upgraded_bank import Callers, UpgradedBank, version_1, version_2

from deathless.base.errors import InvalidArgument
from deathless.shell.operate.runner import running_runner

DIFFERS = 78
LONG_S = "600"


def wrong(source: str) -> str:
    """The same interface, and other answers."""
    changed = source.replace("return len(account.tags)", "return len(account.tags) + 1")
    assert changed != source
    return changed


class Shadow:
    """A shadow that runs."""

    def __init__(self, bank: UpgradedBank, to: str, seconds: str = LONG_S) -> None:
        self.process: subprocess.Popen[str] = bank.start(
            "upgrade", "shadow", "--to", to, "--seconds", seconds, "--json"
        )

    def wait_line(self, pattern: str) -> str:
        """Read what it says on the way up to such a line."""
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if re.search(pattern, line):
                return line
        raise AssertionError("it ended:\n" + "".join(said))

    def end(self, code: int) -> tuple[dict[str, Any], str]:
        """Wait for its end; gives what it told, and what it said last."""
        told, said = self.process.communicate(timeout=2 * DEADLINE_S)
        assert self.process.returncode == code, f"{self.process.returncode}\n{told}\n{said}"
        assert "Traceback" not in said, said
        return json.loads(told), said


def test_it_passes_beside_a_service_under_load_through_the_death_of_a_primary(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path) as bank:
        same = bank.code("same", version_1("# another comment\n"))
        with Callers(bank) as callers:
            shadow = Shadow(bank, same, "12")
            shadow.wait_line("^following: .* behind; differences so far: 0")
            primary = bank.view().primary
            assert primary
            send_signal(bank.worker(primary), signal.SIGKILL)
            told, _ = shadow.end(0)
            callers.wait_more()
        assert (told["passed"], told["differences"]) == (True, [])
        followed = told["followed"]
        assert (followed["complete"], followed["caughtUp"], followed["behind"]) == (True, True, 0)
        assert followed["compared"] == followed["messages"] > 0
        assert followed["fromLsn"] <= bank.head().base.lsn < told["lsn"], "the takeover was followed"
        bank.check(callers, generation=1, factor=1)


def test_what_differs_is_named_and_ctrl_c_gives_the_verdict_so_far(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path) as bank:
        shadow = Shadow(bank, bank.code("wrong", wrong(version_1())))
        shadow.wait_line("^following: 0 of 0 messages .* 0 behind; differences so far: 0")
        bank.run("call", "deposit", "--key", "k1", "--arg", "amount=5", "--arg", "tag=a")
        shadow.wait_line("^following: .* differences so far: 1")
        send_signal(shadow.process.pid, signal.SIGINT)
        told, _ = shadow.end(DIFFERS)
        (found,) = told["differences"]
        assert (found["kind"], found["handler"], found["key"]) == ("ReplyDiffers", "deposit", "k1")
        assert (told["followed"]["interrupted"], told["followed"]["complete"]) == (True, False)
        assert found["lsn"] > told["followed"]["fromLsn"]


def test_an_upgrade_ends_it_and_no_verdict_is_given_for_less(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path) as bank:
        second = bank.code("v2", version_2())
        shadow = Shadow(bank, second)
        shadow.wait_line("^following: ")
        bank.upgrade(second, "--upgraders", "1")
        told, said = shadow.end(InvalidArgument.exit_code)
        assert "other code serves behind lsn" in said
        assert (told["passed"], told["followed"]["complete"]) == (True, False)


def descendants(pid: int) -> Iterator[int]:
    """Pids of a process and of all below it."""
    yield pid
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in path.read_text().split():
            yield from descendants(int(child))


def files(folder: Path) -> dict[str, tuple[int, int]]:
    """Size and time of everything in a folder, folders as well."""
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in folder.rglob("*")}


def test_it_changes_nothing_in_the_service_and_connects_to_nobody(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path, detach=False) as bank:
        bank.run("call", "deposit", "--key", "k1", "--arg", "amount=5", "--arg", "tag=a")
        runner = running_runner(bank.directory)
        assert runner
        frozen = list(descendants(runner))
        for pid in frozen:  # so that whatever changes, the shadow changed
            os.kill(pid, signal.SIGSTOP)
        try:
            before = files(bank.directory)
            shadow = Shadow(bank, bank.code("same", version_1("# another comment\n")), "8")
            shadow.wait_line("^following: ")
            assert not any(tcp_of(pid) for pid in descendants(shadow.process.pid))
            told, _ = shadow.end(0)
            assert told["followed"]["complete"]
            assert files(bank.directory) == before
        finally:
            for pid in frozen:
                os.kill(pid, signal.SIGCONT)


def tcp_of(pid: int) -> set[str]:
    """TCP sockets that a process has open."""
    lines = [line for name in ("tcp", "tcp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    inodes = {f"socket:[{line.split()[9]}]" for line in lines}
    found = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.add(str(path.readlink()))
        except FileNotFoundError:
            continue
    return found & inodes


def test_it_ends_with_the_processes_that_it_began(tmp_path: Path) -> None:
    with UpgradedBank(tmp_path) as bank:
        shadow = Shadow(bank, bank.code("same", version_1("# another comment\n")))
        shadow.wait_line("^following: ")
        begun = list(descendants(shadow.process.pid))
        assert len(begun) == 4
        send_signal(shadow.process.pid, signal.SIGKILL)
        shadow.process.wait(DEADLINE_S)
        wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in begun[1:]), "its processes to end")
