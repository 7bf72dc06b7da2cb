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
from deathless.base.config import ReplicaConfig
from deathless.shell.client.shard_client import Client
from deathless.shell.link.config_file import read_config
from deathless.shell.lock_stores.inspection import inspect
from deathless.shell.net.admin_call import access_of
from deathless.shell.operate.runner import running_supervisor
from deathless.shell.operate.status import ServiceView, look

SERVICES: Final = Path(__file__).resolve().parents[2] / "services"
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

    def _config(self) -> ReplicaConfig:
        """Of one replica, as it was started."""
        return read_config(str(min((self.directory / "replicas").glob("*/config.json"))))

    async def _view(self) -> ServiceView:
        return await look(self.directory, access_of(self._config()))

    async def primary(self) -> str:
        """Where the one that leads listens to clients."""
        view = await self._view()
        return next(each.client for each in view.replicas if each.role == "primary")

    async def follower(self) -> int:
        """Process id of the supervisor of a replica that does not lead."""
        view = await self._view()
        name = next(each.replica for each in view.replicas if each.role != "primary")
        return running_supervisor(self.directory / "replicas" / name)

    async def upgraders(self) -> list[int]:
        """Process ids of the upgraders' supervisors, then of their workers."""
        paths = sorted(each.parent for each in (self.directory / "replicas").glob("*/config.json"))
        names = [each.name for each in paths if read_config(str(each / "config.json")).upgrade is not None]
        view = await self._view()
        workers = [found.worker_pid for name in names if (found := view.of(name)) is not None and found.worker_pid]
        return [*(running_supervisor(self.directory / "replicas" / name) for name in names), *workers]

    async def epoch(self) -> int:
        """The highest epoch that was taken."""
        return (await inspect(self._config())).view.epoch

    async def generation(self) -> int:
        """Of the code that serves."""
        found = await inspect(self._config())
        return found.reader.routes.cut(found.view.head).generation

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
    rounds, keys, suspended = setting.size(5, 1), setting.size(KEYS, 200), setting.size(SUSPENDED, 10)
    found = [await _round(setting, keys, suspended) for _ in range(rounds)]
    problem = next((each.problem for each in found if each.problem), "")
    up, back = [each.up for each in found], [each.back for each in found if each.back is not None]
    size = f"{keys:,} keys, each migrated, {suspended:,} handlers waiting"
    said = problem or "no call failed, none lost or doubled"
    off = len(found) - len(back)
    backs = problem or ("" if not off else f"called off {off} of {len(found)} times, since it was not made within 10 s")
    return [
        figure(
            "upgrade_p50_ms", f"live upgrade of {size}: longest wait of a client, p50",
            None if problem else median(up), "ms", samples=rounds, goal=Goal("at most", 200), note=said,
        ),
        figure(
            "upgrade_worst_ms", f"the same, worst of {rounds}", None if problem else max(up), "ms",
            samples=rounds, goal=Goal("at most", 500),
        ),
        figure(
            "back_out_p50_ms", "back to the code of before, p50", None if problem or not back else median(back), "ms",
            samples=len(back), goal=Goal("at most", 200), note=backs,
        ),
        figure(
            "back_out_worst_ms", f"the same, worst of {len(back)}", None if problem or not back else max(back), "ms",
            samples=len(back), goal=Goal("at most", 500), note="" if back else backs,
        ),
    ]  # fmt: skip
