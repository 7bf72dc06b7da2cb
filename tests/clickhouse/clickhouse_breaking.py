"""A client that dies at a chosen statement, or whose server does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from lab.clickhouse import Server
from tests.clickhouse.clickhouse_lab import Tables

from deathless.base.errors import SinkUnavailable
from deathless.sinks.clickhouse.client import Client, where_of
from deathless.sinks.clickhouse.store import ClickhouseStore


class Breaking(Client):
    """Counts statements, and breaks at one of them."""

    def __init__(self, url: str, at: int, *, after: bool) -> None:
        super().__init__(where_of(url))
        self.count = 0
        self._at = at
        self._after = after
        self._at_rows = False
        self._kill: tuple[int, int, Server | None] = (0, 0, None)

    def break_at_rows(self) -> None:
        """Break at the next statement that inserts rows of a block."""
        self._at_rows = True

    def kill_at(self, at: int, turns: int, server: Server) -> None:
        """Kill the server, so many turns of the event loop after this statement was begun."""
        self._kill = (at, turns, server)

    async def run(
        self,
        statement: str,
        settings: Mapping[str, str],
        *,
        name: str = "",
        rows: bytes | None = None,
        columns: str = "",
    ) -> bytes:
        self.count += 1
        broken = self.count == self._at or (self._at_rows and rows is not None)
        if broken and not self._after:
            raise SinkUnavailable("died before it")
        sent = asyncio.ensure_future(super().run(statement, settings, name=name, rows=rows, columns=columns))
        at, turns, server = self._kill
        if self.count == at and server is not None:
            for _ in range(turns):
                await asyncio.sleep(0)
            server.kill()
        answer = await sent
        if broken:
            raise SinkUnavailable("died behind it")
        return answer


def breaking(tables: Tables, at: int, *, after: bool) -> tuple[ClickhouseStore, Breaking]:
    """Give a store that dies at its statement of this number, from 1 on, and its client."""
    client = Breaking(tables.server.url, at, after=after)
    tables.made.append(ClickhouseStore(tables.config(), client))
    return tables.made[-1], client
