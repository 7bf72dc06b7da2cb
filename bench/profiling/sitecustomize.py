"""Loaded by Python at its start where this folder is on the path: a sampling profiler that two signals switch.

SIGUSR1 begins, SIGUSR2 ends and writes `$DEATHLESS_PROFILE/<pid>.txt`: processor time by function and by line, then the
stacks in the collapsed form that flame graph tools read. Sampled by processor time (ITIMER_PROF), so it neither slows
the process by more than a few percent nor counts what it waits for.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections import Counter
from types import FrameType

FOLDER = os.environ.get("DEATHLESS_PROFILE", "")
INTERVAL_S = 0.001
_stacks: Counter[tuple[tuple[str, int], ...]] = Counter()


def _sample(number: int, frame: FrameType | None) -> None:
    stack: list[tuple[str, int]] = []
    while frame is not None:
        code = frame.f_code
        place = code.co_filename.rpartition("/deathless/")[2].rpartition("/lib/")[2]
        stack.append((f"{place}:{code.co_qualname}" if sys.version_info >= (3, 11) else place, frame.f_lineno))
        frame = frame.f_back
    _stacks[tuple(stack)] += 1


def _begin(number: int, frame: FrameType | None) -> None:
    _stacks.clear()
    signal.signal(signal.SIGPROF, _sample)
    signal.setitimer(signal.ITIMER_PROF, INTERVAL_S, INTERVAL_S)


def _end(number: int, frame: FrameType | None) -> None:
    signal.setitimer(signal.ITIMER_PROF, 0)
    if _stacks:
        _write(os.path.join(FOLDER, f"{os.getpid()}.txt"))
        _stacks.clear()


def _write(path: str) -> None:
    total = sum(_stacks.values())
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    for stack, count in _stacks.items():
        own[stack[0][0]] += count
        lines[f"{stack[0][0]}:{stack[0][1]}"] += count
        for name in {name for name, _ in stack}:
            whole[name] += count
    with open(path, "w", encoding="utf-8") as out:
        out.write(f"{' '.join(sys.argv)}\n{total} samples of processor time\n")
        for title, table in (("own time", own), ("with what it calls", whole), ("own time by line", lines)):
            out.write(f"\n{title}\n")
            for name, count in table.most_common(45):
                out.write(f"{100 * count / total:6.1f} %  {name}\n")
        out.write("\nstacks\n")
        for stack, count in _stacks.most_common():
            out.write(";".join(name for name, _ in reversed(stack)) + f" {count}\n")


if FOLDER:
    signal.signal(signal.SIGUSR1, _begin)
    signal.signal(signal.SIGUSR2, _end)
    atexit.register(_end, 0, None)
