"""Describes an author's code in a process of its own, which imports it: who asks keeps running whatever that code does.

Guarantees: an answer, or the error that loading it raises. Does not: say which code is the right one.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.topics.settings import check_kept
from deathless.shell.service_code.description import Description
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.loading import load_configured
from deathless.shell.service_code.separate_process import Reports, answer, ask

MODULE: Final = "deathless.shell.service_code.code_process"


class _Answer(msgspec.Struct):
    """What the process that looked into the code says."""

    parts: dict[str, str]
    former: dict[str, str]
    files: dict[str, str]


def describe_code_of(config: ReplicaConfig, environment: Mapping[str, str], *, bounded: bool = True) -> Description:
    """Describe the code of a config in a process of its own, which imports it.

    What the author's module prints at its import is dropped: it stands in the replicas' logs.

    Args:
        config: names the code.
        environment: of that process, the whole of it.
        bounded: the import may take so long, see `ask`.

    Raises: what loading it raises; CodeEndedProcess, ImportNotEnded.
    """
    told = {**environment, "TZ": "UTC", "LC_ALL": "C.UTF-8", "PYTHONUNBUFFERED": "1"}
    data = ask(MODULE, msgspec.json.encode(config), told, code=config.module, bounded=bounded)
    found = msgspec.json.decode(data, type=_Answer)
    files = {name: Path(path) for name, path in found.files.items()}
    return Description(found.parts, found.former, files)


def _described(order: bytes, reports: Reports) -> bytes:
    config = msgspec.json.decode(order, type=ReplicaConfig)
    service = load_configured(config)
    reports.imported()
    check_kept([*service.topics], config.drivers)
    code = describe(service, config.make_limits(), config.sharding)
    return msgspec.json.encode(_Answer(code.parts, code.former, {name: str(path) for name, path in code.files.items()}))


if __name__ == "__main__":
    answer(_described, "reading the code")
