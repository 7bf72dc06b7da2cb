"""The fingerprint of a service's code: another one never replays a log, it upgrades (I6).

Everything a handler's result may depend on, beside the log: what the author's source files mean (`syntax_tree`), the
interpreter, those of its flags that change what code does (-O), versions of the packages they import, time-zone data
where zones other than UTC are used, the limits that decide what is kept or refused in a turn, numbers of shards above
one (by which turns find whom they send to), and the processor's features when numpy is among the packages (it chooses
its arithmetic by them). Each part is named, so that a difference can be told: "bank.service changed (file
bank/service.py)".

Releases before this one described the same code in another way: sources by their bytes, time-zone data always. Logs
carry fingerprints of both ways, so a `Description` gives both, and code is that of a log whose fingerprint equals
either.

Guarantees: 16 bytes, equal exactly when all parts are. Does not: look at data files the author reads.
"""

from __future__ import annotations

import hashlib
import platform
import sys
import zoneinfo
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.ids import Fingerprint
from deathless.base.limits import REPLICATED, Limits
from deathless.base.shards import Sharding
from deathless.execution.author.service import Service
from deathless.shell.service_code.sources import Code, code_of
from deathless.shell.service_code.syntax_tree import bytes_hash, source_hash

SEMANTICS = "4"
"""Raised when the executor gives other bytes for the same messages than before."""
ACCEPTS: Final = ".1"
"""Behind it for code with `accepts`: builds before did not call its functions for what comes behind the cut."""
DESCRIPTION: Final = "description"
"""The part that says in which way code is described; it is missing where that is the first way."""
SOURCE: Final = "source "
ZONES: Final = "time zones"
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


def describe_code(service: Service) -> dict[str, str]:
    """Give every part that the code brings by name, sorted.

    Raises: InvalidService when a source file can't be read.
    """
    return _code_parts(code_of(service))


def _code_parts(code: Code) -> dict[str, str]:
    parts = {f"{SOURCE}{name}": source_hash(code.source(name)) for name in code.files}
    parts |= _beside_sources(code)
    parts[DESCRIPTION] = "2"
    if code.zones:
        parts[ZONES] = _time_zones()
    return dict(sorted(parts.items()))


def _former_code_parts(code: Code) -> dict[str, str]:
    """Give the parts as releases before this one did; not a letter of it may change."""
    parts = {f"{SOURCE}{name}": bytes_hash(code.source(name)) for name in code.files}
    parts |= _beside_sources(code)
    parts[ZONES] = _time_zones()
    return dict(sorted(parts.items()))


def _beside_sources(code: Code) -> dict[str, str]:
    parts = {f"library {name}": version for name, version in code.versions.items()}
    parts["interpreter"] = f"{sys.implementation.name} {platform.python_version()}"
    parts["machine"] = f"{platform.machine()} {sys.byteorder}-endian"
    parts["executor"] = SEMANTICS + (ACCEPTS if code.accepts else "")
    if flags := _flags():
        parts["interpreter flags"] = flags
    if "numpy" in code.versions:
        parts[PROCESSOR] = _processor()
    return parts


def describe(service: Service, limits: Limits, sharding: Sharding | None = None) -> Description:
    """Give every part in both ways: the code's, the limits that are part of it, and numbers of shards.

    Raises: InvalidService when a source file can't be read.
    """
    code = code_of(service)
    set_up = {f"limit {name}": str(getattr(limits, name)) for name in REPLICATED} | (sharding or Sharding()).parts()
    return Description(_code_parts(code) | set_up, _former_code_parts(code) | set_up, dict(code.files))


def fingerprint(service: Service, limits: Limits, sharding: Sharding | None = None) -> Fingerprint:
    """Give the 16 bytes that stand for all parts."""
    return describe(service, limits, sharding).fingerprint


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


def _flags() -> str:
    """Give what the interpreter was told that changes what handlers do; empty where it was told nothing of the kind.

    Without assertions a handler takes what it refused before; with warnings as errors it refuses what it took. The hash
    seed, the locale and UTF-8 are set by the supervisor, the same for all.
    """
    told = {
        "optimize": sys.flags.optimize,
        "int_max_str_digits": sys.get_int_max_str_digits() - sys.int_info.default_max_str_digits,
        "bytes_warning": sys.flags.bytes_warning,
        "warnings as errors": ",".join(each for each in sys.warnoptions if each.startswith("error")),
    }
    return ", ".join(f"{name} {value}" for name, value in told.items() if value)


def _time_zones(folders: tuple[str, ...] = zoneinfo.TZPATH) -> str:
    """Version of the time-zone data; the system's comes before the package, as for `zoneinfo`."""
    for folder in folders:
        source = Path(folder) / "tzdata.zi"
        if source.is_file():
            return f"system {bytes_hash(source.read_bytes())}"
        version = Path(folder) / "+VERSION"
        if version.is_file():
            return f"system {version.read_text().strip()}"
    try:
        return f"package {metadata.version('tzdata')}"
    except metadata.PackageNotFoundError:
        return "none"


def _processor(information: str = "/proc/cpuinfo") -> str:
    """Hash of the processor's features."""
    features = processor_features(information)
    return platform.processor() or "unknown" if features is None else bytes_hash(" ".join(features).encode())


def processor_features(information: str = "/proc/cpuinfo") -> list[str] | None:
    """Give the processor's features, sorted; None: the system does not tell."""
    try:
        lines = Path(information).read_text().splitlines()
    except OSError:
        return None
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return sorted(features.partition(":")[2].split())
