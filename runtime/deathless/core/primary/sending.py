"""What a primary sends to other services: from its outbox, by position, never more than is confirmed (I1).

One machine per target; ourselves (SELF) are no target here, see core.tables.own_work.

    WAITING --PeerReady, from a position that is kept--> STREAMING --PeerLost, or no progress for long--> WAITING
       |  ^--RESTING, for a while <-----PeerReady or PeerCommitted with a position that makes no sense
       '-----ADOPTING (an operator replaces the peer)--> WAITING

    kept:  first position .. acknowledged .. cursor .. confirmed .. next position
              '-- TRIM is logged --'  '-- sent --'  '- may be sent -'  '-- frames without a proof --'

The peer says from where (PEER_WELCOME), we stream: everything up to "confirmed", at most `peer_window_bytes_max`
without its PEER_COMMIT. Positions and bytes are a function of the log's prefix, so whatever a deposed primary sends
late is a plain retry of what its successor sends at the same position (I2). What the peer has confirmed is logged as
TRIM, one per target and frame, TRIM_S late so that it rides on a frame that is written anyway.

Who sees what: a peer that asks for a position that is trimmed has lost what it confirmed (PeerBehind); one that has
positions we never confirmed has heard of a successor of ours, and we ask the fence. If that says that there is none, it
is we who lost them: we were put back to an older state (HistoryDiffers). So are we where the history that the peer has
is another one than ours at its position (codec.peer_history): either was copied or put back, and went on differently.
Sent all the same, our messages would be taken for repetitions there and be lost for ever. All are told to operators of
both sides and tried again, for ever (I4): nothing is ever given up, no handler ever hears of a connection.

Conflicts: an ADOPT record empties the outbox of its target while older frames may still wait for their proof. From the
order to its confirmation nothing is sent to that target and nothing trimmed; then it begins at position 1.

Guarantees: one slow or dead peer holds back nobody else (I10). Does not: connect, run, know what is in a message.
Imports core, codec and base.
"""

from __future__ import annotations

import enum
import struct
from collections import deque
from collections.abc import Sequence
from itertools import accumulate
from typing import Final, NamedTuple

from deathless.base.backoff import next_pause
from deathless.base.errors import HistoryDiffers, PeerBehind
from deathless.base.limits import Limits
from deathless.base.safeguards import Safeguards
from deathless.codec.frames import Run
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_history import UNKNOWN, differ
from deathless.codec.peer_messages import SELF, PeerHello, Target, Trim, encode_body
from deathless.codec.wire import PeerIntroduction, encode_batch
from deathless.core.effects import DialPeer, DropPeer, Effect, SendPeer
from deathless.core.tables.outbox import Outbox
from deathless.core.tables.peer_table import PeerTable

BATCH_BYTES_MAX: Final = 1 << 20  # messages of one packet; a single larger one goes alone
FLIGHT_MESSAGES_MAX: Final = 16_384  # sent to one peer and not confirmed by it, beside `peer_window_bytes_max`
TRIM_S: Final = 0.05  # a confirmation of a peer is logged by itself after this
STALL_S: Final = 1.0  # a peer that confirms nothing for so long is connected anew; doubles
STALL_MAX_S: Final = 8.0


class Stage(enum.Enum):
    """Where one target stands; the picture is in the module's docstring."""

    WAITING = "waiting for a connection"
    STREAMING = "streaming"
    RESTING = "resting before the next attempt"
    ADOPTING = "being replaced"


class PeerView(NamedTuple):
    """One target, for operators and metrics."""

    target: Target
    stage: Stage
    kept: int  # messages that the peer has not confirmed, as far as we logged it
    problem: str  # what was wrong last; empty: nothing


class Outgoing:
    """One target; written by Outreach alone."""

    __slots__ = (
        "acked", "complaint", "cursor", "flights", "problem", "session", "stage", "unacked_bytes", "wait_s", "wake_at"
    )  # fmt: skip

    def __init__(self) -> None:
        self.stage = Stage.WAITING
        self.session = 0  # ours, at the peer
        self.acked = 0  # the peer has confirmed up to here, as it said on this connection
        self.cursor = 1  # next position to send. Invariant: acked < cursor while STREAMING
        self.flights: deque[tuple[int, int]] = deque()  # (last position, bytes) of packets sent and not confirmed
        self.unacked_bytes = 0  # Invariant: of the flights
        self.wait_s = STALL_S  # patience
        self.wake_at: float | None = None  # when patience, or the rest, ends. Invariant: set while RESTING
        self.problem = ""
        self.complaint = (
            ""  # what the peer's operators hear; empty: we send, or know of nothing that only they can mend
        )

    def land(self) -> None:
        """Forget what is under way."""
        self.flights.clear()
        self.unacked_bytes = 0
        self.wake_at = None


class Outreach:
    """All targets of a primary.

    Args:
        outbox, peers: the shard's; read here, changed only where frames run.
    """

    def __init__(self, *, outbox: Outbox, peers: PeerTable, limits: Limits, safeguards: Safeguards) -> None:
        self.doubted = False  # a peer has heard of what we never confirmed: ask the fence; who asks sets it False
        self._outbox = outbox
        self._peers = peers
        self._window = limits.peer_window_bytes_max
        self._batch_bytes = min(BATCH_BYTES_MAX, limits.message_bytes_max)
        self._confirmed_only = safeguards.send_confirmed_only
        self._compare = safeguards.peer_history
        self._claims: dict[Target, str] = {}  # of what we never confirmed, as peers tell; since the last proof began
        self._judged: dict[Target, str] = {}  # the same, heard before the proof under way began
        self._targets: dict[Target, Outgoing] = {}
        # Next position behind what is confirmed. Invariant: never above the outbox's, but for a target that is ADOPTING
        self._confirmed = {target: outbox.next_position(target) for target in outbox.targets()}
        self._trims: dict[Target, int] = {}  # confirmed by the peer, not logged yet
        self._logging: dict[Target, int] = {}  # the same, in the frame on its way to the log
        self._trim_at: float | None = None  # when they make a frame by themselves. Invariant: set while there are any
        self._adopting: dict[Target, int | None] = {}  # session of the peer before; None: it was not known

    def begin(self) -> list[Effect]:
        """We lead: find everybody for whom there is something."""
        outbox = self._outbox
        kept = [target for target in outbox.targets() if target != SELF and outbox.keeps(target)]
        return [effect for target in kept for effect in self._dial(target)]

    def _dial(self, target: Target) -> list[Effect]:
        self._targets[target] = Outgoing()
        return [DialPeer(target)]

    # ---- the connection --------------------------------------------------------------------------------------

    def introduction(self, target: Target, hello: PeerHello, epoch: int) -> PeerIntroduction:
        """Give what we say to a target on connecting.

        Args:
            target: whom we dial.
            hello: who we are.
            epoch: in which we lead.
        """
        first = self.first_kept(target)
        history = self._outbox.history_before(target, first) if self._compare else UNKNOWN
        peer = self._targets.get(target)
        return PeerIntroduction(hello, epoch, first, history, peer.complaint if peer is not None else "")

    def ready(
        self, target: Target, session: int, next_position: int, now: float, history: bytes = UNKNOWN
    ) -> list[Effect]:
        """The peer takes messages from this position on; everything below it has confirmed.

        Args:
            target: the peer.
            session: ours there.
            next_position: what it takes next.
            now: monotonic seconds.
            history: before that, as it knows it.
        """
        peer = self._targets.get(target)
        if peer is None or peer.stage in (Stage.ADOPTING, Stage.RESTING):
            return []  # late: of a connection that was dropped
        floor = self.first_kept(target) - 1
        if next_position <= floor:
            text = f"it asks for message {next_position}, and confirmed all up to {floor} before"
            peer.complaint = str(PeerBehind(f"you ask for message {next_position}, and confirmed all up to {floor}"))
            return self._rest(target, peer, str(PeerBehind(text)), now)
        if next_position > self._confirmed.get(target, 1):
            self._claimed(target, next_position - 1)
            return self._rest(target, peer, f"it asks for message {next_position}, which we have not sent", now)
        if self._compare and differ(self._outbox.history_before(target, next_position), history):
            self._differs(peer, f"the peer has other messages up to {next_position - 1} than were sent from here")
            return self._rest(target, peer, peer.problem, now)
        if peer.complaint:  # it was only told where it stands; without a complaint it is welcomed
            peer.complaint = ""
            self._rest(target, peer, "it has our history again", now)
            peer.wake_at = now
            return [DropPeer(target)]
        peer.land()
        peer.stage = Stage.STREAMING
        peer.problem = ""
        peer.session = session
        peer.cursor = next_position
        peer.acked = next_position - 1
        if peer.acked > floor:
            self._trim(target, peer.acked, now)
        return self._pump(target, peer, now)

    def first_kept(self, target: Target) -> int:
        """Give the first position that the target has not confirmed, as far as we heard: PEER_HELLO says it."""
        floor = max(self._outbox.first_position(target) - 1, self._trims.get(target, 0), self._logging.get(target, 0))
        return floor + 1

    def _claimed(self, target: Target, through: int) -> None:
        """A peer has what we never confirmed: a successor's, unless the fence knows of none."""
        self.doubted = True
        known = self._confirmed.get(target, 1) - 1
        self._claims[target] = f"the peer has {through} messages of this service, which has sent {known}"

    def proof_began(self) -> None:
        """The fence is being asked whether we still lead."""
        self._judged, self._claims = self._claims, {}

    def proved(self) -> None:
        """We lead: nobody but us, or who we were, can have sent what peers claim to have heard before the question."""
        judged, self._judged = self._judged, {}
        for target, why in judged.items():
            peer = self._targets.get(target)
            if peer is not None and self._compare and peer.stage in (Stage.WAITING, Stage.RESTING):
                self._differs(peer, f"{why}: it was put back to an older state")

    @staticmethod
    def _differs(peer: Outgoing, why: str) -> None:
        peer.problem = peer.complaint = str(HistoryDiffers(why))

    def differing(self) -> set[Target]:
        """Give the targets with which we have not one history."""
        return {target for target, peer in self._targets.items() if peer.complaint}

    def _rest(self, target: Target, peer: Outgoing, problem: str, now: float) -> list[Effect]:
        peer.land()
        peer.stage = Stage.RESTING
        peer.problem = problem
        peer.wake_at = now + peer.wait_s
        peer.wait_s = next_pause(peer.wait_s, first_s=STALL_S, most_s=STALL_MAX_S)
        return [DropPeer(target)]

    def lost(self, target: Target) -> None:
        """The connection ended; the shell looks for the peer's primary again."""
        peer = self._targets.get(target)
        if peer is not None and peer.stage is Stage.STREAMING:
            peer.land()
            peer.stage = Stage.WAITING

    def committed(self, target: Target, through: int, now: float) -> list[Effect]:
        """The peer has confirmed up to `through`: that may be what our predecessor sent."""
        peer = self._targets.get(target)
        if peer is None or peer.stage is not Stage.STREAMING or through <= peer.acked:
            return []
        if through >= self._confirmed.get(target, 1):
            self._claimed(target, through)
            return self._rest(target, peer, f"it confirms message {through}, which we have not sent", now)
        peer.acked = through
        peer.cursor = max(peer.cursor, through + 1)
        while peer.flights and peer.flights[0][0] <= through:
            peer.unacked_bytes -= peer.flights.popleft()[1]
        peer.wait_s = STALL_S
        peer.wake_at = now + STALL_S if peer.flights else None
        self._trim(target, through, now)
        return self._pump(target, peer, now)

    # ---- sending ---------------------------------------------------------------------------------------------

    def frame_confirmed(self, sent: Sequence[tuple[Target, int]], now: float) -> list[Effect]:
        """A proof covers a frame: what its turns sent may leave."""
        effects: list[Effect] = []
        for target, next_position in sent:
            self._confirmed[target] = next_position
            if target == SELF:
                continue
            peer = self._targets.get(target)
            if peer is None and target in self._adopting:
                self._targets[target] = Outgoing()
                self._targets[target].stage = Stage.ADOPTING
            elif peer is None:
                effects += self._dial(target)
            elif peer.stage is Stage.STREAMING:
                effects += self._pump(target, peer, now)
        return effects

    def _pump(self, target: Target, peer: Outgoing, now: float) -> list[Effect]:
        """Send what is confirmed, as far as the window allows."""
        parts: list[bytes] = []
        outbox = self._outbox
        end = self._confirmed.get(target, 1) if self._confirmed_only else outbox.next_position(target)
        while peer.cursor < end:
            room = self._window - peer.unacked_bytes
            count_max = min(end - peer.cursor, FLIGHT_MESSAGES_MAX - (peer.cursor - 1 - peer.acked))
            if room <= 0 or count_max <= 0:
                break
            found = outbox.messages_from(target, peer.cursor, min(room, self._batch_bytes))[:count_max]
            ends = list(accumulate(map(len, found)))
            if peer.flights and ends[-1] > room:
                break  # a large one, which goes alone
            count = len(found)
            run = Run(peer.session, peer.cursor, 0, count)
            parts.append(encode_batch(run, struct.pack(f"<{count}I", *ends), b"".join(found)))
            peer.cursor += count
            peer.flights.append((peer.cursor - 1, ends[-1]))
            peer.unacked_bytes += ends[-1]
        if not parts:
            return []
        if peer.wake_at is None:
            peer.wake_at = now + peer.wait_s
        return [SendPeer(target, parts[0] if len(parts) == 1 else b"".join(parts))]

    # ---- what the peer has confirmed -------------------------------------------------------------------------

    def _trim(self, target: Target, through: int, now: float) -> None:
        self._trims[target] = through
        if self._trim_at is None:
            self._trim_at = now + TRIM_S

    def trims_due(self, now: float) -> bool:
        """Shall what peers have confirmed be logged now, also in a frame of its own?"""
        return self._trim_at is not None and now >= self._trim_at

    @property
    def trimming(self) -> bool:
        """Is there a trim for the next frame, due or not?"""
        return bool(self._trims or self._logging)

    def take_trims(self, count_max: int) -> list[bytes]:
        """Give the TRIM records for the next frame."""
        assert not self._logging, "one frame is written at a time"
        targets = list(self._trims)[:count_max]
        self._logging = {target: self._trims.pop(target) for target in targets}
        if not self._trims:
            self._trim_at = None
        return [
            encode(Kind.TRIM, args=encode_body(Trim(target.service, target.shard, through)))
            for target, through in self._logging.items()
        ]

    def frame_refused(self, now: float) -> None:
        """There was no room for the frame."""
        for target, through in self._logging.items():
            if target not in self._adopting:  # behind the ADOPT record it would forget what the new one never got
                self._trim(target, max(through, self._trims.get(target, 0)), now)
        self._logging = {}

    def frame_synced(self) -> None:
        """The frame ran and is durable."""
        self._logging = {}

    # ---- a peer that was created anew ------------------------------------------------------------------------

    def adopt_ordered(self, target: Target) -> list[Effect]:
        """An ADOPT record is to be logged: nothing of the old numbering may leave, or be trimmed, behind it."""
        assert target not in self._adopting, "one at a time"
        known = self._peers.get(target)
        self._adopting[target] = known.session if known is not None else None
        self._trims.pop(target, None)
        if not self._trims:
            self._trim_at = None
        peer = self._targets.get(target)
        if peer is None:
            return []
        peer.land()
        peer.stage = Stage.ADOPTING
        peer.problem = peer.complaint = ""
        self._claims.pop(target, None)
        self._judged.pop(target, None)
        return [DropPeer(target)]

    def adopting(self, target: Target) -> bool:
        """Is an ADOPT record of this target under way?"""
        return target in self._adopting

    def adopted(self, target: Target) -> list[Effect]:
        """The record is confirmed, and `frame_confirmed` of its frame follows; positions begin anew."""
        before = self._adopting.pop(target)
        known = self._peers.get(target)
        if known is not None and known.session != before:
            self._confirmed[target] = 1
        return self._dial(target) if target in self._targets else []

    # ---- time ------------------------------------------------------------------------------------------------

    def timer_fired(self, now: float) -> list[Effect]:
        """Lose patience with who confirms nothing; try those again that had a rest."""
        effects: list[Effect] = []
        for target, peer in self._targets.items():
            if peer.wake_at is None or now < peer.wake_at:
                continue
            if peer.stage is Stage.STREAMING:
                wait_s = peer.wait_s
                effects += self._rest(target, peer, f"it confirmed nothing for {wait_s:g} s", now)
            peer.land()
            peer.stage = Stage.WAITING
            effects.append(DialPeer(target))
        return effects

    def deadline(self) -> float | None:
        """When timer_fired is due."""
        return min([peer.wake_at for peer in self._targets.values() if peer.wake_at is not None], default=None)

    @property
    def trim_deadline(self) -> float | None:
        """When what peers have confirmed makes a frame by itself; None: there is none."""
        return self._trim_at

    # ---- for others ------------------------------------------------------------------------------------------

    def views(self) -> list[PeerView]:
        """Say how each target stands."""
        outbox = self._outbox
        return [
            PeerView(target, peer.stage, outbox.next_position(target) - outbox.first_position(target), peer.problem)
            for target, peer in sorted(self._targets.items())
        ]

    def check_invariants(self) -> None:
        """Raise AssertionError when an `Invariant:` above does not hold."""
        assert (self._trim_at is not None) == bool(self._trims)
        assert not self._trims.keys() & self._adopting.keys()
        for target, next_position in self._confirmed.items():
            assert target in self._adopting or next_position <= self._outbox.next_position(target)
        for peer in self._targets.values():
            assert peer.unacked_bytes == sum(size for _, size in peer.flights)
            assert peer.stage is Stage.STREAMING or not peer.flights
            assert peer.stage is not Stage.STREAMING or peer.acked < peer.cursor
            assert peer.stage is not Stage.RESTING or peer.wake_at is not None
