"""A real supervisor in this process's loop, whose worker and ingress are scripts that do what a test needs."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from textwrap import dedent

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.shell.link.settings_file import SettingsFile
from deathless.shell.link.status_page import page_path
from deathless.shell.supervisor.supervisor import Supervisor

START = """
import mmap, os, signal, socket, struct, sys, time
line = socket.socket(fileno=int(sys.argv[1]))
page = memoryview(mmap.mmap(os.open(sys.argv[2], os.O_RDWR), 128)).cast("Q")
starts = sys.argv[3]
count = len(open(starts).read()) if os.path.exists(starts) else 0
open(starts, "a").write("x")
def say(text):
    line.sendall(text.encode() + b"\\n")
def role(name, epoch=0):
    say('{"type":"role-is","role":"%s","epoch":%d,"reason":"","lsn":0}' % (name, epoch))
def stopping(code):
    say('{"type":"stopping","code":"%s","text":"%s so"}' % (code, code))
"""
"""What every worker's script begins with: its line, its page, and how often it was started before."""

TICKING = """
role("standby")
line.setblocking(False)
while True:
    page[3] += 1
    try:
        order = line.recv(4096)
        if not order: os._exit(1)
        if b'"stop"' in order: {told}
    except BlockingIOError: time.sleep(0.01)
"""
"""A worker that gets on; `told` is what it does with an order."""


class ScriptedSupervisor(Supervisor):
    """Its worker and ingress are scripts."""

    worker_script = ""
    ingress_script = ""

    def worker_command(self, descriptor: int) -> list[str]:
        """See the base class."""
        page = page_path(self.config.directory, self.config.replica, instance=self.config.instance)
        starts = str(self.folder / "starts")
        return [sys.executable, "-S", "-c", START + dedent(self.worker_script), str(descriptor), page, starts]

    def ingress_command(self) -> list[str]:
        """See the base class."""
        return [sys.executable, "-S", "-c", dedent(self.ingress_script), str(self.folder)]


def config_in(folder: Path, **settings: object) -> ReplicaConfig:
    """A replica's config below a folder."""
    fields = {"service": "bank", "module": "nothing:at_all", "directory": str(folder), "replica": "r0", **settings}
    return msgspec.convert(fields, ReplicaConfig)


def supervised(
    folder: Path,
    worker: str,
    look: Callable[[ScriptedSupervisor], Awaitable[None]],
    *,
    ingress: str = "",
    shared: SettingsFile | None = None,
    **settings: object,
) -> ScriptedSupervisor:
    """Run a supervisor while `look` looks at it, then stop it in order; gives it."""

    async def main() -> ScriptedSupervisor:
        supervisor = ScriptedSupervisor(config_in(folder, **settings), "unused", settings=shared)
        supervisor.worker_script, supervisor.ingress_script = worker, ingress
        running = asyncio.create_task(supervisor.run())
        async with asyncio.timeout(15):
            try:
                await look(supervisor)
                supervisor.order_stop()
            except BaseException:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                raise
            assert await running == 0
        return supervisor

    found = asyncio.run(main())
    Path(page_path(found.config.directory, found.config.replica, instance=found.config.instance)).unlink(
        missing_ok=True
    )
    return found


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    while not condition():  # noqa: ASYNC110  nothing there can be waited on
        await asyncio.sleep(0)


def nothing(supervisor: ScriptedSupervisor) -> Coroutine[object, object, None]:
    """Look at nothing but the start."""
    return until(lambda: supervisor.worker.process)
