"""What a runner keeps running, whatever it is."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from deathless.shell.operate.programs import Program, start_program


class Sleeper(Program):
    """A program that does nothing."""

    def stands(self) -> bool:
        return True

    def start(self, environment: Mapping[str, str]) -> subprocess.Popen[bytes]:
        return start_program("this", ["--version"], self.log, environment)

    def left(self) -> None:
        pass


def test_a_program_of_ours_says_what_it_says_into_its_log_in_a_session_of_its_own(tmp_path: Path) -> None:
    program = Sleeper("s", tmp_path, log_name="s.log", lock_name="s.lock")
    process = program.start(dict(os.environ))
    assert os.getsid(process.pid) == process.pid
    process.wait()
    assert len(program.log.read_text().split()) > 10, "the Zen of Python"


def test_one_that_nobody_started_does_not_run(tmp_path: Path) -> None:
    assert Sleeper("s", tmp_path, log_name="s.log", lock_name="s.lock").running() == 0
