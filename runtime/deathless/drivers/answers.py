"""What sinks answered, on its way to the service whose handlers wait: as a peer of that service, named like the driver.

    add --> kept, in order --PEER_WELCOME(from where)--> RESPONSE, RESPONSE, ... --PEER_COMMIT--> forgotten

Positions here are those of the service's session for this driver, and the service alone remembers them: a new
connection says from where, and everything that is not confirmed is sent again from there. It may then come twice.
That changes nothing, because the first RESPONSE to an operation counts, and likewise the first that tells of a message
which was given up; and another host may have sent in between, so
positions that went on without a PEER_COMMIT of ours prove nothing.

Guarantees: an answer is kept until the service has confirmed it; order is kept; whoever confirms nothing is connected
anew after STALL_S. Does not: outlive its process (a sink keeps answers, or the message comes again). Imports shell's
links, codec and base.
"""

from __future__ import annotations

import asyncio
import hashlib
import heapq
import random
import struct
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Final

from deathless.base.config import ReplicaConfig
from deathless.base.errors import TooLarge
from deathless.codec.frames import Run
from deathless.codec.peer_messages import PeerHello, Target, encode_response
from deathless.codec.wire import PeerIntroduction, Type, encode_batch, error_reply, struct_packet
from deathless.core import events as ev
from deathless.drivers.port import Answer, Source
from deathless.shell.worker.peer_links import PeerLinks

PACKET_BYTES_MAX: Final = 1 << 20  # of answers in one packet; a single larger one goes alone
WINDOW_MESSAGES: Final = 1024  # sent and not confirmed
REMEMBERED: Final = 1 << 16  # positions; a primary sends a quarter of this without an acknowledgement
STALL_S: Final = 5.0  # a service that confirms nothing for so long is connected anew
INCARNATION: Final = 1  # a driver has no log: there is nothing of it that could be created anew


def service_id(driver: str) -> bytes:
    """Give the id under which a driver introduces itself: the same for ever, also after a restore of the service."""
    return hashlib.blake2b(b"deathless driver " + driver.encode(), digest_size=16).digest()


class Answers:
    """Answers of one driver for one source.

    Args:
        config: of the replica beside us, with the service among its peers.
        driver: our name.
        source: whom to tell, and the epoch to name.
        confirmed: called when the service has confirmed some.
        message_bytes_max: a longer answer is replaced by an error.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        driver: str,
        source: Source,
        *,
        confirmed: Callable[[], None],
        message_bytes_max: int,
    ) -> None:
        self._confirmed = confirmed
        self._message_bytes_max = message_bytes_max
        self._target = Target(source.service, source.shard)
        hello = PeerHello(driver, 0, service_id(driver), INCARNATION)
        introduction = struct_packet(Type.PEER_HELLO, PeerIntroduction(hello, source.epoch))
        self._links = PeerLinks(
            config,
            introduce=lambda _: introduction,
            tell=self._told,
            chance=random.SystemRandom(),
            packet_bytes_max=1 << 20,
        )
        self._kept: deque[tuple[int, bytes]] = deque()  # (position of the delivery, RESPONSE), as they were added
        self._lowest: list[int] = []  # heap of their positions. Invariant: its top is not confirmed
        self._gone: set[int] = set()  # confirmed positions that are still in the heap
        self._added: set[int] = set()  # positions that were ever added, the highest REMEMBERED of them
        self._session = 0  # of the connection; 0: there is none
        self._base = 0  # position there of the first one kept
        self._sent = 0  # how many of those kept are sent
        self._stall: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()

    @property
    def lowest(self) -> int | None:
        """See session.Outgoing."""
        return self._lowest[0] if self._lowest else None

    def add(self, answers: Sequence[Answer]) -> None:
        """See session.Outgoing."""
        for answer in answers:
            if answer.position not in self._added:
                self._added.add(answer.position)
                heapq.heappush(self._lowest, answer.position)
                self._kept.append((answer.position, self._message(answer)))
        if len(self._added) > 2 * REMEMBERED:
            self._added = set(sorted(self._added)[-REMEMBERED:])
        if self._kept:
            self._links.dial(self._target)
            self._pump()

    def _message(self, answer: Answer) -> bytes:
        message = encode_response(answer.reference, answer.reply)
        if len(message) <= self._message_bytes_max:
            return message
        text = f"it was done; the answer has {len(answer.reply)} bytes, a message at most {self._message_bytes_max}"
        return encode_response(answer.reference, error_reply(TooLarge.code, TooLarge.__name__, text))

    # ---- the connection --------------------------------------------------------------------------------------

    def _told(self, event: ev.Event) -> None:
        match event:
            case ev.PeerReady(_, session, next_position):
                self._session, self._base, self._sent = session, next_position, 0
                self._pump()
            case ev.PeerCommitted(_, through):
                self._committed(through)
            case ev.PeerLost():
                self._session = self._sent = 0
                self._watch()
            case _:
                pass

    def _committed(self, through: int) -> None:
        count = min(through - self._base + 1, self._sent)
        if count <= 0:
            return
        for _ in range(count):
            self._gone.add(self._kept.popleft()[0])
        while self._lowest and self._lowest[0] in self._gone:
            self._gone.discard(heapq.heappop(self._lowest))
        self._base += count
        self._sent -= count
        self._watch()
        self._pump()
        self._confirmed()

    def _pump(self) -> None:
        while self._session and self._sent < min(len(self._kept), WINDOW_MESSAGES):
            parts: list[bytes] = []
            size = 0
            for _, message in list(self._kept)[self._sent : WINDOW_MESSAGES]:
                size += len(message)
                if parts and size > PACKET_BYTES_MAX:
                    break
                parts.append(message)
            ends = struct.pack(f"<{len(parts)}I", *accumulate(map(len, parts)))
            run = Run(self._session, self._base + self._sent, 0, len(parts))
            self._links.send(self._target, encode_batch(run, ends, b"".join(parts)))
            self._sent += len(parts)
            if self._stall is None:
                self._watch()

    def _watch(self) -> None:
        """Begin anew to wait for a confirmation."""
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None
        if self._sent:
            self._stall = self._loop.call_later(STALL_S, self._drop)

    def _drop(self) -> None:
        """Connect anew, and send everything again."""
        self._links.drop(self._target)
        self._session = self._sent = 0
        self._watch()
        if self._kept:
            self._links.dial(self._target)

    def close(self) -> None:
        """Forget everything."""
        self._kept.clear()
        self._lowest.clear()
        self._drop()
        self._links.close()
