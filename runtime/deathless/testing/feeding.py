"""Rows for an input of a service under test, as a source would bring them: numbered, in order, each exactly once.

    env.service(airports).feed("flights", [Departed("AA", 3)], key="carrier")

The source's end is the one that runs in production (`core.client.stream_sender`): it finds the primary, sends again
what is not confirmed, and is told how far the stream is.

Guarantees: rows are taken in exactly once, whatever process is killed when, or are refused as `on_refusal` says. Does
not: read a source. Imports core and codec.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from deathless.base.errors import InputRefused, InvalidArgument, InvalidUse
from deathless.codec.messages import decode
from deathless.codec.streams.packets import StreamCommit, StreamRefused, StreamWelcome
from deathless.codec.streams.records import OnRefusal, StreamKey
from deathless.codec.streams.rows import decode_row, encode_row
from deathless.codec.versions import say_hello
from deathless.codec.wire import Role, Type, Welcome, decode_struct
from deathless.core.client.stream_sender import State, StreamSender
from deathless.testing.links import Packets, Talk

if TYPE_CHECKING:
    from deathless.testing.served import Served

KeyOf = str | Callable[[Any], str]


class RefusedRow(NamedTuple):
    """A row that its input refused."""

    code: str  # of the error
    why: str
    row: bytes  # as it was given; empty: it is not kept


class Feeder:
    """One input's source.

    Args:
        served: the service.
        name: of the input.
        on_refusal: what becomes of rows that it refuses.

    Raises: InvalidUse when the service has no such input.
    """

    def __init__(self, served: Served, name: str, on_refusal: OnRefusal) -> None:
        if name not in served.service.inputs:
            known = ", ".join(served.service.inputs) or "none"
            raise InvalidUse(f"{served.name} has no input {name!r}", remedy=f"it has {known}")
        self.what = f"input {name}"
        self.key = ""  # of the row at which it stands, for people
        self.name = name
        self.on_refusal = on_refusal
        self.refusal: InputRefused | None = None  # it stands
        self.session = 0  # of its stream; 0: it was never opened
        self._served = served
        self._rows: list[bytes] = []  # messages, by id
        self._sender = StreamSender(StreamKey(name, 0), served.draw(16), on_refusal)
        self._talk: Talk | None = None
        self._again_us: int | None = None  # when to open again, or to connect; None: not for any time
        self._dial()

    def add(self, rows: Iterable[object], key: KeyOf) -> None:
        """Have rows brought."""
        self._rows += [_message(self.name, row, key) for row in rows]
        self._offer()

    def done(self) -> bool:
        """Is all taken in, or does it stand?"""
        if self.refusal is not None:
            return True
        return self._sender.state is State.OPEN and not len(self._sender) and self._sender.next_id == len(self._rows)

    def go_on(self) -> None:
        """It stands no more: open it again."""
        self.refusal = None
        self._open()

    def now_leads(self) -> None:
        """Somebody leads: connect."""
        if self._talk is None:
            self._dial()

    def wakes_us(self) -> int | None:
        """When there is something to do; None: not by itself."""
        deadline = self._sender.deadline(self._served.loop.seconds())
        dues = [self._again_us] if deadline is None else [self._again_us, math.ceil(deadline * 1e6)]
        found = [due for due in dues if due is not None]
        return min(found) if found and self._served.led and self.refusal is None else None

    def fire(self) -> None:
        """Time has passed: do what is due."""
        if self._again_us is not None and self._again_us <= self._served.loop.now_us:
            self._again_us = None
            self._open()
        self._send()

    # ---- connection --------------------------------------------------------------------------------------------

    def _dial(self) -> None:
        served = self._served
        hello = say_hello("source", served.name, self.what)
        self._talk = Talk(served.links, served.name, None, hello, received=self._received, lost=self._lost)

    def _lost(self) -> None:
        """Nobody serves, or the connection ended: who leads next tells (`now_leads`)."""
        self._talk = None
        self._sender.lost()

    def _open(self) -> None:
        if self._talk is None:
            self._dial()
        elif self._sender.state is State.CLOSED:
            self._talk.send(self._sender.hello())

    def _received(self, packets: Packets) -> None:
        for kind, body in packets:
            match kind:
                case Type.WELCOME | Type.ROLE:
                    told = decode_struct(Welcome, body) if kind == Type.WELCOME else decode_struct(Role, body)
                    if told.role == "primary":
                        self._open()
                case Type.STREAM_WELCOME:
                    welcome = decode_struct(StreamWelcome, body)
                    self.session = welcome.session
                    self._sender.welcomed(welcome)
                    self._offer()
                case Type.STREAM_COMMIT:
                    self._sender.committed(decode_struct(StreamCommit, body))
                case Type.STREAM_REFUSED:
                    self._refused(decode_struct(StreamRefused, body))
                case _:
                    pass
        self._send()

    def _refused(self, refused: StreamRefused) -> None:
        wait_s = self._sender.refused(refused, self._served.loop.seconds())
        if refused.code == InputRefused.code:
            self.refusal = InputRefused(refused.text, remedy="have it tried again, or passed over: see docs/testing.md")
        elif wait_s is not None:
            self._again_us = self._served.loop.now_us + max(1, int(wait_s * 1e6))

    def _offer(self) -> None:
        """Offer what was not; once the stream is open, it says from where on."""
        sender = self._sender
        if sender.state is State.OPEN:
            for number in range(sender.next_id, len(self._rows)):
                sender.offer(number, self._rows[number])
        self._send()

    def _send(self) -> None:
        for data in self._sender.packets(self._served.loop.seconds()):
            if self._talk is not None:
                self._talk.send(data)


def refused_rows(served: Served, name: str) -> list[RefusedRow]:
    """Give the rows that an input refused, and that are listed, the oldest first."""
    streams = served.leader().engine.shard.sessions.streams
    stream = streams.find(StreamKey(name, 0))
    if stream is None:
        return []
    found = [each for each in streams.refused() if each.session == stream.session]
    return [RefusedRow(each.code, each.why, _row_of(each.message)) for each in found]


def _row_of(message: bytes) -> bytes:
    return decode_row(decode(message).args).row if message else b""


_NO_KEY: Final = "the row has no key"


def _message(name: str, row: object, key: KeyOf) -> bytes:
    """Give the FORK of a row."""
    data = row if isinstance(row, bytes) else row.encode() if isinstance(row, str) else msgspec.json.encode(row)
    try:
        if callable(key):
            found: object = key(row)
        else:
            plain = msgspec.json.decode(data)
            found = plain.get(key) if isinstance(plain, dict) else None
    except msgspec.MsgspecError as error:
        return encode_row(name, b"", data, why=f"the row is no JSON: {error}")
    if isinstance(found, bool) or not isinstance(found, str | int) or found == "":
        return encode_row(name, b"", data, why=_NO_KEY)
    return encode_row(name, str(found).encode(), data)


def check_key(single: bool, key: KeyOf | None) -> KeyOf:
    """Give what says the key of a row. Raises: InvalidArgument when nothing does and something must."""
    if key is None and not single:
        raise InvalidArgument("key= must say whose each row is: the name of a field, or a function of the row")
    return key if key is not None else lambda _row: "-"  # a single object has no keys
