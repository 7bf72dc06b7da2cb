"""A client's links, its states and its periods; the records that `ClientMachine` works on.

Periods are seconds, counts and sizes are named maxima (I10). They decide when to ask again, never what is true (I2).
Guarantees: nothing by itself. Does not: change state; `core.client.machine` does. Imports codec.
"""

from __future__ import annotations

import enum
from typing import Final

from deathless.codec.wire import PacketReader
from deathless.core.client.events import LinkId

PRIMARY_ROLE: Final = "primary"
PING_S: Final = 0.05  # silence of a primary that owes us something before we ping it
SUSPECT_S: Final = 0.1  # silence before we ask another replica
RESULTS_PATIENCE_S: Final = 0.5  # the two are so much longer while only results are owed, which may take days
WATCH_S: Final = 0.5  # how long one watcher is kept while `main` stays silent, before another is asked
RESEND_S: Final = 0.5  # a live primary without progress gets everything again after this; doubles
RESEND_MAX_S: Final = 8.0  # the first pause already while only results are owed
ACK_S: Final = 0.05  # replies are acknowledged by themselves after this
BACKOFF_MIN_S: Final = 0.001  # after a round of all replicas without success; doubles
BACKOFF_MAX_S: Final = 0.25
WAITING_S: Final = 0.1  # the shortest pause between rounds while a replica is at hand that will tell us of the primary
GREET_S: Final = 0.25  # dial to WELCOME; doubles per failed round
GREET_MAX_S: Final = 5.0
REPLY_PACKET_BYTES_MAX: Final = 64 << 20  # one REPLIES packet
BATCH_COUNT_MAX: Final = 4096  # calls in one BATCH
BATCH_BYTES_MAX: Final = 1 << 20  # bytes of its messages; never above the server's message_bytes_max
QUERY_COUNT_MAX: Final = 1024  # queries in one packet
QUERIES_IN_FLIGHT_MAX: Final = 4096
WINDOW_MAX: Final = 16384  # calls without a reply
WINDOW_BYTES_MAX: Final = 16 << 20  # their bytes


class State(enum.Enum):
    """Where the client stands; see the module."""

    SEEKING = "seeking"
    REGISTERING = "registering"
    READY = "ready"
    CLOSED = "closed"


class LinkState(enum.Enum):
    """Where a link stands; see the module."""

    DIALING = "dialing"
    GREETING = "greeting"
    FOLLOWING = "following"
    LEADING = "leading"


class Link:
    """One link; written by the machine alone."""

    __slots__ = (
        "address",
        "deadline",
        "epoch",
        "heard_at",
        "hello_session",
        "id",
        "incarnation",
        "named",
        "next_seq",
        "pinged",
        "reader",
        "secret",
        "state",
    )

    def __init__(self, link: LinkId, address: str, deadline: float) -> None:
        self.id = link
        self.address = address
        self.state = LinkState.DIALING
        self.deadline = deadline  # when we lose patience with a probe
        self.reader = PacketReader(REPLY_PACKET_BYTES_MAX)
        self.heard_at = 0.0
        self.pinged = False  # a PING is out since `heard_at`
        self.epoch = 0
        self.incarnation = 0
        self.named = False  # HELLO named our session or incarnation
        self.hello_session = 0  # the session named in HELLO
        self.secret = b""  # of the session that may be spoken in here: HELLO showed it, or it was registered here
        self.next_seq: int | None = None  # the next expected of it, when the primary itself said so

    def outdoes(self, main: Link, *, suspected: bool) -> bool:
        """Is this replica, which has just told its role, rather to be talked to than the one at hand?

        Args:
            main: the link to the one at hand.
            suspected: that one leads, and is silent.
        """
        if self.state is LinkState.FOLLOWING:
            return main.state is LinkState.FOLLOWING and self.epoch > main.epoch
        if main.state is LinkState.FOLLOWING or self.epoch > main.epoch:
            return True
        return suspected and (self.epoch == main.epoch or self.incarnation != main.incarnation)
