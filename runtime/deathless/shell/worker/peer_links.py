"""A primary's connections to the services it sends to: found, made, watched and made again, for as long as it leads.

    core --DialPeer--> dial ---> find its primary ---> HELLO (kind `peer`) ---> WELCOME of a primary
                                     ^                                              |
                                     |                                         PEER_HELLO
                                     |                                              v
         <--PeerLost---- again, after a pause <--- lost, silent, refused --- PEER_WELCOME --PeerReady--> core
         <--PeerCommitted------------------------------------------------------ PEER_COMMIT

Where a service is: its entry in `peers`, or the folder beside ours; the replicas' addresses stand in its members/ or
are named. A replica that does not lead says who does. A shard is asked for by its whole name (base.shards), so one of a
service that has another number of shards than we reckon with refuses us. Rounds follow each other after a pause that
doubles up to AGAIN_MAX_S, with jitter, for ever (I4): a peer that is not there is told to operators (`standing`), never
to a handler.

The two ends agree on nothing but positions. A message that the peer does not admit (it is overloaded, its log is full)
ends the connection: the next PEER_WELCOME says from where to send again, so nothing is counted here.

Guarantees: at most one connection per target; one slow or dead peer costs the others nothing (I10). Silence is told
from slowness by PING, because a frozen process keeps its connections. Does not: read what is sent, decide what is sent
(core.primary.sending does). May import core, codec and base.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.backoff import pause_after
from deathless.base.config import PeerConfig, ReplicaConfig, TlsConfig
from deathless.base.errors import DeathlessError, InvalidConfig
from deathless.base.shards import shard_directory, shard_name
from deathless.codec.peer_messages import Target
from deathless.codec.refusals import pause_s
from deathless.codec.versions import say_hello
from deathless.codec.wire import (
    BatchRefused,
    PeerWelcome,
    Refused,
    Role,
    Type,
    Welcome,
    decode_peer_commit,
    decode_struct,
    packet,
)
from deathless.core import events as ev
from deathless.shell.client.driver import DIRECTORY, resolve
from deathless.shell.net.abstract_socket import connect_local, driver_socket
from deathless.shell.net.connections import ClientConnection
from deathless.shell.net.listening import split_address
from deathless.shell.net.tls import client_context

_LOG: Final = logging.getLogger("deathless.peer_links")
AGAIN_MIN_S: Final = 0.02
AGAIN_MAX_S: Final = 2.0
LEADERLESS_MAX_S: Final = 0.2  # the longest pause while a replica answers: it will know its primary soon
CONNECT_S: Final = 1.0
PING_S: Final = 0.25
PINGS_MAX: Final = 6  # a peer that answers none of so many is frozen, or gone
GREET_PINGS_MAX: Final = 2  # likewise until its WELCOME
ASKED_MAX: Final = 32  # replicas asked in one round, named ones and those that they name


class Where(msgspec.Struct, frozen=True):
    """How one service is reached."""

    addresses: tuple[str, ...]  # as for a client: host:port, or dir:/path
    token: str
    tls: TlsConfig | None
    local: str = ""  # name of the socket of a driver beside us, instead of addresses


class PeerStanding(msgspec.Struct, frozen=True):
    """What operators see of one target."""

    service: str
    shard: int
    connected: bool
    address: str  # of its primary; empty: not connected
    problem: str  # why it is not connected, or what was refused last
    since_s: float  # for so long


def shards_of(config: ReplicaConfig, service: str) -> int:
    """Say how many shards a service has: ours, or another one."""
    if service == config.service:
        return config.shards
    return config.sharding.peers.get(service, 1)


def where_is(config: ReplicaConfig, service: str, shard: int = 0) -> Where:
    """Say where a shard of a service is: as configured, or in the folder beside ours; our own ones are beside us.

    A driver is beside this very replica.
    """
    if any(driver.name == service for driver in config.drivers):
        return Where((), config.token, None, driver_socket(config.directory, config.owner, service))
    peer = next((each for each in config.peers if each.name == service), PeerConfig(name=service))
    directory = peer.directory
    if not directory and not peer.addresses:
        directory = str(Path(config.service_directory).parent / service)
    if service == config.service:
        directory = config.service_directory
    if directory:
        directory = shard_directory(directory, shard, shards_of(config, service))
    tls = config.tls
    if tls is not None and peer.server_name:
        tls = msgspec.structs.replace(tls, server_name=peer.server_name)
    folder = (f"{DIRECTORY}{directory}",) if directory else ()
    return Where((*folder, *peer.addresses), peer.token or config.token, tls)


def without_overtaken(packets: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    """Leave out each PEER_COMMIT behind which another one comes: they are cumulative."""
    last = next((at for at in reversed(range(len(packets))) if packets[at][0] == Type.PEER_COMMIT), 0)
    return [each for at, each in enumerate(packets) if each[0] != Type.PEER_COMMIT or at == last]


class _Lost(Exception):
    """An attempt ended; says why, and whether a replica had answered."""

    def __init__(self, why: str, *, answered: bool = False, pause_s: float = 0.0) -> None:
        super().__init__(why)
        self.answered = answered
        self.pause_s = pause_s  # at least, before the next one


class Link:
    """One target: its task, its connection, and what is known of it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.connection: ClientConnection | None = None  # Invariant: one whose PEER_WELCOME was told to the core
        self.hint = ""  # address that a replica named as the primary's
        self.rounds = 0  # since one was made
        self.silent = ""  # address that answered nothing last: asked behind all others
        self.address = ""
        self.problem = "not connected yet"
        self.since = time.monotonic()
        self.told = ""  # the problem that was logged
        self.task: asyncio.Task[None] | None = None


class PeerLinks:
    """All targets of one primary.

    Args:
        config: of this replica.
        introduce: gives the PEER_HELLO packet for a target: who we are, the epoch we lead in, what we keep for it.
        tell: takes events for the core.
        chance: of the jitter.
        packet_bytes_max: of what comes in.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        *,
        introduce: Callable[[Target], bytes],
        tell: Callable[[ev.Event], None],
        chance: random.Random,
        packet_bytes_max: int,
    ) -> None:
        self._config = config
        self._introduce = introduce
        self._tell = tell
        self._chance = chance
        self._packet_bytes_max = packet_bytes_max
        self.troubles: dict[Target, tuple[int, str]] = {}  # attempts that failed and connections that ended; the last
        self._links: dict[Target, Link] = {}
        self._loop = asyncio.get_running_loop()

    # ---- what the core wants ---------------------------------------------------------------------------------

    def dial(self, target: Target) -> None:
        """Keep a connection to this target from now on; nothing new for one that is kept already."""
        if target not in self._links:
            link = self._links[target] = Link(target)
            link.task = self._loop.create_task(self._keep(link), name=f"peer {target.service}/{target.shard}")

    def send(self, target: Target, data: bytes) -> None:
        """Send packets to a target that is ready; lost when it is not, since it will say from where."""
        link = self._links.get(target)
        if link is not None and link.connection is not None:
            link.connection.send(data)

    def drop(self, target: Target) -> None:
        """Keep no connection to this target any more."""
        link = self._links.pop(target, None)
        if link is not None:
            self._end(link)

    def close(self) -> None:
        """Keep none at all: this replica leads no more."""
        for link in self._links.values():
            self._end(link)
        self._links.clear()

    def standing(self) -> list[PeerStanding]:
        """Say how each target stands, by name."""
        now = time.monotonic()
        return [
            PeerStanding(
                *link.target,
                connected=link.connection is not None,
                address=link.address,
                problem=link.problem,
                since_s=now - link.since,
            )
            for _, link in sorted(self._links.items())
        ]

    @staticmethod
    def _end(link: Link) -> None:
        if link.task is not None:
            link.task.cancel()
        if link.connection is not None:
            link.connection.close()
            link.connection = None

    # ---- one target ------------------------------------------------------------------------------------------

    async def _keep(self, link: Link) -> None:
        """Connect, and again, for ever."""
        while True:
            try:
                await self._round(link)
            except _Lost as lost:
                self._problem(link, str(lost))
                await asyncio.sleep(max(lost.pause_s, self._pause(link, answered=lost.answered)))
            except Exception as error:  # noqa: BLE001  a link that ended for good would keep its messages for ever
                _LOG.exception("unexpected error", extra={"peer": "/".join(map(str, link.target))})
                self._problem(link, f"{type(error).__name__}: {error}")
                await asyncio.sleep(self._pause(link, answered=False))

    def _pause(self, link: Link, *, answered: bool) -> float:
        most = LEADERLESS_MAX_S if answered else AGAIN_MAX_S
        pause = pause_after(link.rounds, first_s=AGAIN_MIN_S, most_s=most, chance=self._chance.random())
        link.rounds += 1
        return pause

    def _problem(self, link: Link, why: str) -> None:
        if link.address:
            link.address, link.since = "", time.monotonic()
        link.problem = why
        count, _ = self.troubles.get(link.target, (0, ""))
        self.troubles[link.target] = (count + 1, why)
        if why != link.told:
            link.told = why
            _LOG.warning("peer is not connected", extra={"peer": "/".join(map(str, link.target)), "why": why})

    async def _round(self, link: Link) -> None:
        """Ask each replica once; ends by _Lost alone: when there is no primary, or its connection ended."""
        where = where_is(self._config, *link.target)
        try:
            addresses = [f"driver {link.target.service}"] if where.local else list(resolve(where.addresses))
        except InvalidConfig as error:
            raise _Lost(str(error)) from None
        self._chance.shuffle(addresses)
        addresses.sort(key=link.silent.__eq__)
        if link.hint:
            addresses.insert(0, link.hint)
            link.hint = ""
        lost = _Lost(f"no replica of {self._name(link.target)} is announced at {', '.join(where.addresses)}")
        asked: list[str] = []
        answered = False
        while addresses and len(asked) < ASKED_MAX:
            address = addresses.pop(0)
            if address in asked:
                continue
            asked.append(address)
            try:
                await self._attempt(link, where, address)
            except _Lost as told:
                answered |= told.answered
                lost = _Lost(str(told), answered=answered, pause_s=told.pause_s)
                if link.hint:
                    addresses.insert(0, link.hint)
                    link.hint = ""
                if told.pause_s:
                    break
        raise lost

    async def _attempt(self, link: Link, where: Where, address: str) -> None:
        """Ask one replica, and stay with it if it leads; ends by _Lost alone."""
        packets: asyncio.Queue[list[tuple[int, bytes]]] = asyncio.Queue()
        hello = say_hello("peer", self._name(link.target), self._config.shard_name, where.token)
        connection = ClientConnection(hello, packets.put_nowait, lambda: packets.put_nowait([]), self._packet_bytes_max)
        try:
            await self._connect(connection, where, address)
            await self._serve(link, connection, packets, address)
        finally:
            if link.connection is connection:
                link.connection = None
                if self._links.get(link.target) is link:
                    self._tell(ev.PeerLost(link.target))
            connection.close()

    def _name(self, target: Target) -> str:
        """Give what a target calls itself, if it has as many shards as we reckon with."""
        return shard_name(*target, shards_of(self._config, target.service))

    async def _connect(self, connection: ClientConnection, where: Where, address: str) -> None:
        try:
            if where.local:
                await connect_local(lambda: connection, where.local)
                return
            host, port = split_address(address)
            async with asyncio.timeout(CONNECT_S):
                await self._loop.create_connection(lambda: connection, host, port, ssl=client_context(where.tls))
        except (OSError, TimeoutError, DeathlessError) as error:
            raise _Lost(f"{address}: {str(error) or 'no answer'}") from None

    async def _serve(
        self, link: Link, connection: ClientConnection, packets: asyncio.Queue[list[tuple[int, bytes]]], address: str
    ) -> None:
        """Take packets until the connection ends, or the other end falls silent."""
        ping = packet(Type.PING)
        unanswered = 0  # counted by turns of our loop: while a handler of ours runs, no answer can come in
        most = GREET_PINGS_MAX
        while True:
            try:
                async with asyncio.timeout(PING_S):
                    arrived = await packets.get()
            except TimeoutError:
                if unanswered >= most:
                    link.silent = address
                    raise _Lost(f"{address} has not answered {most} times") from None
                connection.send(ping)
                unanswered += 1
                continue
            unanswered, most = 0, PINGS_MAX
            if not arrived:
                raise _Lost(f"{address} closed the connection")
            try:
                for kind, body in without_overtaken(arrived):
                    self._taken(link, connection, address, kind, body)
            except DeathlessError as error:  # it speaks another language
                raise _Lost(f"{address}: {error}") from None

    def _taken(self, link: Link, connection: ClientConnection, address: str, kind: int, body: bytes) -> None:
        match kind:
            case Type.PEER_COMMIT:
                if link.connection is connection:
                    _, through = decode_peer_commit(body)
                    self._tell(ev.PeerCommitted(link.target, through))
            case Type.WELCOME:
                welcome = decode_struct(Welcome, body)
                self._must_lead(link, address, welcome.role, welcome.primary)
                connection.send(self._introduce(link.target))
            case Type.ROLE:
                role = decode_struct(Role, body)
                self._must_lead(link, address, role.role, role.primary)
            case Type.PEER_WELCOME:
                welcomed = decode_struct(PeerWelcome, body)
                link.connection, link.address, link.problem, link.told = connection, address, "", ""
                link.rounds, link.since = 0, time.monotonic()
                stands = (welcomed.session, welcomed.next_position, welcomed.history)
                self._tell(ev.PeerReady(link.target, *stands))
            case Type.BATCH_REFUSED:
                refused = decode_struct(BatchRefused, body)
                raise _Lost(f"{address}: {refused.code} {refused.text}", answered=True, pause_s=pause_s(refused))
            case Type.REFUSED | Type.PEER_REFUSED:
                told = decode_struct(Refused, body)
                raise _Lost(f"{address}: {told.code} {told.text}")
            case _:
                pass

    @staticmethod
    def _must_lead(link: Link, address: str, role: str, primary: str) -> None:
        if role != "primary":
            link.hint = primary if primary != address else ""
            raise _Lost(f"{address} is not the primary", answered=True)
