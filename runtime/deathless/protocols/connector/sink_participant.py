"""The participant's end of a sink: what a program that takes output says to its coordinator, for one connection.

    state        what is waited for                             next
    CONNECTED    HELLO                                          ADMITTING
    ADMITTING    InstanceAdmitted | InstanceRefused             OK is sent: READY, IN_DOUBT | CLOSED
    IN_DOUBT     PHASE2 for what earlier connections left       RESOLVING
    READY        MESSAGEs; PHASE1                               PREPARING; VOTED where what was sent does not fit
    PREPARING    Prepared                                       VOTED, REPLY is sent
    VOTED        PHASE2                                         RESOLVING
    RESOLVING    Resolved                                       READY, or IN_DOUBT while more is in doubt
    CLOSED       nothing

`LEGAL` is the table of what may come when. A coordinator that says something else is answered by one ERROR with a code,
and this connection alone ends: what was not prepared is discarded by the storage when the instance comes back.

While storage is asked (ADMITTING, PREPARING, RESOLVING) no frame is taken: those that came already wait, and
`wants_bytes` says that nothing more is to be read. So a vote or a list can't overtake what it depends on.

**Votes.** A message has to begin where the one before ended. If one does not, nothing of what was sent since the
last transaction is kept, and the vote is to abort: the coordinator sends it again. The same if PHASE1 names other bytes
than just those that came since. A vote to commit is given on the storage's word alone; a vote to abort owes nothing.

There is no answer to PHASE2: existing coordinators fail at one. LIST_UNCOMMITTED is answered with what was voted for
and is not decided. A PHASE2 that comes twice, or for what is known no more, goes to the storage, which knows what it
committed. ACK is never sent.

Guarantees: a transaction is committed only if the storage prepared it and the vote was to commit; at most one is open;
data of one stream is written without gap or overlap. Does not: store, tell which coordinator is the right one (the
newest connection of an instance is, once the storage has closed the older ones). Imports base only.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from typing import Final, TypeAlias, assert_never

from deathless.base.errors import DeathlessError, Forbidden, TooLarge
from deathless.base.limits import CONNECTOR_FRAME_BYTES_MAX, CONNECTOR_STREAMS_MAX
from deathless.protocols.connector.events import BytesReceived, Close, ConnectionLost, Send
from deathless.protocols.connector.frame_reader import FrameReader
from deathless.protocols.connector.frames import (
    TRANSACTION_STREAM,
    VERSIONS,
    AnyFrame,
    EosMessage,
    Error,
    Hello,
    Message,
    MessageId,
    Notify,
    NotifyAck,
    Ok,
    StreamId,
    WorkersLeft,
    encode,
    encode_message,
)
from deathless.protocols.connector.handshake import check_hello, error_frame
from deathless.protocols.connector.legality import Table, misuse, violation
from deathless.protocols.connector.sink_events import (
    AbortVoted,
    AdmitInstance,
    ForgetWorkers,
    InstanceAdmitted,
    InstanceRefused,
    Prepare,
    Prepared,
    ResolutionRefused,
    Resolve,
    Resolved,
    WriteData,
)
from deathless.protocols.connector.transactions import (
    AnyTransaction,
    ListUncommitted,
    Phase1,
    Phase2,
    Reply,
    ReplyUncommitted,
    decode,
    in_frame,
)

CREDITS: Final = 500
"""In OK. Coordinators use none; existing ones want to be given 2 at least."""

Event: TypeAlias = (
    BytesReceived | ConnectionLost | InstanceAdmitted | InstanceRefused | Prepared | Resolved | ResolutionRefused
)
Effect: TypeAlias = Send | Close | AdmitInstance | WriteData | Prepare | Resolve | AbortVoted | ForgetWorkers


class State(enum.Enum):
    """Of the connection; the table in the module's docstring says what each waits for."""

    CONNECTED = "connected"
    ADMITTING = "admitting"
    IN_DOUBT = "in doubt"
    READY = "ready"
    PREPARING = "preparing"
    VOTED = "voted"
    RESOLVING = "resolving"
    CLOSED = "closed"


class StreamState(enum.Enum):
    """Of a stream on this connection."""

    UNKNOWN = "unknown"
    OPEN = "open"
    CLOSED = "closed"


_HELD: Final = frozenset({State.ADMITTING, State.PREPARING, State.RESOLVING})
_ANYTIME: Final[Mapping[type, frozenset[StreamState] | None]] = {BytesReceived: None, ConnectionLost: None}
_SESSION: Final[Mapping[type, frozenset[StreamState] | None]] = {
    **_ANYTIME,
    Error: None,
    Notify: None,
    ListUncommitted: None,
    Phase2: None,
    WorkersLeft: None,
}
LEGAL: Final = Table[State, StreamState](
    {
        State.CONNECTED: {**_ANYTIME, Hello: None, Error: None},
        State.ADMITTING: {**_ANYTIME, InstanceAdmitted: None, InstanceRefused: None},
        State.IN_DOUBT: {**_SESSION},
        State.READY: {
            **_SESSION,
            Message: frozenset({StreamState.OPEN}),
            EosMessage: frozenset({StreamState.OPEN}),
            Phase1: None,
        },
        State.PREPARING: {**_ANYTIME, Prepared: None},
        State.VOTED: {**_SESSION, Phase1: None},  # the same again
        State.RESOLVING: {**_ANYTIME, Resolved: None, ResolutionRefused: None},
        State.CLOSED: {},  # whatever comes is late, and nothing is done
    }
)


class _Stream:
    """One stream of this connection."""

    __slots__ = ("begin", "end", "state")

    def __init__(self, committed: int) -> None:
        self.state = StreamState.OPEN
        self.begin = committed  # of what belongs to no transaction yet
        self.end = committed  # of what came


class SinkParticipant:
    """One connection of a coordinator.

    Args:
        cookie: that coordinators show; empty: none.
        credits: in OK; [2, 2**32).
        versions: that are accepted.
        frame_bytes_max: a longer frame ends its connection.
        streams_max: of this connection.

    Raises: InvalidUse when `credits` is out of range.
    """

    def __init__(
        self,
        *,
        cookie: bytes = b"",
        credits: int = CREDITS,  # noqa: A002  what the protocol calls them
        versions: Collection[str] = VERSIONS,
        frame_bytes_max: int = CONNECTOR_FRAME_BYTES_MAX,
        streams_max: int = CONNECTOR_STREAMS_MAX,
    ) -> None:
        if not 2 <= credits < 2**32:
            raise misuse(f"credits: {credits}, from 2 up to 2**32 - 1 are possible")
        self.instance = ""  # of the coordinator, once it has said HELLO
        self._settings = versions, cookie, credits, streams_max
        self._state = State.CONNECTED
        self._reader = FrameReader(frame_bytes_max)
        self._streams: dict[StreamId, _Stream] = {}
        self._committed: dict[StreamId, int] = {}  # offsets, as the storage said last
        self._doubt: dict[bytes, None] = {}  # voted for and not decided, in order
        self._open: Phase1 | None = None  # the one transaction of this connection that is not decided
        self._vote = False  # on it
        self._spoiled = ""  # why what came since the last transaction can't be committed; empty: it can
        self._resolving: Phase2 | None = None

    @property
    def state(self) -> State:
        """Where the connection stands."""
        return self._state

    @property
    def wants_bytes(self) -> bool:
        """Can frames be taken? While they can't nothing is to be read from the connection."""
        return self._state is not State.CLOSED and self._state not in _HELD

    def stream_state(self, stream: StreamId) -> StreamState:
        """Where a stream stands."""
        known = self._streams.get(stream)
        return StreamState.UNKNOWN if known is None else known.state

    def handle(self, event: Event) -> list[Effect]:
        """Take one event in; give what is to be done, in order.

        Raises: InvalidUse when the storage answers what it was not asked; nothing was changed.
        """
        out: list[Effect] = []
        if self._state is State.CLOSED:
            return out
        LEGAL.check_event(self._state, type(event))
        match event:
            case BytesReceived(data=data):
                self._reader.feed(data)
            case ConnectionLost():
                self._close("", "the connection was lost", out)
            case InstanceAdmitted(committed=committed, in_doubt=in_doubt):
                self._committed = dict(committed)
                self._doubt = dict.fromkeys(sorted(in_doubt))
                out.append(Send(data=encode(Ok(self._settings[2]))))
                self._state = State.IN_DOUBT if self._doubt else State.READY
            case InstanceRefused(text=text):
                self._fail(Forbidden(text, remedy="see the participant's log"), out)
            case Prepared(transaction=transaction, commit=commit):
                if self._open is None or transaction != self._open.transaction:
                    raise misuse(f"transaction {transaction!r} was not to be prepared")
                self._reply(self._open, commit, out)
            case Resolved() | ResolutionRefused():
                self._resolved(event, out)
            case _:
                assert_never(event)
        self._take_frames(out)
        return out

    # ---- what the storage did --------------------------------------------------------------------------------

    def _reply(self, asked: Phase1, commit: bool, out: list[Effect]) -> None:
        """Vote."""
        self._open, self._vote = asked, commit
        if commit:
            self._doubt[asked.transaction] = None
        self._state = State.VOTED
        self._say(Reply(asked.transaction, commit), out)

    def _resolved(self, event: Resolved | ResolutionRefused, out: list[Effect]) -> None:
        asked = self._resolving
        if asked is None or event.transaction != asked.transaction:
            raise misuse(f"transaction {event.transaction!r} was not to be resolved")
        if isinstance(event, ResolutionRefused):
            what = f"PHASE2: transaction {event.transaction!r} can't be committed: {event.text}"
            self._fail(violation(what, "an operator has to compare both ends"), out)
            return
        voted = self._open is not None and asked.transaction == self._open.transaction
        if voted or asked.transaction in self._doubt:
            self._committed = dict(event.committed)
            for ident, stream in self._streams.items():
                stream.begin = stream.end = self._committed.get(ident, 0)
            self._spoiled = ""
        if voted:
            self._open = None
        self._doubt.pop(asked.transaction, None)
        self._resolving = None
        self._state = State.VOTED if self._open else State.IN_DOUBT if self._doubt else State.READY

    # ---- what the coordinator said ---------------------------------------------------------------------------

    def _take_frames(self, out: list[Effect]) -> None:
        try:
            while self.wants_bytes and (frame := self._reader.next()) is not None:
                self._frame(frame, out)
        except DeathlessError as error:
            self._fail(error, out)

    def _frame(self, frame: AnyFrame, out: list[Effect]) -> None:
        said: AnyFrame | AnyTransaction = frame
        if isinstance(frame, Message) and frame.stream == TRANSACTION_STREAM:
            said = decode(frame)
        if isinstance(said, Message | EosMessage):
            LEGAL.check_frame(self._state, type(said), self.stream_state(said.stream), what=f"stream {said.stream}")
        else:
            LEGAL.check_frame(self._state, type(said))
        match said:
            case Message():
                self._data(said, self._streams[said.stream], out)
            case Hello():
                versions, cookie = self._settings[:2]
                check_hello(said, versions=versions, cookie=cookie)
                self.instance = said.instance
                self._state = State.ADMITTING
                out.append(AdmitInstance(instance=said.instance, program=said.program))
            case Notify():
                self._notify(said, out)
            case EosMessage(stream=ident):
                self._streams[ident].state = StreamState.CLOSED
            case ListUncommitted(rtag=rtag):
                self._say(ReplyUncommitted(rtag, tuple(self._doubt)), out)
            case Phase1():
                self._phase1(said, out)
            case Phase2():
                self._phase2(said, out)
            case WorkersLeft(workers=workers):
                out.append(ForgetWorkers(workers=workers))
            case Error(text=text):
                self._close("", f"the coordinator says: {text}", out)
            case _:  # pragma: no cover - each frame of the table has a branch
                raise AssertionError(f"{said} is in the table and has no branch")

    def _notify(self, said: Notify, out: list[Effect]) -> None:
        ident = said.stream
        stream = self._streams.get(ident)
        if ident == TRANSACTION_STREAM:
            raise violation("NOTIFY: stream 0 carries transactions and is not opened")
        if stream is None and len(self._streams) >= self._settings[3]:
            raise TooLarge(
                f"NOTIFY: stream {ident}: at most {self._settings[3]} streams on one connection",
                remedy="send the others over connections of their own",
            )
        success = stream is None or stream.state is StreamState.CLOSED
        if stream is None:
            self._streams[ident] = stream = _Stream(self._committed.get(ident, 0))
        stream.state = StreamState.OPEN
        out.append(Send(data=encode(NotifyAck(success, ident, MessageId(stream.end)))))

    def _data(self, said: Message, stream: _Stream, out: list[Effect]) -> None:
        if said.id != stream.end and not self._spoiled:
            self._spoiled = f"stream {said.stream}: a message at offset {said.id}, the one before ended at {stream.end}"
        if self._spoiled:
            return
        stream.end += len(said.payload)
        last = out[-1] if out else None
        if isinstance(last, WriteData) and last.stream == said.stream:
            last.payloads.append(said.payload)
        else:
            out.append(WriteData(stream=said.stream, offset=int(said.id), payloads=[said.payload]))

    def _phase1(self, said: Phase1, out: list[Effect]) -> None:
        if self._open is not None:
            if said != self._open:
                what = f"PHASE1: transaction {said.transaction!r} while {self._open.transaction!r} is open"
                raise violation(what, "say PHASE2 of the open one first")
            self._say(Reply(said.transaction, self._vote), out)
            return
        problem = self._spoiled or self._misfit(said)
        if problem:
            out.append(AbortVoted(transaction=said.transaction, text=problem))
            self._reply(said, False, out)
            return
        self._open, self._vote = said, False
        self._state = State.PREPARING
        out.append(Prepare(transaction=said.transaction, ranges=said.ranges))

    def _misfit(self, said: Phase1) -> str:
        """Say how these ranges differ from what came; empty: they don't."""
        named = {each.stream: (int(each.start), int(each.end)) for each in said.ranges}
        came = {ident: (stream.begin, stream.end) for ident, stream in self._streams.items()}
        if len(named) != len(said.ranges):
            return "a stream is named twice"
        for ident, extent in named.items():
            if came.get(ident) != extent:
                return f"stream {ident}: {extent} is asked for, {came.get(ident, 'nothing')} came"
        left = [ident for ident, (begin, end) in came.items() if ident not in named and begin != end]
        return f"stream {left[0]} is not named, and bytes of it came" if left else ""

    def _phase2(self, said: Phase2, out: list[Effect]) -> None:
        voted = self._open is not None and said.transaction == self._open.transaction
        if said.commit and voted and not self._vote:
            raise violation(f"PHASE2: transaction {said.transaction!r} is to be committed, the vote was to abort")
        self._resolving = said
        self._state = State.RESOLVING
        out.append(Resolve(transaction=said.transaction, commit=said.commit))

    # ---- what leaves -----------------------------------------------------------------------------------------

    def _say(self, message: AnyTransaction, out: list[Effect]) -> None:
        out.append(Send(data=encode_message(in_frame(message))))

    def _fail(self, error: DeathlessError, out: list[Effect]) -> None:
        out.append(Send(data=error_frame(error)))
        self._close(error.code, error.message, out)

    def _close(self, code: str, text: str, out: list[Effect]) -> None:
        out.append(Close(code=code, text=text))
        self._state = State.CLOSED
