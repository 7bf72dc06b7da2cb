"""Which instance of a replica is the later one, when files and processes do not agree: asked on the volume they share.

A pod whose replacement has started must not start again. But a control plane that was put back to an older state
brings the former pod back, and ends the later one: then the volume knows a later instance that will never run again.
The former one asks, and whoever lives answers within its next look at members/:

    replicas/<r>/asks.<instance>      the former: does a later one run?
    replicas/<r>/denied.<instance>    the later, which renames it: yes. The former ends, as its pod should
    no answer for UNANSWERED_S        the former takes a number above all, and is the later one from there on

The volume is asked and no port, since a pod that is cut off reaches no port of its replacement, and both have the
volume. And it alone is believed: members/ and what another replica answers may say what is not so.

Guarantees: an instance is never held, or kept from starting, by a text that a file or a connection claims alone. Does
not: make anything safe (the epoch does). Imports shell.directory.instance.
"""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import Final

from deathless.base.errors import OtherSupervisor
from deathless.shell.directory.instance import standing_instances, take_generation

UNANSWERED_S: Final = 10.0  # twenty looks of an instance that lives, and what a pod takes to be moved is longer
LOOK_S: Final = 0.1


async def take_generation_after(folder: Path, replica: str, instance: str) -> int:
    """As `take_generation`, but ask a later instance that stands there whether it runs.

    Raises: OtherSupervisor when it does; as `take_generation`.
    """
    try:
        return take_generation(folder, replica, instance)
    except OtherSupervisor:
        if not await _unanswered(folder, instance):
            raise
        return take_generation(folder, replica, instance, anew=True)


async def _unanswered(folder: Path, instance: str) -> bool:
    """Ask, and wait; False as soon as a later instance has answered."""
    asks, denied = folder / f"asks.{instance}", folder / f"denied.{instance}"
    loop = asyncio.get_running_loop()
    denied.unlink(missing_ok=True)
    asks.write_bytes(b"")
    deadline = loop.time() + UNANSWERED_S
    try:
        while loop.time() < deadline:
            if denied.exists():
                return False
            await asyncio.sleep(LOOK_S)
        return not denied.exists()
    finally:
        for path in (asks, denied):
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)


def answer(folder: Path, instance: str) -> None:
    """Say that we run, if we are the latest instance and a former one asks; it goes on asking where that fails."""
    with contextlib.suppress(OSError):
        for path in folder.glob("asks.*"):
            if path.name != f"asks.{instance}" and later_than(folder, instance) is None:
                path.rename(folder / f"denied.{path.name.removeprefix('asks.')}")


def later_than(folder: Path, instance: str) -> str | None:
    """Give the latest instance, if that is not this one; None as well where instances don't count or can't be read."""
    try:
        standing = standing_instances(folder) if instance else {}
    except OSError:
        return None
    latest = standing.get(max(standing, default=0), instance)
    return latest if latest not in (instance, "") else None
