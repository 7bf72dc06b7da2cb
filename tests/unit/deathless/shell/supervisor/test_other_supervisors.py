"""Connections to the other supervisors: one per replica, found by address, made again, and a refusal told once."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig, OtherSupervisor
from deathless.codec.versions import say_hello
from deathless.codec.wire import Hello, Type, packet
from deathless.core.access.directory_proof import is_word
from deathless.shell.directory.members import Member
from deathless.shell.net.connections import ServerConnection
from deathless.shell.net.listening import listen
from deathless.shell.supervisor import other_supervisors as module
from deathless.shell.supervisor.other_supervisors import AGAIN_MAX_S, AGAIN_MIN_S, Peer, Peers

CONFIG = ReplicaConfig(service="bank", module="m:a", directory="d", replica="r0", token="secret")
PING = packet(Type.PING, b"")
SERVERS: list[asyncio.Server] = []  # closed at the end of each test
HELD: list[socket.socket] = []  # likewise


class Neighbour:
    """A supervisor's control port."""

    def __init__(self, token: str = "secret") -> None:
        self.token = token
        self.hellos: list[Hello] = []
        self.got: list[tuple[int, bytes]] = []
        self.accepted: list[ServerConnection] = []
        self.gone = 0
        self.changed = asyncio.Event()

    async def open(self) -> Neighbour:
        server, self.address = await listen(self._accept, "127.0.0.1:0")
        SERVERS.append(server)
        return self

    def _accept(self) -> ServerConnection:
        connection = ServerConnection(
            self, 1, service="bank", token=self.token, packet_bytes_max=1 << 16, buffer_bytes_max=1 << 16
        )
        self.accepted.append(connection)
        self.changed.set()
        return connection

    def opened(self, connection: ServerConnection, hello: Hello) -> None:
        self.hellos.append(hello)
        self.changed.set()

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        self.got += packets
        self.changed.set()

    def lost(self, connection: ServerConnection) -> None:
        self.gone += 1
        self.changed.set()

    def member(self, replica: str, pid: int = 1) -> Member:
        return Member(replica, self.address, pid=pid)

    async def wait_for(self, wanted: Callable[[], bool]) -> None:
        while not wanted():
            self.changed.clear()
            await self.changed.wait()


class Ours:
    """Our peers, and an event that tells when a connection stands."""

    def __init__(self) -> None:
        self.stood = asyncio.Event()
        self.superseded: list[bool] = []
        self.peers = Peers(CONFIG, self.stood.set, lambda: self.superseded.append(True))

    def peer(self, name: str) -> Peer:
        return self.peers._peers[name]

    async def meet(self, *members: Member) -> None:
        """Meet and wait until all attempts have ended."""
        self.peers.meet({member.replica: member for member in members})
        await self.attempts()

    async def attempts(self) -> None:
        await asyncio.gather(*(peer.attempt for peer in self.peers._peers.values() if peer.attempt is not None))


def run(work: Coroutine[object, object, None]) -> None:
    async def whole() -> None:
        try:
            await asyncio.wait_for(work, 30)
        finally:
            while SERVERS:
                SERVERS.pop().close()
            while HELD:
                HELD.pop().close()

    asyncio.run(whole())


async def turns(wanted: Callable[[], bool]) -> None:
    # `Peers` tells nobody of a lost connection
    while not wanted():  # noqa: ASYNC110  gives way, does not sleep
        await asyncio.sleep(0)


def test_every_other_replica_is_met_once_and_told_our_reports() -> None:
    async def main() -> None:
        one, two, ours = await Neighbour().open(), await Neighbour().open(), Ours()
        members = (Member("r0", "127.0.0.1:1"), one.member("r1"), two.member("r2"))
        for _ in range(3):
            await ours.meet(*members)
        assert ours.stood.is_set()
        ours.peers.tell(PING)
        for neighbour in (one, two):
            await neighbour.wait_for(lambda n=neighbour: bool(n.got))  # type: ignore[misc]
            [hello] = neighbour.hellos
            assert msgspec.structs.replace(hello, proof="") == say_hello("supervisor", "bank", "r0", "secret")
            assert is_word(hello.proof)
            assert [kind for kind, _ in neighbour.got] == [Type.PING]
        ours.peers.close()
        await one.wait_for(lambda: one.gone == 1)
        await two.wait_for(lambda: two.gone == 1)

    run(main())


@pytest.mark.parametrize("other", ["address", "pid", "instance"])
def test_who_announces_himself_anew_is_followed_at_once(other: str) -> None:
    async def main() -> None:
        old, ours = await Neighbour().open(), Ours()
        new = await Neighbour().open() if other == "address" else old
        await ours.meet(old.member("r1"))
        await old.wait_for(lambda: len(old.hellos) == 1)
        again = new.member("r1", pid=2 if other == "pid" else 1)
        await ours.meet(msgspec.structs.replace(again, instance="b" if other == "instance" else ""))
        await old.wait_for(lambda: old.gone == 1)
        await new.wait_for(lambda: len(old.hellos) + (len(new.hellos) if new is not old else 0) == 2)
        assert ours.peer("r1").connection is not None
        ours.peers.close()
        await new.wait_for(lambda: old.gone + (new.gone if new is not old else 0) == 2)

    run(main())


def test_who_has_gone_from_members_is_left() -> None:
    async def main() -> None:
        one, ours = await Neighbour().open(), Ours()
        await ours.meet(one.member("r1"))
        await one.wait_for(lambda: len(one.hellos) == 1)
        await ours.meet()
        await one.wait_for(lambda: one.gone == 1)
        ours.peers.tell(PING)
        assert one.got == []

    run(main())


def closed_port() -> str:
    """Give an address where nobody listens: its socket is bound and never listens."""
    holder = socket.socket()
    holder.bind(("127.0.0.1", 0))
    address = f"127.0.0.1:{holder.getsockname()[1]}"
    HELD.append(holder)
    return address


def test_a_peer_that_can_not_be_reached_is_tried_less_and_less_often() -> None:
    async def main() -> None:
        ours = Ours()
        delays = []
        await ours.meet(Member("r1", closed_port()))
        peer = ours.peer("r1")
        for _ in range(8):
            delays.append(peer.delay_s)
            assert peer.attempt is None
            ours.peers.connect_due()
            assert (peer.attempt is not None) == (asyncio.get_running_loop().time() >= peer.try_at)
            await ours.attempts()
            peer.try_at = 0.0
            ours.peers.connect_due()
            await ours.attempts()
        assert delays[0] == AGAIN_MIN_S
        assert delays == sorted(delays)
        assert delays[-1] == AGAIN_MAX_S
        assert not ours.stood.is_set()

    run(main())


def test_who_is_heard_is_tried_at_the_next_heartbeat() -> None:
    async def main() -> None:
        ours = Ours()
        await ours.meet(Member("r1", closed_port()))
        peer = ours.peer("r1")
        peer.try_at = asyncio.get_running_loop().time() + 3600
        ours.peers.connect_due()
        assert [peer.attempt, peer.connection] == [None, None]
        ours.peers.heard("nobody")
        ours.peers.heard("r1")
        ours.peers.connect_due()
        assert peer.attempt is not None
        await ours.attempts()

    run(main())


def test_a_connection_that_was_lost_is_made_again() -> None:
    async def main() -> None:
        one, ours = await Neighbour().open(), Ours()
        await ours.meet(one.member("r1"))
        await one.wait_for(lambda: len(one.hellos) == 1)
        one.accepted[0].close()
        await turns(lambda: ours.peer("r1").connection is None)
        ours.peers.heard("r1")
        ours.peers.connect_due()
        await one.wait_for(lambda: len(one.hellos) == 2)
        ours.peers.close()
        await one.wait_for(lambda: one.gone == 2)

    run(main())


def test_an_address_that_is_none_and_files_that_are_missing_are_tried_later(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> None:
        raise InvalidConfig("tls.ca: no such file")

    async def main() -> None:
        ours = Ours()
        await ours.meet(Member("r1", ""))
        assert ours.peer("r1").delay_s == AGAIN_MIN_S
        monkeypatch.setattr(module, "client_context", refuse)
        await ours.meet(Member("r2", "127.0.0.1:1"))
        assert ours.peer("r2").delay_s == AGAIN_MIN_S

    run(main())


def test_a_peer_that_refuses_us_is_logged_once_and_asked_less_often(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        one, ours = await Neighbour(token="another").open(), Ours()
        await ours.meet(one.member("r1"))
        peer = ours.peer("r1")
        for attempt in range(1, 4):
            await turns(lambda: peer.connection is None)
            await turns(lambda attempt=attempt: peer.delay_s >= AGAIN_MIN_S * 2 ** (attempt - 1))  # type: ignore[misc]
            ours.peers.heard("r1")
            ours.peers.connect_due()
            await ours.attempts()
        await turns(lambda: peer.connection is None)
        assert peer.told
        assert one.hellos == []

    run(main())
    assert len([record for record in caplog.records if record.name == "deathless.peers"]) == 1


def test_closing_ends_an_attempt_that_is_under_way() -> None:
    async def main() -> None:
        one, ours = await Neighbour().open(), Ours()
        ours.peers.meet({"r1": one.member("r1")})
        attempt = ours.peer("r1").attempt
        assert attempt is not None
        ours.peers.close()
        await asyncio.wait([attempt])
        assert attempt.cancelled()
        assert not ours.stood.is_set()

    run(main())


def test_members_that_are_seen_after_the_end_are_not_met() -> None:
    async def main() -> None:
        one, ours = await Neighbour().open(), Ours()
        ours.peers.close()
        tasks = asyncio.all_tasks()
        ours.peers.meet({"r1": one.member("r1")})
        ours.peers.connect_due()
        assert asyncio.all_tasks() == tasks

    run(main())


def test_peer_that_has_heard_a_later_instance_of_us_says_so() -> None:
    async def main() -> None:
        one, ours = await Neighbour().open(), Ours()
        await ours.meet(one.member("r1"))
        await one.wait_for(lambda: len(one.hellos) == 1)
        one.accepted[0].refuse(OtherSupervisor("replica r0 is run by instance b"))
        await turns(lambda: bool(ours.superseded))
        assert ours.superseded == [True]
        ours.peers.close()

    run(main())
