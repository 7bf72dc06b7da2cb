"""What the process of a sink and that of a source have in common: it lives beside a replica, and hears how that stands.

    python -m MODULE CONFIG.json NAME DESCRIPTOR PARENT

Guarantees: it ends with its supervisor, with its parent and at SIGTERM, in order. Does not: know what the process does.
Imports this folder and the shell's process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Awaitable, Callable
from typing import Final, Protocol

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, Internal
from deathless.shell.link.config_file import read_config
from deathless.shell.link.orders import LineProtocol
from deathless.shell.link.standing import Standing
from deathless.shell.process.event_loop import is_broken_link
from deathless.shell.process.forked import die_with_parent
from deathless.shell.process.logs import configure

PRIMARY: Final = "primary"


class SideProcess(Protocol):
    """What such a process does."""

    async def start(self) -> None:
        """Listen for who asks how it is."""
        ...

    def told(self, record: object) -> None:
        """The supervisor says how the replica stands."""
        ...

    async def run(self) -> None:
        """Work until it is cancelled."""
        ...


def led_epoch(standing: Standing | None) -> int:
    """Give the epoch in which the replica leads and may reach the outside; 0: it does not, or has not said."""
    return 0 if standing is None or standing.outside_held else primary_epoch(standing)


def primary_epoch(standing: Standing) -> int:
    """Give the epoch in which the replica leads; 0: it does not, or has not said."""
    return standing.epoch if standing.role == PRIMARY and standing.service_id else 0


async def keep_beside(
    process: SideProcess,
    pair: socket.socket,
    begun: Callable[[], object],
    attached: Callable[[Callable[[msgspec.Struct], None]], object] = lambda _: None,
    callback_failed: Callable[[DeathlessError], object] | None = None,
) -> None:
    """Have a process work until the supervisor is gone, or SIGTERM.

    Args:
        process: not started yet.
        pair: our end of the line from the supervisor.
        begun: told that it works.
        attached: given what sends a record to the supervisor, before the process works.
        callback_failed: told of what no callback of the loop caught, but for connections that are lost; None: it is
            logged, and nothing else.

    Raises: as its `start` and `run`.
    """
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    if callback_failed is not None:
        loop.set_exception_handler(lambda _, context: _failed(context, callback_failed))
    await process.start()
    pair.setblocking(False)
    line = LineProtocol(Standing, process.told, ended.set)
    await loop.create_connection(lambda: line, sock=pair)
    attached(line.send)
    begun()
    work = loop.create_task(process.run(), name="side process")
    stop = loop.create_task(ended.wait())
    await asyncio.wait([work, stop], return_when=asyncio.FIRST_COMPLETED)
    stop.cancel()
    work.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await work
    line.close()
    await asyncio.sleep(0)


def _failed(context: dict[str, object], tell: Callable[[DeathlessError], object]) -> None:
    """Take in what the loop reports."""
    error = context.get("exception")
    if not is_broken_link(context):
        tell(error if isinstance(error, DeathlessError) else Internal(f"{context.get('message')}: {error!r}"))


def run_beside(
    arguments: list[str],
    what: str,
    log: logging.Logger,
    serve: Callable[[ReplicaConfig, str, socket.socket], Awaitable[None]],
) -> int:
    """Run such a process; gives its exit code.

    Args:
        arguments: of the command line, see the module.
        what: it is, for people.
        log: its own.
        serve: works until it is to end.
    """
    path, name, descriptor, parent = arguments
    die_with_parent(int(parent))
    config = read_config(path)
    configure(config.log_level, config.replica, f"{what} {name}")

    async def work() -> None:
        await serve(config, name, socket.socket(fileno=int(descriptor)))

    try:
        asyncio.run(work())
    except DeathlessError as error:
        log.error("it stops", extra={"what": what, "code": error.code, "why": str(error)})  # noqa: TRY400  it says all
        return error.exit_code
    return 0
