"""Words between the machines of a sink and the programs around them.

Events say what happened, effects what is to be done or is to be known, in the order given. Offsets count the bytes of
payloads of one stream. A transaction is named by the coordinator. Does not: do anything. Imports codec records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from deathless.protocols.connector.frames import MessageId, StreamId
from deathless.protocols.connector.transactions import Range

# ---------------------------------------------------------------- coordinator: what the runtime has found or decided


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlanned:
    """The note of the next block is confirmed: its bytes are those of offsets [start, end), whatever happens."""

    transaction: bytes
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DataOffered:
    """Bytes of the planned block, in order, each one message. With the last ones the vote is asked for."""

    payloads: Sequence[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionConfirmed:
    """What becomes of a transaction is decided, and the note of that is confirmed."""

    transaction: bytes
    commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ListWanted:
    """What was decided is to be said and asked for again, since the participant had not done it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VoteOverdue:
    """The participant has been silent for too long: connect again, and ask what is in doubt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersGone:
    """These workers will never come back."""

    workers: tuple[bytes, ...]


# ---------------------------------------------------------------- coordinator: what is to be done or known


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolveDoubt:
    """Effect: decide each of these by its note: commit what is noted as decided, abort all else."""

    transactions: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReady:
    """Effect: nothing is in doubt; a block may be planned.

    What had been decided as a commit before, by a note that is read now and by who still leads, is committed. One that
    does not lead any more may hold an old list against a newer note.
    """

    position: MessageId  # what the participant said at the beginning; Wallaroo's own sinks say nothing of use


@dataclass(frozen=True, slots=True, kw_only=True)
class Voted:
    """Effect: confirm the decision: commit if the vote is commit, else abort."""

    transaction: bytes
    commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionsDone:
    """Effect: the participant has done what was decided, durably: each with whether it was committed."""

    outcomes: Mapping[bytes, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class StillUncommitted:
    """Effect: the participant has not done these yet. Say ListWanted after a while."""

    transactions: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkMoved:
    """Effect: the participant asks to connect anew."""

    address: str  # host:port; empty: the same


# ---------------------------------------------------------------- participant: what its storage found or did


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceAdmitted:
    """Older connections of the instance are closed, and what they had not got prepared is discarded."""

    committed: Mapping[StreamId, int] = field(default_factory=dict)  # stream -> offset; none: 0
    in_doubt: frozenset[bytes] = frozenset()  # voted for, and not decided


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRefused:
    """This coordinator can't be served."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """Answer to Prepare. To say commit, all bytes and the transaction's name have to be durable."""

    transaction: bytes
    commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolved:
    """Answer to Resolve: it is done, durably; it may have been done before."""

    transaction: bytes
    committed: Mapping[StreamId, int] = field(default_factory=dict)  # stream -> offset, afterwards; none: 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolutionRefused:
    """Answer to Resolve: a transaction that was never prepared, or was aborted, can't be committed."""

    transaction: bytes
    text: str


# ---------------------------------------------------------------- participant: what is to be done


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitInstance:
    """Effect: close older connections of this instance, then say InstanceAdmitted or InstanceRefused."""

    instance: str
    program: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteData:
    """Effect: keep these bytes, at these offsets [offset, offset + bytes), until they are prepared or discarded."""

    stream: StreamId
    offset: int
    payloads: list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Effect: make these ranges and the name durable, then say Prepared."""

    transaction: bytes
    ranges: tuple[Range, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolve:
    """Effect: commit the transaction, or abort it: discard its bytes and all behind them. Then say Resolved.

    An abort of what is unknown is done already. A commit of what was committed is, too.
    """

    transaction: bytes
    commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortVoted:
    """Effect: the machine has voted to abort, since what was sent does not fit."""

    transaction: bytes
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetWorkers:
    """Effect: what is kept for these workers is not needed any more."""

    workers: tuple[bytes, ...]
