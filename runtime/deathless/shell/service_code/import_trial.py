"""Imports a service's code into this process once another process has shown that its import ends.

For tools that need the service itself. A module that ends its process at its import, or whose import never ends, does
so to the other process, and the tool says it (separate_process).

Guarantees: as load_service. Does not: notice code that does something else at its second import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from deathless.execution.author.service import Service
from deathless.shell.service_code.loading import load_service
from deathless.shell.service_code.separate_process import Reports, answer, ask

MODULE: Final = "deathless.shell.service_code.import_trial"


class _Order(msgspec.Struct):
    target: str
    folder: str


def load_tried(target: str, folder: str | Path = ".", *, name: str = "") -> Service:
    """Import a service, as `load_service` does, here.

    Args:
        target: as for `load_service`.
        folder: likewise.
        name: likewise.

    Raises: CodeEndedProcess, ImportNotEnded; as `load_service`.
    """
    path = os.pathsep.join(os.path.abspath(each) for each in sys.path if each)
    try_import(target, folder, {**os.environ, "PYTHONPATH": path})
    return load_service(target, folder, name=name)


def try_import(target: str, folder: str | Path, environment: Mapping[str, str]) -> None:
    """Have another process import a service, and nothing else.

    Args:
        target: as for `load_service`.
        folder: likewise.
        environment: of the process, the whole of it.

    Raises: as `load_tried`.
    """
    ask(MODULE, msgspec.json.encode(_Order(target, str(folder))), environment, code=target)


def _tried(order: bytes, reports: Reports) -> bytes:
    wanted = msgspec.json.decode(order, type=_Order)
    load_service(wanted.target, wanted.folder)
    reports.imported()
    return b""


if __name__ == "__main__":
    answer(_tried, "importing the code")
