"""The kinds of drivers there are: for each its name, what makes its sinks, and the extra that it needs.

A new kind is its own module, one entry here, and its documentation. The entry alone makes the manifest and the CRD
accept its name as `drivers[].kind`, and lets the driver's process and `deathless driver check` find its factory.

    name          needs            delivers
    files         nothing          batches
    postgresql    [postgresql]     batches
    webhook       [webhook]        each message by itself
    topic         [topics]         batches; made of spec.topics, and no kind that spec.drivers may name

A factory is named by text, `module:function`, so that nobody loads a driver that they do not use; `drivers.port` says
what it is given and what it makes. All drivers are outgoing: they deliver what a service sends to their names.

Does not: concern factories of a user's own, which a manifest names itself as `module:function`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverKind:
    """One kind of driver."""

    name: str  # drivers[].kind of a manifest
    factory: str  # `module:function`, see drivers.port.Factory
    extra: str = ""  # it needs `pip install deathless[extra]`; empty: nothing more
    by_message: bool = False  # it delivers each message by itself (drivers.port.KeyedSink)
    for_topics: bool = False  # it is made of spec.topics: drivers[].kind of a manifest can't name it


DRIVER_KINDS: Final[dict[str, DriverKind]] = {}
"""By name, in the order in which they are told to users."""


def register(kind: DriverKind) -> None:
    """Make a kind of driver known, before the manifest's model is loaded."""
    assert kind.name not in DRIVER_KINDS, kind.name
    assert kind.name.isalnum(), "the name stands in a pattern, and has no colon as a user's own factory has"
    DRIVER_KINDS[kind.name] = kind


register(DriverKind(name="files", factory="deathless.drivers.files:sink"))
register(DriverKind(name="postgresql", factory="deathless.drivers.postgresql:sink", extra="postgresql"))
register(DriverKind(name="webhook", factory="deathless.drivers.webhook:sink", extra="webhook", by_message=True))
register(DriverKind(name="topic", factory="deathless.drivers.topic:sink", extra="topics", for_topics=True))
