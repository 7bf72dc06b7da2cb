"""What leaves a primary for other services, drivers and activities; in a service made of a copy it is held first.

    held       asked for, and remembered: peers that there is something for, activities that are due
    let go     an operator resumed it, and adopted.json says so: what was held begins, and nothing is held any more

Messages wait in the outbox meanwhile, which is limited as ever. Other shards of the same service are not outside, nor
are services that were forked together with this one.

Guarantees: what was held begins once. Does not: decide what is sent (core does). May import engine and base.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.codec.peer_messages import ActivityStart, Reference, Target


class Links(Protocol):
    """Connections to peers."""

    def dial(self, target: Target) -> None:
        """Connect."""
        ...

    def send(self, target: Target, data: bytes) -> None:
        """Send."""
        ...

    def drop(self, target: Target) -> None:
        """End the connection."""
        ...


class Running(Protocol):
    """Activities beside the worker."""

    def start(self, start: ActivityStart) -> None:
        """Begin one."""
        ...

    def stop(self, reference: Reference) -> None:
        """End one."""
        ...


class Outside(Protocol):
    """Who has both, made when they are first needed."""

    @property
    def links(self) -> Links:
        """Connections to peers."""
        ...

    @property
    def activities(self) -> Running:
        """Activities beside the worker."""
        ...


class Outward:
    """What goes to the outside.

    Args:
        outside: takes what goes.
        service: ours, whose other shards are not outside.
        held: an operator has not let it go yet.
        inside: other services that are not outside.
    """

    def __init__(
        self,
        outside: Outside,
        service: str,
        *,
        held: bool,
        inside: Collection[str] = (),
        safeguards: Safeguards = ALL_SAFEGUARDS,
    ) -> None:
        self.held = held and safeguards.hold_outside_as_new
        self._outside = outside
        self._inside = frozenset({service, *inside})
        self._targets: dict[Target, None] = {}
        self._starts: dict[tuple[int, int], ActivityStart] = {}

    def let_go(self) -> None:
        """Begin what was held."""
        if not self.held:
            return
        self.held = False
        for target in self._targets:
            self._outside.links.dial(target)
        for start in self._starts.values():
            self._outside.activities.start(start)
        self._targets.clear()
        self._starts.clear()

    def dial(self, target: Target) -> None:
        """There is something for a peer: connect."""
        if self.held and target.service not in self._inside:
            self._targets[target] = None
        else:
            self._outside.links.dial(target)

    def send(self, target: Target, data: bytes) -> None:
        """Send to a peer that is connected."""
        self._outside.links.send(target, data)

    def drop(self, target: Target) -> None:
        """End the connection, and connect again later."""
        if target not in self._targets:
            self._outside.links.drop(target)

    def start(self, start: ActivityStart) -> None:
        """Begin an activity."""
        if self.held:
            self._starts[start.invocation, start.operation] = start
        else:
            self._outside.activities.start(start)

    def stop(self, reference: Reference) -> None:
        """End one that nobody waits for any more."""
        if self._starts.pop((reference.invocation, reference.operation), None) is None:
            self._outside.activities.stop(reference)
