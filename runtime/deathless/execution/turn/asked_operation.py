"""What a handler that waits has asked for, one record each, in order: what its checkpoint is compared by.

    AskedFork      service, shard, key, method, arguments
    AskedCall      the same | deadline
    AskedTimer     duration, or moment
    AskedRun       name of the activity, arguments | timeout, heartbeat, at most once
    AskedPromise   nothing
    AskedComplete  promise, what it is given
    AskedContinue  method, arguments
    AskedCancel    number of the operation

What stands behind the bar is policy: how long something is waited for, and how often it is tried. Code that changes it
asks for the same. Which addresses wait for the handler is not here at all: it is the same for all that it asks.

Guarantees: `decode_asked` gives what was encoded or raises CorruptCheckpoint; two records that are the same operation
have the same bytes if the same code and libraries wrote them. Does not: compare by meaning (execution/invocations
does). Imports base and codec.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from deathless.base.errors import CorruptCheckpoint
from deathless.codec.untrusted import UNREADABLE, read_msgpack
from deathless.execution.values.failure import bounded

SHOWN_MAX: Final = 120
"""Characters of arguments that are shown to people."""


class AskedFork(msgspec.Struct, array_like=True, frozen=True, tag=0, gc=False):
    """A message that nobody waits for."""

    service: str
    shard: int
    key: str
    method: str
    arguments: bytes  # msgpack map


class AskedCall(msgspec.Struct, array_like=True, frozen=True, tag=1, gc=False):
    """A request."""

    service: str
    shard: int
    key: str
    method: str
    arguments: bytes  # msgpack map
    after_us: int = 0  # its deadline from the turn on; policy; 0: none that is a duration
    at_us: int = 0  # its deadline as a logical time; policy; 0: none that is a moment


class AskedTimer(msgspec.Struct, array_like=True, frozen=True, tag=2, gc=False):
    """A duration from the turn on, or a logical time; the other one is 0."""

    after_us: int
    at_us: int


class AskedRun(msgspec.Struct, array_like=True, frozen=True, tag=3, gc=False):
    """A run of an activity."""

    activity: str
    arguments: bytes  # msgpack map
    timeout_us: int = 0  # policy
    heartbeat_us: int = 0  # policy
    at_most_once: bool = False  # policy


class AskedPromise(msgspec.Struct, array_like=True, frozen=True, tag=4, gc=False):
    """A promise."""


class AskedComplete(msgspec.Struct, array_like=True, frozen=True, tag=5, gc=False):
    """The completion of a promise, of whichever invocation."""

    promise: str
    reply: bytes  # status byte, value in msgpack


class AskedContinue(msgspec.Struct, array_like=True, frozen=True, tag=6, gc=False):
    """Another handler that is to go on."""

    method: str
    arguments: bytes  # msgpack map


class AskedCancel(msgspec.Struct, array_like=True, frozen=True, tag=7, gc=False):
    """An operation that is not wanted any more."""

    number: int


AskedOperation = (
    AskedFork | AskedCall | AskedTimer | AskedRun | AskedPromise | AskedComplete | AskedContinue | AskedCancel
)
encode_asked: Final = msgspec.msgpack.Encoder().encode
_decoder: Final[msgspec.msgpack.Decoder[AskedOperation]] = msgspec.msgpack.Decoder(AskedOperation)


def decode_asked(data: bytes) -> AskedOperation:
    """Decode one record.

    Raises: CorruptCheckpoint.
    """
    try:
        return _decoder.decode(data)
    except UNREADABLE as error:
        raise CorruptCheckpoint(f"what a suspended handler asked for can't be read: {error}") from None


def name_of(asked: AskedOperation) -> str:
    """Give what was asked for, in words: `stock.reserve`, `activity charge`, `a timer of 0:00:05`."""
    match asked:
        case AskedCall():
            return f"{asked.service}.{asked.method}"
        case AskedFork():
            return f"a fork to {asked.service}.{asked.method}"
        case AskedTimer(after_us=0):
            return f"a timer at {_moment(asked.at_us)}"
        case AskedTimer():
            return f"a timer of {timedelta(microseconds=min(asked.after_us, _SHOWN_US_MAX))}"
        case AskedRun():
            return f"activity {asked.activity}"
        case AskedPromise():
            return "a promise"
        case AskedComplete():
            return f"completing promise {asked.promise}"
        case AskedContinue():
            return f"going on with {asked.method}"
        case AskedCancel():
            return f"cancelling operation {asked.number}"


def tell_apart(expected: AskedOperation, found: AskedOperation) -> tuple[str, str]:
    """Give both in words, with as much of each as it takes to tell them apart."""
    names = name_of(expected), name_of(found)
    if names[0] != names[1]:
        return names
    places = names[0] + _place_of(expected), names[1] + _place_of(found)
    if places[0] != places[1]:
        return places
    return places[0] + _arguments_of(expected), places[1] + _arguments_of(found)


_SHOWN_US_MAX: Final = 10**17  # about 3000 years: beyond it the library has no text


def _moment(us: int) -> str:
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)).isoformat()
    except OverflowError:
        return f"{us} us"


def _place_of(asked: AskedOperation) -> str:
    if isinstance(asked, AskedCall | AskedFork):
        return f" of key {bounded(asked.key, SHOWN_MAX)} in shard {asked.shard}"
    return ""


def _arguments_of(asked: AskedOperation) -> str:
    match asked:
        case AskedCall() | AskedFork() | AskedRun() | AskedContinue():
            return f" with {_value(asked.arguments)}"
        case AskedComplete():
            return f" with {_value(asked.reply[1:])}"
        case _:
            return ""


def _value(data: bytes) -> str:
    try:
        return bounded(repr(read_msgpack(data, object)), SHOWN_MAX)
    except msgspec.MsgspecError:
        return f"{len(data)} bytes that can't be read"
