"""Asks a process of its own that runs an author's code: who asks goes on whatever that code does.

    asks                                        runs the author's code
    order, on standard input      ------->      imports the code
                                  <-------      IMPORTED
                                  <-------      TOLD (how far it is), any number of times
                                  <-------      ANSWER, or FAILED (an error)

The answers go through a pipe of their own. Only what is said there counts, and no exit code: a module or a migration
may end its process with 0 as well.

Guarantees: an answer that the process said, or an error; no process is left. A process whose import lasts is told of
after IMPORT_TOLD_S, and ended after IMPORT_MAX_S. Does not: bound anything behind the import. Who has another way to
such a process (replay, rehearsal) waits by LongWait, and says by `ended_process` what became of it.
"""

from __future__ import annotations

import contextlib
import enum
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection, wait
from typing import Final

import msgspec

from deathless.base.errors import CodeEndedProcess, DeathlessError, ImportNotEnded
from deathless.base.limits import END_S
from deathless.core.client.events import error_of
from deathless.engine.replica.failures import as_ours
from deathless.shell.process.forked import die_with_parent
from deathless.shell.process.reaping import end_all

IMPORT_TOLD_S: Final = 5.0
IMPORT_MAX_S: Final = 120.0
"""An import that has not ended by then is taken for one that never ends."""
INTERRUPTED: Final = 130
NOWHERE: Final = subprocess.DEVNULL
STANDARD_ERROR: Final = 2
Told = Callable[[str], object]


class Word(enum.IntEnum):
    """First byte of what the process says."""

    IMPORTED = 1
    TOLD = 2
    ANSWER = 3
    FAILED = 4


class _Failed(msgspec.Struct, array_like=True):
    """Body of FAILED."""

    code: str
    text: str
    advice: str


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


class LongWait:
    """How long an import, or something behind it, is waited for, from now on.

    It is told of after IMPORT_TOLD_S, and an import is given up after IMPORT_MAX_S.

    Args:
        what: is waited for, for people.
        told: nobody is told of what lasts where this is False.
        ends: what lasts is never given up where this is False.
    """

    def __init__(self, what: str, *, told: bool = True, ends: bool = True) -> None:
        self._what = what
        self._begun = time.monotonic()
        self._limits = [IMPORT_TOLD_S] * told + [IMPORT_MAX_S] * ends  # that are to come

    @property
    def left_s(self) -> float | None:
        """So long until `passed` is to be called, seconds, 0 or more; None: there is nothing more to do."""
        return max(0.0, self._begun + self._limits[0] - time.monotonic()) if self._limits else None

    def passed(self) -> None:
        """That time has passed. Raises: ImportNotEnded, where it is to be given up."""
        if self._limits.pop(0) == IMPORT_MAX_S:
            raise ImportNotEnded(f"{self._what} has not ended after {IMPORT_MAX_S:g} s")
        _say(f"waiting for {self._what}, which has not ended after {IMPORT_TOLD_S:g} s")

    def over(self) -> None:
        """It has ended."""
        self._limits.clear()


def import_wait(code: str, *, bounded: bool = True) -> LongWait:
    """Wait for the import of an author's code.

    Args:
        code: names the author's module, for people.
        bounded: False: it may take any time, and nobody is told.
    """
    return LongWait(f"the import of {code}", told=bounded, ends=bounded)


def ended_process(code: str, status: int | None) -> CodeEndedProcess:
    """Say that a process of an author's code ended without an answer.

    Args:
        code: names the author's module, for people.
        status: of the process, negative for a signal; None: nobody knows.
    """
    how = "" if status is None else f" by signal {-status}" if status < 0 else f" with status {status}"
    return CodeEndedProcess(f"the process that ran {code} ended{how}, and said nothing of what came of it")


# ---- who asks --------------------------------------------------------------------------------------------------


def ask(
    program: str,
    order: bytes,
    environment: Mapping[str, str],
    *,
    code: str,
    output: int = NOWHERE,
    told: Told = str,
    bounded: bool = True,
) -> bytes:
    """Run a program of ours that runs an author's code, and give its answer.

    Args:
        program: the module of ours, whose `main` calls `answer`.
        order: what it is to do.
        environment: of the process, the whole of it.
        code: names the author's module, for people.
        output: descriptor that what the author's code prints goes to.
        told: is told how far it is.
        bounded: the import may take IMPORT_MAX_S at most; False: any time, and nobody is told.

    Raises: CodeEndedProcess where it ended without an answer; ImportNotEnded; the error that it tells of.
    """
    reader, writer = os.pipe()
    with Connection(reader, writable=False) as line:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", program, str(writer)],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                pass_fds=(writer,),
                env=environment,
            )
        finally:
            os.close(writer)
        try:
            assert process.stdin is not None
            with contextlib.suppress(BrokenPipeError), process.stdin as words:
                words.write(order)
            answer = _heard(line, process.pid, code, told, bounded=bounded)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(END_S)
        finally:
            end_all([process])
    if answer is None:
        raise ended_process(code, process.returncode)
    return answer


def _heard(line: Connection, pid: int, code: str, told: Told, *, bounded: bool) -> bytes | None:
    """Give the answer; None: it ended without one. Raises: ImportNotEnded; the error that it tells of."""
    importing = import_wait(code, bounded=bounded)
    gone = os.pidfd_open(pid)  # what the author's code has started may hold the pipe open
    try:
        while True:
            ready = wait([line, gone], importing.left_s)
            if not ready:
                importing.passed()
                continue
            try:
                said = line.recv_bytes() if line in ready else b""
            except EOFError:
                said = b""
            importing.over()
            if not said or said[0] == Word.ANSWER:
                return said[1:] if said else None
            if said[0] == Word.FAILED:
                raise _error_of(msgspec.msgpack.decode(said[1:], type=_Failed))
            if said[0] == Word.TOLD:
                told(said[1:].decode())
    finally:
        os.close(gone)


def _error_of(failed: _Failed) -> DeathlessError:
    error = error_of(failed.code, failed.text)
    error.advice = failed.advice
    return error


# ---- who answers -----------------------------------------------------------------------------------------------


class Reports:
    """What the process says meanwhile.

    Args:
        line: to who asked.
    """

    def __init__(self, line: Connection) -> None:
        self._line = line

    def imported(self) -> None:
        """The author's code is imported."""
        self.say(Word.IMPORTED, b"")

    def tell(self, how_far: str) -> None:
        """Tell how far it is."""
        self.say(Word.TOLD, how_far.encode())

    def say(self, word: Word, body: bytes) -> None:
        """Say a word."""
        self._line.send_bytes(bytes([word]) + body)


def answer(work: Callable[[bytes, Reports], bytes], during: str) -> None:
    """Be the process: do what standard input says, and answer to the descriptor that the argument names.

    Args:
        work: gives the answer to an order.
        during: what an error that is none of ours was raised during.
    """
    die_with_parent()
    with Connection(int(sys.argv[1]), readable=False) as line:
        reports = Reports(line)
        try:
            given = work(sys.stdin.buffer.read(), reports)
        except Exception as error:  # noqa: BLE001  the author's code may raise anything
            ours = as_ours(error, during)
            reports.say(Word.FAILED, msgspec.msgpack.encode(_Failed(ours.code, ours.message, ours.advice)))
        except KeyboardInterrupt:  # who asked has it too
            sys.exit(INTERRUPTED)
        else:
            reports.say(Word.ANSWER, given)
