"""The charts are rendered by a real helm; where it can't be built one line says so."""

from __future__ import annotations

import pytest
from tools import kubernetes


@pytest.fixture(scope="session", autouse=True)
def _helm() -> None:
    """Have helm built before the first test is timed."""
    try:
        kubernetes.ensure("helm")
    except kubernetes.GoMissing as missing:
        pytest.skip(str(missing))
