"""Connections that have not said anything yet: there is room for some, and the oldest make way for the newest.

Whoever connects and says nothing costs a descriptor. Without a maximum of their own, such connections take all
descriptors of a port and keep callers out until a deadline ends them; and there can be more of them than a deadline
ends in time. A caller says what it wants at once, so it is never long among the silent ones.

Guarantees: at most `most` silent connections of one port stay open. Does not: know deadlines (each protocol has its
own), or count a TLS handshake, which `listen` bounds in time.
"""

from __future__ import annotations

from collections.abc import Callable

from deathless.base.limits import SILENT_CONNECTIONS_MAX


class SilentConnections:
    """Those of one port, oldest first.

    Args:
        connections_max: that the port has in all; silent ones have a quarter of these at most, but always some.
    """

    def __init__(self, connections_max: int) -> None:
        self.most = max(min(SILENT_CONNECTIONS_MAX, connections_max // 4), 4)
        self._open: dict[object, Callable[[], None]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def came(self, connection: object, end: Callable[[], None]) -> None:
        """One more stands; the oldest one is ended where there are too many."""
        self._open[connection] = end
        if len(self._open) > self.most:
            oldest = next(iter(self._open))
            self._open.pop(oldest)()

    def spoke(self, connection: object) -> None:
        """One has said what it wants, or ended."""
        self._open.pop(connection, None)
