"""What processes used: processor time and memory, from /proc."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def processor_s(pid: int) -> float:
    """Seconds of processor time, user and system, of a process so far; to a tick (10 ms)."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * TICK_S


def resident_bytes(pid: int) -> int:
    """Memory of a process: its own pages and its part of shared ones."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def peak_bytes(pid: int) -> int:
    """The most memory that a process has ever had resident."""
    for line in Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def children(pid: int) -> list[int]:
    """Processes that a process has started, as far as they live."""
    found: list[int] = []
    with contextlib.suppress(OSError):  # it has ended, or a thread of it
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def family(pid: int) -> list[int]:
    """A process and all that come from it, as far as their parents live."""
    found = [pid]
    for parent in found:
        found += children(parent)
    return found
