"""What happens to a client, and what it must do: the records around `ClientMachine`, per buffer and per batch.

Events are past tense, effects imperative. The effects of one event are carried out in the order of the list; what is
sent on a link goes out before a HangUp behind it. `W` stands for the one who waits for a call; it is handed back as it
came. Guarantees: frozen records. Does not: decide anything. Imports base only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Generic, NewType, TypeVar

import msgspec

from deathless.base.errors import CallRefused, DeathlessError, HandlerFailed, Internal, RetryLater

W = TypeVar("W")

LinkId = NewType("LinkId", int)
"""One attempt to connect, and the connection it becomes; never given twice by one machine."""


class AddressesFound(msgspec.Struct, frozen=True, kw_only=True):
    """The addresses of the replicas, `host:port`, at the start and in answer to Resolve; empty: none known yet."""

    addresses: tuple[str, ...]


class LinkOpened(msgspec.Struct, frozen=True, kw_only=True):
    """The connection stands (TLS too); nothing was sent on it."""

    link: LinkId


class BytesReceived(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes came in on a link."""

    link: LinkId
    data: bytes


class LinkLost(msgspec.Struct, frozen=True, kw_only=True):
    """Dialing failed or the connection ended."""

    link: LinkId
    reason: str


class CallsSubmitted(msgspec.Struct, Generic[W], frozen=True, kw_only=True):
    """Calls to make, in order; message i is waited for by waiter i."""

    messages: Sequence[bytes]
    waiters: Sequence[W]


class QueriesSubmitted(msgspec.Struct, Generic[W], frozen=True, kw_only=True):
    """Queries to ask; with `stale` any replica may answer from what it has applied."""

    messages: Sequence[bytes]
    waiters: Sequence[W]
    stale: bool


class ResultsWanted(msgspec.Struct, Generic[W], frozen=True, kw_only=True):
    """Results to wait for, of calls that were answered ACCEPTED; that of invocation i is for waiter i."""

    invocations: Sequence[int]
    waiters: Sequence[W]


class TimerFired(msgspec.Struct, frozen=True, kw_only=True):
    """The deadline the machine named is reached; one that comes early does nothing."""


class CloseRequested(msgspec.Struct, frozen=True, kw_only=True):
    """The client ends: say what was acknowledged, then hang up."""


class Resolve(msgspec.Struct, frozen=True, kw_only=True):
    """Find out the replicas' addresses (again). Answered by AddressesFound."""


class Dial(msgspec.Struct, frozen=True, kw_only=True):
    """Connect. Answered by LinkOpened or LinkLost."""

    link: LinkId
    address: str


class Send(msgspec.Struct, frozen=True, kw_only=True):
    """Send bytes on a link; lost when it is gone."""

    link: LinkId
    data: bytes


class HangUp(msgspec.Struct, frozen=True, kw_only=True):
    """End a link, or the attempt to open it, after what was sent. A later LinkLost for it is ignored."""

    link: LinkId


class CompleteCalls(msgspec.Struct, Generic[W], frozen=True, kw_only=True):
    """Replies (or query answers, or results) are here, reply i for waiter i: u8 status and body, see the wire.

    A reply of status ACCEPTED says that the result is still to come: who wants it asks by ResultsWanted.
    """

    waiters: Sequence[W]
    replies: Sequence[bytes]


class FailCalls(msgspec.Struct, Generic[W], frozen=True, kw_only=True):
    """These will get no reply from us; what is known is in the code."""

    waiters: Sequence[W]
    code: str
    text: str


class TellRefusal(msgspec.Struct, Generic[W], frozen=True, kw_only=True):
    """The service admits nothing now (429, 507); the calls stay and are sent again after `retry_after_s`."""

    waiters: Sequence[W]
    code: str
    text: str
    retry_after_s: float


Event = (
    AddressesFound
    | LinkOpened
    | BytesReceived
    | LinkLost
    | CallsSubmitted[W]
    | QueriesSubmitted[W]
    | ResultsWanted[W]
    | TimerFired
    | CloseRequested
)
Effect = Resolve | Dial | Send | HangUp | CompleteCalls[W] | FailCalls[W] | TellRefusal[W]


_OURS: Final = "deathless.base."  # modules begin so that hold errors of ours


def _tree(root: type[DeathlessError]) -> dict[str, type[DeathlessError]]:
    """Give our classes by their codes: a service's own, which may be imported before, are none of ours."""
    found = {root.code: root}
    for child in root.__subclasses__():
        if child.__module__.startswith(_OURS):
            found.update(_tree(child))
    return found


_CLASSES: Final = _tree(DeathlessError)


def error_of(code: str, text: str, *, kind: str = "", retry_after_s: float = 0.0) -> DeathlessError:
    """Give the error of a code that came over the wire.

    Args:
        code: one of `docs/errors/`; one that this version does not know gives Internal with the code in its text, and
            one of the service's own gives CallRefused with it.
        text: what happened.
        kind: type name of the handler's exception.
        retry_after_s: when the same may be sent again, seconds.
    """
    cls = _CLASSES.get(code)
    if cls is None and code and not code.startswith("DL"):  # the service's own
        own = CallRefused(f"{code} {text}")
        own.kind = kind
        return own
    if cls is None:
        return Internal(f"{code} {kind} {text}".strip(), remedy="the service is newer than this client")
    error = cls(text)
    if isinstance(error, HandlerFailed):
        error.kind = kind
    if isinstance(error, RetryLater):
        error.retry_after_s = retry_after_s
    return error
