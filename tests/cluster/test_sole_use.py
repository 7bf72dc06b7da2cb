"""Two runs never share a cluster. These tests need none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from lab.cluster.machine import InUse, sole_use


@pytest.fixture(autouse=True)
def _own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims of this test are nobody else's."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def test_second_use_is_refused_in_one_line_that_names_the_first() -> None:
    with sole_use("the first"), pytest.raises(InUse) as refused, sole_use("the second"):
        pass
    assert str(refused.value) == (
        f"the cluster is in use: the first, process {os.getpid()}; run again when that has ended"
    )


def test_use_that_has_ended_leaves_the_cluster_to_the_next() -> None:
    with sole_use("the first"):
        pass
    with sole_use("the second"):
        pass
