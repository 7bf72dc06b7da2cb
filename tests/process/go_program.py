"""Builds the Go program of the example, once; skips the test where Go is missing."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "foreign" / "go"
GO_MISSING = "Go examples left out: no go compiler on the search path; install Go, or ignore them"


@functools.cache
def go_counter() -> Path:
    """Return the program, which is kept below the user's cache by what its sources are."""
    sources = sorted(FOLDER.glob("*.go"))
    name = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    kept = Path(cache, "deathless", "foreign", name, "counter")
    if kept.exists():
        return kept
    go = shutil.which("go")
    if go is None:
        pytest.skip(GO_MISSING)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="build-", dir=kept.parent) as scratch:
        environment = {**os.environ, "CGO_ENABLED": "0", "GO111MODULE": "off", "GOFLAGS": "-trimpath -buildvcs=false"}
        built = Path(scratch, "counter")
        command = [go, "build", "-o", str(built), *(str(source) for source in sources)]
        subprocess.run(command, check=True, env=environment, cwd=FOLDER, timeout=600)
        os.replace(built, kept)
    return kept
