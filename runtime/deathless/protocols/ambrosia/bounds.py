"""Every maximum of one application's protocol, by name (I10).

Does not: enforce anything; reader, lanes and machine do. Imports nothing of ours.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Maximums, all of them at least 1. Those marked R are part of what outputs depend on: equal on all replicas."""

    message_bytes_max: int = 1 << 20  # R: type and data of one message; a longer RPC is refused, and keeps its position
    checkpoint_bytes_max: int = 2 << 30  # of an application's checkpoint; a longer one ends the application
    name_bytes_max: int = 512  # R: one name of an instance, UTF-8
    targets_max: int = 1000  # R: other targets that have lanes of their own; all further ones share one
    held_bytes_max: int = 8 << 20  # outputs held during an upgrade; then no more is read from the application
    expectations_max: int = 1024  # of one lane: places known of a log or receiver that the application is not at yet
