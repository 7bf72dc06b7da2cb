"""What clients ask for: banks, counters and registers, every change with a tag that no other has.

Why tags: exactly once is about identity, not about sums; a loss and a doubling of equal amounts would cancel out.
The service under test keeps, per key, the tags it applied, so the recovered state itself says what happened.

Guarantees: the same seed gives the same operations. A client keeps asking for the same until it gets an answer; one
that stands for an HTTP ingress asks with an idempotency key, perhaps twice at once over two clients. Does not: talk
to anything. May import scheduler and checkers.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deathless.simulation.checkers.history import Value

ACCOUNTS: Final = ("bank-a", "bank-b", "bank-c", "bank-d")
COUNTERS: Final = ("counter-x", "counter-y")
REGISTERS: Final = ("register-u", "register-v")
READS: Final = frozenset({"read", "balance"})
"""Actions that are queries: they change nothing and are never in the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One thing to ask for.

    Attributes:
        model: bank, counter or register.
        action, keys, argument: as the models of the checkers name them.
        tag: unique; empty for reads.
        idempotency_key: empty: none.
        pause_us: how long the client thinks before it asks.
    """

    model: str
    action: str
    keys: tuple[str, ...]
    argument: Value
    tag: str
    idempotency_key: bytes
    pause_us: int

    @property
    def is_read(self) -> bool:
        """True for queries."""
        return self.action in READS


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadProfile:
    """What one run's clients are like; drawn per seed.

    Attributes:
        requests: per client.
        window: requests of one client under way at once, at least 1.
        reads_share: of requests, [0, 1].
        keyed_share: of changes that carry an idempotency key, [0, 1].
        twice_share: of keyed changes that a second client asks for as well, [0, 1].
        pause_max_us: longest time to think.
        models: that are asked for.
    """

    requests: int
    window: int
    reads_share: float
    keyed_share: float
    twice_share: float
    pause_max_us: int
    models: tuple[str, ...]


def draw_profile(chance: random.Random, *, requests: int, span_us: int) -> WorkloadProfile:
    """Draw how the clients of one run behave.

    Args:
        chance: generator that belongs to the workload.
        requests: per client, about.
        span_us: virtual time over which the requests should spread.
    """
    models = tuple(model for model in ("bank", "counter", "register") if chance.random() < 0.7) or ("bank",)
    count = max(4, int(requests * (0.5 + chance.random())))
    window = chance.choice((1, 1, 2, 4, 16))
    return WorkloadProfile(
        requests=count,
        window=window,
        reads_share=chance.choice((0.1, 0.3, 0.5)),
        keyed_share=chance.choice((0.0, 0.3, 1.0)),
        twice_share=chance.choice((0.0, 0.2)),
        pause_max_us=max(1, 2 * span_us // count),
        models=models,
    )


def draw_requests(chance: random.Random, profile: WorkloadProfile, client: str) -> list[Request]:
    """Draw everything one client will ask for."""
    requests: list[Request] = []
    for number in range(profile.requests):
        model = chance.choice(profile.models)
        read = chance.random() < profile.reads_share
        tag = "" if read else f"{client}.{number}"
        action, keys, argument = _draw_action(chance, model, tag, read=read)
        keyed = bool(tag) and chance.random() < profile.keyed_share
        requests.append(
            Request(
                model=model,
                action=action,
                keys=keys,
                argument=argument,
                tag=tag,
                idempotency_key=f"key-{tag}".encode() if keyed else b"",
                pause_us=chance.randrange(profile.pause_max_us),
            )
        )
    return requests


def draw_repeats(chance: random.Random, profile: WorkloadProfile, requests: Sequence[Request]) -> list[Request]:
    """Draw which keyed requests a second client asks for as well, with the same key and tag."""
    return [r for r in requests if r.idempotency_key and chance.random() < profile.twice_share]


def _draw_action(chance: random.Random, model: str, tag: str, *, read: bool) -> tuple[str, tuple[str, ...], Value]:
    if model == "bank":
        if read:
            return "balance", (chance.choice(ACCOUNTS),), None
        if chance.random() < 0.4:
            return "deposit", (chance.choice(ACCOUNTS),), chance.randrange(1, 100)
        source, target = chance.sample(ACCOUNTS, 2)
        return "transfer", (source, target), chance.randrange(1, 60)
    if model == "counter":
        key = (chance.choice(COUNTERS),)
        return ("read", key, None) if read else ("add", key, chance.randrange(1, 10))
    key = (chance.choice(REGISTERS),)
    if read:
        return "read", key, None
    if chance.random() < 0.6:
        return "write", key, tag
    return "cas", key, (f"c{chance.randrange(3)}.{chance.randrange(10)}", tag)
