"""What a program and its processes did since the process beside its replica began; pure.

One process of a program has a coordinator of its own, which ends with it. What is counted here goes on: a program that
ends again and again would otherwise always be told as one that has just begun.

Guarantees: numbers only grow, but for those of the newest checkpoint. Does not: know clocks or files, or decide
anything. Imports codec, protocols and this package.
"""

from __future__ import annotations

import functools
from collections import Counter
from typing import Final

from deathless.codec.peer_messages import is_service_name
from deathless.execution.author.instance_names import service_of
from deathless.protocols.ambrosia.items import OTHERS
from deathless.protocols.ambrosia.messages import RETURNS, SELF, Oversized, Rpc

STOPPED: Final = "stopped"
"""The reason of an end that is no failure: its replica stops, or leads no more."""


@functools.lru_cache(1024)
def _names_service(target: str) -> bool:
    """Whether a service can have this name; asked for each message, and of few names."""
    return is_service_name(service_of(target.partition("/")[0]))


class Counts:
    """What the programs of one replica did, one after the other."""

    def __init__(self) -> None:
        self.ends: Counter[str] = Counter()  # processes that ended, by the code of their error or STOPPED
        self.differences = 0  # outputs that were not what was logged
        self.difference = ""  # the last of these; empty: there was none
        self.too_long = 0  # outputs that went nowhere, since they are longer than a message may be
        self.refusal = ""  # the last of these, and why; empty: there was none
        self.unnamed = 0  # calls to names that no service can have
        self.impulses = 0  # that it emitted
        self.impulses_lost = 0  # of these, that were not known to be logged when their process ended
        self.checkpoints = 0  # that are durable
        self.checkpoint_failures = 0  # that could not be written
        self.checkpoint_s = 0.0  # how long the last one took from its first byte on, seconds

    def ended(self, reason: str, impulses_lost: int) -> None:
        """A process ended.

        Args:
            reason: code of its error, or STOPPED.
            impulses_lost: that it emitted, and that were not known to be logged.
        """
        self.ends[reason] += 1
        self.impulses_lost += impulses_lost

    def emitted(self, lane: str, item: Rpc | Oversized, count: int = 1) -> None:
        """It emitted this in a lane, so many of the kind, and nobody has had it before."""
        target = item.destination if lane == OTHERS else lane
        if target != SELF and item.kind not in RETURNS and not _names_service(target):
            self.unnamed += count

    def refuse(self, target: str, reason: str) -> None:
        """It emitted for a target what goes nowhere; a sentence says why."""
        self.too_long += 1
        self.refusal = f"to {target or 'itself'}: {reason}"

    def differed(self, text: str) -> None:
        """It emitted something else than what was logged; a sentence says what."""
        self.differences += 1
        self.difference = text

    def checkpoint_kept(self, seconds: float) -> None:
        """A checkpoint is durable, after so many seconds."""
        self.checkpoints += 1
        self.checkpoint_s = seconds
