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

import platform
import sys
import zoneinfo
from importlib import metadata
from pathlib import Path
from typing import Final

from deathless.base.ids import Fingerprint
from deathless.base.limits import REPLICATED, Limits
from deathless.base.shards import Sharding
from deathless.execution.author.service import Service
from deathless.shell.service_code.description import (
    DESCRIPTION,
    PROCESSOR,
    SOURCE,
    Description,
    processor_features,
)
from deathless.shell.service_code.sources import Code, code_of
from deathless.shell.service_code.syntax_tree import bytes_hash, source_hash
from deathless.shell.service_code.text_import import check_imported

SEMANTICS = "4"
"""Raised when the executor gives other bytes for the same messages than before."""
ACCEPTS: Final = ".1"
"""Behind it for code with `accepts`: builds before did not call its functions for what comes behind the cut."""
ZONES: Final = "time zones"


def describe_code(service: Service) -> dict[str, str]:
    """Give every part that the code brings by name, sorted.

    Raises: InvalidService when a source file can't be read, or is not what was imported.
    """
    return _code_parts(_code_that_runs(service))


def _code_that_runs(service: Service) -> Code:
    code = code_of(service)
    check_imported(code.files)
    return code


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

    Raises: InvalidService when a source file can't be read, or is not what was imported.
    """
    code = _code_that_runs(service)
    set_up = {f"limit {name}": str(getattr(limits, name)) for name in REPLICATED} | (sharding or Sharding()).parts()
    return Description(_code_parts(code) | set_up, _former_code_parts(code) | set_up, dict(code.files))


def fingerprint(service: Service, limits: Limits, sharding: Sharding | None = None) -> Fingerprint:
    """Give the 16 bytes that stand for all parts."""
    return describe(service, limits, sharding).fingerprint


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
