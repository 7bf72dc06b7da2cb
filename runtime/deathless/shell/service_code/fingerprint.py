"""The fingerprint of a service's code: another one never replays a log, it upgrades (I6).

Everything a handler's result may depend on, beside the log: the author's source files, the interpreter, those of its
flags that change what code does (-O), versions of the packages they import, time-zone data, the limits that decide what
is kept or refused in a turn, numbers of shards above one (by which turns find whom they send to), and the processor's
features when numpy is among the packages (it chooses its arithmetic by them). Each part is named, so that a difference
can be told: "source bank.service changed".

Guarantees: 16 bytes, equal exactly when all parts are. Does not: look at data files the author reads.
"""

from __future__ import annotations

import hashlib
import platform
import sys
import zoneinfo
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

import msgspec

from deathless.base.ids import Fingerprint
from deathless.base.limits import REPLICATED, Limits
from deathless.base.shards import Sharding
from deathless.execution.author.service import Service
from deathless.shell.service_code.sources import code_of

SEMANTICS = "4"
"""Raised when the executor gives other bytes for the same messages than before."""


def describe_code(service: Service) -> dict[str, str]:
    """Give every part that the code brings by name, sorted.

    Raises: InvalidService when a source file can't be read.
    """
    code = code_of(service)
    parts = {f"source {name}": _hash(path.read_bytes()) for name, path in code.files.items()}
    parts |= {f"library {name}": version for name, version in code.versions.items()}
    parts["interpreter"] = f"{sys.implementation.name} {platform.python_version()}"
    parts["machine"] = f"{platform.machine()} {sys.byteorder}-endian"
    parts["executor"] = SEMANTICS
    parts["time zones"] = _time_zones()
    if flags := _flags():
        parts["interpreter flags"] = flags
    if "numpy" in code.versions:
        parts["processor"] = _processor()
    return dict(sorted(parts.items()))


def describe(service: Service, limits: Limits, sharding: Sharding | None = None) -> dict[str, str]:
    """Give every part by name: the code's, the limits that are part of it, and numbers of shards."""
    parts = describe_code(service) | {f"limit {name}": str(getattr(limits, name)) for name in REPLICATED}
    return parts | (sharding or Sharding()).parts()


def fingerprint(service: Service, limits: Limits, sharding: Sharding | None = None) -> Fingerprint:
    """Give the 16 bytes that stand for all parts."""
    return fingerprint_of(describe(service, limits, sharding))


def fingerprint_of(parts: Mapping[str, str]) -> Fingerprint:
    """Give the 16 bytes for parts that `describe` gave, here or elsewhere."""
    encoded = msgspec.msgpack.encode(sorted(parts.items()))
    return Fingerprint(hashlib.blake2b(encoded, digest_size=16).digest())


def differences(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Name each part that differs, one sentence each; none when the fingerprints are equal."""
    said = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None:
            said.append(f"{name} is new ({new})")
        elif new is None:
            said.append(f"{name} is gone (was {old})")
        elif old != new:
            said.append(f"{name} changed from {old} to {new}")
    return said


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


def _hash(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _time_zones(folders: tuple[str, ...] = zoneinfo.TZPATH) -> str:
    """Version of the time-zone data; the system's comes before the package, as for `zoneinfo`."""
    for folder in folders:
        source = Path(folder) / "tzdata.zi"
        if source.is_file():
            return f"system {_hash(source.read_bytes())}"
        version = Path(folder) / "+VERSION"
        if version.is_file():
            return f"system {version.read_text().strip()}"
    try:
        return f"package {metadata.version('tzdata')}"
    except metadata.PackageNotFoundError:
        return "none"


def _processor(information: str = "/proc/cpuinfo") -> str:
    """Hash of the processor's features."""
    try:
        lines = Path(information).read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return _hash(" ".join(sorted(features.partition(":")[2].split())).encode())
