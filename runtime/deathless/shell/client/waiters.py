"""Those who wait for replies: a Future, a place in a column, or a Receiver; and how a reply reaches them.

Guarantees: each is told at most once; one that was cancelled or timed out meanwhile is passed over. Does not: know
connections or sessions. Imports core, codec and base.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol, cast

import msgspec

from deathless.base.errors import ClientOfParent, DeathlessError, InvalidArgument, ResultUnreadable, TooLarge
from deathless.base.limits import NESTING_MAX, Limits
from deathless.codec.nesting import is_too_deep
from deathless.codec.untrusted import MsgpackReader
from deathless.codec.wire import ReplyError, accepted_invocation
from deathless.core.client.events import CompleteCalls, error_of

_LOG: Final = logging.getLogger("deathless.client")
KEY_BYTES_MAX: Final = Limits().key_bytes_max


class Receiver(Protocol):
    """One who waits for a reply and wants it as bytes, without a Future (the ingress)."""

    def answered(self, reply: bytes) -> None:
        """The reply (u8 status, body), once."""
        ...

    def failed(self, error: DeathlessError) -> None:
        """There will be no reply."""
        ...

    def refused(self, error: DeathlessError) -> None:
        """The service admits nothing now; the call stays, and a reply may still come."""
        ...


class Accepted:
    """A place in a column whose result is still to come: the handler waits."""

    __slots__ = ("invocation",)

    def __init__(self, invocation: int) -> None:
        self.invocation = invocation


class Column:
    """Replies of one `call_many`, in its order."""

    __slots__ = ("done", "left", "replies")

    def __init__(self, count: int, done: asyncio.Future[None]) -> None:
        self.replies: list[bytes | DeathlessError] = [b""] * count
        self.left = count  # replies still owed
        self.done = done


class Typed:
    """A Future whose result has a type of the caller's.

    Args:
        attach: told of the invocation whose result is still to come.
    """

    __slots__ = ("attach", "decode", "future")

    def __init__(
        self,
        future: asyncio.Future[Any],
        decode: Callable[[bytes], object],
        attach: Callable[[int, Waiter], None],
    ) -> None:
        self.future = future
        self.decode = decode
        self.attach = attach

    def answered(self, reply: bytes) -> None:
        """See Receiver."""
        if self.future.done():
            return
        if reply[:1] == b"\x00":
            try:
                if len(reply) > NESTING_MAX and is_too_deep(reply[1:]):
                    raise RecursionError
                self.future.set_result(self.decode(reply[1:]))
            except msgspec.MsgspecError as error:
                self.future.set_exception(InvalidArgument(f"the result does not fit the type asked for: {error}"))
        elif (invocation := accepted_invocation(reply)) is not None:
            self.attach(invocation, self)
        else:
            self.future.set_exception(reply_error(reply))

    def failed(self, error: DeathlessError) -> None:
        """See Receiver."""
        if not self.future.done():
            self.future.set_exception(error)

    def refused(self, error: DeathlessError) -> None:
        """The caller goes on waiting."""


Waiter = asyncio.Future[Any] | tuple[Column, int] | Receiver
"""Who waits for a reply; told apart by type, the cheapest way in the loop below."""

_decode: Final = msgspec.msgpack.Decoder().decode
_decode_error: Final = MsgpackReader(ReplyError).decode


def decode_result(result: bytes) -> object:
    """Give a result as plain values. Raises: RecursionError where it is too deep, and what the decoder raises."""
    if len(result) > NESTING_MAX and is_too_deep(result):
        raise RecursionError
    return _decode(result)


def reply_error(reply: bytes) -> DeathlessError:
    """Give the error of an ERROR reply."""
    try:
        told = _decode_error(reply[1:])
    except msgspec.MsgspecError as error:
        return error_of("", f"reply can't be read: {error}")
    return error_of(told.code, told.text, kind=told.type)


def results_of(replies: Sequence[bytes | DeathlessError], late: list[Accepted]) -> list[object]:
    """Give the results of a column, errors as values; one that is still to come is an Accepted, also put in `late`."""

    def result(reply: bytes | DeathlessError) -> object:
        if type(reply) is not bytes:
            return reply
        if reply[:1] == b"\x00":
            try:
                return decode_result(reply[1:])
            except Exception as error:  # noqa: BLE001  the others of the column have their results
                return unreadable(error)
        invocation = accepted_invocation(reply)
        if invocation is None:
            return reply_error(reply)
        late.append(Accepted(invocation))
        return late[-1]

    return list(map(result, replies))


def complete(effect: CompleteCalls[Waiter], attach: Callable[[int, Waiter], None]) -> None:
    """Hand replies to those who wait; the hot loop.

    Args:
        effect: who waits, and the replies.
        attach: told of a Future whose result is still to come; the others find out by themselves.
    """
    for waiter, reply in zip(effect.waiters, effect.replies, strict=True):
        try:
            _complete_one(waiter, reply, attach)
        except Exception as error:  # noqa: BLE001  a reply that one can't take is nobody else's trouble
            _LOG.exception("could not deliver a reply to a waiting caller")
            _fail_safely(waiter, unreadable(error))


def unreadable(error: Exception) -> ResultUnreadable:
    """Give the error for one whose result raised `error` while it was decoded."""
    if isinstance(error, RecursionError):
        return ResultUnreadable("the result is nested too deeply to be decoded here")
    try:
        return ResultUnreadable(f"the result can't be decoded here: {type(error).__name__}: {error}")
    except Exception:  # noqa: BLE001  the text is the code of whoever wrote the type
        return ResultUnreadable(f"the result can't be decoded here: {type(error).__name__}")


def _fail_safely(waiter: Waiter, error: DeathlessError) -> None:
    try:
        fail(waiter, error)
    except Exception:  # noqa: BLE001  the others are told all the same
        _LOG.exception("could not report an error to a waiting caller")


def fail_all(waiters: Iterable[Waiter], error: DeathlessError) -> None:
    """Tell all who wait that there will be no reply, each whatever telling the others raises."""
    for waiter in waiters:
        _fail_safely(waiter, error)


def refuse_all(waiters: Iterable[Waiter], error: DeathlessError) -> None:
    """Tell those who want to know that the service admits nothing now; as `fail_all`."""
    for waiter in waiters:
        try:
            refuse(waiter, error)
        except Exception:  # noqa: BLE001  as above
            _LOG.exception("could not report a refusal to a waiting caller")


def _complete_one(waiter: Waiter, reply: bytes, attach: Callable[[int, Waiter], None]) -> None:
    kind = type(waiter)
    if kind is tuple:
        column, index = cast("tuple[Column, int]", waiter)
        column.replies[index] = reply
        column.left -= 1
        if not column.left and not column.done.done():
            column.done.set_result(None)
    elif kind is asyncio.Future:
        future = cast("asyncio.Future[Any]", waiter)
        if future.done():
            return
        if reply[:1] == b"\x00":
            future.set_result(decode_result(reply[1:]))
        elif (invocation := accepted_invocation(reply)) is not None:
            attach(invocation, future)
        else:
            future.set_exception(reply_error(reply))
    else:
        cast("Receiver", waiter).answered(reply)


def fail(waiter: Waiter, error: DeathlessError) -> None:
    """Tell one who waits that there will be no reply."""
    if isinstance(waiter, tuple):
        column, index = waiter
        column.replies[index] = error
        column.left -= 1
        if not column.left and not column.done.done():
            column.done.set_result(None)
    elif isinstance(waiter, asyncio.Future):
        if not waiter.done():
            waiter.set_exception(error)
    else:
        waiter.failed(error)


def refuse(waiter: Waiter, error: DeathlessError) -> None:
    """Tell one who wants to know that the service admits nothing now; the others go on waiting."""
    if not isinstance(waiter, tuple | asyncio.Future):
        waiter.refused(error)


def wake(waiting: deque[asyncio.Future[None]], count: int) -> int:
    """Wake at most so many of those who wait for room, or for a primary, in their order; gives how many."""
    woken = 0
    while waiting and woken < count:
        future = waiting.popleft()
        if not future.done():
            future.set_result(None)
            woken += 1
    return woken


def check_process(opened_in: int) -> None:
    """Refuse to work in a process that was forked from the one that opened a client.

    Its event loop, its connections and its session are the parent's: two processes that speak on one connection end
    each other's calls, and a thread that would answer does not exist here.

    Args:
        opened_in: id of the process.

    Raises: ClientOfParent.
    """
    here = os.getpid()
    if here != opened_in:
        raise ClientOfParent(f"process {here} was forked from process {opened_in}, which owns this client")


def check_texts(**named: object) -> None:
    """Refuse what is no text where a text belongs. Raises: InvalidArgument."""
    for name, text in named.items():
        if not isinstance(text, str):
            raise InvalidArgument(f"{name} must be text, not {type(text).__name__}", remedy=f"give {name} as str")


def check_key(key: bytes) -> None:
    """Refuse what no replica takes. The empty key is that of a service of one object.

    Raises: TooLarge, InvalidArgument.
    """
    if len(key) > KEY_BYTES_MAX:
        raise TooLarge(f"key of {len(key)} bytes, at most {KEY_BYTES_MAX}")
    if key[:1] == b"\0":
        raise InvalidArgument("a key that begins with a zero byte is not for users")
