"""What is put back after a test, and golden bytes: what the present versions write, so that a change of one is seen.

`DEATHLESS_REWRITE_GOLDEN=1` writes the files anew; do that only together with a new format version.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "golden"


@pytest.fixture
def collector() -> Iterator[None]:
    """A worker takes the collection of garbage over from Python; this process goes on."""
    yield
    gc.enable()
    gc.unfreeze()


@pytest.fixture
def golden() -> Callable[[str, bytes], None]:
    """Compare bytes with tests/golden/<name>.bin."""

    def compare(name: str, data: bytes) -> None:
        path = FOLDER / f"{name}.bin"
        if os.environ.get("DEATHLESS_REWRITE_GOLDEN") == "1":
            path.write_bytes(data)
        assert path.read_bytes() == data, f"{path} differs: what is written is not this version any more"

    return compare
