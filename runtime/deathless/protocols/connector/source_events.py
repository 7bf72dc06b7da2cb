"""Words between the machines of a source and the programs around them.

Events say what happened, effects what is to be done or is to be known, in the order given. Positions are ids of
messages; None is that of a stream of which nothing was ever processed. Does not: do anything. Imports codec records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deathless.base.errors import DeathlessError
from deathless.protocols.connector.frames import Message, MessageId, StreamId

# ---------------------------------------------------------------- worker's end: what the runtime has found or decided


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamAdmitted:
    """Answer to AskStream: this connection owns the stream now.

    Only to be said once all that the stream's older connections had admitted is confirmed.
    """

    stream: StreamId
    last: MessageId | None  # the last id that is confirmed
    ended: bool = False  # the stream's end is confirmed, and no message behind it


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRefused:
    """Answer to AskStream: another connection owns the stream."""

    stream: StreamId
    last: MessageId | None = None  # the last id that is confirmed, as far as it is known


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLost:
    """The primary that admitted the stream is out of reach; whether it still leads is not known."""

    stream: StreamId


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResumed:
    """A primary has the stream again, for the same owner. As StreamAdmitted, all that was admitted is confirmed."""

    stream: StreamId
    last: MessageId | None
    ended: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFenced:
    """A newer connection owns the stream: told by the primary in so many words, never concluded from a loss."""

    stream: StreamId


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesConfirmed:
    """All messages of the stream up to this id are confirmed: durable, and no successor had taken over."""

    stream: StreamId
    through: MessageId


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesSettled:
    """All messages of the stream up to this id are confirmed by the shards that they went to.

    They need not be kept, though another shard does not know of their ids yet, so that the stream might still go on
    before them: that is MessagesConfirmed's to say. Where there is one shard the two are the same.
    """

    stream: StreamId
    through: MessageId


@dataclass(frozen=True, slots=True, kw_only=True)
class EndConfirmed:
    """The stream's end is confirmed, and so is all before it."""

    stream: StreamId


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditsHeld:
    """Whether credits are kept back: the log, or what the service sends, has no room."""

    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class AcknowledgementDue:
    """What is confirmed and not told yet is to be told now."""

    even_empty: bool = False  # also if that is nothing: clients that retry only after an ACK wait for one


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionRefused:
    """The runtime can't go on with this client: it is told why in an ERROR, and the connection ends."""

    error: DeathlessError


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainRequested:
    """The connection is to end in order: whoever understands it is told where to go on."""

    address: str  # host:port; empty: the same again


# ---------------------------------------------------------------- worker's end: what is to be done


@dataclass(frozen=True, slots=True, kw_only=True)
class AskStream:
    """Effect: have the primary decide who owns the stream. StreamAdmitted, StreamRefused or StreamFenced answers."""

    stream: StreamId
    name: bytes
    instance: str  # the sender's; a newer connection of the same one takes its streams over
    position: MessageId  # what the client said; for people, since clients mean different things by it


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardMessages:
    """Effect: give these to the primary, which drops those whose id is not above the last that it admitted."""

    stream: StreamId
    messages: list[Message]  # in the order of the connection


@dataclass(frozen=True, slots=True, kw_only=True)
class ForwardEnd:
    """Effect: give the stream's end to the primary, behind its messages."""

    stream: StreamId


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseStreams:
    """Effect: this connection owns, and asks for, these no more. It comes once, for whatever reason it ends."""

    streams: tuple[StreamId, ...]


# ---------------------------------------------------------------- client's end: what the program wants


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamWanted:
    """Open a stream. It costs a credit."""

    stream: StreamId
    name: bytes
    last: MessageId | None = None  # the last id that the program knows to be processed
    forgotten: MessageId | None = None  # the last id that it can't send any more; None: it can send all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesOffered:
    """Send these, each for a credit; all of them or, with an error, none."""

    messages: Sequence[Message]


@dataclass(frozen=True, slots=True, kw_only=True)
class EndOffered:
    """The stream has ended. Its end is sent once all its messages are acknowledged and there is a credit for it."""

    stream: StreamId


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenUp:
    """The program can't go on: the worker's operators are told why, and the connection ends."""

    text: str


# ---------------------------------------------------------------- client's end: what is to be known


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionOpened:
    """Effect: the worker accepted us; streams may be opened."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOpened:
    """Effect: go on with the first message behind this id, whatever was sent before."""

    stream: StreamId
    last: MessageId | None  # None: from the very first


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDenied:
    """Effect: another sender has the stream. To ask again later is sensible."""

    stream: StreamId


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """Effect: the messages of the stream up to this id are processed and need not be kept."""

    stream: StreamId
    last: MessageId


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEnded:
    """Effect: the stream's end is processed."""

    stream: StreamId


@dataclass(frozen=True, slots=True, kw_only=True)
class CreditsGained:
    """Effect: more may be sent; `SourceClient.credits` says how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Redirected:
    """Effect: connect there next; nothing is known to be processed behind the last Acknowledged."""

    address: str  # host:port; empty: the same
