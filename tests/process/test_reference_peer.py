"""Real replicas of ours and the peer that was written from docs/formats alone, over TCP, on connections that are cut.

Behind each packet, either way, chance decides whether every connection ends there; our primary is killed once. What
comes out is everything, once and in order, both ways. `DEATHLESS_KILLS_SEED=n` chooses the same cuts again; in memory,
with a fault at every place, the same is in tests/conformance/test_reference_peer.py.
"""

from __future__ import annotations

import asyncio
import os
import random
import selectors
import socket
import threading
from functools import partial
from pathlib import Path
from typing import Self

from replica_set import ReplicaSet, client_of, wait_for
from tests.conformance.reference_peer import Connection, ReferencePeer
from tests.spec import shop_and_bank
from tests.spec.shop_and_bank import Cart

from deathless.shell.directory.members import read_members

AMOUNTS = list(range(1, 31))
KILL_BEHIND = 10  # answered calls
CUTS = 25
POLL_S = 0.02  # between two looks at what is owed


class Carrier:
    """Puts the peer on sockets, in a thread; nobody else touches it while that runs."""

    def __init__(self, peer: ReferencePeer, seed: int) -> None:
        self.peer = peer
        self.directory = ""  # of the shop; where its replicas say how they are reached
        self.cuts = 0
        self.error: BaseException | None = None
        self._chance = random.Random(seed)
        self._stop = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._wires: dict[socket.socket, Connection] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)

    @property
    def address(self) -> str:
        """Where it listens."""
        host, port = self._listener.getsockname()
        return f"{host}:{port}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._stop.set()
        self._thread.join(60)
        assert not self._thread.is_alive()
        self._cut()
        self._selector.close()
        self._listener.close()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                for key, _ in self._selector.select(POLL_S):
                    if key.fileobj is self._listener:
                        self._add(self._listener.accept()[0], self.peer.accept())
                    elif key.fileobj in self._wires:
                        assert isinstance(key.fileobj, socket.socket)
                        self._read(key.fileobj)
                self._dial()
                self._write()
        except BaseException as error:
            self.error = error
            raise

    def _add(self, wire: socket.socket, end: Connection) -> None:
        wire.settimeout(30)
        self._wires[wire] = end
        self._selector.register(wire, selectors.EVENT_READ)

    def _read(self, wire: socket.socket) -> None:
        try:
            data = wire.recv(self._chance.choice((3, 50, 4096)))
        except OSError:
            data = b""
        if data:
            self._wires[wire].feed(data)
            self._maybe_cut(len(data))
        else:
            self._close(wire)

    def _write(self) -> None:
        for wire, end in list(self._wires.items()):
            packets, end.out = end.out, []
            try:
                for data in packets:
                    if wire in self._wires:
                        wire.sendall(data)
                        self._maybe_cut(len(data))
            except OSError:
                end.closed = True
            if end.closed:
                self._close(wire)

    def _dial(self) -> None:
        """Whoever announced himself is tried; one that does not lead says so."""
        dialed = self.peer.dialed.get("shop/0")
        if not self.peer.owes("shop/0") or (dialed is not None and not dialed.closed):
            return
        members = [member for member in read_members(self.directory).values() if member.client]
        if members:
            host, _, port = self._chance.choice(members).client.rpartition(":")
            try:
                wire = socket.create_connection((host, int(port)), 30)
            except OSError:
                return
            self._add(wire, self.peer.dial("shop/0"))

    def _maybe_cut(self, size: int) -> None:
        if size > 8 and self.cuts < CUTS and self._chance.random() < 0.2:
            self.cuts += 1
            self._cut()

    def _cut(self) -> None:
        for wire in list(self._wires):
            self._close(wire)

    def _close(self, wire: socket.socket) -> None:
        end = self._wires.pop(wire, None)
        if end is not None:
            end.closed = True
            self._selector.unregister(wire)
            wire.close()


async def pay(shop: ReplicaSet, peer: ReferencePeer) -> None:
    """Every amount, one after the other, each once the one before was booked; the primary is killed in between."""
    async with client_of(shop) as client:
        for count, amount in enumerate(AMOUNTS):
            if count == KILL_BEHIND:
                await asyncio.to_thread(lambda: shop.kill_worker(shop.primary()))
            await client.call("pay", "cart", n=amount)
            booked = partial(wait_for, lambda: len(peer.state["booked"]) > count, "a booking", shop.describe)  # noqa: B023 - awaited here
            await asyncio.to_thread(booked)


async def cart_of(shop: ReplicaSet) -> Cart:
    """What the shop knows."""
    async with client_of(shop) as client:
        found = await client.query("look", "cart", result=Cart)
        assert isinstance(found, Cart)
        return found


def test_every_message_once_and_in_order_both_ways_over_tcp(tmp_path: Path) -> None:
    seed = int(os.environ.get("DEATHLESS_KILLS_SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"DEATHLESS_KILLS_SEED={seed}")
    peer = ReferencePeer()
    carrier = Carrier(peer, seed)
    module = f"{Path(shop_and_bank.__file__)}:shop"
    peers = [{"name": "bank", "addresses": [carrier.address]}]
    with ReplicaSet(tmp_path, replicas=2, service="shop", module=module, peers=peers) as shop:
        shop.primary()
        carrier.directory = str(shop.directory)
        with carrier:
            asyncio.run(pay(shop, peer))
            wait_for(lambda: len(asyncio.run(cart_of(shop)).heard) >= len(AMOUNTS), "all answers", shop.describe)
        cart = asyncio.run(cart_of(shop))
        assert peer.state["booked"] == AMOUNTS
        assert cart.paid == AMOUNTS
        assert cart.heard == AMOUNTS
        assert carrier.cuts > 5
