"""The checks of `helm test` are patient with what does not hold yet, all of them together for one while."""

from __future__ import annotations

import runpy
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).parents[3] / "charts" / "deathless" / "files" / "installation_test.py"


@pytest.fixture
def settled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """The script's function, with a clock that its pauses move."""
    now = 100.0

    def pause(seconds: float) -> None:
        nonlocal now
        now += seconds

    monkeypatch.setattr(time, "monotonic", lambda: now)
    monkeypatch.setattr(time, "sleep", pause)
    found: Callable[..., str] = runpy.run_path(str(SCRIPT))["settled"]
    return found


def failing(times: int, error: Exception, tried: list[None]) -> Callable[[], str]:
    """A check that fails so often."""

    def check() -> str:
        tried.append(None)
        if len(tried) <= times:
            raise error
        return "r1 leads"

    return check


@pytest.mark.parametrize("error", [OSError("refused"), RuntimeError("nobody"), ValueError("no JSON"), KeyError("spec")])
def test_check_that_fails_at_first_is_tried_again(settled: Callable[..., str], error: Exception) -> None:
    assert settled(failing(3, error, []), 110.0) == "r1 leads"


def test_check_that_never_holds_fails_with_its_last_words(settled: Callable[..., str]) -> None:
    tried: list[None] = []
    with pytest.raises(RuntimeError, match="nobody leads"):
        settled(failing(1000, RuntimeError("nobody leads"), tried), 110.0)
    assert len(tried) == 11, "once a second, and once more at the end"


def test_check_after_the_time_of_all_is_made_once(settled: Callable[..., str]) -> None:
    tried: list[None] = []
    with pytest.raises(OSError, match="refused"):
        settled(failing(1, OSError("refused"), tried), 100.0)
    assert len(tried) == 1


def test_what_is_wrong_with_the_check_itself_is_not_tried_again(settled: Callable[..., str]) -> None:
    tried: list[Any] = []
    with pytest.raises(TypeError):
        settled(failing(1, TypeError("a bug"), tried), 110.0)
    assert len(tried) == 1
