"""A load generator for the binary protocol: many sessions, or many calls of one on their way, for a fixed time.

It is to our protocol what wrk is to HTTP and pgbench to PostgreSQL: it sends encoded calls, checks that every one is
answered once, in order and with OK, and measures. Run it in a process of its own, so that what it costs is not in
the figures of whoever reads them: `python -m bench.load ADDRESS --clients 64 --window 1 --seconds 2` prints JSON.

Guarantees: calls per second count replies received within the time. Does not: reconnect, or follow a takeover.
"""

from __future__ import annotations

import argparse
import select
import socket
import struct
import sys
import time
from itertools import accumulate
from operator import itemgetter
from typing import Final

import msgspec

from bench.figures import percentile
from deathless.codec.frames import Run
from deathless.codec.messages import Kind, encode
from deathless.codec.versions import say_hello
from deathless.codec.wire import (
    REPLIES_HEAD,
    PacketReader,
    Registered,
    Type,
    decode_struct,
    encode_batch,
    packet,
    struct_packet,
)

KEYS: Final = 1000
NOTE: Final = "x" * 48  # makes the arguments 64 bytes
ARGUMENTS: Final = msgspec.msgpack.encode({"amount": 1, "note": NOTE})
assert len(ARGUMENTS) == 64
RECEIVE_BYTES: Final = 1 << 20
_first = itemgetter(0)


class Load(msgspec.Struct):
    """What one run gave."""

    calls: int
    seconds: float
    per_second: float
    p50_us: float
    p99_us: float
    worst_us: float
    processor_us: float  # of the generator itself, per call


class Broken(Exception):
    """The service answered something else than every call once."""


class Messages:
    """Encoded calls of equal length on `KEYS` keys, so that any stretch of them is a slice."""

    def __init__(self) -> None:
        self.all = [encode(Kind.CALL, method=b"add", key=b"key%04d" % n, args=ARGUMENTS) for n in range(KEYS)]
        self.size = len(self.all[0])
        self._blob = b"".join(self.all) * 3
        self._ends = struct.pack(f"<{2 * KEYS}I", *accumulate([self.size] * (2 * KEYS)))

    def batch(self, session: int, first_seq: int, count: int) -> bytes:
        """A BATCH of the calls from `first_seq` on; all before it are acknowledged."""
        start = first_seq % KEYS * self.size
        run = Run(session, first_seq, first_seq - 1, count)
        return encode_batch(run, self._ends[: 4 * count], self._blob[start : start + count * self.size])


def hello(service: str) -> bytes:
    """The first packet of a connection."""
    return struct_packet(Type.HELLO, say_hello("client", service, "load"))


class Caller:
    """One session on one connection, with `window` calls on their way."""

    def __init__(self, address: str, service: str, messages: Messages, window: int) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._reader = PacketReader(64 << 20)
        self._messages = messages
        self._window = window
        self.next_seq = 1  # of the next call to send
        self.answered = 0  # replies up to this seq are here
        self.session = self._register(service)
        self._sent: list[tuple[int, float]] = []  # (last seq, when) of each batch on its way
        self.latencies: list[float] = []

    def _register(self, service: str) -> int:
        nonce = struct.pack("<QQ", id(self), time.time_ns())
        self.socket.sendall(hello(service))
        self.socket.sendall(packet(Type.REGISTER, nonce))
        while True:
            for kind, body in self._reader.feed(self.socket.recv(RECEIVE_BYTES)):
                if kind == Type.REGISTERED:
                    registered: Registered = decode_struct(Registered, body)
                    return registered.session

    def begin(self) -> None:
        """Fill the window: in two halves, so that one is run while the other is on its way."""
        half = max(1, self._window // 2)
        for count in (half, self._window - half):
            if count:
                self._send(count)

    def _send(self, count: int) -> None:
        self.socket.sendall(self._messages.batch(self.session, self.next_seq, count))
        self.next_seq += count
        self._sent.append((self.next_seq - 1, time.perf_counter()))

    def readable(self, *, go_on: bool) -> int:
        """Take replies in and send as many calls again. Returns: replies. Raises: Broken."""
        data = self.socket.recv(RECEIVE_BYTES)
        if not data:
            raise Broken("the service closed the connection")
        got = 0
        for kind, body in self._reader.feed(data):
            if kind == Type.REPLIES:
                got += self._check(body)
            elif kind == Type.BATCH_REFUSED:
                raise Broken(f"refused: {body!r}")
        if not got:
            return 0
        now = time.perf_counter()
        while self._sent and self._sent[0][0] <= self.answered:
            self.latencies.append(now - self._sent.pop(0)[1])
        if go_on:
            self._send(got)
        return got

    def _check(self, body: bytes) -> int:
        """Every reply is the next one and is OK."""
        count: int = REPLIES_HEAD.unpack_from(body)[1]
        at = REPLIES_HEAD.size
        seqs = struct.unpack_from(f"<{count}Q", body, at)
        ends = struct.unpack_from(f"<{count}I", body, at + 8 * count)
        blob = body[at + 12 * count :]
        if seqs != tuple(range(self.answered + 1, self.answered + 1 + count)):
            raise Broken(f"replies {seqs[0]} to {seqs[-1]} behind {self.answered}")
        if blob[0] or (count > 1 and any(itemgetter(*ends[:-1])(blob) if count > 2 else (blob[ends[0]],))):
            raise Broken("a call was answered with an error")
        self.answered += count
        return count


def run(address: str, service: str, *, clients: int, window: int, seconds: float) -> Load:
    """Call for `seconds`. Raises: Broken, OSError."""
    messages = Messages()
    callers = [Caller(address, service, messages, window) for _ in range(clients)]
    by_descriptor = {caller.socket.fileno(): caller for caller in callers}
    poll = select.epoll()
    for descriptor in by_descriptor:
        poll.register(descriptor, select.EPOLLIN)
    began, used = time.perf_counter(), time.process_time()
    for caller in callers:
        caller.begin()
    calls, end = 0, began + seconds
    while (now := time.perf_counter()) < end:
        for descriptor, _ in poll.poll(1.0):
            calls += by_descriptor[descriptor].readable(go_on=True)
    took, used = now - began, time.process_time() - used
    while any(caller.answered < caller.next_seq - 1 for caller in callers):
        for descriptor, _ in poll.poll(5.0):
            by_descriptor[descriptor].readable(go_on=False)
    poll.close()
    for caller in callers:
        caller.socket.close()
    latencies = [latency * 1e6 for caller in callers for latency in caller.latencies] or [0.0]
    return Load(
        calls,
        took,
        calls / took,
        percentile(latencies, 50),
        percentile(latencies, 99),
        max(latencies),
        used / max(calls, 1) * 1e6,
    )


def main() -> int:
    """Run as the arguments say; prints one line of JSON."""
    parser = argparse.ArgumentParser(description="Load a replica over the binary protocol.")
    parser.add_argument("address")
    parser.add_argument("--service", default="bench")
    parser.add_argument("--clients", type=int, default=1)
    parser.add_argument("--window", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=2.0)
    options = parser.parse_args()
    load = run(
        options.address, options.service, clients=options.clients, window=options.window, seconds=options.seconds
    )
    print(msgspec.json.encode(load).decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
