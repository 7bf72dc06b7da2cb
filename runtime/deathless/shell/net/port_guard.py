"""Who is let in at a port: reads the certificate of a connection and asks the table of `core.access.authorisation`.

Guarantees: nobody is let in whom the table refuses. Does not: look at tokens (`engine.replica.intake` does). Imports
core and base.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from deathless.base.config import ReplicaConfig, TlsConfig
from deathless.base.identities import Identity
from deathless.base.safeguards import ALL_SAFEGUARDS, Safeguards
from deathless.core.access.authorisation import Port, refusal
from deathless.shell.net.tls import own_identity, shown_identity

if TYPE_CHECKING:
    from deathless.shell.net.callers import Callers


class PortGuard:
    """Guards one port of a replica.

    Args:
        config: the replica's.
        port: which.
        tls: the setting that the port listens with.
        safeguards: what is kept.
    """

    def __init__(
        self, config: ReplicaConfig, port: Port, tls: TlsConfig | None, safeguards: Safeguards = ALL_SAFEGUARDS
    ) -> None:
        self._port = port
        self._tls = tls
        self._named = config.allow_services
        self.safeguards = safeguards
        self.callers: Callers | None = None  # of a port where they prove who they are

    @property
    def names_callers(self) -> bool:
        """Do certificates name who connects here?"""
        return own_identity(self._tls) is not None and self.safeguards.check_callers

    def admit(self, transport: asyncio.BaseTransport | None, kind: str) -> Identity | None:
        """Let somebody in; gives whom its certificate names, None where certificates name nobody here.

        Args:
            transport: of its connection.
            kind: what it asks to do: see `core.access.authorisation`.

        Raises: Unauthorized without a certificate that names somebody; Forbidden for one that may not do this.
        """
        own = own_identity(self._tls)
        if own is None or not self.names_callers:
            return None
        shown = shown_identity(transport)
        asked = self._tls is not None and self._tls.require_client_certificate
        refused = refusal(own, shown, self._port, kind, named=self._named, certified=asked)
        if refused is not None:
            raise refused
        return shown
