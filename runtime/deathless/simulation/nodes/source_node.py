"""A simulated source: one process that reads streams and sends them to whoever is primary; others may do the same.

    dial -> ask one replica after the other who leads -> HELLO (kind `source`) -> STREAM_HELLO for each stream
             ^----------- lost, refused, not the primary -----------'

What it reads cannot change, and is forgotten where it comes from once a primary has said that it is taken in. All that
a source knows of how far a stream is it knows from the primary, so it may be killed and frozen at any time, and two of
them may want the same streams: the one that is fenced lets go, and after a while starts anew and takes them.

Guarantees: the real sender (core.client.stream_sender) decides what is sent. Does not: judge. May import engine and
below, sockets, workload.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

from deathless.codec.streams.packets import StreamCommit, StreamRefused, StreamWelcome
from deathless.codec.versions import say_hello
from deathless.codec.wire import Role, Type, Welcome, decode_struct
from deathless.core.client.stream_sender import State, StreamSender
from deathless.simulation.nodes.surroundings import Surroundings
from deathless.simulation.workload.inputs import Held, Item
from deathless.simulation.world.scheduler import Process
from deathless.simulation.world.sockets import Opened

AGAIN_US: Final = 20_000
ANEW_US: Final = 400_000  # until a source that was fenced starts anew, at most
POLL_US: Final = 5_000
WINDOW: Final = 8  # offered and not committed, of one stream


class Origin:
    """Where a stream comes from; all sources that read it share one."""

    def __init__(self, held: Held) -> None:
        self.held = held
        self.first = 0  # index of the first item that is not forgotten

    def taken(self, count: int) -> None:
        """A source was told that so many of the items are taken in."""
        self.first = max(self.first, count)


class SourceNode:
    """One source."""

    def __init__(self, name: str, beside: Surroundings, addresses: Sequence[str], streams: Sequence[Origin]) -> None:
        self.name = name
        self.finished: set[int] = set()  # streams of which it has seen all committed
        self.fenced = 0  # how often it was
        self._beside = beside
        self._addresses = addresses
        self._streams = streams
        self._chance: random.Random = beside.scheduler.fork(f"source/{name}")
        self._senders: dict[int, StreamSender] = {}  # by number of the stream
        self._at: dict[int, int] = {}  # which item is offered next
        self._connection: Opened | None = None
        self._next = self._chance.randrange(8)  # which address is asked next
        self._hint = ""
        self.process: Process = beside.scheduler.process(name, name, self._exited)

    @property
    def done(self) -> bool:
        """All that it reads is committed, as far as it was told."""
        return len(self.finished) == len(self._streams)

    @property
    def sends(self) -> bool:
        """Has it sent what is not committed?"""
        return any(map(len, self._senders.values()))

    def reconnect(self, address: str) -> None:
        """Its connection breaks, and it asks here next."""
        self._hint = address
        for end in self._beside.network.open_connections(self.name):
            self._beside.network.reset(end)

    def start(self) -> None:
        """Begin, or begin anew: nothing is known."""
        if not self.process.alive:
            self.process.start(self._begin)

    def kill(self) -> None:
        """End it."""
        self.process.kill()

    def _exited(self, process: Process, error: BaseException | None) -> None:
        self._beside.network.process_died(process)
        if error is not None:
            raise error

    def _begin(self) -> None:
        self._senders = {
            each.held.key.stream: StreamSender(each.held.key, self._chance.randbytes(16), each.held.on_refusal)
            for each in self._streams
        }
        self._at, self._connection = {}, None
        self._dial()
        self._poll()

    # ---- connection --------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        address = self._hint or self._addresses[self._next % len(self._addresses)]
        self._next += not self._hint
        self._hint = ""
        connection = Opened(
            self._beside.network,
            self.process,
            address,
            say_hello("source", self._beside.service_name, self.name),
            received=lambda packets: self._received(connection, packets),
            ready=lambda: None,
            lost=lambda: self._lost(connection),
        )
        self._connection = connection

    def _lost(self, connection: Opened) -> None:
        if self._connection is not connection:
            return
        connection.close()
        self._connection = None
        for sender in self._senders.values():
            sender.lost()
        self.process.call_later(self._chance.randrange(AGAIN_US), self._dial)

    def _received(self, connection: Opened, packets: list[tuple[int, bytes]]) -> None:
        for kind, body in packets:
            if self._connection is connection and not self._taken(connection, kind, body):
                self._lost(connection)
        self._send()

    def _taken(self, connection: Opened, kind: int, body: bytes) -> bool:
        """Take a packet; False ends the connection."""
        match kind:
            case Type.WELCOME | Type.ROLE:
                told: Welcome | Role
                told = decode_struct(Welcome, body) if kind == Type.WELCOME else decode_struct(Role, body)
                if told.role != "primary":
                    self._hint = told.primary
                    return False
                if kind == Type.WELCOME:
                    for number in self._senders:
                        self._open(number)
            case Type.STREAM_WELCOME:
                self._welcomed(decode_struct(StreamWelcome, body))
            case Type.STREAM_COMMIT:
                commit = decode_struct(StreamCommit, body)
                for number, sender in self._senders.items():
                    sender.committed(commit)
                    self._forget(number, sender)
            case Type.STREAM_REFUSED:
                self._refused(decode_struct(StreamRefused, body))
            case Type.REFUSED:
                return False
            case _:
                pass
        return True

    def _open(self, number: int) -> None:
        sender = self._senders[number]
        if self._connection is not None and sender.state is State.CLOSED:
            self._connection.send(sender.hello())

    def _welcomed(self, welcome: StreamWelcome) -> None:
        number = welcome.stream
        sender = self._senders[number]
        sender.welcomed(welcome)
        if sender.state is State.OPEN and not len(sender):
            items = self._items(number)
            behind = (at for at, item in enumerate(items) if self._is_behind(item, sender))
            self._at[number] = max(next(behind, len(items)), self._origin(number).first)
        self._forget(number, sender)

    def _forget(self, number: int, sender: StreamSender) -> None:
        """What an open sender holds no more is taken in; one that is not open was told of nothing."""
        if sender.state is State.OPEN:
            self._origin(number).taken(self._at[number] - len(sender))

    @staticmethod
    def _is_behind(item: Item, sender: StreamSender) -> bool:
        """Is this to be sent, where so much is taken in?"""
        last = sender.next_id - 1
        return item.number > last or (item.end and item.number == last and not sender.ended)

    def _refused(self, refused: StreamRefused) -> None:
        sender = self._senders[refused.stream]
        wait_s = sender.refused(refused, self._beside.scheduler.now_us / 1e6)
        if sender.state is State.FENCED:
            self.fenced += 1
            nonce = self._chance.randbytes(16)
            again = StreamSender(sender.key, nonce, self._origin(refused.stream).held.on_refusal)
            self.process.call_later(self._chance.randrange(ANEW_US), lambda: self._take(refused.stream, again))
        elif wait_s is not None:
            self.process.call_later(int(wait_s * 1e6) + 1, lambda: self._open_again(refused.stream, sender))

    def _take(self, number: int, sender: StreamSender) -> None:
        if number not in self.finished:
            self._senders[number] = sender
            self._open_again(number, sender)

    def _open_again(self, number: int, sender: StreamSender) -> None:
        if self._senders[number] is sender:
            self._open(number)

    # ---- input -------------------------------------------------------------------------------------------------

    def _origin(self, number: int) -> Origin:
        return next(each for each in self._streams if each.held.key.stream == number)

    def _items(self, number: int) -> tuple[Item, ...]:
        return self._origin(number).held.items

    def _poll(self) -> None:
        for number, sender in self._senders.items():
            if sender.state is State.OPEN and self._chance.random() < 0.5:
                self._offer(number, sender)
        self._send()
        self.process.call_later(1 + self._chance.randrange(POLL_US), self._poll)

    def _offer(self, number: int, sender: StreamSender) -> None:
        items = self._items(number)
        for _ in range(self._chance.randrange(WINDOW)):
            at = self._at[number]
            if at == len(items) or len(sender) >= WINDOW:
                break
            item = items[at]
            if item.end:
                sender.offer_end(item.message)
            else:
                sender.offer(item.number, item.message)
            self._at[number] = at + 1

    def _send(self) -> None:
        now = self._beside.scheduler.now_us / 1e6
        for number, sender in self._senders.items():
            for data in sender.packets(now):
                if self._connection is not None:
                    self._connection.send(data)
            if sender.state is State.OPEN and not len(sender) and self._at[number] == len(self._items(number)):
                self.finished.add(number)
