"""A real helm renders the charts, Prometheus' engine evaluates alerts; where they can't be built one line says so."""

from __future__ import annotations

import pytest
from lab import kubernetes


@pytest.fixture(scope="session", autouse=True)
def _tools() -> None:
    """Have both built before the first test is timed."""
    try:
        kubernetes.ensure("helm", "alert-tests")
    except kubernetes.GoMissing as missing:
        pytest.skip(str(missing))
