"""The one tree of errors; every error a user can meet has a code and a page in `docs/errors/`.

    DeathlessError
    |- RetryLater      nothing happened, or the outcome will be told on a retry: send it again
    |  |- NotPrimary, Overloaded, OutOfSpace, LockUnavailable, PeerUnreachable, OutcomeUnknown,
    |  |  OutboxFull, StillServing, StorageReadOnly, StorageFailed, StorageSlow, NoInodes, SinkUnavailable, TracesLost,
    |  |  SettingsChanged, IssuerUnavailable
    |- Fenced          this process is not the one any more: stop it
    |  |- Deposed, OtherSupervisor
    |- Invalid         the caller must change what it sent or configured
    |  |- InvalidConfig, InvalidManifest, InvalidArgument (InvalidUse), UnknownHandler, UnknownService, TooLarge,
    |  |  KeyReused, SessionExpired, NotYourSession, KeyOutsideWindow, Unauthorized (NotAuthenticated),
    |  |  Forbidden (CallerNotAllowed), PortTaken, PermissionRefused,
    |  |  StorageUnfit, VolumeTooSmall, InvalidService,
    |  |  HandlerFailed (CallRefused), ResultUnreadable, Parked, OperatorsOnly, NotParked, NotUnsettled,
    |  |  PeerReplaced, ClientOfParent, DeliveryRefused,
    |  |  DeliveryGivenUp, NotUndelivered,
    |  |  InvocationUnknown, NotRetryable, Cancelled, InvalidAwait,
    |  |  CallFailed (ActivityFailed, CallCycle, DeadlineExceeded), ForbiddenInTurn, ShardsFixed, KeysOfSeveralShards,
    |  |  WrongShard
    |- DataCorrupt     bytes are not what was written: stop, an operator decides
    |  |- CorruptFrame, CorruptCheckpoint, LogTruncated, NewerFormat, ForeignDirectory, StoreOlderThanLog,
    |  |  HalfCopy, CopiedDirectory, Diverged, UpgradeRequired, PeerBehind, HistoryDiffers, ServiceRolledBack,
    |  |  OtherDirectory
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


class StorageReadOnly(RetryLater):
    """The log's file system is mounted read-only, or has become so; nothing can be recorded until it is writable."""

    code = "DL1012"
    remedy = "make the volume writable again; the service goes on by itself"


class StorageFailed(RetryLater):
    """The log's storage reported an error of its own; what was being written is not retried in place (I8)."""

    code = "DL1013"
    remedy = "check the log's storage; the replica starts again by itself"


class StorageSlow(RetryLater):
    """A write to the log's storage takes much longer than it should; calls are answered, but late."""

    code = "DL1014"
    remedy = "look at what else uses the volume, or move the log to a faster one"


class NoInodes(OutOfSpace):
    """The log's file system has no inode left, so no file can be made although there is space."""

    code = "DL1015"
    remedy = "remove small files from the volume, or make one with more inodes; the service goes on by itself"


class IssuerUnavailable(RetryLater):
    """The keys of the issuer that signs callers' tokens can't be had now."""

    code = "DL1019"
    retry_after_s = 1.0
    remedy = "send the same again; look whether the issuer answers at its keys' address"


class SinkUnavailable(RetryLater):
    """What a driver writes to can't be reached or can't take anything now; nothing is lost, it is tried again."""

    code = "DL1020"
    remedy = "see what the driver says in `deathless peers list`; it goes on by itself"


class TracesLost(RetryLater):
    """Spans could not be exported, and are gone; what the service does is not touched by that."""

    code = "DL1021"
    remedy = "see whether the collector that spec.tracing names takes spans"


class SettingsChanged(RetryLater):
    """The settings of a replica that has not served yet are others now than those it was started with."""

    code = "DL1018"
    remedy = "nothing to do: it is started again with the settings that are there now"


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


class InvalidUse(InvalidArgument):
    """A handler used its context, a peer or a map in a way that nothing its caller sends could make right."""

    code = "DL3049"
    http_status = 500
    exit_code = 70
    remedy = "mend the handler at the last line of the traceback in the replica's log"


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


class NotYourSession(Invalid):
    """A connection spoke in a session that it did not register and whose secret it did not show."""

    code = "DL3031"
    http_status = 403
    exit_code = 77
    remedy = "update the client: it shows the secret of its session when it connects again"


class Unauthorized(Invalid):
    """Token or client certificate is missing or wrong."""

    code = "DL3010"
    http_status = 401
    exit_code = 77


class Forbidden(Invalid):
    """Who calls has shown who it is, and may not do this here."""

    code = "DL3035"
    http_status = 403
    exit_code = 77


class NotAuthenticated(Unauthorized):
    """A caller did not prove who it is, where `ingress.authentication` asks for that."""

    code = "DL3036"


class CallerNotAllowed(Forbidden):
    """A caller has proved who it is, and is not among those who may call."""

    code = "DL3037"
    remedy = "add the name to spec.ingress.authentication.allowedCallers, or call as somebody who stands there"


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


class VolumeTooSmall(Invalid):
    """The log's volume is smaller than the least on which a full log can free itself; nothing was begun on it."""

    code = "DL3050"
    exit_code = 78
    remedy = "give the log a larger volume, or lower limits.spareBytes, frameBytesMax and allocateBytes"


class InvalidService(Invalid):
    """The service's own code can't be used: import fails, a handler's signature has no types, a name is taken."""

    code = "DL3013"
    exit_code = 78


class HandlerFailed(Invalid):
    """The handler raised what its author did not mean to: a bug of the service. Its turn was rolled back.

    The reply is recorded (I5); the traceback stands in the log of the replica that was primary.
    """

    code = "DL3014"
    http_status = 500
    exit_code = 70
    remedy = "the service's author finds the traceback by `deathless logs --level error`"
    kind: str = ""  # type name of the exception, as recorded; empty where it was not told


class CallRefused(HandlerFailed):
    """The handler refused the call, as its author meant it to; its turn was rolled back and this reply recorded (I5).

    An author raises it, or an exception derived from it.
    """

    code = "DL3048"
    http_status = 409
    exit_code = 64
    remedy = ""


class ForbiddenInTurn(Invalid):
    """A handler called what ends, copies, signals, limits or changes its process; raised where it did."""

    code = "DL3032"
    http_status = 500
    exit_code = 70
    remedy = "a handler changes its state and gives a result; what is beyond that is for an activity"


class ResultUnreadable(Invalid):
    """The call was answered, and this door can't give its result to the caller: it has no form here."""

    code = "DL3033"
    http_status = 500
    exit_code = 70
    remedy = "the call was applied: mend what the handler gives, and do not send the call again under another key"


class ClientOfParent(Invalid):
    """A client was used in a process that was forked from the one that opened it."""

    code = "DL3039"
    remedy = "open a client of its own in each process, behind the fork"


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


class DeliveryGivenUp(Invalid):
    """A driver does not attempt a message any more: it was attempted too often, is too old, or others need its room."""

    code = "DL3044"
    remedy = (
        "see `deathless undelivered list` (in a cluster `kubectl deathless undelivered`), and send it again from there "
        "once its receiver takes it"
    )


class NotUndelivered(Invalid):
    """No message of this id is on the list of those that drivers gave up."""

    code = "DL3045"
    remedy = (
        "see `deathless undelivered list` (in a cluster `kubectl deathless undelivered`); somebody else may have seen "
        "to it"
    )


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
    http_status = 500
    exit_code = 70


class NotRetryable(Invalid):
    """An activity can't succeed, however often it is tried: it is tried no more, and its handler gets ActivityFailed.

    An author's activity raises it, or an exception derived from it. What an activity gave counts as such when it can't
    be its result: it has no encoding, does not fit the declared type or is too large; and so do arguments that its
    declared types refuse, and an activity that the code does not have.
    """

    code = "DL3034"
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
    http_status = 500
    exit_code = 70
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


class CopiedDirectory(DataCorrupt):
    """The directory is a copy of another one, with its names and addresses: nobody is asked or started from it."""

    code = "DL4011"
    remedy = (
        "`deathless adopt --as-new` makes it a service of its own; `deathless adopt --moved` if the other one is gone, "
        "or this is its backup; in scripts `deathless up --if-copied as-new|moved`"
    )


class HistoryDiffers(DataCorrupt):
    """Two services do not agree on what one has sent to the other: one of them was copied or put back."""

    code = "DL4012"
    remedy = "find out which of the two was copied or put back; `deathless peers adopt` on both begins anew"


class ServiceRolledBack(DataCorrupt):
    """The service expects a message that it has answered before: it lost what it had acknowledged."""

    code = "DL4016"
    remedy = "tell the service's operators: it was put back to an older state; find out by queries what is gone"


class OtherDirectory(DataCorrupt):
    """The two ends of a connection did not show that they stand in the same directory: nothing is told or ordered."""

    code = "DL4017"
    remedy = "run the command in the directory of the service; a copy of it is another service"


class Closed(DeathlessError):
    """Used after its end."""

    code = "DL5001"


class Internal(DeathlessError):
    """A broken invariant of ours; the replica stops (I8)."""

    code = "DL9001"
    exit_code = 70
    remedy = "please report it with the log directory"
