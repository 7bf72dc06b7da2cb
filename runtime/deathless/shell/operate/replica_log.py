"""A replica's log file as its runner sees it: followed, kept within bounds, asked for the last words.

Guarantees: a line of `shell.process.logs` gives its fields, any other (a print, a traceback) its text. Does not: write
lines. May import base.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.errors import DeathlessError, Internal
from deathless.codec.untrusted import read_json
from deathless.core.client.events import error_of

LOG_BYTES_MAX: Final = 32 << 20  # a log file is moved aside beyond this; two are kept
_CODE: Final = re.compile(r"DL\d{4}")


def cut_log(path: Path) -> None:
    """Move a log file's content aside when it has grown too large; whoever appends to it goes on unharmed."""
    try:
        if path.stat().st_size <= LOG_BYTES_MAX:
            return
        path.with_suffix(".log.1").write_bytes(path.read_bytes())
        os.truncate(path, 0)
    except OSError:
        return


class LogLine(msgspec.Struct):
    """One line of a replica's log (shell.process.logs writes them)."""

    text: str = ""
    level: str = "info"
    time: str = ""
    process: str = ""
    code: str = ""
    why: str = ""


def parse_log_line(line: bytes) -> LogLine:
    """Give a line's fields; what is not ours (a print, a traceback) becomes its text."""
    try:
        return read_json(line, LogLine)
    except msgspec.MsgspecError:
        return LogLine(text=line.decode(errors="replace").rstrip(), level="warning")


def last_words(folder: Path, name: str = "replica.log") -> str:
    """Give what a replica, or another program with a log of this name, said last, for whoever asks why it ended."""
    path = folder / name
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - 8192))
            lines = [parse_log_line(line) for line in file.read().splitlines() if line.strip()]
    except OSError:
        return f"see {path}"
    for line in reversed(lines):
        if line.code:
            return line.why or line.text
    return lines[-1].text if lines else f"see {path}"


def told_error(told: str) -> DeathlessError:
    """Give the error that a log line tells as text: code, message, and its advice in brackets."""
    code, _, message = told.partition(" ")
    if not _CODE.fullmatch(code):
        return Internal(told, remedy="see replicas/*/replica.log")
    advice = error_of(code, "").advice
    return error_of(code, message.removesuffix(f" ({advice})"))


class LogTail:
    """Gives the lines that are added to a replica's log from now on."""

    def __init__(self, path: Path, *, lines_max: int = 1000) -> None:
        self._path = path
        self._lines_max = lines_max  # per call; what is beyond stays in the file
        self._at = path.stat().st_size if path.exists() else 0
        self._rest = b""

    @property
    def at(self) -> int:
        """Where in the file it goes on, in bytes."""
        return self._at

    def read(self) -> list[LogLine]:
        """Give the new lines, the last `lines_max` of them."""
        return [parse_log_line(line) for line in self.read_raw() if line.strip()][-self._lines_max :]

    def read_raw(self) -> list[bytes]:
        """Give the new lines as they stand in the file, without their ends."""
        try:
            size = self._path.stat().st_size
            if size < self._at:  # cut meanwhile
                self._at, self._rest = 0, b""
            with self._path.open("rb") as file:
                file.seek(self._at)
                data = file.read(4 << 20)
        except OSError:
            return []
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return lines
