"""The worker's end of a source: what the runtime says to a client that sends streams, for one connection.

    CONNECTED  -- HELLO -->  STREAMING  -- ERROR, loss, drain -->  CLOSED

    a stream       becomes                                                 by
    CLOSED         ASKED                                                   NOTIFY
    ASKED          OPEN | CLOSED                                           StreamAdmitted | StreamRefused
    OPEN           ENDING                                                  EOS_MESSAGE
    ENDING         CLOSED, or ASKED if a NOTIFY came meanwhile             EndConfirmed

A stream that was never named is CLOSED as one that ended is: nothing is kept of either.

`LEGAL` is the table of what may come when. Whatever else a client sends is answered by one ERROR with a code, and this
connection alone ends; a NOTIFY for a stream that this connection has already is answered by NOTIFY_ACK 0.

**Who decides.** The primary does: who owns a stream, which message is new, what is confirmed. The machine is told, and
keeps to it:
- A message is dropped here only if its id is not above one that the primary called confirmed. All others go to the
  primary in the order in which they came, which admits by id (docs/design/0029).
- ACK and NOTIFY_ACK name what is confirmed and nothing else; a stream that is notified again is asked for only once
  its end is confirmed.
- A stream whose primary is lost keeps its client: what is not confirmed is kept here and sent again to whoever has
  the stream next, from the id that it names. A stream that is fenced has another owner: its client is told and closed.

**Credits.** Each NOTIFY, MESSAGE and EOS_MESSAGE takes one, whatever the client counts, and gives it back once it needs
no memory here: answered, settled (confirmed by its shard) or dropped. So at most so many messages are kept as credits
were given, if a client keeps to them. One that does not is no fault, since existing clients count differently:
`wants_bytes` says when nothing more is to be read from it. Credits that are held back (CreditsHeld) are given later.

Guarantees: each message that came is forwarded or covered by a confirmed id; nothing is acknowledged twice or below an
earlier acknowledgement; after CLOSED nothing is done. Does not: time anything (AcknowledgementDue comes from outside),
know shards, keys, handlers. Imports base only.
"""

from __future__ import annotations

import enum
from collections import deque
from collections.abc import Collection, Mapping
from typing import Final, TypeAlias, assert_never

from deathless.base.errors import DeathlessError, Deposed, ServiceRolledBack, TooLarge
from deathless.base.limits import CONNECTOR_FRAME_BYTES_MAX, CONNECTOR_KEPT_BYTES_MAX, CONNECTOR_STREAMS_MAX
from deathless.protocols.connector.events import BytesReceived, Close, ConnectionLost, Send
from deathless.protocols.connector.frame_reader import FrameReader
from deathless.protocols.connector.frames import (
    MESSAGE_OVERHEAD_BYTES,
    NO_POSITION,
    VERSIONS,
    Ack,
    AnyFrame,
    EosMessage,
    Error,
    Hello,
    Message,
    MessageId,
    Notify,
    NotifyAck,
    Ok,
    Restart,
    StreamId,
    encode,
    position_of,
)
from deathless.protocols.connector.handshake import check_hello, error_frame
from deathless.protocols.connector.legality import Table, misuse, violation
from deathless.protocols.connector.source_events import (
    AcknowledgementDue,
    AskStream,
    ConnectionRefused,
    CreditsHeld,
    DrainRequested,
    EndConfirmed,
    ForwardEnd,
    ForwardMessages,
    MessagesConfirmed,
    MessagesSettled,
    ReleaseStreams,
    StreamAdmitted,
    StreamFenced,
    StreamLost,
    StreamRefused,
    StreamResumed,
)

RESTART_PROGRAMS: Final = "deathless-"
"""How programs are called that understand RESTART; others hang on it, and connect again after a close."""

Event: TypeAlias = (
    BytesReceived
    | ConnectionLost
    | StreamAdmitted
    | StreamRefused
    | StreamLost
    | StreamResumed
    | StreamFenced
    | MessagesConfirmed
    | MessagesSettled
    | EndConfirmed
    | CreditsHeld
    | AcknowledgementDue
    | ConnectionRefused
    | DrainRequested
)
Effect: TypeAlias = Send | Close | AskStream | ForwardMessages | ForwardEnd | ReleaseStreams


class State(enum.Enum):
    """Of the connection."""

    CONNECTED = "connected"
    STREAMING = "streaming"
    CLOSED = "closed"


class StreamState(enum.Enum):
    """Of a stream on this connection."""

    CLOSED = "closed"  # never named, refused, or ended
    ASKED = "asked"  # the primary is to say who owns it
    OPEN = "open"
    ENDING = "ending"  # EOS_MESSAGE came and is not confirmed


_OWNED: Final = frozenset({StreamState.OPEN, StreamState.ENDING})
_ANYTIME: Final[Mapping[type, frozenset[StreamState] | None]] = {
    BytesReceived: None,
    ConnectionLost: None,
    CreditsHeld: None,
    AcknowledgementDue: None,
    ConnectionRefused: None,
    DrainRequested: None,
}
LEGAL: Final = Table[State, StreamState](
    {
        State.CONNECTED: {**_ANYTIME, Hello: None, Error: None},
        State.STREAMING: {
            **_ANYTIME,
            Error: None,
            Notify: None,
            Message: frozenset({StreamState.OPEN}),
            EosMessage: frozenset({StreamState.OPEN}),
            StreamAdmitted: frozenset({StreamState.ASKED}),
            StreamRefused: frozenset({StreamState.ASKED}),
            StreamFenced: _OWNED | {StreamState.ASKED, StreamState.CLOSED},
            StreamLost: _OWNED | {StreamState.CLOSED},
            StreamResumed: _OWNED | {StreamState.CLOSED},
            MessagesConfirmed: _OWNED,
            MessagesSettled: _OWNED,
            EndConfirmed: frozenset({StreamState.ENDING}),
        },
        State.CLOSED: {},  # whatever comes is late, and nothing is done
    }
)


class _Stream:
    """One stream of this connection."""

    __slots__ = ("again", "confirmed", "ended", "highest", "kept", "reached", "state")

    def __init__(self) -> None:
        self.state = StreamState.ASKED
        self.confirmed = -1  # the last id that is; -1: none. Invariant: never above `highest`
        self.highest = -1  # the highest id that the primary may know of
        self.kept: deque[Message] = deque()  # forwarded or to be forwarded, and not settled; in order
        self.ended = False  # the primary has confirmed the end, and no new message has come since
        self.reached = True  # a primary has the stream; False: it is lost
        self.again: Notify | None = None  # came while the end was not confirmed

    @property
    def last(self) -> MessageId | None:
        return None if self.confirmed < 0 else MessageId(self.confirmed)


class SourceWorker:
    """One connection of a client that sends streams.

    Args:
        cookie: that clients show; empty: none.
        credits: that a client begins with; [2, 2**31).
        versions: that are accepted.
        frame_bytes_max: a longer frame ends its connection.
        kept_bytes_max: of messages that are not confirmed, before nothing more is to be read.
        streams_max: of this connection.

    Raises: InvalidUse when `credits` is out of range.
    """

    def __init__(
        self,
        *,
        cookie: bytes = b"",
        credits: int,  # noqa: A002  what the protocol calls them
        versions: Collection[str] = VERSIONS,
        frame_bytes_max: int = CONNECTOR_FRAME_BYTES_MAX,
        kept_bytes_max: int = CONNECTOR_KEPT_BYTES_MAX,
        streams_max: int = CONNECTOR_STREAMS_MAX,
    ) -> None:
        if not 2 <= credits < 2**31:
            raise misuse(f"credits: {credits}, from 2 up to 2**31 - 1 are possible")
        self.instance = ""  # of the client, once it has said HELLO
        self.program = ""
        self.repeated = 0  # messages that were dropped since their id was confirmed already
        self._settings = versions, cookie, streams_max, kept_bytes_max
        self._state = State.CONNECTED
        self._reader = FrameReader(frame_bytes_max)
        self._streams: dict[StreamId, _Stream] = {}
        self._credits = credits
        self._owed = 0  # credits that nothing uses any more and that were not given back
        self._held = False
        self._untold: dict[StreamId, MessageId] = {}  # positions for the next ACK
        self._kept_bytes = 0  # of all streams' `kept`
        self._kept_count = 0  # likewise

    @property
    def state(self) -> State:
        """Where the connection stands."""
        return self._state

    @property
    def wants_bytes(self) -> bool:
        """Is there room for more? While there is none nothing is to be read from the connection."""
        return self._state is not State.CLOSED and self._kept_bytes < self._settings[3]

    @property
    def kept(self) -> tuple[int, int]:
        """How many messages are kept here, and how many bytes, those of an unfinished frame included."""
        return self._kept_count, self._kept_bytes + self._reader.unfinished_bytes

    @property
    def has_news(self) -> bool:
        """Is something confirmed that the client was not told yet? AcknowledgementDue tells it."""
        return bool(self._untold)

    @property
    def progress(self) -> tuple[int, bool]:
        """How many frames have come, and whether one has begun and not come to its end."""
        return self._reader.frames, self._reader.unfinished_bytes > 0

    def stream_state(self, stream: StreamId) -> StreamState:
        """Where a stream stands."""
        known = self._streams.get(stream)
        return StreamState.CLOSED if known is None else known.state

    def handle(self, event: Event) -> list[Effect]:
        """Take one event in; give what is to be done, in order.

        Raises: InvalidUse when the runtime says what can't be; nothing was changed.
        """
        out: list[Effect] = []
        if self._state is State.CLOSED:
            return out
        match event:
            case BytesReceived(data=data):
                self._received(data, out)
            case ConnectionLost():
                self._close("", "the connection was lost", out)
            case CreditsHeld(held=held):
                self._held = held
            case AcknowledgementDue(even_empty=even_empty):
                self._acknowledge(out, even_empty=even_empty)
            case ConnectionRefused(error=error):
                self._fail(error, out)
            case DrainRequested(address=address):
                if self.program.startswith(RESTART_PROGRAMS):
                    out.append(Send(data=encode(Restart(address))))
                self._close("", "this end drains", out)
            case _:
                self._decided(event, out)
        if self._owed >= max(1, self._credits // 2) and not self._held and self._state is State.STREAMING:
            self._acknowledge(out)
        return out

    # ---- what the runtime decided ----------------------------------------------------------------------------

    def _decided(
        self,
        event: StreamAdmitted
        | StreamRefused
        | StreamLost
        | StreamResumed
        | StreamFenced
        | MessagesConfirmed
        | MessagesSettled
        | EndConfirmed,
        out: list[Effect],
    ) -> None:
        ident = event.stream
        LEGAL.check_event(self._state, type(event), self.stream_state(ident), what=f"stream {ident}")
        stream = self._streams.get(ident)
        if stream is None:
            return  # it was given up while this was on its way
        match event:
            case StreamAdmitted(last=last, ended=ended):
                stream.confirmed = stream.highest = _known(ident, last)
                stream.state = StreamState.OPEN
                stream.ended = ended
                self._answer(ident, True, last, out)
            case StreamRefused(last=last):
                del self._streams[ident]
                self._answer(ident, False, last, out)
            case StreamFenced():
                self._fail(Deposed(f"stream {ident} has a newer owner", remedy="let one sender alone send it"), out)
            case StreamLost():
                stream.reached = False
            case StreamResumed(last=last, ended=ended):
                self._resumed(ident, stream, _known(ident, last), ended, out)
            case MessagesConfirmed(through=through):
                _check_reached(ident, stream, through)
                self._confirm(ident, stream, through)
            case MessagesSettled(through=through):
                _check_reached(ident, stream, through)
                self._settle(stream, through)
            case EndConfirmed():
                if stream.confirmed < stream.highest:
                    raise misuse(f"stream {ident}: its end can't be confirmed before message {stream.highest}")
                self._end(ident, stream, out)
            case _:
                assert_never(event)

    def _answer(self, ident: StreamId, success: bool, last: MessageId | None, out: list[Effect]) -> None:
        self._owed += 1
        out.append(Send(data=encode(NotifyAck(success, ident, position_of(last)))))

    def _confirm(self, ident: StreamId, stream: _Stream, through: int) -> None:
        """Forget what is confirmed; it is told with the next ACK."""
        if through > stream.confirmed:
            stream.confirmed = through
            self._untold[ident] = MessageId(through)
        self._settle(stream, through)

    def _settle(self, stream: _Stream, through: int) -> None:
        """Keep these no longer, and give their credits back."""
        kept = stream.kept
        while kept and kept[0].id <= through:
            self._kept_count -= 1
            self._kept_bytes -= _size(kept.popleft())
            self._owed += 1

    def _resumed(self, ident: StreamId, stream: _Stream, last: int, ended: bool, out: list[Effect]) -> None:
        """Send again what the primary does not have. What it calls confirmed is told to the client."""
        if stream.reached:
            raise misuse(f"stream {ident} was not lost")
        if last > stream.highest:
            self._fail(Deposed(f"stream {ident}: another sender sent message {last}"), out)
            return
        if last < stream.confirmed:
            what = f"stream {ident}: message {stream.confirmed} was confirmed, the service knows {last} as the last"
            self._fail(ServiceRolledBack(what, remedy="connect again: NOTIFY_ACK says from where to send"), out)
            return
        stream.reached = True
        self._confirm(ident, stream, last)
        if stream.kept:
            out.append(ForwardMessages(stream=ident, messages=list(stream.kept)))
        stream.ended = ended and not stream.kept
        if stream.state is StreamState.ENDING:
            self._eos(ident, stream, out)

    def _end(self, ident: StreamId, stream: _Stream, out: list[Effect]) -> None:
        """The end is confirmed: it is acknowledged by the last id once more, or by none if there never was one."""
        self._untold[ident] = position_of(stream.last)
        self._owed += 1
        del self._streams[ident]
        if stream.again is not None:
            self._acknowledge(out)  # before NOTIFY_ACK, which is about the stream's next part
            self._ask(stream.again, out)

    # ---- what the client sent --------------------------------------------------------------------------------

    def _received(self, data: bytes, out: list[Effect]) -> None:
        try:
            self._reader.feed(data)
            while self._state is not State.CLOSED and (frame := self._reader.next()) is not None:
                self._frame(frame, out)
        except DeathlessError as error:
            self._fail(error, out)

    def _frame(self, frame: AnyFrame, out: list[Effect]) -> None:
        if isinstance(frame, Message | EosMessage | Notify):
            LEGAL.check_frame(self._state, type(frame), self.stream_state(frame.stream), what=f"stream {frame.stream}")
        else:
            LEGAL.check_frame(self._state, type(frame))
        match frame:
            case Message():
                self._message(frame, self._streams[frame.stream], out)
            case Hello():
                versions, cookie = self._settings[:2]
                check_hello(frame, versions=versions, cookie=cookie)
                self.instance, self.program = frame.instance, frame.program
                self._state = State.STREAMING
                out.append(Send(data=encode(Ok(self._credits))))
            case Notify():
                self._notify(frame, out)
            case EosMessage(stream=ident):
                self._eos(ident, self._streams[ident], out)
            case Error(text=text):
                self._close("", f"the client says: {text}", out)
            case _:  # pragma: no cover - each frame of the table has a branch
                raise AssertionError(f"{frame} is in the table and has no branch")

    def _message(self, frame: Message, stream: _Stream, out: list[Effect]) -> None:
        ident = frame.id
        if ident == NO_POSITION:
            raise violation(f"MESSAGE: id: {ident} is the position of a stream without messages", "begin at 0")
        if ident <= stream.confirmed:
            self.repeated += 1
            self._owed += 1
            return
        stream.kept.append(frame)
        self._kept_bytes += _size(frame)
        self._kept_count += 1
        stream.highest = max(stream.highest, ident)
        stream.ended = False
        if stream.reached:
            last = out[-1] if out else None
            if isinstance(last, ForwardMessages) and last.stream == frame.stream:
                last.messages.append(frame)
            else:
                out.append(ForwardMessages(stream=frame.stream, messages=[frame]))

    def _eos(self, ident: StreamId, stream: _Stream, out: list[Effect]) -> None:
        if stream.ended:  # said again by a client that was not told: the handler has had it
            self._end(ident, stream, out)
            return
        stream.state = StreamState.ENDING
        if stream.reached:
            out.append(ForwardEnd(stream=ident))

    def _notify(self, frame: Notify, out: list[Effect]) -> None:
        stream = self._streams.get(frame.stream)
        if stream is None:
            if len(self._streams) >= self._settings[2]:
                raise TooLarge(
                    f"NOTIFY: stream {frame.stream}: at most {self._settings[2]} streams on one connection",
                    remedy="send the others over connections of their own",
                )
            self._ask(frame, out)
        elif stream.state is StreamState.ENDING and stream.again is None:
            stream.again = frame
        else:
            self._answer(frame.stream, False, stream.last, out)

    def _ask(self, frame: Notify, out: list[Effect]) -> None:
        self._streams[frame.stream] = _Stream()
        out.append(AskStream(stream=frame.stream, name=frame.name, instance=self.instance, position=frame.position))

    # ---- what leaves -----------------------------------------------------------------------------------------

    def _acknowledge(self, out: list[Effect], *, even_empty: bool = False) -> None:
        if self._state is not State.STREAMING:
            return
        given = 0 if self._held else self._owed
        if given or self._untold or even_empty:
            out.append(Send(data=encode(Ack(given, tuple(sorted(self._untold.items()))))))
            self._owed -= given
            self._untold = {}

    def _fail(self, error: DeathlessError, out: list[Effect]) -> None:
        out.append(Send(data=error_frame(error)))
        self._close(error.code, error.message, out)

    def _close(self, code: str, text: str, out: list[Effect]) -> None:
        if self._streams:
            out.append(ReleaseStreams(streams=tuple(sorted(self._streams))))
        out.append(Close(code=code, text=text))
        self._state = State.CLOSED
        self._streams = {}


def _known(ident: StreamId, last: MessageId | None) -> int:
    """Give the last id that the primary knows; -1: none. Raises: InvalidUse for what stands for none on the wire."""
    if last == NO_POSITION:
        raise misuse(f"stream {ident}: {last} is no message's id; None stands for a stream without messages")
    return -1 if last is None else last


def _check_reached(ident: StreamId, stream: _Stream, through: int) -> None:
    """Do nothing if this id came and is not below what is confirmed. Raises: InvalidUse."""
    if not stream.confirmed <= through <= stream.highest:
        raise misuse(
            f"stream {ident}: {through} can't be confirmed: {stream.confirmed} is already, and the highest that came "
            f"is {stream.highest}"
        )


def _size(frame: Message) -> int:
    return MESSAGE_OVERHEAD_BYTES + len(frame.key) + len(frame.payload)
