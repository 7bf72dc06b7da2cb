"""The switches of every safeguard, under the engine's name."""

from __future__ import annotations

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards

__all__ = ["ALL_SAFEGUARDS", "Safeguards"]
