"""Sends the lines of a file to a service as one stream: `python -m examples.readings.send HOST:PORT,HOST:PORT FILE`.

Line n is message n, and the service says behind which one to go on. So this may be killed and started again at any
time, and each line is taken in once.
"""

import itertools
import socket
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

from deathless.protocols.connector import events, source_client
from deathless.protocols.connector import source_events as words
from deathless.protocols.connector.frames import Message, MessageId, StreamId

SILENCE_S = 5.0  # whoever says nothing for so long is frozen, or gone
PAUSE_S = 0.1  # before the next attempt


def send(addresses: Iterable[tuple[str, int]], stream: int, rows: Sequence[bytes], instance: str) -> None:
    """Send all rows and the end of the stream; returns once everything is acknowledged."""
    for address in addresses:
        try:
            with socket.create_connection(address, SILENCE_S) as connection:
                if _session(connection, StreamId(stream), rows, instance):
                    return
        except OSError as error:
            print(f"{address}: {error}", file=sys.stderr)
        time.sleep(PAUSE_S)


def _session(connection: socket.socket, stream: StreamId, rows: Sequence[bytes], instance: str) -> bool:
    """Use one connection as far as it goes; says whether all is done."""
    client = source_client.SourceClient(program="deathless-example", instance=instance)
    event: source_client.Event | None = events.ConnectionOpened()
    sent = -1  # rows so far; -1: the stream is not open
    while True:
        following: source_client.Event | None = None
        if event is None:
            data = connection.recv(1 << 16)
            event = events.BytesReceived(data=data) if data else events.ConnectionLost()
        for effect in client.handle(event):
            match effect:
                case events.Send(data=data):
                    connection.sendall(data)
                case words.SessionOpened():
                    following = words.StreamWanted(stream=stream, name=b"readings")
                case words.StreamOpened(last=last):
                    sent = 0 if last is None else last + 1
                case words.StreamEnded():
                    return True
                case events.Close(text=text):
                    print(text, file=sys.stderr)
                    return False
                case words.StreamDenied():
                    return False  # another sender is at work
                case _:
                    pass  # what is acknowledged need not be kept; here the file has it
        if following is None and 0 <= sent < len(rows) and client.credits:
            some = list(itertools.islice(enumerate(rows), sent, sent + client.credits))
            sent += len(some)
            following = words.MessagesOffered(messages=[Message(stream, MessageId(n), 0, b"", row) for n, row in some])
        elif following is None and sent >= len(rows) and client.stream_state(stream) is source_client.StreamState.OPEN:
            following = words.EndOffered(stream=stream)
        event = following


def main() -> None:
    """See the module."""
    addresses = [(host, int(port)) for host, _, port in (each.rpartition(":") for each in sys.argv[1].split(","))]
    rows = Path(sys.argv[2]).read_bytes().splitlines()
    send(itertools.cycle(addresses), 1, rows, f"{socket.gethostname()}/{sys.argv[2]}")


if __name__ == "__main__":
    main()
