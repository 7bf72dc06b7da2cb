"""Runs a recorded log against the working tree, in a test: `replay("tests/bank-log", bank)`.

A recorded log is the folder of a service that `deathless up` ran, or a copy of it, taken while the service ran or not.
Every message is run again by the code as it stands, in a fresh process with the service's own hash seed, and compared
with the digest that was logged.

Guarantees: nothing in the folder is changed. Does not: know what a handler gave then where no checkpoint holds it: the
log keeps checksums. The lock store must be in the folder, as it is on one machine. Imports the shell's replay.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidArgument, InvalidUse
from deathless.execution.author.service import Service
from deathless.shell.operate.replay import ReplayOrder, ReplayResult
from deathless.shell.operate.replay import replay as replay_in_process

LOG: Final = "log"


def replay(
    folder: str | os.PathLike[str],
    service: Service,
    *,
    to: int | None = None,
    limits: dict[str, int | float] | None = None,
) -> ReplayResult:
    """Run a recorded log again with the code as it stands.

    Args:
        folder: of the service, or a copy of it; the folder of one shard where it has several.
        service: as its module, or the test's own, has it under a name.
        to: lsn of the last message that is run; None: of the last confirmed one.
        limits: that the service ran with, where its manifest sets some.

    Returns: what was run: `messages`, `lsn`, `keys`.
    Raises: Diverged with lsn, handler and key of the first difference, what it gives here, and what a checkpoint holds;
        InvalidArgument for a folder that holds no log; InvalidUse for a service that no module has; DataCorrupt.
    """
    path = Path(folder)
    if not (path / LOG).is_dir():
        raise InvalidArgument(f"{path} holds no log", remedy="give the folder that holds `log` and `lock`")
    module, root = _where(service)
    config = ReplicaConfig(
        service=service.name, module=module, directory=str(path.resolve()), replica="r0", limits=limits or {}
    )
    order = ReplayOrder(oldest=True, to=to, any_code=True, folder=root)
    result = asyncio.run(replay_in_process(config, order))
    return msgspec.structs.replace(result, notes=[note for note in result.notes if not note.startswith("this code")])


def _where(service: Service) -> tuple[str, str]:
    """Give a service as "module:attribute", and the folder from which the module is found. Raises: InvalidUse."""
    for module in _modules(service):
        name = next((name for name, value in vars(module).items() if value is service), None)
        file = getattr(module, "__file__", None)
        if name is None or file is None:
            continue
        path = Path(file).resolve()
        inside = getattr(module, "__package__", "") or ""
        if not inside:
            return f"{path}:{name}", str(path.parent)
        depth = inside.count(".") + 1
        return f"{module.__name__}:{name}", str(path.parents[depth])
    raise InvalidUse(f"no module has service {service.name} under a name", remedy="define it at the top of its module")


def _modules(service: Service) -> list[ModuleType]:
    """Give the modules that may have a service: those of its functions first."""
    names = [function.__module__ for function in service.functions]
    first = [sys.modules[name] for name in dict.fromkeys(names) if name in sys.modules]
    return [*first, *(module for module in list(sys.modules.values()) if module not in first)]
