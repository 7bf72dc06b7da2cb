"""Connections to services that are away or on the move: what is logged, and that everything arrives once."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from tests.unit.deathless.shell.peer_links_bench import SERVERS, STOCK, Ours, Replica, config_in, ended, run

from deathless.codec.wire import Type, encode_peer_commit, packet
from deathless.core import events as ev
from deathless.shell.directory.members import Member, write_member
from deathless.shell.net.connections import ServerConnection
from deathless.shell.net.listening import listen
from deathless.shell.worker import peer_links as module
from deathless.shell.worker.peer_links import Link


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_MIN_S", 0.0001)
    monkeypatch.setattr(module, "AGAIN_MAX_S", 0.001)
    monkeypatch.setattr(module, "LEADERLESS_MAX_S", 0.001)


class Moving(Replica):
    """One that takes numbered messages, and moves to another port while they come."""

    MOVES = (7, 8, 23)  # behind these messages, which it took and does not confirm any more

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.taken: list[int] = []
        self.addresses: list[str] = []

    async def open(self, tls: ssl.SSLContext | None = None) -> Moving:
        for _ in range(1 + len(self.MOVES)):  # at once, so that no two have one port
            server, address = await listen(self._accept, "127.0.0.1:0", tls)
            SERVERS.append(server)
            self.addresses.append(address)
        self.ports = list(zip(SERVERS[-len(self.addresses) :], self.addresses, strict=True))
        self.announce()
        return self

    def announce(self) -> None:
        write_member(str(self.folder), Member(self.name, "", client=self.ports[0][1]))

    def packets(self, connection: ServerConnection, packets: list[tuple[int, bytes]]) -> None:
        super().packets(connection, packets)
        for body in [body for kind, body in packets if kind == Type.BATCH]:
            self.taken.append(int(body))
            self.next_position += 1
            if int(body) in self.MOVES:
                server, _ = self.ports.pop(0)
                server.close()
                connection.close()
                asyncio.get_running_loop().call_soon(self.announce)
                return  # what came behind it is lost
            connection.send(encode_peer_commit(40, int(body)))


def test_what_streams_to_a_member_that_moves_to_other_ports_arrives_once(tmp_path: Path) -> None:
    whole, window = 40, 5

    async def main() -> None:
        stock, ours = await Moving(tmp_path / "stock").open(), Ours(config_in(tmp_path))
        sent = 0

        def stream(event: ev.Event) -> None:
            """Send as the core does: from where the peer says, so many ahead."""
            nonlocal sent
            ours.told.append(event)
            match event:
                case ev.PeerReady():
                    sent = through = event.next_position - 1
                case ev.PeerCommitted():
                    through = event.through
                case _:
                    return
            while sent < min(through + window, whole):
                sent += 1
                ours.links.send(STOCK, packet(Type.BATCH, b"%d" % sent))

        ours.links._tell = stream
        ours.links.dial(STOCK)
        await stock.wait_for(lambda: len(stock.taken) >= whole)
        assert stock.taken == list(range(1, whole + 1))
        assert [event.next_position for event in ours.told if isinstance(event, ev.PeerReady)] == [1, 8, 9, 24]
        assert ours.links.standing()[0].address == stock.addresses[-1]
        await ended(ours)

    run(main())


def test_an_unreachable_peer_is_logged_once_for_each_reason_and_again_when_it_was_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def logged() -> list[tuple[str, str, object, object]]:
        fields = ("peer", "why")
        return [(one.levelname, one.message, *(getattr(one, name) for name in fields)) for one in caplog.records]

    async def main() -> None:
        ours = Ours(config_in(tmp_path))
        link = Link(STOCK)
        ours.links._links[STOCK] = link
        nowhere = f"no replica of stock is announced at dir:{tmp_path / 'stock'}"
        link.task = asyncio.create_task(ours.links._keep(link))
        while link.rounds < 5:  # noqa: ASYNC110  gives way, does not sleep
            await asyncio.sleep(0)
        first = ("WARNING", "peer is not connected", "stock/0", nowhere)
        assert logged() == [first], "five rounds, one line"
        stock = await Replica(tmp_path / "stock").open()
        await ours.wait_told(1)
        stock.accepted[0].close()
        await ours.wait_told(3)
        assert logged() == [first, (*first[:3], f"{stock.address} closed the connection")]
        stock.accepted[1].close()
        await ours.wait_told(5)
        assert logged()[2:] == logged()[1:2], "it was there meanwhile, so the same reason is news"
        await ended(ours)

    with caplog.at_level("WARNING", "deathless.peer_links"):
        run(main())
