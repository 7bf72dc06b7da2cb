"""Which code `deathless up` starts a set with: the one that runs, the one that stands there, or the one that was kept.

    some replica runs        its code and module, whatever stands in the files by now: a set runs one code
    --kept-code              the code that head's cut names, from its copy
    else                     the files as they are: described in a process of their own, compared with head's cut,
                             copied, and run from the copy
        not head's code      refused: each part that differs, and what to type

Guarantees: nothing is copied of code that is refused; where the lock store or the log can't be read just now nothing
is refused here, since the replicas look themselves before they lead or follow. Does not: import the author's code into
this process, start a replica. A copy that can't be made (a full disk, too much code) leaves the files as they are to
run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, FormerCodeMissing, InvalidConfig, UpgradeRequired
from deathless.shell.directory.adopted import read_adoption
from deathless.shell.link.config_file import config_path, read_config
from deathless.shell.lock_stores.inspection import inspect
from deathless.shell.operate.runner import running_supervisor
from deathless.shell.service_code.code_process import describe_code_of
from deathless.shell.service_code.code_record import FOLDER, what_differs
from deathless.shell.service_code.description import Description
from deathless.shell.service_code.former_command import former_command
from deathless.shell.service_code.kept_code import (
    edited_since,
    former_spellings,
    is_kept,
    keep,
    named_in,
    node_name,
    prune,
)

LOOK_S: Final = 5.0
"""A lock store that has not answered by then is not waited for: the replicas wait for it."""
TRIES: Final = 3
"""So often files are read again that are edited while they are read."""
REMEDY: Final = (
    "`deathless up --kept-code` goes on with the code that wrote the log; for the code that stands there now: "
    "`deathless upgrade` while it runs; or `deathless up --kept-code --detach`, `deathless down`, "
    "`deathless upgrade --offline`, `deathless up`"
)


@dataclass(slots=True)
class Chosen:
    """What the replicas are started with, and what is to be told about it."""

    configs: list[ReplicaConfig]
    notes: list[str] = field(default_factory=list)


def choose_code(configs: list[ReplicaConfig], environment: Mapping[str, str], *, kept: bool) -> Chosen:
    """Choose for every replica, shard by shard.

    Args:
        configs: of the whole set.
        environment: of the replicas' processes, the whole of it.
        kept: start with the code that wrote the log.

    Raises: UpgradeRequired when the files hold other code than the log's; FormerCodeMissing when the code that is to be
    run is not kept; InvalidService, InvalidConfig: the code can't be loaded.
    """
    chosen = Chosen([])
    described: Description | None = None
    for directory in dict.fromkeys(config.directory for config in configs):
        ours = [config for config in configs if config.directory == directory]
        running = _running(ours)
        if running is not None:
            code, module = running.code, running.module
            edited = edited_files(running)
            if edited:
                chosen.notes.append(f"edited since the set was started, and not used by it: {', '.join(edited)}")
        elif kept:
            code, module = _kept(ours[0], environment)
        else:
            described = described or describe_code_of(ours[0], environment)
            code, module, described = _accept(ours[0], described, environment)
        chosen.configs += [msgspec.structs.replace(config, code=code, module=module) for config in ours]
    return chosen


def edited_files(config: ReplicaConfig) -> list[str]:
    """Name files that are other ones by now than the kept code a replica runs."""
    if not config.code:
        return []
    try:
        return edited_since(Path(config.directory) / FOLDER / config.code)
    except DeathlessError:  # the replicas tell it, should they need it
        return []


def _running(configs: list[ReplicaConfig]) -> ReplicaConfig | None:
    """Give the config of a replica that runs; None: none does."""
    for config in configs:
        path = config_path(config.directory, config.replica)
        if running_supervisor(path.parent):
            try:
                return read_config(str(path))
            except InvalidConfig:  # its supervisor was started with it, and says what is wrong
                continue
    return None


def _head(config: ReplicaConfig) -> bytes:
    """Give the fingerprint that head's cut has; empty: there is no log, or it can't be read just now."""

    async def look() -> bytes:
        found = await asyncio.wait_for(inspect(config), LOOK_S)
        return found.reader.routes.cut(found.view.head).fingerprint if found.view.head else b""

    try:
        return asyncio.run(look())
    except (DeathlessError, OSError, TimeoutError):
        return b""


def _kept(config: ReplicaConfig, environment: Mapping[str, str]) -> tuple[str, str]:
    """Choose what was kept; gives its folder's name, and the module."""
    head = _head(config)
    if not head:
        raise FormerCodeMissing(
            f"{config.directory}: no log that can be read says which code wrote it", remedy="run `deathless up`"
        )
    _, folder, module = former_command(config.directory, head)
    found = msgspec.structs.replace(config, code=folder.name, module=module)
    described = describe_code_of(found, environment)
    if head not in described.spellings:
        raise _refusal(config, head, described, "the kept code is run by other libraries, interpreter or limits", "")
    return found.code, module


def _accept(
    config: ReplicaConfig, described: Description, environment: Mapping[str, str]
) -> tuple[str, str, Description]:
    """Compare the files with the log and copy them; gives the copy's name, the module, and what the files hold."""
    head = _head(config)
    for _ in range(TRIES):
        if head and head not in _meanings(config, described):
            raise _refusal(config, head, described, f"the log in {config.directory} was written by other code", REMEDY)
        if keep(config.directory, described, service=config.service, module=config.module):
            break
        before, described = described.fingerprint, describe_code_of(config, environment)
        if described.fingerprint == before:  # it was not for an edited file
            break
    prune(config.directory, lambda: _named(config))
    fingerprint = described.fingerprint
    return fingerprint.hex() if is_kept(config.directory, fingerprint) else "", config.module, described


def _named(config: ReplicaConfig) -> Collection[bytes] | None:
    try:
        look = asyncio.run(asyncio.wait_for(inspect(config), LOOK_S))
    except (DeathlessError, OSError, TimeoutError):
        return None
    return named_in(look.filesystem, look.view.head)


def _meanings(config: ReplicaConfig, described: Description) -> frozenset[bytes]:
    """Give the fingerprints with which this code may go on: its own, and those an operator accepted."""
    accepted = frozenset(fingerprint for fingerprint, _ in read_adoption(config.directory).code_pairs)
    return described.spellings | former_spellings(config.directory, described) | accepted


def _refusal(config: ReplicaConfig, head: bytes, described: Description, what: str, remedy: str) -> UpgradeRequired:
    told = what_differs(config.directory, head, described, node_name())
    return UpgradeRequired(f"{what}{': ' if told else ''}{told}", remedy=remedy or None)
