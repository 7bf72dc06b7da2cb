"""How the program of a service is started: as its manifest says, or another program in its place.

Does not: start anything. Imports base, and the settings of the shell's applications.
"""

from __future__ import annotations

from deathless.base.config import BindingConfig
from deathless.base.foreign.binding import message_bytes
from deathless.base.limits import Limits
from deathless.protocols.ambrosia.patience import Patience
from deathless.shell.foreign.application import ApplicationSettings


def settings_of(
    binding: BindingConfig, limits: Limits, replica: str, *, purpose: str = "serve", command: tuple[str, ...] = ()
) -> ApplicationSettings:
    """Say how it is started.

    Args:
        binding: of the service.
        limits: of the service.
        replica: that it belongs to.
        purpose: what it is started for: serve, replay or rehearsal.
        command: in the place of the binding's; empty: that.
    """
    return ApplicationSettings(
        command=command or binding.command,
        instance=binding.instance,
        replica=replica,
        purpose=purpose,
        folder=binding.folder,
        environment=binding.environment,
        message_bytes_max=message_bytes(limits),
        patience=Patience(
            connect_s=binding.connect_s,
            load_s=binding.load_s,
            snapshot_s=binding.snapshot_s,
            handler_s=binding.handler_s,
        ),
    )
