"""What a lock store says of its own settings: to the manifest, to replicas, and to the operator.

    spec.lock.<name>  --LockSettings, in order-->  config()  --JSON-->  ReplicaConfig.<name>  -->  the store's opener

A store subclasses `LockSettings` and names the class in its registration; the manifest's model, the CRD and
`ReplicaConfig` then have a field with the store's name. What replicas are told may be a struct of its own, which they
load without the manifest's parts.

Guarantees: a method that a store leaves out answers for a store that needs nothing. Does not: know any store, or read
files. Imports manifest_fields and schema_check.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple, Protocol, Self

import msgspec

from deathless.base.manifest_fields import Part
from deathless.base.schema_check import Path, Problem


class FindFile(Protocol):
    """Finds files that settings name."""

    def __call__(self, at: Path, named: str, what: str) -> str:
        """Give the absolute path of a file, and note it as a problem if there is none.

        Args:
            at: the field, below the settings.
            named: its value, relative to the manifest; empty: no file, and neither is the answer.
            what: to name there, with its article: a PEM file.
        """
        ...


class ClusterRule(NamedTuple):
    """A rule of the CRD about the store's settings."""

    name: str  # of its samples
    rule: str  # CEL about the spec, `self`; true means in order
    message: str  # what is wrong and what to write instead


class SecretUse(NamedTuple):
    """A Secret that settings name, in the service's namespace."""

    field: str  # that names it
    name: str
    keys: tuple[str, ...]  # that it must have
    is_read: bool  # what it holds decides over the config, so the operator has to see it


class LockSettings(Part, frozen=True):
    """What a manifest says of one lock store, `spec.lock.<name>`."""

    rules: ClassVar[tuple[ClusterRule, ...]] = ()  # of the CRD, about the settings

    def config(self) -> msgspec.Struct:
        """Give what replicas on this machine are told: a struct of the class that the registration names."""
        return self

    def with_files(self, find: FindFile) -> Self:  # noqa: ARG002 - for those that name files
        """Give the settings with absolute paths of the files that they name."""
        return self

    def problems(self) -> list[Problem]:
        """Find fields that contradict each other; paths are below the settings."""
        return []

    def ignored_locally(self) -> tuple[str, ...]:
        """Name the fields, as the manifest has them, that were set and mean nothing on one machine."""
        return ()

    def cluster_problems(self) -> list[Problem]:
        """Find what a laptop takes and a cluster can't; `rules` refuse the same."""
        return []

    def secrets(self) -> tuple[SecretUse, ...]:
        """Give the Secrets that have to be there before a pod is made."""
        return ()
