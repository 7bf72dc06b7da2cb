"""Asks a service's primary: the one that knows all of a shard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from deathless.base.errors import NotPrimary

if TYPE_CHECKING:
    from deathless.shell.operate.target import Target


async def ask_primary(found: Target, command: str, arguments: dict[str, str] | None = None) -> dict[str, object]:
    """Send a command to the primary's worker.

    Raises: NotPrimary when none is known; PeerUnreachable, also where nothing of the service runs; what the primary
    refuses with.
    """
    from deathless.shell.net.admin_call import ask
    from deathless.shell.operate.down import why_down
    from deathless.shell.operate.status import look

    view = await look(found.directory, found.access)
    primary = view.of(view.primary)
    if primary is None or not primary.client:
        if (down := await why_down(found)) is not None:
            raise down
        raise NotPrimary(f"{view.service} has no primary now", remedy="see `deathless status`")
    return await ask(primary.client, command, found.access, arguments)
