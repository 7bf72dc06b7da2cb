"""Hold back or drop the packets of a netfilter queue: delay, jitter and loss for kernels without netem.

Why: netem is a module that small kernels lack. Run it in the network whose packets a `queue num N bypass` rule sends
here; with `bypass` they pass freely while nobody listens.

Guarantees: only packet ids come to this process, so that checksums and offloading stay as they are; no packet is left
behind when it ends; packets keep their order.

Does not: need anything but Python; it knows nothing of the lab.
"""

from __future__ import annotations

import argparse
import heapq
import random
import select
import signal
import socket
import struct
import sys
import time

_NETLINK_NETFILTER = 12
_SUBSYSTEM_QUEUE = 3
_PACKET, _VERDICT, _CONFIG = 0, 1, 2
_DROP, _ACCEPT = 0, 1
_REQUEST, _ACKNOWLEDGE = 1, 4
_QUEUE_PACKETS_MAX = 65536


def attribute(kind: int, data: bytes) -> bytes:
    """Return a netlink attribute: length (2 bytes), kind (2 bytes), data, padding to four bytes."""
    return struct.pack("=HH", 4 + len(data), kind) + data + b"\0" * (-len(data) % 4)


class Queue:
    """One netfilter queue of the network this process is in."""

    def __init__(self, number: int) -> None:
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER)
        self.socket.bind((0, 0))
        self._number = number
        self._sequence = 0
        self._configure(attribute(1, struct.pack("!BBH", 1, 0, 0)))  # bind
        self._configure(attribute(2, struct.pack("!IB", 0, 1)))  # copy no packet data
        self._configure(attribute(3, struct.pack("!I", _QUEUE_PACKETS_MAX)))
        self._configure(attribute(5, struct.pack("!I", 4)) + attribute(4, struct.pack("!I", 4)))  # large packets whole

    def _send(self, kind: int, body: bytes, flags: int) -> None:
        """Send one message: netlink header (16 bytes), netfilter header (4 bytes), attributes."""
        self._sequence += 1
        message = struct.pack("=BBH", 0, 0, socket.htons(self._number)) + body
        header = struct.pack("=IHHII", 16 + len(message), _SUBSYSTEM_QUEUE << 8 | kind, flags, self._sequence, 0)
        self.socket.send(header + message)

    def _configure(self, body: bytes) -> None:
        """Change a setting and check the answer."""
        self._send(_CONFIG, body, _REQUEST | _ACKNOWLEDGE)
        (error,) = struct.unpack_from("=i", self.socket.recv(65536), 16)
        if error:
            raise OSError(-error, "configuring the queue")

    def decide(self, packet: int, verdict: int) -> None:
        """Accept or drop a packet."""
        self._send(_VERDICT, attribute(2, struct.pack("!II", verdict, packet)), _REQUEST)

    def receive(self) -> list[int]:
        """Return the ids of the packets that have come."""
        buffer = self.socket.recv(1 << 20)
        packets, offset = [], 0
        while offset + 20 <= len(buffer):
            length, kind = struct.unpack_from("=IH", buffer, offset)
            here, end = offset + 20, offset + length
            while kind == _SUBSYSTEM_QUEUE << 8 | _PACKET and here + 4 <= end:
                size, which = struct.unpack_from("=HH", buffer, here)
                if which & 0x7FFF == 1:
                    packets.append(struct.unpack_from("!I", buffer, here + 4)[0])
                here += (size + 3) & ~3
            offset += (length + 3) & ~3
        return packets


def serve(queue: Queue, *, delay_s: float, jitter_s: float, loss: float, seed: int) -> None:
    """Hold packets back until the process is told to end."""
    chance = random.Random(seed)
    held: list[tuple[float, int, int]] = []
    last, count = 0.0, 0
    try:
        while True:
            now = time.monotonic()
            while held and held[0][0] <= now:
                queue.decide(heapq.heappop(held)[2], _ACCEPT)
            wait_s = held[0][0] - now if held else 1.0
            if not select.select([queue.socket], [], [], max(0.0, wait_s))[0]:
                continue
            now = time.monotonic()
            for packet in queue.receive():
                if chance.random() < loss:
                    queue.decide(packet, _DROP)
                    continue
                last = max(last, now + max(0.0, delay_s + chance.uniform(-jitter_s, jitter_s)))
                count += 1
                heapq.heappush(held, (last, count, packet))
    finally:
        while held:
            queue.decide(heapq.heappop(held)[2], _ACCEPT)


def main() -> None:
    """Read the command line and serve."""
    parser = argparse.ArgumentParser(description="Hold back the packets of a netfilter queue.")
    parser.add_argument("--queue", type=int, default=7)
    parser.add_argument("--delay", type=float, default=0.0, help="seconds")
    parser.add_argument("--jitter", type=float, default=0.0, help="seconds, up or down")
    parser.add_argument("--loss", type=float, default=0.0, help="probability, in [0, 1]")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    queue = Queue(options.queue)
    serve(queue, delay_s=options.delay, jitter_s=options.jitter, loss=options.loss, seed=options.seed)


if __name__ == "__main__":
    main()
