"""Fills files with zeros for a worker, as a process of its own: the next segment of its log (engine.log.prepared).

It is started by a worker that leads, and reads orders from its standard input, a socket that it answers on as well. A
line each:

    <size> <path>     ->  1 or 0        that file is there, durably, with so many zeros; or it is not

Before anything else it measures beside the log what a sync costs in a file that grows and in one that was filled, and
tells it: `<growing> <filled>`, microseconds each, the medians of some syncs in turns; `0 0` where that can't be.

It gives way: it writes a little at a time, syncs that, and rests for as long as it took. When its input ends, which it
does with the worker however that ends, it ends.

    python -I -S zero_writer.py <path to measure at>

Guarantees: a file that is told to be there was written and synced from end to end; it never touches one that stood
before. Does not: import anything of ours or of others: it must start in a few milliseconds and stay small.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
import time
from typing import Final

STEP_BYTES: Final = 256 << 10
REST_MAX_S: Final = 0.05  # storage that is slow for another reason does not get faster by our waiting
BLOCK: Final = 4096
SYNCS: Final = 24  # of each kind, when measuring
ALLOCATE: Final = 4 << 20  # as the log's writer: space comes in steps


def create(path: str) -> int:
    """Create a file that does not stand yet."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)


def fill(descriptor: int, size: int) -> bool:
    """Write zeros durably from end to end. False: our input has ended. Raises: OSError."""
    os.posix_fallocate(descriptor, 0, size)
    zeros = bytes(STEP_BYTES)
    for at in range(0, size, STEP_BYTES):
        began = time.monotonic()
        part = zeros[: size - at]
        done = 0
        while done < len(part):
            done += os.pwrite(descriptor, part[done:], at + done)
        os.fdatasync(descriptor)
        rest_s = min(time.monotonic() - began, REST_MAX_S)
        if select.select([0], [], [], rest_s)[0]:  # it has ended: orders are given one at a time
            return False
    os.fsync(descriptor)
    return True


def make(path: str, size: int) -> bool:
    """Make one file; what there is of one that could not be made is removed."""
    try:
        descriptor = create(path)
    except OSError:
        return False
    try:
        good = fill(descriptor, size)
    except OSError:
        good = False
    finally:
        os.close(descriptor)
    if not good:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return good


def measure(path: str) -> tuple[int, int]:
    """Give what a sync of a block costs in a file that grows, and in one that was filled: medians, microseconds."""
    growing: list[float] = []
    filled: list[float] = []
    data = b"x" * BLOCK
    try:
        descriptor = create(path)
        try:
            os.posix_fallocate(descriptor, 0, ALLOCATE)
            os.pwrite(descriptor, bytes(SYNCS * BLOCK), 0)
            os.fsync(descriptor)
            for at in range(SYNCS):
                for took, block in ((filled, at), (growing, SYNCS + at)):
                    began = time.monotonic()
                    os.pwrite(descriptor, data, block * BLOCK)
                    os.fdatasync(descriptor)
                    took.append(time.monotonic() - began)
        finally:
            os.close(descriptor)
    except OSError:
        return 0, 0
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return round(sorted(growing)[SYNCS // 2] * 1e6), round(sorted(filled)[SYNCS // 2] * 1e6)


def run(measured_at: str) -> None:
    """Serve until the input ends."""
    os.nice(10)
    growing, filled = measure(measured_at)
    os.write(0, b"%d %d\n" % (growing, filled))
    line = b""
    while True:
        came = os.read(0, 65536)
        if not came:
            return
        line += came
        if not line.endswith(b"\n"):
            continue
        size, _, path = line[:-1].partition(b" ")
        line = b""
        os.write(0, b"1\n" if make(os.fsdecode(path), int(size)) else b"0\n")


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the worker has ended
        run(sys.argv[1])
