"""Peers that are measured in turns with ours, and the programs that some of them need.

A peer is one function that starts it, measures and ends it, so nothing of it runs during ours. One that is missing, or
that breaks, costs its column alone, and the figure's note says why.

Guarantees: a program appears in the cache (below $XDG_CACHE_HOME/deathless, as those of tools/) under its final name
only when complete, and is fetched once, by the ordinary clients of Go and npm. Does not: tune a peer.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from bench.figures import median
from bench.setting import Setting
from deathless.shell.process.forked import die_with_parent

ROOT: Final = Path(__file__).resolve().parents[2]
BUILD_S: Final = 900.0
TURN_S: Final = 300.0  # for one turn of one peer, with its start

Measure = Callable[[], Awaitable[float]]


class Peer(NamedTuple):
    """How one is measured: started, measured and ended."""

    measure: Measure
    fetch: Callable[[], Path] | None = None  # its program, once, before its first turn


class Missing(Exception):
    """A peer is not to be had here; the message says why."""


class Turns:
    """What peers reached, turn by turn.

    Args:
        setting: the run.
        peers: how each is measured, by the name it has on the page.
    """

    def __init__(self, setting: Setting, peers: Mapping[str, Peer]) -> None:
        self._setting = setting
        self._peers = peers if setting.peers else {}
        self._reached: dict[str, list[float]] = {name: [] for name in self._peers}
        self._why: dict[str, str] = {}

    async def take(self) -> None:
        """One turn of each that is not known to be missing."""
        for name, peer in self._peers.items():
            if name in self._why:
                continue
            try:
                if peer.fetch is not None:
                    await asyncio.to_thread(peer.fetch)
                async with asyncio.timeout(TURN_S):
                    self._reached[name].append(await peer.measure())
            except Exception as error:  # noqa: BLE001  a peer that breaks must not cost our own figure
                told = " ".join(str(error).split()) or type(error).__name__
                self._why[name] = f"{name} left out: {told[-300:]}"
                self._setting.say(f"  {self._why[name]}")

    def values(self) -> dict[str, float | None]:
        """The median of each; None: missing."""
        return {name: median(each) if each and name not in self._why else None for name, each in self._reached.items()}

    def note(self) -> str:
        """Why some are missing, to be put behind a note; empty: none is."""
        return "".join(f"; {why}" for why in self._why.values())


def cached(name: str, version: str, program: str, fetch: Callable[[Path], None]) -> Path:
    """A program of the cache, fetched first where it is missing.

    Args:
        name: of the folder, with the version.
        version: as the registry names it.
        program: path of the program in the folder.
        fetch: fills an empty folder.

    Raises:
        Missing: it cannot be fetched.
    """
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    target = Path(base) / "deathless" / f"{name}-{version}"
    if not (target / program).is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="build-", dir=target.parent) as scratch:
            folder = Path(scratch) / "whole"
            folder.mkdir()
            fetch(folder)
            if not (folder / program).is_file():
                raise Missing(f"its package has no {program}")
            shutil.rmtree(target, ignore_errors=True)
            folder.rename(target)
    return target / program


def run(*command: str, **environment: str) -> None:
    """Run a client of a registry. Raises: Missing with what it said."""
    if shutil.which(command[0]) is None:
        raise Missing(f"no `{command[0]}` on the search path to fetch it with")
    try:
        done = subprocess.run(
            command, env=os.environ | environment, capture_output=True, text=True, timeout=BUILD_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise Missing(f"{' '.join(command)}: no end within {BUILD_S:g} s") from None
    if done.returncode != 0:
        raise Missing(f"{' '.join(command)}: {done.stderr.strip()[-200:]}")


async def start(*command: str, log: Path, piped: bool = False, **environment: str) -> asyncio.subprocess.Process:
    """Start a process of a peer; what it writes goes to `log`, but for its output where that is `piped`."""
    with log.open("ab") as file:
        return await asyncio.create_subprocess_exec(
            *command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE if piped else file, stderr=file, cwd=ROOT,
            env=os.environ | environment, preexec_fn=die_with_parent,
        )  # fmt: skip


async def start_module(*arguments: str, log: Path) -> tuple[asyncio.subprocess.Process, str]:
    """Start a module of the bench in a process; gives its first line too. Raises: Missing: there is none."""
    process = await start(sys.executable, "-m", *arguments, log=log, piped=True)
    assert process.stdout is not None
    line = (await process.stdout.readline()).decode().strip()
    if not line:
        await end(process)
        raise Missing(f"{arguments[0]} did not start: {tail(log)}")
    return process, line


async def end(*processes: asyncio.subprocess.Process) -> None:
    """Kill processes that may have ended."""
    for process in processes:
        if process.returncode is None:
            process.kill()
        await process.wait()


def tail(log: Path) -> str:
    """The end of a log in one line."""
    return " ".join(log.read_text(errors="replace").split())[-200:]
