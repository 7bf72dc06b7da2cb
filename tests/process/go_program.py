"""Builds the Go program of the example, once; skips the test where Go is missing."""

from __future__ import annotations

from pathlib import Path

import pytest
from lab.go_programs import built

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "foreign" / "go"
GO_MISSING = "Go examples left out: no go compiler on the search path; install Go, or ignore them"


def go_counter() -> Path:
    """Return the program, which is linked statically."""
    program = built("counter", *sorted(FOLDER.glob("*.go")))
    if program is None:
        pytest.skip(GO_MISSING)
    return program
