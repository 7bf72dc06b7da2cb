"""Describes the machine that a run was made on; figures mean nothing without it."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from bench.figures import Machine
from deathless.shell.disk.filesystem import filesystem_type

WRITTEN: Final = (":!bench/results", ":!docs/benchmarks*.md")
"""What the bench writes itself: a tree that differs in these alone is what was measured."""


def describe(folder: Path, *, quick: bool) -> Machine:
    """Look at this machine; `folder` is where the replicas write."""
    return Machine(
        processor=_processor(),
        cores=len(os.sched_getaffinity(0)),
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        kernel=platform.release(),
        python=platform.python_version(),
        file_system=filesystem_type(folder),
        load_before=round(os.getloadavg()[0], 2),
        load_after=0.0,
        began=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        took_s=0.0,
        commit=_commit(),
        quick=quick,
    )


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    git = shutil.which("git")
    if git is None:
        return ""
    here = Path(__file__).resolve().parent
    done = subprocess.run([git, "-C", str(here), "describe", "--always"], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return ""
    changed = subprocess.run([git, "-C", str(here.parent), "diff", "--quiet", "HEAD", "--", ".", *WRITTEN], check=False)
    return done.stdout.strip() + ("-dirty" if changed.returncode else "")
