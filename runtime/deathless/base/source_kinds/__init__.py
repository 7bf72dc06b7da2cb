"""The kinds of sources there are: for each its name, what makes its readers, and the extra that it needs.

A new kind is its own module, one entry here, and its documentation. The entry alone makes the manifest and the CRD
accept its name as `sources[].kind`, and lets the source's process find its factory.

    name        needs      its partitions                where
    files       nothing    one: the lines of all files   on a laptop alone: pods share no folder
    kafka       [kafka]    those of its topic            on a laptop and in a cluster
    connector   nothing    the streams of its clients    on a laptop and in a cluster

A factory is named by text, `module:function`, so that nobody loads what they do not use; `sources.port` says what it
is given and what it makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceKind:
    """One kind of source."""

    name: str  # sources[].kind of a manifest
    factory: str = ""  # `module:function`, see sources.port.Factory; empty: a gate
    gate: bool = False  # clients connect to it and send; nothing is read
    extra: str = ""  # it needs `pip install deathless[extra]`; empty: nothing more
    has_keys: bool = False  # its records have keys beside their values: `key: key` may name them
    local: str = ""  # why it can't be used in a cluster; empty: it can


SOURCE_KINDS: Final[dict[str, SourceKind]] = {}
"""By name, in the order in which they are told to users."""


def register(kind: SourceKind) -> None:
    """Make a kind of source known, before the manifest's model is loaded."""
    assert kind.name not in SOURCE_KINDS, kind.name
    assert kind.name.isalnum(), "the name stands in a pattern"
    SOURCE_KINDS[kind.name] = kind


register(
    SourceKind(
        name="files",
        factory="deathless.sources.files:reader",
        local="the pods of a service share no folder that files could be put into",
    )
)
register(SourceKind(name="kafka", factory="deathless.sources.kafka:reader", extra="kafka", has_keys=True))
register(SourceKind(name="connector", gate=True, has_keys=True))
