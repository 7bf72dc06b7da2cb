"""A child that ends with its parent, whatever it has become."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from deathless.shell.foreign import exec_shim

SHIM = [sys.executable, "-I", "-S", str(Path(exec_shim.__file__))]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*SHIM, *arguments], capture_output=True, text=True, check=False)


def test_it_becomes_the_command() -> None:
    done = run(str(os.getpid()), "/bin/sh", "-c", 'echo "$0 $1"; exit 5', "a", "b")
    assert (done.returncode, done.stdout) == (5, "a b\n")


def test_signals_that_python_ignores_are_not_ignored_by_the_command() -> None:
    """A command that it starts in a pipe would go on when nobody reads that any more."""
    done = run(str(os.getpid()), "/bin/sh", "-c", "grep SigIgn /proc/$$/status")
    ignored = int(done.stdout.split()[1], 16)
    assert [number for number in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (number - 1) & 1] == []


def test_a_parent_that_is_gone_already_is_found_out() -> None:
    done = run("1", "/bin/sh", "-c", "echo ran")
    assert (done.returncode, done.stdout) == (1, "")


def test_a_command_that_is_not_there_is_named() -> None:
    done = run(str(os.getpid()), "no-such-program-anywhere")
    assert done.returncode == exec_shim.NOT_FOUND
    assert done.stderr == "no-such-program-anywhere: No such file or directory\n"


def test_the_kernel_is_asked_to_kill_it_with_its_parent() -> None:
    waits = "import signal; print('there', flush=True); signal.sigtimedwait([signal.SIGUSR1], 60); print('outlived')"
    middle = (
        "import os, subprocess, sys\n"
        f"command = [*{SHIM!r}, str(os.getpid()), sys.executable, '-S', '-c', {waits!r}]\n"
        "subprocess.Popen(command, stdin=subprocess.DEVNULL)\n"
        "os.read(0, 1); os._exit(0)\n"
    )
    with subprocess.Popen([sys.executable, "-c", middle], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"there\n"
        parent.stdin.write(b"x")
        parent.stdin.flush()
        assert parent.stdout.read() == b""
