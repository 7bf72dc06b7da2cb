"""Sends rows to a source of kind `connector` as one stream, and says when each was acknowledged.

`python -m bench.connector_load SHARD_DIRECTORY SOURCE STREAM COUNT WINDOW` sends COUNT rows of 100 bytes, of which
WINDOW are under way at most, with the client's machine that comes with Deathless; COUNT 0: until standard input ends.
It goes on where the service says when a connection ends. One line of JSON at the end, see `Sent`.

Guarantees: `acknowledged` rows were; times are of the system's monotonic clock. Does not: say whether each row was
taken in once, which the service's own sums show.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from pathlib import Path
from typing import Final

import msgspec

from deathless.protocols.connector import events, source_client
from deathless.protocols.connector import source_events as words
from deathless.protocols.connector.frames import Message, MessageId, StreamId
from deathless.shell.link.source_status import read_status
from deathless.shell.net.listening import split_address

ROW_BYTES: Final = 100
SENSORS: Final = 64
SILENCE_S: Final = 5.0  # whoever says nothing for so long is frozen, or gone
AGAIN_S: Final = 0.005
CHUNK: Final = 500  # rows that are given to the machine at once
GAP_S: Final = 0.02  # shorter waits between two acknowledgements are not told
WAITS_MAX: Final = 100_000


class Sent(msgspec.Struct):
    """What one run gave."""

    acknowledged: int
    seconds: float  # from the first row to the last acknowledgement
    processor_s: float  # of the sender itself
    waits_us: list[float]  # from a row to its acknowledgement, where one is under way at a time
    gaps: list[tuple[float, float]]  # longer waits between two acknowledgements: when each began, and ended


def row(number: int) -> bytes:
    """The row with this number; all have ROW_BYTES."""
    begin = b'{"sensor":"s%02d","value":%d,"note":"' % (number % SENSORS, number % 1000)
    return begin + b"x" * (ROW_BYTES - len(begin) - 2) + b'"}'


def total(count: int) -> int:
    """What the values of the first rows add up to."""
    whole, rest = divmod(count, 1000)
    return whole * 499_500 + rest * (rest - 1) // 2


class Sender:
    """One stream.

    Args:
        directory: of the shard whose gate it finds by the status that this keeps.
        source: its name.
        stream: number of the stream.
        count: of rows; 0: until standard input ends.
        window: of rows that are under way at most.
    """

    def __init__(self, directory: Path, source: str, stream: int, count: int, window: int) -> None:
        self._place = (str(directory), source)
        self._stream = StreamId(stream)
        self._count = count
        self._window = window
        self._next = 0  # the row to send next
        self._acknowledged = 0
        self._begun = 0.0
        self._heard = 0.0
        self._sent_at = 0.0
        self.waits: list[float] = []
        self.gaps: list[tuple[float, float]] = []

    def run(self) -> Sent:
        """Send all."""
        while not self._session():
            time.sleep(AGAIN_S)
        return Sent(
            self._acknowledged, self._heard - self._begun, time.process_time(), self.waits[:WAITS_MAX], self.gaps
        )

    def _session(self) -> bool:
        """Use one connection as far as it goes; says whether all is done."""
        status = read_status(*self._place)
        if status is None or not status.listens:
            return False
        try:
            with socket.create_connection(split_address(status.listens), SILENCE_S) as connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return self._talk(connection)
        except OSError:
            return False

    def _talk(self, connection: socket.socket) -> bool:
        client = source_client.SourceClient(program="bench", instance="one")
        event: source_client.Event = events.ConnectionOpened()
        while True:
            opened = False
            for effect in client.handle(event):
                match effect:
                    case events.Send(data=data):
                        connection.sendall(data)
                    case words.SessionOpened():
                        event = words.StreamWanted(stream=self._stream, name=b"bench")
                        opened = True
                    case words.StreamOpened(last=last):
                        self._note(last)
                        self._next = self._acknowledged
                    case words.Acknowledged(last=last):
                        self._note(last)
                    case words.StreamDenied() | events.Close():
                        return False
                    case _:
                        pass
            if opened:
                continue
            if self._done():
                return True
            event = self._offer(client) or self._received(connection)

    def _note(self, last: MessageId | None) -> None:
        now = time.perf_counter()
        if last is not None and last + 1 > self._acknowledged:
            if self._window == 1:
                self.waits.append((now - self._sent_at) * 1e6)
            if now - self._heard > GAP_S and self._acknowledged:
                self.gaps.append((self._heard, now))
            self._acknowledged, self._heard = last + 1, now

    def _done(self) -> bool:
        if self._count == 0 and select.select([sys.stdin], [], [], 0)[0]:
            self._count = max(self._next, 1)  # what is under way is the last
        return 0 < self._count <= self._acknowledged

    def _offer(self, client: source_client.SourceClient) -> source_client.Event | None:
        """Give rows to send, if there is room for some."""
        if client.stream_state(self._stream) is not source_client.StreamState.OPEN:
            return None
        under_way = self._next - self._acknowledged
        room = min(self._window - under_way, client.credits, CHUNK)
        if self._count:
            room = min(room, self._count - self._next)
        if room <= 0 or (under_way and room < min(CHUNK, self._window) // 2):
            return None  # a few more are worth no packet of their own while others are under way
        self._sent_at = time.perf_counter()
        self._begun = self._begun or self._sent_at
        numbers = range(self._next, self._next + room)
        self._next += room
        return words.MessagesOffered(
            messages=[Message(self._stream, MessageId(number), 0, b"", row(number)) for number in numbers]
        )

    def _received(self, connection: socket.socket) -> source_client.Event:
        data = connection.recv(1 << 16)
        return events.BytesReceived(data=data) if data else events.ConnectionLost()


def main() -> None:
    """See the module."""
    directory, source, stream, count, window = sys.argv[1:]
    sent = Sender(Path(directory), source, int(stream), int(count), int(window)).run()
    print(msgspec.json.encode(sent).decode(), flush=True)


if __name__ == "__main__":
    main()
