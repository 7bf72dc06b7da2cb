"""The coordinator's end of a sink: what the runtime says to a program that takes its output, for one connection.

    state         what is waited for                          next
    CONNECTED     ConnectionOpened                            HANDSHAKE, HELLO is sent
    HANDSHAKE     OK                                          INTRODUCING, NOTIFY of stream 1 is sent
    INTRODUCING   NOTIFY_ACK                                  LISTING, LIST_UNCOMMITTED is sent
    LISTING       REPLY_UNCOMMITTED                           READY; RESOLVING where something is in doubt
    RESOLVING     DecisionConfirmed for each in doubt         SETTLING, PHASE2 of each and LIST_UNCOMMITTED are sent
    READY         BlockPlanned                                WRITING
    WRITING       DataOffered, to the block's end             VOTING, PHASE1 is sent
    VOTING        REPLY                                       VOTED
    VOTED         DecisionConfirmed                           SETTLING, PHASE2 and LIST_UNCOMMITTED are sent
    SETTLING      REPLY_UNCOMMITTED without it                READY
    CLOSED        nothing

`LEGAL` is the table of what may come when. A participant that says something else is answered by one ERROR and this
connection ends; what it had voted for is in doubt then, and is decided at the next connection.

**Nothing is decided here.** That a block's extent and a transaction's outcome are noted and confirmed is said by
the events' names; the machine keeps the order: no byte before the plan, no commit without a vote for it (by REPLY or by
being listed), no byte of the next block before the participant's list shows that the last one is done. There is no
answer to PHASE2 in this protocol, so the list is what tells it. A REPLY to PHASE2, which one text of the
protocol has, is passed over.

Guarantees: PHASE2 commit is sent for a transaction only while a vote for it stands; between PHASE1 and the
list that follows PHASE2 no data is sent; offsets of a block are sent in order, each once. Does not: keep blocks or
notes, wait (VoteOverdue and ListWanted come from outside), use credits: a participant's are passed over, TCP is the
back-pressure. Imports base only.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, TypeAlias, assert_never

from deathless.base.errors import DeathlessError, TooLarge
from deathless.base.limits import CONNECTOR_FRAME_BYTES_MAX
from deathless.protocols.connector.events import BytesReceived, Close, ConnectionLost, ConnectionOpened, Send
from deathless.protocols.connector.fields import SHORT_BYTES_MAX, U64_MAX
from deathless.protocols.connector.frame_reader import FrameReader
from deathless.protocols.connector.frames import (
    MESSAGE_OVERHEAD_BYTES,
    PREFIX_BYTES,
    TRANSACTION_STREAM,
    VERSIONS,
    Ack,
    AnyFrame,
    Error,
    Hello,
    Message,
    MessageId,
    Notify,
    NotifyAck,
    Ok,
    Restart,
    StreamId,
    WorkersLeft,
    encode,
    encode_message,
)
from deathless.protocols.connector.handshake import error_frame
from deathless.protocols.connector.legality import Table, misuse, violation
from deathless.protocols.connector.sink_events import (
    BlockPlanned,
    DataOffered,
    DecisionConfirmed,
    ListWanted,
    ResolveDoubt,
    SinkMoved,
    SinkReady,
    StillUncommitted,
    TransactionsDone,
    Voted,
    VoteOverdue,
    WorkersGone,
)
from deathless.protocols.connector.transactions import (
    FIRST_RTAG,
    AnyTransaction,
    ListUncommitted,
    Phase1,
    Phase2,
    Range,
    Reply,
    ReplyUncommitted,
    decode,
    in_frame,
)

DATA_STREAM: Final = StreamId(1)

Event: TypeAlias = (
    BytesReceived
    | ConnectionOpened
    | ConnectionLost
    | BlockPlanned
    | DataOffered
    | DecisionConfirmed
    | ListWanted
    | VoteOverdue
    | WorkersGone
)
Effect: TypeAlias = Send | Close | ResolveDoubt | SinkReady | Voted | TransactionsDone | StillUncommitted | SinkMoved


class State(enum.Enum):
    """Of the connection; the table in the module's docstring says what each waits for."""

    CONNECTED = "connected"
    HANDSHAKE = "handshake"
    INTRODUCING = "introducing"
    LISTING = "listing"
    RESOLVING = "resolving"
    READY = "ready"
    WRITING = "writing"
    VOTING = "voting"
    VOTED = "voted"
    SETTLING = "settling"
    CLOSED = "closed"


_ANYTIME: Final[Mapping[type, frozenset[State] | None]] = {BytesReceived: None, ConnectionLost: None, Error: None}
_SESSION: Final[Mapping[type, frozenset[State] | None]] = {**_ANYTIME, Ack: None, Restart: None}
_STEADY: Final[Mapping[type, frozenset[State] | None]] = {**_SESSION, WorkersGone: None, Reply: None}
LEGAL: Final = Table[State, State](
    {
        State.CONNECTED: {**_ANYTIME, ConnectionOpened: None},
        State.HANDSHAKE: {**_ANYTIME, Ok: None},
        State.INTRODUCING: {**_SESSION, NotifyAck: None},
        State.LISTING: {**_SESSION, ReplyUncommitted: None},
        State.RESOLVING: {**_STEADY, DecisionConfirmed: None},
        State.READY: {**_STEADY, BlockPlanned: None},
        State.WRITING: {**_STEADY, DataOffered: None},
        State.VOTING: {**_STEADY, VoteOverdue: None},
        State.VOTED: {**_STEADY, DecisionConfirmed: None},
        State.SETTLING: {**_STEADY, ReplyUncommitted: None, ListWanted: None},
        State.CLOSED: {},  # whatever comes is late, and nothing is done
    }
)


class SinkCoordinator:
    """One connection to a participant.

    Args:
        program: what we are called.
        instance: whose output it is; a participant keeps transactions by it.
        cookie: that the participant expects.
        name: of the stream, for people.
        version: to say.
        frame_bytes_max: longest frame, without its length.
        first_rtag: number of the first question.
    """

    def __init__(
        self,
        *,
        program: str,
        instance: str,
        cookie: bytes = b"",
        name: bytes = b"",
        version: str = VERSIONS[1],
        frame_bytes_max: int = CONNECTOR_FRAME_BYTES_MAX,
        first_rtag: int = FIRST_RTAG,
    ) -> None:
        self._hello = Hello(version, cookie, program, instance)
        self._name = name
        self._frame_bytes_max = frame_bytes_max
        self._state = State.CONNECTED
        self._reader = FrameReader(frame_bytes_max)
        self._rtag = first_rtag - 1  # of the last question
        self._position = MessageId(0)  # what the participant said
        self._block: BlockPlanned | None = None  # planned, and not known to be done
        self._offset = 0  # of the block's next byte
        self._vote: bool | None = None  # on the block; None: there is none yet
        self._doubt: tuple[bytes, ...] = ()  # listed, and no decision is confirmed
        self._decided: dict[bytes, bool] = {}  # said by PHASE2, of this round and the one before

    @property
    def state(self) -> State:
        """Where the connection stands."""
        return self._state

    def handle(self, event: Event) -> list[Effect]:
        """Take one event in; give what is to be done, in order.

        Raises: InvalidUse, and TooLarge for a payload that passes `frame_bytes_max`; nothing was sent or changed.
        """
        out: list[Effect] = []
        if self._state is State.CLOSED:
            return out
        LEGAL.check_event(self._state, type(event))
        match event:
            case BytesReceived(data=data):
                self._received(data, out)
            case ConnectionOpened():
                out.append(Send(data=encode(self._hello)))
                self._state = State.HANDSHAKE
            case ConnectionLost():
                self._close("", "the connection was lost", out)
            case BlockPlanned():
                self._plan(event, out)
            case DataOffered(payloads=payloads):
                self._write([bytes(each) for each in payloads], out)
            case DecisionConfirmed(transaction=transaction, commit=commit):
                self._decide(transaction, commit, out)
            case ListWanted():
                self._say_again(out)
            case VoteOverdue():
                self._close("", "the participant did not vote in time", out)
            case WorkersGone(workers=workers):
                self._say(WorkersLeft(self._rtag + 1, workers), out)
                self._rtag += 1
            case _:
                assert_never(event)
        return out

    # ---- what the runtime decided ----------------------------------------------------------------------------

    def _plan(self, event: BlockPlanned, out: list[Effect]) -> None:
        if not 0 <= event.start <= event.end <= U64_MAX:
            raise misuse(f"offsets [{event.start}, {event.end}) are no range")
        if len(event.transaction) > SHORT_BYTES_MAX:
            raise misuse(
                f"a transaction's name of {len(event.transaction)} bytes, at most {SHORT_BYTES_MAX} are possible"
            )
        if event.transaction in self._decided:
            raise misuse(f"transaction {event.transaction!r} is decided already: another attempt has another name")
        self._block, self._offset, self._vote = event, event.start, None
        self._state = State.WRITING
        if event.start == event.end:
            self._ask_for_vote(event, out)

    def _write(self, payloads: list[bytes], out: list[Effect]) -> None:
        block = self._planned
        offset = self._offset
        parts = []
        for payload in payloads:
            if len(payload) + MESSAGE_OVERHEAD_BYTES - PREFIX_BYTES > self._frame_bytes_max:
                raise TooLarge(
                    f"a payload of {len(payload)} bytes passes the frame's {self._frame_bytes_max}",
                    remedy="offer it in parts",
                )
            parts.append(encode_message(Message(DATA_STREAM, MessageId(offset), 0, b"", payload)))
            offset += len(payload)
        if offset > block.end:
            raise misuse(f"bytes up to {offset} were offered, the block ends at {block.end}")
        self._offset = offset
        if parts:
            out.append(Send(data=b"".join(parts)))
        if offset == block.end:
            self._ask_for_vote(block, out)

    @property
    def _planned(self) -> BlockPlanned:
        assert self._block is not None, "a state with a block has one"
        return self._block

    def _ask_for_vote(self, block: BlockPlanned, out: list[Effect]) -> None:
        extent = Range(DATA_STREAM, MessageId(block.start), MessageId(block.end))
        self._say(Phase1(block.transaction, (extent,)), out)
        self._state = State.VOTING

    def _decide(self, transaction: bytes, commit: bool, out: list[Effect]) -> None:
        """Say what is decided, once nothing is undecided."""
        if self._state is State.VOTED:
            if transaction != self._planned.transaction:
                raise misuse(f"transaction {transaction!r} is not the one that was voted on")
            if commit and not self._vote:
                raise misuse(f"transaction {transaction!r}: the vote is to abort")
            self._decided = {}
        elif transaction not in self._doubt:
            raise misuse(f"transaction {transaction!r} is not in doubt")
        self._doubt = tuple(each for each in self._doubt if each != transaction)
        self._decided[transaction] = commit
        self._say(Phase2(transaction, commit), out)
        if not self._doubt:
            self._list(State.SETTLING, out)

    def _say_again(self, out: list[Effect]) -> None:
        for transaction, commit in self._decided.items():
            self._say(Phase2(transaction, commit), out)
        self._list(State.SETTLING, out)

    def _list(self, state: State, out: list[Effect]) -> None:
        self._rtag += 1
        self._say(ListUncommitted(self._rtag), out)
        self._state = state

    def _say(self, message: AnyTransaction, out: list[Effect]) -> None:
        out.append(Send(data=encode_message(in_frame(message))))

    # ---- what the participant said ---------------------------------------------------------------------------

    def _received(self, data: bytes, out: list[Effect]) -> None:
        try:
            self._reader.feed(data)
            while self._state is not State.CLOSED and (frame := self._reader.next()) is not None:
                self._frame(frame, out)
        except DeathlessError as error:
            self._fail(error, out)

    def _frame(self, frame: AnyFrame, out: list[Effect]) -> None:
        said: AnyFrame | AnyTransaction = frame
        if isinstance(frame, Message) and frame.stream == TRANSACTION_STREAM:
            said = decode(frame)
        LEGAL.check_frame(self._state, type(said))
        match said:
            case Ok():
                out.append(Send(data=encode(Notify(DATA_STREAM, self._name, MessageId(0)))))
                self._state = State.INTRODUCING
            case NotifyAck():
                self._introduced(said, out)
            case ReplyUncommitted():
                self._listed(said, out)
            case Reply(transaction=transaction, commit=commit):
                self._voted(transaction, commit, out)
            case Ack():
                pass  # of no use here; existing coordinators close at one
            case Restart(address=address):
                out.append(SinkMoved(address=address))
                self._close("", "the participant asked to connect anew", out)
            case Error(text=text):
                self._close("", f"the participant says: {text}", out)
            case _:  # pragma: no cover - each frame of the table has a branch
                raise AssertionError(f"{said} is in the table and has no branch")

    def _introduced(self, said: NotifyAck, out: list[Effect]) -> None:
        if said.stream != DATA_STREAM:
            raise violation(f"NOTIFY_ACK: stream {said.stream}, asked for was {DATA_STREAM}")
        if not said.success:
            self._close("", "the participant does not take the stream", out)
            return
        self._position = said.position
        self._list(State.LISTING, out)

    def _listed(self, said: ReplyUncommitted, out: list[Effect]) -> None:
        if said.rtag != self._rtag:
            raise violation(f"REPLY_UNCOMMITTED: rtag {said.rtag}, asked was {self._rtag}")
        undone = tuple(each for each in said.transactions if each in self._decided)
        unknown = tuple(each for each in said.transactions if each not in self._decided)
        if unknown:
            self._doubt = unknown
            self._state = State.RESOLVING
            out.append(ResolveDoubt(transactions=unknown))
            return
        if undone:
            out.append(StillUncommitted(transactions=undone))
            return
        if self._state is State.SETTLING:
            out.append(TransactionsDone(outcomes=dict(self._decided)))
        self._block = None
        self._state = State.READY
        out.append(SinkReady(position=self._position))

    def _voted(self, transaction: bytes, commit: bool, out: list[Effect]) -> None:
        asked = self._block is not None and transaction == self._block.transaction
        if asked and self._state is State.VOTING:
            self._vote = commit
            self._state = State.VOTED
            out.append(Voted(transaction=transaction, commit=commit))
        elif asked and self._state is State.VOTED and commit == self._vote:
            pass  # said twice
        elif transaction not in self._decided:
            raise violation(f"REPLY: transaction {transaction!r} was not asked about")

    # ---- the end ---------------------------------------------------------------------------------------------

    def _fail(self, error: DeathlessError, out: list[Effect]) -> None:
        out.append(Send(data=error_frame(error)))
        self._close(error.code, error.message, out)

    def _close(self, code: str, text: str, out: list[Effect]) -> None:
        out.append(Close(code=code, text=text))
        self._state = State.CLOSED
