"""The one tree of errors; every error a user can meet has a code and a page in `docs/errors/`.

    DeathlessError
    |- RetryLater      nothing happened, or the outcome will be told on a retry: send it again
    |  |- NotPrimary, Overloaded, OutOfSpace, LockUnavailable, PeerUnreachable, OutcomeUnknown,
    |  |  OutboxFull, StillServing, SinkUnavailable, TracesLost
    |- Fenced          this process is not the one any more: stop it
    |  |- Deposed, OtherSupervisor
    |- Invalid         the caller must change what it sent or configured
    |  |- InvalidConfig, InvalidManifest, InvalidArgument, UnknownHandler, UnknownService, TooLarge, KeyReused,
    |  |  SessionExpired, KeyOutsideWindow, Unauthorized, PortTaken, PermissionRefused, StorageUnfit, InvalidService,
    |  |  HandlerFailed, Parked, OperatorsOnly, NotParked, NotUnsettled, DeliveryRefused, PeerReplaced,
    |  |  InvocationUnknown, Cancelled, InvalidAwait, CallFailed (ActivityFailed, CallCycle, DeadlineExceeded),
    |  |  ShardsFixed, KeysOfSeveralShards, WrongShard
    |- DataCorrupt     bytes are not what was written: stop, an operator decides
    |  |- CorruptFrame, CorruptCheckpoint, LogTruncated, NewerFormat, ForeignDirectory, StoreOlderThanLog,
    |  |  HalfCopy, Diverged, UpgradeRequired, PeerBehind
    |- Closed          used after its end
    |- Internal        our bug: a broken invariant stops the replica (I8)

What the caller must do is the class; what happened is the code. `exit_code` is what the CLI exits with,
`http_status` what the ingress answers. Imports nothing of ours.
"""

from __future__ import annotations

from typing import ClassVar


class DeathlessError(Exception):
    """Root of all our errors.

    Args:
        message: what happened, with field and value.
        remedy: what to do about it; None uses the class's own.
    """

    code: ClassVar[str] = "DL0000"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    remedy: ClassVar[str] = ""

    def __init__(self, message: str = "", *, remedy: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.advice = self.remedy if remedy is None else remedy

    def __str__(self) -> str:
        tail = f" ({self.advice})" if self.advice else ""
        return f"{self.code} {self.message}{tail}"


class RetryLater(DeathlessError):
    """Nothing was done, or a retry learns what was; the caller sends the same again."""

    http_status = 503
    exit_code = 75
    retry_after_s: float = 0.0  # when to send it again, seconds from now; 0: at once


class NotPrimary(RetryLater):
    """The replica asked is not the primary and knows none to forward to."""

    code = "DL1001"
    remedy = "retry; a takeover takes well under a second"


class Overloaded(RetryLater):
    """A queue is at its named maximum (I10)."""

    code = "DL1002"
    http_status = 429
    remedy = "retry after the time given"


class OutOfSpace(RetryLater):
    """The log's file system has no room; confirmed work stays readable (I8)."""

    code = "DL1003"
    http_status = 507
    remedy = "free or add space below the log directory; the service goes on by itself"


class LockUnavailable(RetryLater):
    """The lock store gave no answer; releases wait until it does."""

    code = "DL1004"
    remedy = "check the lock store's endpoints and credentials"


class PeerUnreachable(RetryLater):
    """No replica of the service answers at any known address."""

    code = "DL1005"
    exit_code = 69
    remedy = "is the service up? `deathless up service.yaml`, `deathless status`"


class OutcomeUnknown(RetryLater):
    """The caller's time ran out before the reply came; the call may have been applied, or may yet be."""

    code = "DL1006"
    http_status = 504
    remedy = "send it again with the same idempotency key, or find out by a query"


class OutboxFull(RetryLater):
    """Messages to other services fill the outbox, because a peer does not take them; no call is admitted (I10)."""

    code = "DL1007"
    remedy = "see `deathless peers list`; the service goes on by itself once the peer takes its messages"


class StillServing(RetryLater):
    """A service that is to be erased from its lock store still has a replica that holds the lock."""

    code = "DL1011"
    remedy = "stop all its replicas first; one that was killed lets go within the lease's time"


class SinkUnavailable(RetryLater):
    """What a driver writes to can't be reached or can't take anything now; nothing is lost, it is tried again."""

    code = "DL1020"
    remedy = "see what the driver says in `deathless peers list`; it goes on by itself"


class TracesLost(RetryLater):
    """Spans could not be exported, and are gone; what the service does is not touched by that."""

    code = "DL1021"
    remedy = "see whether the collector that spec.tracing names takes spans"


class Fenced(DeathlessError):
    """This process must stop: somebody else owns what it works on."""

    exit_code = 76


class Deposed(Fenced):
    """A successor holds the lock; this replica releases nothing more and starts again as a standby."""

    code = "DL2001"


class OtherSupervisor(Fenced):
    """Another supervisor already runs this replica."""

    code = "DL2002"
    exit_code = 73
    remedy = "stop the other one first, or give this one another replica name"


class Invalid(DeathlessError):
    """The caller must change what it sent or configured; nothing was done."""

    http_status = 400
    exit_code = 64


class InvalidConfig(Invalid):
    """A setting, or a relation between settings, is out of range."""

    code = "DL3001"
    exit_code = 78


class InvalidManifest(Invalid):
    """The manifest can't be read or does not fit its schema; the message names line and field."""

    code = "DL3002"
    exit_code = 78


class InvalidArgument(Invalid):
    """Arguments of a call don't fit the handler's types; the message names the path of the field."""

    code = "DL3003"


class UnknownHandler(Invalid):
    """The service has no handler or query of that name."""

    code = "DL3004"
    http_status = 404


class UnknownService(Invalid):
    """The address names another service than the one asked."""

    code = "DL3005"
    http_status = 404


class TooLarge(Invalid):
    """A key, message, state or reply passes its named maximum."""

    code = "DL3006"
    http_status = 413


class KeyReused(Invalid):
    """An idempotency key came again with other arguments."""

    code = "DL3007"
    http_status = 422
    remedy = "use a new key for a new request"


class KeyOutsideWindow(Invalid):
    """A time-carrying idempotency key (UUIDv7) lies outside the window that is remembered."""

    code = "DL3008"
    http_status = 422


class SessionExpired(Invalid):
    """The session was collected after its idle limit; what it sent is not known any more."""

    code = "DL3009"
    http_status = 410
    remedy = "find out by a query what was applied, then open a new session"


class Unauthorized(Invalid):
    """Token or client certificate is missing or wrong."""

    code = "DL3010"
    http_status = 401
    exit_code = 77


class PortTaken(Invalid):
    """An address the manifest names is in use."""

    code = "DL3011"
    exit_code = 78
    remedy = "choose another port, or 0 for any"


class PermissionRefused(Invalid):
    """The operating system refuses access to a file or folder the service needs."""

    code = "DL3012"
    exit_code = 77


class StorageUnfit(Invalid):
    """The log directory's file system can't carry the log or its fence; the message names what it does not do."""

    code = "DL3027"
    exit_code = 78
    remedy = "put the log on a file system that does: ReadWriteMany by NFS 4, CephFS or a cloud's file store"


class InvalidService(Invalid):
    """The service's own code can't be used: import fails, a handler's signature has no types, a name is taken."""

    code = "DL3013"
    exit_code = 78


class HandlerFailed(Invalid):
    """The handler raised; its turn was rolled back and this reply recorded (I5)."""

    code = "DL3014"
    http_status = 409
    kind: str = ""  # type name of the exception, as recorded; empty where it was not told


class Parked(Invalid):
    """The message killed its handler's process too often and was set aside (I11)."""

    code = "DL3015"
    http_status = 422
    remedy = "see `deathless parked`; mend the handler"


class DeliveryRefused(Invalid):
    """What a driver writes to refuses one message for good: the same again would be refused again.

    Attributes:
        position: of the message; 0: it came over the wire, and its text says where.
        why: without the position.
    """

    code = "DL3040"
    http_status = 422
    remedy = "whoever waits is told; for a fork see `onRefusal`"

    def __init__(self, why: str = "", *, position: int = 0) -> None:
        super().__init__(f"message {position}: {why}" if position else why)
        self.position = position
        self.why = why


class OperatorsOnly(Invalid):
    """The page is for operators, and what the caller showed is less than an operator shows."""

    code = "DL3025"
    http_status = 403
    exit_code = 77
    remedy = "show the operators' token, or use `deathless` beside a replica"


class NotParked(Invalid):
    """Nothing is parked under that lsn, or what is parked there can't be run again."""

    code = "DL3026"
    http_status = 409
    remedy = "see `deathless parked`; call the handler anew if that is wanted"


class NotUnsettled(Invalid):
    """No activity of that invocation and operation is listed as one of unknown outcome."""

    code = "DL3028"
    http_status = 409
    remedy = "see `deathless invocations unknown`; somebody else may have settled it"


class PeerReplaced(Invalid):
    """The peer was created anew: what the one before it knew is gone, also what it was asked (I3)."""

    code = "DL3016"
    http_status = 409
    remedy = "`deathless peers adopt` takes the new one; then send what is still wanted"


class InvocationUnknown(Invalid):
    """No invocation of that id runs, and no result of it is kept."""

    code = "DL3017"
    http_status = 404
    remedy = "find out by a query what was applied"


class CallFailed(Invalid):
    """What a handler called answered with an error.

    Attributes:
        failure_code: of the error, as in `docs/errors/`.
        kind: type name of the exception there.
        text: what it said.
    """

    code = "DL3018"
    http_status = 409

    def __init__(self, text: str = "", *, failure_code: str = "", kind: str = "") -> None:
        super().__init__(f"{failure_code} {kind}: {text}" if failure_code else text)
        self.failure_code = failure_code or self.code
        self.kind = kind or type(self).__name__
        self.text = text


class ActivityFailed(CallFailed):
    """An activity gave no result: it raised, its process ended, it took longer than it may, or gave no sign of life."""

    code = "DL3030"
    http_status = 409


class Cancelled(Invalid):
    """Nobody wants the result any more: the caller, the handler itself or an operator cancelled it."""

    code = "DL3019"
    http_status = 409


class CallCycle(CallFailed):
    """A call would wait for a key that waits for it."""

    code = "DL3021"


class DeadlineExceeded(CallFailed):
    """No reply came before the call's deadline; what was called may have been done."""

    code = "DL3022"


class InvalidAwait(Invalid):
    """A handler awaited what is no operation of its context, or waits where it can't."""

    code = "DL3023"
    remedy = "await what ctx.call, ctx.timer, ctx.run, ctx.promise, ctx.gather and ctx.race give, nothing else"


class ShardsFixed(Invalid):
    """A service was created with another number of shards than its manifest says now."""

    code = "DL3041"
    exit_code = 78
    remedy = "write spec.shards as it was: keys are divided by it"


class KeysOfSeveralShards(Invalid):
    """A handler of several keys was called with keys of more than one shard, which no turn can change at once."""

    code = "DL3042"
    remedy = "give keys that belong together one {tag}: they share a shard"


class WrongShard(Invalid):
    """A message came to another shard than the one its key lives on."""

    code = "DL3043"
    remedy = "route by docs/formats/shards.md, with the number of shards that the service has"


class DataCorrupt(DeathlessError):
    """Stored bytes are not what was written; the replica stops and an operator decides."""

    exit_code = 65


class CorruptFrame(DataCorrupt):
    """A frame fails its checksum or chain and valid frames follow it."""

    code = "DL4001"


class CorruptCheckpoint(DataCorrupt):
    """A checkpoint fails its checksum or is not on the chain; the older one is used."""

    code = "DL4002"


class LogTruncated(DataCorrupt):
    """The log ends below an lsn that is known confirmed, or a file that must be there is missing."""

    code = "DL4003"


class NewerFormat(DataCorrupt):
    """Written by a newer version of Deathless."""

    code = "DL4004"
    remedy = "run the version that wrote it, or a newer one"


class ForeignDirectory(DataCorrupt):
    """The directory belongs to another service, incarnation, fence or lock store."""

    code = "DL4005"
    remedy = "point logStorage at this service's directory, or `deathless adopt` it"


class StoreOlderThanLog(DataCorrupt):
    """The lock store was restored from a backup: the log knows a later epoch."""

    code = "DL4006"
    remedy = "`deathless adopt` follows the highest opening frame of the log"


class HalfCopy(DataCorrupt):
    """A directory holds part of a service: one side knows it, the other does not."""

    code = "DL4007"


class Diverged(DataCorrupt):
    """Replay gave another digest than the one logged; message, handler and lsn are named (I6)."""

    code = "DL4008"
    remedy = "run `deathless check`: the handler is not deterministic"


class UpgradeRequired(DataCorrupt):
    """Code, interpreter, libraries or limits of what is replicated differ from the log's fingerprint (I6)."""

    code = "DL4009"
    exit_code = 78
    remedy = "run the code that wrote the log, or stop it in order and `deathless adopt --code`"


class PeerBehind(DataCorrupt):
    """A peer asks for messages that it had confirmed before: it lost what it knew. It is asked again and again."""

    code = "DL4010"
    remedy = "was the peer restored from a backup? Create it anew and adopt it"


class Closed(DeathlessError):
    """Used after its end."""

    code = "DL5001"


class Internal(DeathlessError):
    """A broken invariant of ours; the replica stops (I8)."""

    code = "DL9001"
    exit_code = 70
    remedy = "please report it with the log directory"
