"""Has the next segment of the log filled with zeros by another process (`zero_writer`), where that makes syncs faster.

    make --starts it once--> measures --gains nothing--> nothing is made, ever
                                |  '-gains--> order --> made, or not
                                '-- or its end, at any time: nothing is made any more

Guarantees: `done` is called once for each order, in the loop, also where the process ends or could not be started; the
process ends with this one. Does not: wait; decide when a file is made (engine.log.segment_writer does).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

PROGRAM: Final = Path(__file__).with_name("zero_writer.py")
GAIN_MIN: Final = 0.1  # of a sync's time; below, files grow as ever
_LOG: Final = logging.getLogger("deathless.log")


class ZeroFilled:
    """The port SegmentMaker over one process, which is started by the first order.

    Args:
        directory: the shared one, which paths are below of.
        measure_at: below it, a path that nobody else uses.
        loop: told of what the process says.
        program: of that process; another one in tests.
    """

    def __init__(
        self, directory: str, measure_at: str, loop: asyncio.AbstractEventLoop, *, program: Path = PROGRAM
    ) -> None:
        self.growing_us = self.filled_us = 0  # what a sync takes, as it was measured; 0: it was not, or could not be
        self._directory = Path(directory)
        self._measure_at = measure_at
        self._loop = loop
        self._program = program
        self._socket: socket.socket | None = None
        self._ended = False
        self._measured = False
        self._said = b""
        self._order = b""  # to be sent once it was measured
        self._done: Callable[[bool], None] | None = None

    @property
    def gains(self) -> bool:
        """Are syncs faster in a file that was filled?"""
        return 0 < self.filled_us <= self.growing_us * (1 - GAIN_MIN)

    def make(self, path: str, size: int, done: Callable[[bool], None]) -> None:
        """See engine.ports.SegmentMaker; one at a time."""
        assert self._done is None, "one file is made at a time"
        if self._socket is None and not self._ended:
            self._start()
        if self._ended or (self._measured and not self.gains):
            self._loop.call_soon(done, False)
            return
        self._done = done
        self._order = b"%d %s\n" % (size, os.fsencode(self._directory / path))
        if self._measured:
            self._send()

    def _start(self) -> None:
        ours, theirs = socket.socketpair()
        words = [sys.executable, "-I", "-S", str(self._program), str(self._directory / self._measure_at)]
        try:
            os.posix_spawn(
                sys.executable, words, {}, file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)], setpgroup=0
            )
        except OSError as error:
            _LOG.warning("can't start the process that fills segments", extra={"why": str(error)})
            ours.close()
            self._ended = True
            return
        finally:
            theirs.close()
        ours.setblocking(False)
        self._socket = ours
        self._loop.add_reader(ours, self._readable)

    def _readable(self) -> None:
        assert self._socket is not None
        try:
            came = self._socket.recv(4096)
        except BlockingIOError:
            return
        except OSError:
            came = b""
        if not came:
            self.close()
            return
        self._said += came
        *lines, self._said = self._said.split(b"\n")
        for line in lines:
            self._told(line)

    def _told(self, line: bytes) -> None:
        if not self._measured:
            self._measured = True
            growing, _, filled = line.partition(b" ")
            self.growing_us, self.filled_us = int(growing), int(filled)
            what = "segments are filled ahead of time" if self.gains else "segments grow: filling them gains nothing"
            _LOG.info(what, extra={"growing_us": self.growing_us, "filled_us": self.filled_us})
            if self.gains:
                self._send()
            else:
                self._finish(False)
        else:
            self._finish(line == b"1")

    def _send(self) -> None:
        order, self._order = self._order, b""
        if self._socket is None or not order:
            return
        try:
            self._socket.sendall(order)  # a line fits: it answers each before the next
        except OSError:
            self.close()

    def _finish(self, good: bool) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(good)

    def close(self) -> None:
        """End the process; what was ordered is not made."""
        self._ended = True
        if self._socket is not None:
            self._loop.remove_reader(self._socket)
            with contextlib.suppress(OSError):
                self._socket.close()
            self._socket = None
        self._finish(False)

    def status(self) -> dict[str, object]:
        """What was found, for operators; 0 s: it was not measured yet, or could not be."""
        return {
            "log_filled_ahead": self.gains and not self._ended,
            "log_growing_sync_seconds": self.growing_us / 1e6,
            "log_filled_sync_seconds": self.filled_us / 1e6,
        }
