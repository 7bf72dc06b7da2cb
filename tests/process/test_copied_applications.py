"""A service whose code is a program goes on with the program's state where it was forked, copied or restored."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

from cli_tool import ROOT
from counter_service import Counter, add
from replica_set import wait_for

from deathless.shell.link.application_status import read_statuses

PROGRAM = ROOT / "examples" / "foreign" / "counter.py"
WARM = 45  # calls, so that checkpoints were taken


class Load:
    """Calls a counter meanwhile."""

    def __init__(self, counter: Counter) -> None:
        self.done = 0
        self._counter = counter
        self._ended = threading.Event()
        self._work = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._work.start()
        wait_for(lambda: self.done > WARM, "calls")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._work.join()

    def _run(self) -> None:
        with self._counter.client() as mine:
            while not self._ended.is_set():
                assert add(mine, 1) == self.done + 1
                self.done += 1


def test_program_of_a_fork_goes_on_from_the_cut_and_leads_once_it_may_reach_the_outside(tmp_path: Path) -> None:
    with Counter(tmp_path / "original", PROGRAM) as counter:
        counter.up()
        with Load(counter) as load:
            counter.run("fork", "-f", "service.yaml", "--to", "fork")
        done = load.done
        with Counter(counter.folder / "fork", PROGRAM) as fork, fork.client() as client:
            shutil.copy(fork.folder / "bank.yaml", fork.manifest)
            fork.up()
            total = add(client, 0)
            assert WARM <= total <= done
            for number in range(25):
                assert add(client, 1) == total + number + 1
            assert {each.state for each in read_statuses(str(fork.directory))} <= {"following", "waiting", "loading"}
            fork.run("resume-outside", "--yes")
            fork.wait_for_all()
            assert add(client, 1) == total + 26
            assert fork.json("ambrosia", "replay", "--from", "oldest")["differs"] is None
        with counter.client() as client:
            assert add(client, 1) == done + 1


def test_program_of_a_copy_of_a_copy_goes_on_from_what_was_copied(tmp_path: Path) -> None:
    with Counter(tmp_path / "original", PROGRAM) as counter:
        counter.up()
        with Load(counter) as load:
            pass
        done = load.done
        counter.run("down")
        former = counter.folder
        for generation in ("copy", "copy of it"):
            folder = tmp_path / generation
            shutil.copytree(former, folder, symlinks=True)
            with Counter(folder, PROGRAM) as copy:
                copy.run("adopt", "--as-new", "--yes")
                copy.up()
                with copy.client() as client:
                    assert add(client, 1) == done + 1
                done += 1
                copy.run("down")
            former = folder
