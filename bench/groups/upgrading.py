"""Other code for a service that serves: seconds without service as clients see them, with a large state.

A service is begun by `deathless up`, filled, and upgraded by `deathless upgrade` while clients call without a pause;
then it goes back. Each round takes a service of its own, since the first upgrade of a service is what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from bench.figures import Figure, Goal, figure, median
from bench.groups.takeover import Callers
from bench.setting import Setting
from deathless.shell.client.shard_client import Client

SERVICES: Final = Path(__file__).resolve().parents[1] / "services"
KEYS: Final = 1_000_000
SUSPENDED: Final = 10_000
WINDOW: Final = 2000
NOTE: Final = "x"
COMMAND_S: Final = 900.0
SETTLE_S: Final = 0.5


class Upgraded:
    """One service in a folder of its own.

    Args:
        folder: empty.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.directory = folder / "data"
        self._address = f"dir:{self.directory}"
        (folder / "service.yaml").write_text(
            "apiVersion: deathless.dev/v1alpha1\n"
            "kind: DeathlessService\n"
            "metadata: {name: bench}\n"
            f"spec: {{module: '{SERVICES / 'accounts_1.py'}:bench', replicas: 2, logStorage: {{path: data}}}}\n"
        )

    @property
    def address(self) -> str:
        """What clients are given."""
        return self._address

    async def run(self, *arguments: str) -> bytes:
        """Give what a command prints. Raises: RuntimeError with its errors."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "deathless.cli.main", *arguments,
            cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        output, errors = await asyncio.wait_for(process.communicate(), COMMAND_S)
        if process.returncode:
            raise RuntimeError(f"deathless {' '.join(arguments)}: {errors.decode(errors='replace')[-500:]}")
        return output

    async def fill(self, keys: int, suspended: int) -> None:
        """Give each key a state, and have so many others wait."""
        client = Client("bench", [self._address])
        client.start()
        await client.ready()
        try:
            for at in range(0, keys, WINDOW):
                numbers = range(at, min(at + WINDOW, keys))
                calls = [client.call("add", f"key{number}", amount=1, note=NOTE, timeout=None) for number in numbers]
                await asyncio.gather(*calls)
            for at in range(0, suspended, 100):
                await client.call("suspend", "all", first=at, count=min(100, suspended - at))
        finally:
            await client.close()


class _Round(msgspec.Struct):
    """What one service gave, milliseconds."""

    up: float
    back: float | None  # None: it was called off
    problem: str


async def _round(setting: Setting, keys: int, suspended: int) -> _Round:
    service = Upgraded(setting.new_folder())
    await service.run("up", "--detach", "service.yaml")
    try:
        await service.fill(keys, suspended)
        async with Callers(service) as callers:
            await asyncio.sleep(SETTLE_S)
            since = time.perf_counter()
            await service.run("upgrade", "--to", f"{SERVICES / 'accounts_2.py'}:bench", "--json")
            up, back = await callers.gap_ms(since), None
            since = time.perf_counter()
            with contextlib.suppress(RuntimeError):  # it is called off where what is left for the cut takes too long
                await service.run("upgrade", "back-out", "--json")
                back = await callers.gap_ms(since)
            return _Round(up, back, await callers.finish())
    finally:
        await service.run("down")


async def upgrade(setting: Setting) -> list[Figure]:
    """An upgrade that migrates each state, and the way back."""
    rounds, keys, suspended = setting.size(3, 1), setting.size(KEYS, 200), setting.size(SUSPENDED, 10)
    found = [await _round(setting, keys, suspended) for _ in range(rounds)]
    problem = next((each.problem for each in found if each.problem), "")
    up, back = [each.up for each in found], [each.back for each in found if each.back is not None]
    note = problem or f"worst {max(up):,.0f} ms; no call failed, none lost or doubled"
    return [
        figure(
            "upgrade_p50_ms", f"live upgrade of {keys:,} keys, each migrated, {suspended:,} handlers waiting: "
            "longest wait of a client, p50", None if problem else median(up), "ms",
            samples=rounds, goal=Goal("at most", 200), note=note,
        ),
        figure(
            "back_out_p50_ms", "back to the code of before, p50", None if problem or not back else median(back), "ms",
            samples=len(back), goal=Goal("at most", 200),
            note=f"worst {max(back):,.0f} ms" if back else "called off each time: not made within 10 s",
        ),
    ]  # fmt: skip
