"""Golden bytes: what format version 1 writes, kept as files so that a change of one byte is seen.

`DEATHLESS_REWRITE_GOLDEN=1` writes the files anew; do that only together with a new format version.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "golden"


@pytest.fixture
def golden() -> Callable[[str, bytes], None]:
    """Compare bytes with tests/golden/<name>.bin."""

    def compare(name: str, data: bytes) -> None:
        path = FOLDER / f"{name}.bin"
        if os.environ.get("DEATHLESS_REWRITE_GOLDEN") == "1":
            path.write_bytes(data)
        assert path.read_bytes() == data, f"{path} differs: what is written is not format version 1 any more"

    return compare
