"""What a service's code consists of, part by part, and the 16 bytes that stand for it; `fingerprint` finds the parts.

Whoever only compares codes (a supervisor, a record in a log's folder, an upgrade) needs neither the author's module nor
what runs it, and imports this alone.

Guarantees: 16 bytes, equal exactly when all parts are. Does not: read the author's files.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.ids import Fingerprint

DESCRIPTION: Final = "description"
"""The part that says in which way code is described; it is missing where that is the first way."""
SOURCE: Final = "source "
PROCESSOR: Final = "processor"


@dataclass(frozen=True, slots=True)
class Description:
    """What a service's code consists of, in both ways that logs know it by."""

    parts: dict[str, str]  # by name, as this release tells it
    former: dict[str, str]  # the same as releases before it told it
    files: dict[str, Path] = field(default_factory=dict)  # the author's source files by module

    @property
    def fingerprint(self) -> Fingerprint:
        """The fingerprint, which a log that begins now carries."""
        return fingerprint_of(self.parts)

    @property
    def spellings(self) -> frozenset[Fingerprint]:
        """Every fingerprint that means this code."""
        return frozenset((fingerprint_of(self.parts), fingerprint_of(self.former)))

    def in_the_way_of(self, other: Mapping[str, str]) -> dict[str, str]:
        """Give our parts in the way that other parts are told, to be compared with them."""
        return self.parts if DESCRIPTION in other else self.former


def fingerprint_of(parts: Mapping[str, str]) -> Fingerprint:
    """Give the 16 bytes for parts that `describe` gave, here or elsewhere."""
    encoded = msgspec.msgpack.encode(sorted(parts.items()))
    return Fingerprint(hashlib.blake2b(encoded, digest_size=16).digest())


def differences(
    before: Mapping[str, str], after: Mapping[str, str], files: Mapping[str, Path] | None = None
) -> list[str]:
    """Name each part that differs, a few words each, sources first; none when the fingerprints are equal.

    Args:
        before: parts of one code.
        after: those of another, told in the same way (`Description.in_the_way_of`).
        files: source files by module, as far as they are known.
    """
    names = sorted({*before, *after} - {DESCRIPTION}, key=lambda name: (not name.startswith(SOURCE), name))
    pairs = ((name, before.get(name), after.get(name)) for name in names)
    return [_difference(name, old, new, files or {}) for name, old, new in pairs if old != new]


def shown_file(module: str, file: Path | None) -> str:
    """Give a source file's name as it is told, from the top of its package on: bank/service.py."""
    package = file is not None and file.name == "__init__.py"
    return f"{module.replace('.', '/')}{'/__init__' if package else ''}.py"


def _difference(name: str, old: str | None, new: str | None, files: Mapping[str, Path]) -> str:
    if name.startswith(SOURCE):
        module = name.removeprefix(SOURCE)
        what = "is new" if old is None else "is gone" if new is None else "changed"
        return f"{module} {what} (file {shown_file(module, files.get(module))})"
    if name == PROCESSOR and old is not None and new is not None:
        return "processor with other features, by which numpy chooses its arithmetic"
    told = [value or "none" for value in (old, new)]
    if name == "interpreter" and old and new and old.partition(" ")[0] == new.partition(" ")[0]:
        told = [value.partition(" ")[2] for value in told]
    return f"{name} {told[0]} -> {told[1]}"


def processor_features(information: str = "/proc/cpuinfo") -> list[str] | None:
    """Give the processor's features, sorted; None: the system does not tell."""
    try:
        lines = Path(information).read_text().splitlines()
    except OSError:
        return None
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return sorted(features.partition(":")[2].split())
