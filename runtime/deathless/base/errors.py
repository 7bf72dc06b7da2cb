"""The one tree of errors; every error a user can meet has a code and a page in `docs/errors/`.

    DeathlessError
    |- RetryLater      nothing was done, or a retry returns the outcome: send it again
    |  |- NotPrimary, Overloaded, OutOfSpace, LockUnavailable, PeerUnreachable, OutcomeUnknown,
    |  |  OutboxFull, StillServing, StorageReadOnly, StorageFailed, StorageSlow, NoInodes, SinkUnavailable, TracesLost,
    |  |  SettingsChanged, IssuerUnavailable, UpgradeCalledOff (UpgradeRefused), GenerationEnded, TopicAnswerTorn,
    |  |  SourceUnavailable
    |- Fenced          this process has been fenced: another process owns its role; stop it
    |  |- Deposed, OtherSupervisor
    |- Invalid         the caller must change what it sent or configured
    |  |- InvalidConfig, InvalidManifest, InvalidArgument (InvalidUse), UnknownHandler, UnknownService, TooLarge,
    |  |  KeyReused, SessionExpired, NotYourSession, KeyOutsideWindow, Unauthorized (NotAuthenticated), Forbidden
    |  |  (CallerNotAllowed), PortTaken, PermissionRefused, StorageUnfit, VolumeTooSmall, NoCommonVersion,
    |  |  InvalidService (ForeignMethodRefused, CodeEndedProcess, ImportNotEnded), UnknownMethod,
    |  |  HandlerFailed (CallRefused), ResultUnreadable, Parked, OperatorsOnly, NotParked, NotUnsettled,
    |  |  PeerReplaced, ClientOfParent, DeliveryRefused, DeliveryGivenUp, NotUndelivered, InvocationUnknown,
    |  |  NotRetryable, Cancelled, InvalidAwait, HandlerGone, CallFailed (ActivityFailed, CallCycle, DeadlineExceeded),
    |  |  ForbiddenInTurn, ShardsFixed, KeysOfSeveralShards, WrongShard, OutcomeDiffers, ForkRefused, TopicRowsMissing,
    |  |  TopicGap, TopicRowsDropped, TopicNotKept, TopicNotReadable, TopicSourceDiffers, SinkRowRefused,
    |  |  SinkRowNotKept, SinkTableUnfit, SinkTipMismatch, SinkTaken, SinkColumnsChanged, SinkRowsDropped,
    |  |  SinkEngineUnfit, SinkServerChanged, SinkJournalUnsound, StreamFenced, InputRefused, StreamNotStopped,
    |  |  StreamNotForgotten, InputNotKept, InputUnreadable, SourceKeyChanged, SparkMissing, StateRefused,
    |  |  StateFolderMissing, StateMissing, ConnectorStreamsFull,
    |  |  ConnectorBusy, ConnectorSilent, ConnectorContended, SourceGap (SourceRecordsGone, SourceTopicReplaced,
    |  |  SourceLogCut), ApplicationNotStarted, ApplicationNotConnected, ApplicationStalled, ApplicationEnded,
    |  |  LaneUnknown, OriginalArgumentRefused, InstanceNotRegistered, InstanceThere, ProgramClaimed,
    |  |  ProgramNotRepeated, ProgramVersionDiffers, TargetNotReached
    |- DataCorrupt     stored bytes are damaged: stop, an operator decides
    |  |- CorruptFrame, CorruptCheckpoint, LogTruncated, NewerFormat, NewerLevel, ForeignDirectory,
    |  |  StoreOlderThanLog, HalfCopy, CopiedDirectory, Diverged, UpgradeRequired, PeerBehind, HistoryDiffers,
    |  |  ServiceRolledBack, OtherDirectory, FormerCodeMissing, ApplicationStateMissing
    |- Closed          used after it was closed
    |- Internal        a bug of Deathless: a broken invariant stops the replica (I8)

What the caller must do is the class; what happened is the code. `exit_code` is what the CLI exits with,
`http_status` what the ingress answers. The kinds stand in `error_tree.kinds`; errors of applications, handlers,
pipelines, sinks, storage, what is stored, streams and topics in modules of their own beside it. All are here as well.
Imports these.
"""

from __future__ import annotations

from deathless.base.error_tree.foreign import (
    ApplicationEnded,
    ApplicationNotConnected,
    ApplicationNotStarted,
    ApplicationStalled,
    ApplicationStateMissing,
    InstanceNotRegistered,
    InstanceThere,
    LaneUnknown,
    OriginalArgumentRefused,
    ProgramClaimed,
    ProgramNotRepeated,
    ProgramVersionDiffers,
    TargetNotReached,
)
from deathless.base.error_tree.handlers import (
    ActivityFailed,
    CallCycle,
    CallFailed,
    CallRefused,
    Cancelled,
    DeadlineExceeded,
    DeliveryGivenUp,
    DeliveryRefused,
    ForbiddenInTurn,
    HandlerFailed,
    HandlerGone,
    InvalidAwait,
    InvocationUnknown,
    NotParked,
    NotRetryable,
    NotUndelivered,
    NotUnsettled,
    OutcomeDiffers,
    Parked,
    ResultUnreadable,
)
from deathless.base.error_tree.kinds import DataCorrupt, DeathlessError, Fenced, Invalid, RetryLater
from deathless.base.error_tree.pipelines import SparkMissing, StateFolderMissing, StateMissing, StateRefused
from deathless.base.error_tree.sinks import (
    SinkColumnsChanged,
    SinkEngineUnfit,
    SinkJournalUnsound,
    SinkRowNotKept,
    SinkRowRefused,
    SinkRowsDropped,
    SinkServerChanged,
    SinkTableUnfit,
    SinkTaken,
    SinkTipMismatch,
)
from deathless.base.error_tree.storage import StorageFailed, StorageReadOnly, StorageSlow, StorageUnfit, VolumeTooSmall
from deathless.base.error_tree.stored import (
    CopiedDirectory,
    CorruptCheckpoint,
    CorruptFrame,
    Diverged,
    ForeignDirectory,
    FormerCodeMissing,
    HalfCopy,
    HistoryDiffers,
    LogTruncated,
    NewerFormat,
    NewerLevel,
    OtherDirectory,
    PeerBehind,
    ServiceRolledBack,
    StoreOlderThanLog,
    UpgradeRequired,
)
from deathless.base.error_tree.streams import (
    ConnectorBusy,
    ConnectorContended,
    ConnectorSilent,
    ConnectorStreamsFull,
    InputNotKept,
    InputRefused,
    InputUnreadable,
    SourceGap,
    SourceKeyChanged,
    SourceLogCut,
    SourceRecordsGone,
    SourceTopicReplaced,
    SourceUnavailable,
    StreamFenced,
    StreamNotForgotten,
    StreamNotStopped,
)
from deathless.base.error_tree.topics import (
    TopicAnswerTorn,
    TopicGap,
    TopicNotKept,
    TopicNotReadable,
    TopicRowsDropped,
    TopicRowsMissing,
    TopicSourceDiffers,
)

__all__ = [  # of the modules above; what is defined below is public as well
    "ActivityFailed",
    "ApplicationEnded",
    "ApplicationNotConnected",
    "ApplicationNotStarted",
    "ApplicationStalled",
    "ApplicationStateMissing",
    "CallCycle",
    "CallFailed",
    "CallRefused",
    "Cancelled",
    "ConnectorBusy",
    "ConnectorContended",
    "ConnectorSilent",
    "ConnectorStreamsFull",
    "CopiedDirectory",
    "CorruptCheckpoint",
    "CorruptFrame",
    "DataCorrupt",
    "DeadlineExceeded",
    "DeathlessError",
    "DeliveryGivenUp",
    "DeliveryRefused",
    "Diverged",
    "Fenced",
    "ForbiddenInTurn",
    "ForeignDirectory",
    "FormerCodeMissing",
    "HalfCopy",
    "HandlerFailed",
    "HandlerGone",
    "HistoryDiffers",
    "InputNotKept",
    "InputRefused",
    "InputUnreadable",
    "InstanceNotRegistered",
    "InstanceThere",
    "Invalid",
    "InvalidAwait",
    "InvocationUnknown",
    "LaneUnknown",
    "LogTruncated",
    "NewerFormat",
    "NewerLevel",
    "NotParked",
    "NotRetryable",
    "NotUndelivered",
    "NotUnsettled",
    "OriginalArgumentRefused",
    "OtherDirectory",
    "OutcomeDiffers",
    "Parked",
    "PeerBehind",
    "ProgramClaimed",
    "ProgramNotRepeated",
    "ProgramVersionDiffers",
    "ResultUnreadable",
    "RetryLater",
    "ServiceRolledBack",
    "SinkColumnsChanged",
    "SinkEngineUnfit",
    "SinkJournalUnsound",
    "SinkRowNotKept",
    "SinkRowRefused",
    "SinkRowsDropped",
    "SinkServerChanged",
    "SinkTableUnfit",
    "SinkTaken",
    "SinkTipMismatch",
    "SourceGap",
    "SourceKeyChanged",
    "SourceLogCut",
    "SourceRecordsGone",
    "SourceTopicReplaced",
    "SourceUnavailable",
    "SparkMissing",
    "StateFolderMissing",
    "StateMissing",
    "StateRefused",
    "StorageFailed",
    "StorageReadOnly",
    "StorageSlow",
    "StorageUnfit",
    "StoreOlderThanLog",
    "StreamFenced",
    "StreamNotForgotten",
    "StreamNotStopped",
    "TargetNotReached",
    "TopicAnswerTorn",
    "TopicGap",
    "TopicNotKept",
    "TopicNotReadable",
    "TopicRowsDropped",
    "TopicRowsMissing",
    "TopicSourceDiffers",
    "UpgradeRequired",
    "VolumeTooSmall",
]


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
    """The log's file system is full; confirmed work remains readable (I8)."""

    code = "DL1003"
    http_status = 507
    remedy = "free or add space on the log's file system; the service then continues"


class LockUnavailable(RetryLater):
    """The lock store gave no answer; replies are withheld until it does."""

    code = "DL1004"
    remedy = "check the lock store's endpoints and credentials"


class PeerUnreachable(RetryLater):
    """No replica of the service answers at any known address."""

    code = "DL1005"
    exit_code = 69
    remedy = "check that the service runs: `deathless status`; `deathless up service.yaml` starts it"


class OutcomeUnknown(RetryLater):
    """The caller's time ran out before the reply came; the call may have been applied, or may still be."""

    code = "DL1006"
    http_status = 504
    remedy = "send it again with the same idempotency key, or find out by a query"


class OutboxFull(RetryLater):
    """Messages to other services fill the outbox, because a peer does not accept them; no call is admitted (I10)."""

    code = "DL1007"
    remedy = "see `deathless peers list`; the service continues once the peer accepts its messages"


class StillServing(RetryLater):
    """A service that is to be erased from its lock store still has a replica that holds the lock."""

    code = "DL1011"
    remedy = "stop all its replicas first; a replica that was killed releases its lock when its lease expires"


class NoInodes(OutOfSpace):
    """The log's file system has no inode left, so no file can be created although there is space."""

    code = "DL1015"
    remedy = "remove small files from the volume, or use one with more inodes; the service then continues"


class IssuerUnavailable(RetryLater):
    """The keys of the issuer that signs callers' tokens are unavailable."""

    code = "DL1019"
    retry_after_s = 1.0
    remedy = "send the same request again; check that the issuer answers at its keys' address"


class SinkUnavailable(RetryLater):
    """A driver's receiver is temporarily unavailable; nothing is lost, the driver retries."""

    code = "DL1020"
    remedy = "`deathless peers list` shows the driver's error; it retries automatically"


class TracesLost(RetryLater):
    """Spans could not be exported and are lost; the service itself is not affected."""

    code = "DL1021"
    remedy = "check that the collector that spec.tracing names accepts spans"


class SettingsChanged(RetryLater):
    """The settings of a replica that has not served yet have changed since it was started."""

    code = "DL1018"
    remedy = "do nothing: it is restarted with the current settings"


class UpgradeCalledOff(RetryLater):
    """An upgrade could not be made: nothing of it counts, and the code of before goes on."""

    code = "DL1022"
    remedy = "the message says what stood in its way; once that is put right, ask for it again"


class UpgradeRefused(UpgradeCalledOff):
    """Something of the former code, stored or under way, has no place in the new one; nothing was changed."""

    code = "DL1023"
    exit_code = 78
    remedy = "see to what is listed; `deathless upgrade check` lists it without an upgrade"


class GenerationEnded(RetryLater):
    """What this process holds is of a generation of the code that has ended; it starts again with the present one."""

    code = "DL1024"
    remedy = "do nothing: it is started again, and begins with the first checkpoint of that generation"


class Deposed(Fenced):
    """A successor holds the lock; this replica sends no more replies and restarts as a standby."""

    code = "DL2001"


class OtherSupervisor(Fenced):
    """Another supervisor already runs this replica."""

    code = "DL2002"
    exit_code = 73
    remedy = "stop the other one first, or give this one another replica name"


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
    """A handler misused its context, a peer or a map: a bug that no arguments can avoid."""

    code = "DL3049"
    http_status = 500
    exit_code = 70
    remedy = "fix the handler at the last line of the traceback in the replica's log"


class UnknownHandler(Invalid):
    """The service has no handler or query of that name."""

    code = "DL3004"
    http_status = 404


class UnknownMethod(Invalid):
    """A service that is called by numbers has no method of that number."""

    code = "DL3120"
    http_status = 404
    remedy = "name a method that the service has"


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
    """The session expired after its idle limit; what it sent is no longer known."""

    code = "DL3009"
    http_status = 410
    remedy = "find out by a query what was applied, then open a new session"


class NotYourSession(Invalid):
    """A connection used a session that it did not register and whose secret it did not present."""

    code = "DL3031"
    http_status = 403
    exit_code = 77
    remedy = "update the client: a current one presents the secret of its session when it reconnects"


class Unauthorized(Invalid):
    """Token or client certificate is missing or wrong."""

    code = "DL3010"
    http_status = 401
    exit_code = 77


class Forbidden(Invalid):
    """The caller is authenticated, but may not do this here."""

    code = "DL3035"
    http_status = 403
    exit_code = 77


class NotAuthenticated(Unauthorized):
    """A caller did not prove who it is, although `ingress.authentication` requires it."""

    code = "DL3036"


class CallerNotAllowed(Forbidden):
    """A caller is authenticated, but may not call this service."""

    code = "DL3037"
    remedy = "add the name to spec.ingress.authentication.allowedCallers, or call under a name that is listed"


class PortTaken(Invalid):
    """An address the manifest names is in use."""

    code = "DL3011"
    exit_code = 78
    remedy = "choose another port, or 0 for any"


class PermissionRefused(Invalid):
    """The operating system refuses access to a file or folder the service needs."""

    code = "DL3012"
    exit_code = 77


class NoCommonVersion(Invalid):
    """Two builds of Deathless have no protocol version in common."""

    code = "DL3051"
    exit_code = 78
    remedy = "run versions of Deathless on both sides that follow each other; upgrade the older side first"


class InvalidService(Invalid):
    """The service's own code can't be used: import fails, a handler's signature has no types, a name is taken."""

    code = "DL3013"
    exit_code = 78


class ForeignMethodRefused(InvalidService):
    """A method that programs in other languages are to call can't be one: its number, its signature, its codec."""

    code = "DL3121"
    exit_code = 78


class CodeEndedProcess(InvalidService):
    """The service's own code ended the process that ran it, before that could say what came of it."""

    code = "DL3172"
    exit_code = 78
    remedy = "remove what ends the process from the code: os._exit, sys.exit, os.exec, or a crash in native code"


class ImportNotEnded(InvalidService):
    """The import of the service's own code takes longer than it may: it waits, or loops."""

    code = "DL3173"
    exit_code = 78
    remedy = "let the module do nothing at its import but define things; `python -X faulthandler` shows where it stands"


class ClientOfParent(Invalid):
    """A client was used in a process that was forked from the one that opened it."""

    code = "DL3039"
    remedy = "open a separate client in each process, after the fork"


class OperatorsOnly(Invalid):
    """The page is for operators, and the caller's credentials are not those of an operator."""

    code = "DL3025"
    http_status = 403
    exit_code = 77
    remedy = "present the operators' token, or use `deathless` beside a replica"


class PeerReplaced(Invalid):
    """The peer was created anew: the state and the pending calls of the old one are lost (I3)."""

    code = "DL3016"
    http_status = 409
    remedy = "`deathless peers adopt` accepts the new one; then send what is still wanted again"


class ShardsFixed(Invalid):
    """A service was created with another number of shards than its manifest says now."""

    code = "DL3041"
    exit_code = 78
    remedy = "restore the old value of spec.shards, by which keys are divided"


class KeysOfSeveralShards(Invalid):
    """A handler of several keys was called with keys of more than one shard, which no turn can change at once."""

    code = "DL3042"
    remedy = "give keys that belong together the same {tag}, so that they share a shard"


class WrongShard(Invalid):
    """A message was sent to a shard that its key does not belong to."""

    code = "DL3043"
    remedy = "route as docs/formats/shards.md says, with the service's number of shards"


class ForkRefused(Invalid):
    """These services can't be forked together, or not at that place."""

    code = "DL3061"
    remedy = "docs/errors/DL3061.md says what can be forked"


class Closed(DeathlessError):
    """An object was used after it was closed."""

    code = "DL5001"


class Internal(DeathlessError):
    """A broken invariant, a bug of Deathless; the replica stops (I8)."""

    code = "DL9001"
    exit_code = 70
    remedy = "please report it with the log directory"
