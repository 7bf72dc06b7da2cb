"""Every maximum of the runtime, by name (I10).

Why: a buffer, queue, retry or frame without a named maximum is an outage waiting for its day.
Guarantees: `Limits.validate` checks the relations between them as formulas, at start.
Does not: enforce anything; each owner of a buffer does. Imports nothing of ours but errors.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Final

from deathless.base.errors import InvalidConfig

REPLICATED: Final = (
    "entity_bytes_max", "idempotency_bytes_max", "idempotency_keys_max", "idempotency_window_s", "invocations_max",
    "item_bytes_max", "journal_bytes_max", "key_bytes_max", "key_queue_max", "message_bytes_max", "operations_max",
    "peers_max", "reply_bytes_max", "results_bytes_max", "results_kept_s", "results_max", "session_idle_max_s",
    "sessions_max", "suspended_bytes_max", "targets_max", "time_jump_max_s", "unknown_outcomes_max",
)  # fmt: skip
"""Limits that the state is a function of, beside the log: they are part of the fingerprint (I6), so that replicas with
others of these never run one log."""

NESTING_MAX: Final = 200
"""Containers inside each other in arguments, a state or a result. No setting: every process and client goes by it."""

SILENT_CONNECTIONS_MAX: Final = 256
"""Connections of one port that have not said yet what they want (HELLO, a whole first request); a quarter of all that
the port has room for, where that is less. One more ends the oldest of them."""

FIRST_WORD_MAX_S: Final = 5.0
"""A connection that has not said who it is by then is closed; so is one whose TLS handshake is not done."""

FIRST_REQUEST_MAX_S: Final = 10.0
"""A HTTP connection without a byte of a first request is closed after this."""

TURN_MEMORY_BYTES_MAX: Final = 512 << 20
"""What turns may take beyond what their worker has; where its container has less than four times as much, a quarter."""

CALLER_TOKEN_BYTES_MAX: Final = 12 << 10
"""One token of a caller; a longer one is refused unread. HTTP's own limit of a header is above it."""

CALLER_TOKENS_MAX: Final = 1024
"""Tokens of callers that are good at a time; each costs every request a comparison."""

CALLER_FILES_MAX: Final = 256
"""Files of a folder that callers' tokens are read from."""

CALLERS_WAITING_MAX: Final = 1024
"""HTTP requests that wait for an issuer's keys."""

ISSUER_ANSWER_BYTES_MAX: Final = 512 << 10
"""What is read of an issuer's answer."""

ISSUER_KEYS_MAX: Final = 128
"""Keys of an issuer that are kept."""

KNOWN_TOKENS_MAX: Final = 4096
"""Tokens of an issuer whose signature was checked, by their hashes; the oldest goes first."""


REFUSED_PAUSE_MAX_S: Final = 5.0
"""The longest that one refusal may keep a caller from asking again; a service that means more says it again."""

STOP_MAX_S: Final = 15.0
"""An orderly stop that takes longer is ended; `handover_wait_s` of a primary comes on top."""

LEAVE_MAX_S: Final = 3.0
"""So long a pod's replica that has handed over waits for its successor to settle; that comes after the stop."""

END_S: Final = 2.0
"""A killed process is gone within milliseconds, unless a system call keeps it; so long it is waited for."""

HANDOVER_WAIT_MAX_S: Final = 600.0
"""The longest `handover_wait_s`: what a pod may have at most to end."""

CONNECTOR_FRAME_BYTES_MAX: Final = (1 << 20) + (128 << 10)
"""One frame of the connector protocol: a message of `message_bytes_max`, its key, and room for the head."""

CONNECTOR_KEPT_BYTES_MAX: Final = 64 << 20
"""Messages of one connection of a connector that are not confirmed; with more nothing is read from it."""

CONNECTOR_STREAMS_MAX: Final = 1024
"""Streams of one connection of a connector."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Maximums and periods; sizes in bytes, times in seconds, counts without unit."""

    message_bytes_max: int = 1 << 20  # one message with key, arguments and header
    entity_bytes_max: int = 4 << 20  # encoded state of one key, without the items of its maps
    item_bytes_max: int = 1 << 20  # one encoded item of a map
    reply_bytes_max: int = 4 << 20  # one encoded reply
    key_bytes_max: int = 512  # one key, UTF-8
    frame_messages_max: int = 8192  # messages in one frame
    frame_bytes_max: int = 4 << 20  # message bytes in one frame
    segment_bytes_max: int = 256 << 20  # a segment rolls when it would pass this
    allocate_bytes: int = 4 << 20  # space is reserved in steps of this
    spare_bytes: int = 16 << 20  # spare segment kept by every replica (I8)
    pending_messages_max: int = 65536  # admitted, not yet in a frame
    pending_bytes_max: int = 64 << 20  # the same, bytes
    pending_queries_max: int = 8192  # queries that wait for a proof
    waiting_results_max: int = 200_000  # who waits for results of invocations; one more asks again later
    connections_max: int = 4096  # per worker
    session_window_max: int = 65536  # messages of one session without an acknowledged reply
    session_reply_bytes_max: int = 64 << 20  # replies of one session that are not acknowledged; then it admits nothing
    sessions_max: int = 100_000  # registered sessions; the longest idle goes first
    session_idle_max_s: int = 7 * 86400  # time of service without a message of it
    idempotency_keys_max: int = 1_000_000  # keys remembered; the oldest goes first
    idempotency_bytes_max: int = 256 << 20  # of their replies; likewise
    idempotency_window_s: int = 24 * 3600  # time of service for which a key is remembered
    peers_max: int = 1024  # other services, by shard, that send to this one
    targets_max: int = 1000  # other services that turns send to; each has a place in the outbox for ever
    peer_window_bytes_max: int = 8 << 20  # sent to one peer and not confirmed by it
    outbox_bytes_max: int = 1 << 30  # messages to peers that are not confirmed by them; then no call is admitted
    outbox_memory_bytes_max: int = 64 << 20  # of these in memory; older ones stand in files of the replica alone
    invocations_max: int = 100_000  # handlers begun and not ended; then a call that would begin one is refused
    key_queue_max: int = 1024  # messages that wait for the invocation that holds their key; likewise
    waiting_messages_max: int = 50_000  # messages that wait for held keys; then FORKs of peers are held back
    suspended_bytes_max: int = 512 << 20  # all that suspended handlers and waiting messages keep; then both refusals
    journal_bytes_max: int = 32 << 20  # what one invocation was given (then errors), and likewise what it asked for
    operations_max: int = 10_000  # operations that one invocation asks for
    activities_max: int = 256  # activities that run at a time, in the worker processes of a primary
    results_max: int = 100_000  # results of ended invocations that callers may still ask for; the oldest goes first
    results_bytes_max: int = 256 << 20  # the same, bytes
    results_kept_s: int = 24 * 3600  # time of service for which a result is kept
    unknown_outcomes_max: int = 10_000  # activities that may have been done, listed to operators; the oldest goes first
    unconfirmed_bytes_max: int = 8 << 20  # synced frames that wait for a proof; then no further one is written
    stream_buffer_bytes_max: int = 64 << 20  # confirmed frames kept for followers
    follower_lag_messages_max: int = 1_000_000  # admission slows beyond this lag of the best standby
    time_jump_max_s: int = 3600  # the time in a UUIDv7 key may lie ahead of ours by at most this
    clock_step_us: int = 1000  # a time record is written when time moved by this much
    turn_max_s: float = 10.0  # a turn longer than this ends the worker
    log_call_max_s: float = 2.0  # one call to the log's file system longer than this: the worker counts as stuck
    suspect_after_s: float = 0.3  # silence of worker AND supervisor before a takeover
    heartbeat_s: float = 0.05  # between supervisors
    idle_confirm_s: float = 0.05  # an idle primary writes its confirmed lsn after this
    witness_s: float = 5.0  # between two writes to the lock store of what is confirmed, 0.2 to 60
    handover_wait_s: float = 8.0  # a planned hand-over waits for at-most-once activities that run, 0 (not) to 600
    checkpoint_every_messages: int = 1_000_000  # a checkpoint is due after so many messages
    checkpoint_every_bytes: int = 256 << 20  # or after so many bytes of log
    checkpoints_kept: int = 2
    reign_min_s: float = 0.5  # first minimum between two steals; doubles
    reign_max_s: float = 30.0  # cap of the doubling
    deaths_before_parking: int = 2  # deaths in one message before it is parked (I11)
    rebases_per_hour_max: int = 3  # then the differing replica stays stopped (I6)

    @property
    def copies_bytes_max(self) -> int:
        """Bytes of synced frames without a proof beside which one more is written.

        A successor copies them all, that one too, and on a full disk it has its spare alone for them (I8). So they are
        two frames less than the spare has, whatever `unconfirmed_bytes_max` allows; one frame is always written.
        """
        return min(self.unconfirmed_bytes_max, self.spare_bytes - 2 * self.frame_bytes_max)

    def fitted(self, volume_bytes: int, sharers: int = 1) -> Limits:
        """Give the same limits with segments, and stretches of log between checkpoints, that fit a volume.

        Only whole files of a log can go, and none that is being written. So no file is longer than a sixteenth of the
        volume, and a checkpoint is due each eighth; neither is part of the state, so replicas may differ.

        Args:
            volume_bytes: of the file system, used or not.
            sharers: logs of this service on it, one for each shard.
        """
        if volume_bytes <= 0:  # some file systems don't say
            return self
        share = volume_bytes // max(sharers, 1)
        return replace(
            self,
            segment_bytes_max=max(2 * self.frame_bytes_max, min(self.segment_bytes_max, share // 16)),
            checkpoint_every_bytes=min(self.checkpoint_every_bytes, max(share // 8, 2 * self.frame_bytes_max)),
        )

    def least_volume_bytes(self, replicas: int, *, shards: int = 1, state_bytes: int = 0) -> int:
        """Give the size below which a volume does not carry a service: it would be full before anything can go.

        Of each shard: a spare for every replica; four files of the log, which are the epoch's first, one that is
        written, one that can go and the next; the checkpoints that are kept and one that is being written.

        Args:
            replicas: of the service.
            shards: of the service, all on this volume.
            state_bytes: one checkpoint of a shard.
        """
        log = 4 * (2 * self.frame_bytes_max + self.allocate_bytes)
        return shards * (replicas * self.spare_bytes + log + (self.checkpoints_kept + 1) * state_bytes)

    def validate(self) -> None:
        """Check signs and relations.

        Raises: InvalidConfig naming the field and the relation it breaks; the caller refuses to start.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if not math.isfinite(value):  # compares as no number does, so that every relation below would hold
                raise InvalidConfig(f"limits.{field.name} must be a number, not {value}")
            if value <= 0 and (field.name != "handover_wait_s" or value < 0):
                raise InvalidConfig(f"limits.{field.name} must be above 0")
        relations = (
            (self.message_bytes_max <= self.frame_bytes_max, "message_bytes_max <= frame_bytes_max"),
            (2 * self.frame_bytes_max <= self.segment_bytes_max, "2 * frame_bytes_max <= segment_bytes_max"),
            (2 * self.frame_bytes_max <= self.spare_bytes, "2 * frame_bytes_max <= spare_bytes"),
            (self.frame_bytes_max <= self.pending_bytes_max, "frame_bytes_max <= pending_bytes_max"),
            (self.message_bytes_max <= self.peer_window_bytes_max, "message_bytes_max <= peer_window_bytes_max"),
            (self.peer_window_bytes_max <= self.outbox_bytes_max, "peer_window_bytes_max <= outbox_bytes_max"),
            (self.key_queue_max <= self.invocations_max, "key_queue_max <= invocations_max"),
            (self.message_bytes_max <= self.suspended_bytes_max, "message_bytes_max <= suspended_bytes_max"),
            (self.heartbeat_s * 3 <= self.suspect_after_s + 1e-9, "3 * heartbeat_s <= suspect_after_s"),
            (self.reign_min_s <= self.reign_max_s, "reign_min_s <= reign_max_s"),
            (self.key_bytes_max < 65536, "key_bytes_max < 65536"),
            (self.reply_bytes_max <= 32 << 20, "reply_bytes_max <= 33554432"),  # clients read packets of twice this
            (self.checkpoints_kept >= 2, "checkpoints_kept >= 2"),
            (self.handover_wait_s <= HANDOVER_WAIT_MAX_S, f"handover_wait_s <= {HANDOVER_WAIT_MAX_S:g}"),
        )
        for holds, formula in relations:
            if not holds:
                raise InvalidConfig(f"limits: {formula} must hold")
