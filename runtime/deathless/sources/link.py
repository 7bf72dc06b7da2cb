"""The connection of a source's process to the primary of one shard: found, made, watched, and made again.

    dial --> HELLO (kind `source`) --> WELCOME of a primary --> up, packets both ways --> lost, silent --> dial again
      ^                                   |
      '---- not the primary: it names one-'

The replicas of our own service announce themselves in the members/ of their shard's folder; one that does not lead says
who does. The replica that we are beside is asked first: it mostly leads, or knows who does, and the others may be
frozen. Rounds follow each other after a pause that doubles up to AGAIN_MAX_S, with jitter, for ever.

Guarantees: at most one connection; silence is told from slowness by PING; a fault of ours that ends it is raised by
`check`. Does not: read what is sent. Imports shell.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from typing import Final

from deathless.base.backoff import pause_after
from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, Internal
from deathless.base.shards import shard_directory, shard_name
from deathless.codec.versions import say_hello
from deathless.codec.wire import Refused, Role, Type, Welcome, decode_struct, packet
from deathless.shell.directory.members import read_members
from deathless.shell.net.connections import ClientConnection
from deathless.shell.net.listening import split_address
from deathless.shell.net.tls import client_context

_LOG: Final = logging.getLogger("deathless.sources")
AGAIN_MIN_S: Final = 0.02
AGAIN_MAX_S: Final = 2.0
LEADERLESS_MAX_S: Final = 0.2  # the longest pause while a replica answers: it will know its primary soon
CONNECT_S: Final = 1.0
PING_S: Final = 0.25
PINGS_MAX: Final = 6  # a primary that answers none of so many is frozen, or gone
PACKET_BYTES_MAX: Final = 1 << 20
ASKED_MAX: Final = 32  # replicas asked in one round

Packets = list[tuple[int, bytes]]


class _Lost(Exception):
    """An attempt ended; says why, and whether a replica had answered."""

    def __init__(self, why: str, *, answered: bool = False) -> None:
        super().__init__(why)
        self.answered = answered


class ShardLink:
    """One shard's.

    Args:
        config: of the replica that we are beside.
        shard: which.
        name: ours, for the primary's log.
        up: called when a primary has welcomed us.
        received: called with packets of it.
        down: called when that is over.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        shard: int,
        name: str,
        *,
        up: Callable[[int], None],
        received: Callable[[int, Packets], None],
        down: Callable[[int], None],
    ) -> None:
        self.shard = shard
        self.problem = "not connected yet"  # empty: connected
        self._config = config
        self._name = name
        self._up, self._received, self._down = up, received, down
        self._connection: ClientConnection | None = None  # Invariant: one of a primary
        self._chance = random.Random()  # noqa: S311 - of pauses
        self._hint = ""
        self._rounds = 0
        self._told = ""
        self._task = asyncio.get_running_loop().create_task(self._keep(), name=f"shard {shard}")

    def send(self, data: bytes) -> None:
        """Send packets; lost where nobody is connected."""
        if self._connection is not None:
            self._connection.send(data)

    def check(self) -> None:
        """See whether it still works. Raises: what ended it, a fault of ours: whoever has it is to end as well, and is
        started anew, instead of waiting for a connection that nobody makes.
        """
        if self._task.done() and not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    def close(self) -> None:
        """End it."""
        self._task.cancel()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    async def _keep(self) -> None:
        try:
            await self._keep_connected()
        except Exception as error:
            self.problem = str(Internal(f"{type(error).__name__}: {error}"))
            raise

    async def _keep_connected(self) -> None:
        while True:
            try:
                await self._round()
            except _Lost as lost:
                self.problem = str(lost)
                if self.problem != self._told:
                    self._told = self.problem
                    _LOG.warning("shard is not connected", extra={"shard": self.shard, "why": self.problem})
                most = LEADERLESS_MAX_S if lost.answered else AGAIN_MAX_S
                pause = pause_after(self._rounds, first_s=AGAIN_MIN_S, most_s=most, chance=self._chance.random())
                self._rounds += 1
                await asyncio.sleep(pause)

    async def _round(self) -> None:
        """Ask each replica once; ends by _Lost alone."""
        directory = shard_directory(self._config.service_directory, self.shard, self._config.shards)
        try:
            members = read_members(directory)
        except (DeathlessError, OSError) as error:
            raise _Lost(str(error)) from None
        addresses = [each.client for each in members.values() if each.client]
        self._chance.shuffle(addresses)
        if self.shard == self._config.shard and self._config.replica in members:
            self._hint = self._hint or members[self._config.replica].client
        lost = _Lost(f"no replica is announced in {directory}")
        asked: list[str] = []
        answered = False
        while (self._hint or addresses) and len(asked) < ASKED_MAX:
            address, self._hint = self._hint or addresses.pop(0), ""
            if address in asked:
                continue
            asked.append(address)
            try:
                await self._attempt(address)
            except _Lost as told:
                lost = told
                answered |= told.answered
        raise _Lost(str(lost), answered=answered)

    async def _attempt(self, address: str) -> None:
        packets: asyncio.Queue[Packets] = asyncio.Queue()
        config = self._config
        hello = say_hello("source", shard_name(config.service, self.shard, config.shards), self._name, config.token)
        connection = ClientConnection(hello, packets.put_nowait, lambda: packets.put_nowait([]), PACKET_BYTES_MAX)
        try:
            host, port = split_address(address)
            async with asyncio.timeout(CONNECT_S):
                await asyncio.get_running_loop().create_connection(
                    lambda: connection, host, port, ssl=client_context(config.tls)
                )
        except (OSError, TimeoutError, DeathlessError) as error:
            raise _Lost(f"{address}: {str(error) or 'no answer'}") from None
        try:
            await self._serve(connection, packets, address)
        finally:
            if self._connection is connection:
                self._connection = None
                self._down(self.shard)
            connection.close()

    async def _serve(self, connection: ClientConnection, packets: asyncio.Queue[Packets], address: str) -> None:
        """Take packets until the connection ends, or the other end falls silent."""
        unanswered = 0
        while True:
            try:
                async with asyncio.timeout(PING_S):
                    arrived = await packets.get()
            except TimeoutError:
                if unanswered >= PINGS_MAX:
                    raise _Lost(f"{address} has not answered {unanswered} times") from None
                connection.send(packet(Type.PING))
                unanswered += 1
                continue
            unanswered = 0
            if not arrived:
                raise _Lost(f"{address} closed the connection")
            try:
                self._taken(connection, arrived, address)
            except DeathlessError as error:
                raise _Lost(f"{address}: {error}") from None

    def _taken(self, connection: ClientConnection, arrived: Packets, address: str) -> None:
        rest: Packets = []
        for kind, body in arrived:
            match kind:
                case Type.WELCOME:
                    welcome = decode_struct(Welcome, body)
                    self._must_lead(address, welcome.role, welcome.primary)
                    self._connection, self.problem, self._told, self._rounds = connection, "", "", 0
                    self._up(self.shard)
                case Type.ROLE:
                    role = decode_struct(Role, body)
                    self._must_lead(address, role.role, role.primary)
                case Type.REFUSED:
                    refused = decode_struct(Refused, body)
                    raise _Lost(f"{address}: {refused.code} {refused.text}")
                case Type.PONG:
                    pass
                case _:
                    rest.append((kind, body))
        if rest:
            self._received(self.shard, rest)

    def _must_lead(self, address: str, role: str, primary: str) -> None:
        if role != "primary":
            self._hint = primary if primary != address else ""
            raise _Lost(f"{address} is not the primary", answered=True)
