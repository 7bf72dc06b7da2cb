"""The engine's name for the safeguards is the record itself."""

from __future__ import annotations

from deathless.base import safeguards as base
from deathless.engine import safeguards as engine


def test_the_engine_uses_the_one_record() -> None:
    assert engine.Safeguards is base.Safeguards
    assert engine.ALL_SAFEGUARDS is base.ALL_SAFEGUARDS
