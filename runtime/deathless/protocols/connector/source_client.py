"""The client's end of a source: what a program that sends streams says to a worker, for one connection.

    CONNECTED  -- ConnectionOpened -->  HANDSHAKE  -- OK -->  STREAMING  -- ERROR, RESTART, loss -->  CLOSED

    a stream       becomes                            by
    (unknown)      ASKED                              StreamWanted (NOTIFY)
    ASKED          OPEN | CLOSED                      NOTIFY_ACK 1 | 0
    OPEN           ENDING                             EndOffered
    ENDING         CLOSED                             ACK that follows EOS_MESSAGE
    CLOSED         ASKED                              StreamWanted

`LEGAL` is the table of what may come when. A worker that says something else, or acknowledges what was never sent, is
answered by one ERROR, and this connection ends; a program that does is told by InvalidUse, and nothing changed.

**Where a stream goes on** is said by NOTIFY_ACK and by nothing else: the program sends the first message behind that
id next, and the machine refuses any other order. If the worker wants messages that the program can't send any more
(`StreamWanted.forgotten`), the machine ends the connection with an ERROR for the worker's operators: going on would
leave a hole that nobody sees.

**The end of a stream** is acknowledged by the id of its last message, as that message is. So EOS_MESSAGE is sent once
all messages are acknowledged; the next acknowledgement is then the end's.

**Credits** are taken by NOTIFY, MESSAGE and EOS_MESSAGE. Nothing is sent without one.

Guarantees: a message is called Acknowledged only if an ACK or NOTIFY_ACK named its id or a later one that was sent;
the position of a stream without messages (2^64 - 1) is never taken for one. Does not: keep messages (the program can
read them again, or keeps them until they are Acknowledged), connect again, wait. Imports base only.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, TypeAlias, assert_never

from deathless.base.errors import DeathlessError, InvalidArgument, TooLarge
from deathless.base.limits import CONNECTOR_FRAME_BYTES_MAX
from deathless.protocols.connector.events import BytesReceived, Close, ConnectionLost, ConnectionOpened, Send
from deathless.protocols.connector.fields import U32_MAX
from deathless.protocols.connector.frame_reader import FrameReader
from deathless.protocols.connector.frames import (
    NO_POSITION,
    PREFIX_BYTES,
    VERSIONS,
    Ack,
    AnyFrame,
    EosMessage,
    Error,
    Hello,
    MessageId,
    Notify,
    NotifyAck,
    Ok,
    Restart,
    StreamId,
    encode,
    encode_message,
    last_of,
)
from deathless.protocols.connector.handshake import error_frame
from deathless.protocols.connector.legality import Table, misuse, violation
from deathless.protocols.connector.source_events import (
    Acknowledged,
    CreditsGained,
    EndOffered,
    GivenUp,
    MessagesOffered,
    Redirected,
    SessionOpened,
    StreamDenied,
    StreamEnded,
    StreamOpened,
    StreamWanted,
)

Event: TypeAlias = (
    BytesReceived | ConnectionOpened | ConnectionLost | StreamWanted | MessagesOffered | EndOffered | GivenUp
)
Effect: TypeAlias = (
    Send | Close | SessionOpened | StreamOpened | StreamDenied | Acknowledged | StreamEnded | CreditsGained | Redirected
)


class State(enum.Enum):
    """Of the connection."""

    CONNECTED = "connected"
    HANDSHAKE = "handshake"
    STREAMING = "streaming"
    CLOSED = "closed"


class StreamState(enum.Enum):
    """Of a stream on this connection."""

    UNKNOWN = "unknown"
    ASKED = "asked"
    OPEN = "open"
    ENDING = "ending"  # no more messages are offered; EOS_MESSAGE is sent, or will be
    CLOSED = "closed"


_ANYTIME: Final[Mapping[type, frozenset[StreamState] | None]] = {
    BytesReceived: None,
    ConnectionLost: None,
    GivenUp: None,
    Error: None,
}
LEGAL: Final = Table[State, StreamState](
    {
        State.CONNECTED: {**_ANYTIME, ConnectionOpened: None},
        State.HANDSHAKE: {**_ANYTIME, Ok: None},
        State.STREAMING: {
            **_ANYTIME,
            NotifyAck: frozenset({StreamState.ASKED}),
            Ack: frozenset({StreamState.OPEN, StreamState.ENDING, StreamState.CLOSED, StreamState.ASKED}),
            Restart: None,
            StreamWanted: frozenset({StreamState.UNKNOWN, StreamState.CLOSED}),
            MessagesOffered: frozenset({StreamState.OPEN}),
            EndOffered: frozenset({StreamState.OPEN}),
        },
        State.CLOSED: {},  # whatever comes is late, and nothing is done
    }
)


class _Stream:
    """One stream of this connection."""

    __slots__ = ("acked", "ended", "forgotten", "sent", "state")

    def __init__(self, forgotten: MessageId | None) -> None:
        self.state = StreamState.ASKED
        self.forgotten = forgotten
        self.acked = -1  # the last id that the worker has called processed; -1: none. Invariant: never above `sent`
        self.sent = -1  # the last id that was sent, here or before
        self.ended = False  # EOS_MESSAGE was sent


class SourceClient:
    """One connection of a program that sends streams.

    Args:
        program: what it is called; a worker sends RESTART to those whose name begins with `deathless-`.
        instance: who it is. A second connection of the same one takes its streams over.
        cookie: that the worker expects.
        version: to say.
        frame_bytes_max: longest frame, without its length; Wallaroo closes at more than 16,384.
    """

    def __init__(
        self,
        *,
        program: str,
        instance: str,
        cookie: bytes = b"",
        version: str = VERSIONS[0],
        frame_bytes_max: int = CONNECTOR_FRAME_BYTES_MAX,
    ) -> None:
        self.credits = 0  # frames that may be sent now
        self._hello = Hello(version, cookie, program, instance)
        self._frame_bytes_max = frame_bytes_max
        self._state = State.CONNECTED
        self._reader = FrameReader(frame_bytes_max)
        self._streams: dict[StreamId, _Stream] = {}
        self._ending: list[StreamId] = []  # ends that wait for their turn

    @property
    def state(self) -> State:
        """Where the connection stands."""
        return self._state

    def stream_state(self, stream: StreamId) -> StreamState:
        """Where a stream stands."""
        known = self._streams.get(stream)
        return StreamState.UNKNOWN if known is None else known.state

    def handle(self, event: Event) -> list[Effect]:
        """Take one event in; give what is to be done, in order.

        Raises: InvalidUse, and TooLarge for a message that passes `frame_bytes_max`; nothing was sent or changed.
        """
        out: list[Effect] = []
        if self._state is State.CLOSED:
            return out
        if not isinstance(event, StreamWanted | MessagesOffered | EndOffered):
            LEGAL.check_event(self._state, type(event))
        match event:
            case BytesReceived(data=data):
                self._received(data, out)
            case ConnectionOpened():
                out.append(Send(data=encode(self._hello)))
                self._state = State.HANDSHAKE
            case ConnectionLost():
                self._close("", "the connection was lost", out)
            case StreamWanted():
                self._want(event, out)
            case MessagesOffered():
                self._send(event, out)
            case EndOffered(stream=ident):
                self._check(EndOffered, ident)
                self._streams[ident].state = StreamState.ENDING
                self._ending.append(ident)
            case GivenUp(text=text):
                self._fail(InvalidArgument(text), out)
            case _:
                assert_never(event)
        self._send_ends(out)
        return out

    # ---- what the program wants ------------------------------------------------------------------------------

    def _check(self, kind: type, ident: StreamId) -> None:
        LEGAL.check_event(self._state, kind, self.stream_state(ident), what=f"stream {ident}")

    def _need(self, wanted: int) -> None:
        if wanted > self.credits:
            raise misuse(f"{wanted} credits are needed, {self.credits} are left: wait for CreditsGained")

    def _want(self, event: StreamWanted, out: list[Effect]) -> None:
        self._check(StreamWanted, event.stream)
        self._need(1)
        position = MessageId(0) if event.last is None else event.last
        out.append(Send(data=encode(Notify(event.stream, event.name, position))))
        self.credits -= 1
        self._streams[event.stream] = _Stream(event.forgotten)

    def _send(self, event: MessagesOffered, out: list[Effect]) -> None:
        """Check all, then send all."""
        for stream in {message.stream: None for message in event.messages}:
            self._check(MessagesOffered, stream)
        self._need(len(event.messages))
        sent: dict[StreamId, int] = {}
        parts = []
        for message in event.messages:
            ident = message.stream
            before = sent.get(ident, self._streams[ident].sent)
            if not before < message.id < NO_POSITION:
                raise misuse(f"stream {ident}: message {message.id} after {before}: ids grow, up to {NO_POSITION - 1}")
            data = encode_message(message)
            if len(data) - PREFIX_BYTES > self._frame_bytes_max:
                raise TooLarge(
                    f"MESSAGE {message.id} of stream {ident}: {len(data)} bytes, at most {self._frame_bytes_max}",
                    remedy="send it in parts",
                )
            sent[ident] = message.id
            parts.append(data)
        for ident, last in sent.items():
            self._streams[ident].sent = last
        self.credits -= len(parts)
        if parts:
            out.append(Send(data=b"".join(parts)))

    def _send_ends(self, out: list[Effect]) -> None:
        waiting = []
        for ident in self._ending:
            stream = self._streams[ident]
            if self.credits and stream.acked == stream.sent:
                self.credits -= 1
                stream.ended = True
                out.append(Send(data=encode(EosMessage(ident))))
            else:
                waiting.append(ident)
        self._ending = waiting

    # ---- what the worker said --------------------------------------------------------------------------------

    def _received(self, data: bytes, out: list[Effect]) -> None:
        try:
            self._reader.feed(data)
            while self._state is not State.CLOSED and (frame := self._reader.next()) is not None:
                self._frame(frame, out)
        except DeathlessError as error:
            self._fail(error, out)

    def _frame(self, frame: AnyFrame, out: list[Effect]) -> None:
        if isinstance(frame, NotifyAck):
            LEGAL.check_frame(self._state, NotifyAck, self.stream_state(frame.stream), what=f"stream {frame.stream}")
        elif not isinstance(frame, Ack):  # which is looked at entry by entry
            LEGAL.check_frame(self._state, type(frame))
        match frame:
            case Ok(credits=given):
                self.credits = given
                self._state = State.STREAMING
                out.append(SessionOpened())
            case NotifyAck():
                self._answered(frame, self._streams[frame.stream], out)
            case Ack():
                self._acked(frame, out)
            case Restart(address=address):
                out.append(Redirected(address=address))
                self._close("", "the worker asked to connect anew", out)
            case Error(text=text):
                self._close("", f"the worker says: {text}", out)
            case _:  # pragma: no cover - each frame of the table has a branch
                raise AssertionError(f"{frame} is in the table and has no branch")

    def _answered(self, frame: NotifyAck, stream: _Stream, out: list[Effect]) -> None:
        if not frame.success:
            stream.state = StreamState.CLOSED
            out.append(StreamDenied(stream=frame.stream))
            return
        last = last_of(frame.position)
        if stream.forgotten is not None and (last is None or last < stream.forgotten):
            known = "nothing" if last is None else f"messages up to {last}"
            what = f"stream {frame.stream}: you have {known}, I can't send {stream.forgotten} and before any more"
            raise InvalidArgument(what, remedy="what lies between is lost; an operator has to decide")
        stream.state = StreamState.OPEN
        stream.acked = stream.sent = -1 if last is None else last
        out.append(StreamOpened(stream=frame.stream, last=last))

    def _acked(self, frame: Ack, out: list[Effect]) -> None:
        told: list[Effect] = []
        for ident, position in frame.positions:
            LEGAL.check_frame(self._state, Ack, self.stream_state(ident), what=f"stream {ident}")
            self._acked_one(ident, self._streams[ident], last_of(position), told)
        if not frame.positions:
            LEGAL.check_frame(self._state, Ack, StreamState.OPEN)
        if self.credits + frame.credits > U32_MAX:
            raise violation(f"ACK: credits: {self.credits} and {frame.credits} more are above {U32_MAX}")
        self.credits += frame.credits
        out += told
        if frame.credits:
            out.append(CreditsGained())

    def _acked_one(self, ident: StreamId, stream: _Stream, last: MessageId | None, told: list[Effect]) -> None:
        if stream.state not in (StreamState.OPEN, StreamState.ENDING):
            return  # it was closed before this came, or is asked for again
        if last is not None and last > stream.sent:
            raise violation(f"ACK: stream {ident}: {last} was never sent, {stream.sent} was the last")
        if last is not None and last > stream.acked:
            stream.acked = last
            told.append(Acknowledged(stream=ident, last=last))
        if stream.ended:
            stream.state = StreamState.CLOSED
            told.append(StreamEnded(stream=ident))

    # ---- the end ---------------------------------------------------------------------------------------------

    def _fail(self, error: DeathlessError, out: list[Effect]) -> None:
        out.append(Send(data=error_frame(error)))
        self._close(error.code, error.message, out)

    def _close(self, code: str, text: str, out: list[Effect]) -> None:
        out.append(Close(code=code, text=text))
        self._state = State.CLOSED
        self._streams = {}
        self._ending = []
        self.credits = 0
