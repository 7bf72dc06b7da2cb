"""What the lab needs from the machine: its folders, programs to run, and waiting for a condition.

Why: nodes, images and the control plane are all made by running ordinary programs; here is the one place that runs
them, so that a failure always tells the command and what it said.

Guarantees: everything the lab writes lies below `state_folder()`, outside the source tree. `wait_until` polls a
condition and fails at a deadline with words; nothing in the lab waits for a guessed time.

Does not: know what a node or a cluster is.
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
"""The source tree."""

_POLL_S = 0.05
_STARTED = time.monotonic()


class LabError(Exception):
    """The lab could not do something; the message names the command or the condition."""


class InUse(LabError):
    """Another run of the tests has the cluster; the message is the one line that says so."""


class CommandFailed(LabError):
    """A program ended with a code other than 0, or not in time."""

    def __init__(self, command: str, code: int | None, output: str) -> None:
        what = "no end in time" if code is None else f"exit code {code}"
        super().__init__(f"{command[:400]}: {what}\n{output.strip()[-4000:]}")
        self.code = code  # None where it was ended at its deadline
        self.output = output


def state_folder() -> Path:
    """Return where the lab keeps images, nodes and certificates: below the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "deathless" / "cluster"


@contextmanager
def sole_use(who: str) -> Iterator[None]:
    """Have the cluster for oneself; the system takes the claim back when the process ends, however it ends.

    Args:
        who: what others are told.

    Raises:
        InUse: somebody has it.
    """
    state_folder().mkdir(parents=True, exist_ok=True)
    with (state_folder() / "in-use").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise InUse(f"the cluster is in use: {file.read().strip()}; run again when that has ended") from None
        file.truncate(0)
        file.write(f"{who}, process {os.getpid()}")
        file.flush()
        yield


def run(
    *command: str | Path,
    stdin: str | bytes | None = None,
    timeout_s: float = 120.0,
    environment: Mapping[str, str] | None = None,
    shown: str = "",
) -> str:
    """Run a program and return what it wrote to stdout.

    Args:
        command: the program and its arguments.
        stdin: what it reads from stdin; nothing when None.
        timeout_s: it is killed after this many seconds.
        environment: variables set besides those of this process.
        shown: what an error names instead of a command that would tell a reader nothing.

    Raises:
        CommandFailed: exit code other than 0, or no end within `timeout_s`.
    """
    words = [str(word) for word in command]
    data = stdin.encode() if isinstance(stdin, str) else stdin
    try:
        done = subprocess.run(
            words,
            input=data if data is not None else b"",
            capture_output=True,
            timeout=timeout_s,
            env={**os.environ, **(environment or {})},
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        raise CommandFailed(shown or shlex.join(words), None, (late.stderr or b"").decode("utf-8", "replace")) from late
    except FileNotFoundError as missing:
        raise LabError(f"{words[0]} is not on the search path") from missing
    if done.returncode != 0:
        output = (done.stderr + done.stdout).decode("utf-8", "replace")
        raise CommandFailed(shown or shlex.join(words), done.returncode, output)
    return done.stdout.decode("utf-8", "replace")


def succeeds(*command: str | Path, timeout_s: float = 30.0) -> bool:
    """Run a program and tell whether it ended with 0."""
    try:
        run(*command, timeout_s=timeout_s)
    except CommandFailed:
        return False
    return True


def wait_until(condition: Callable[[], bool], what: str, *, within_s: float = 60.0, poll_s: float = _POLL_S) -> float:
    """Poll until `condition` holds and return the seconds that took.

    Raises:
        LabError: it did not hold within `within_s`; the message says `what`.
    """
    started = time.monotonic()
    while not condition():
        if time.monotonic() - started > within_s:
            raise LabError(f"not within {within_s:.0f} s: {what}")
        time.sleep(poll_s)
    return time.monotonic() - started


def say(line: str) -> None:
    """Tell progress on stderr, with the seconds since the lab was loaded."""
    print(f"{time.monotonic() - _STARTED:6.1f}s {line}", file=sys.stderr, flush=True)


def missing_programs(*names: str) -> list[str]:
    """Return those of the programs that are not on the search path."""
    return [name for name in names if shutil.which(name) is None]
