"""A request on its way: each end of it is told once, and an expired session of ours is no matter of the caller's."""

from __future__ import annotations

from typing import Self, cast

import msgspec
from bank_fake import bank

from deathless.base.errors import (
    DeathlessError,
    KeyOutsideWindow,
    NotPrimary,
    OutcomeUnknown,
    Overloaded,
    SessionExpired,
)
from deathless.codec.wire import accepted_reply, error_reply, ok_reply
from deathless.shell.client.shard_client import Client
from deathless.shell.client.waiters import Receiver
from deathless.shell.ingress.pending import Headers, Pending
from deathless.shell.ingress.routes import Route
from deathless.shell.web.request import JSON, Request


class Front:
    """Takes down what becomes of requests; is its own client."""

    def __init__(self) -> None:
        self.client = cast("Client", self)
        self.ended: list[tuple[int, object]] = []
        self.headers: list[Headers] = []
        self.waiting: list[int] = []
        self.sent: list[bytes] = []
        self.refusal: DeathlessError | None = None

    def shard(self, shard: int) -> Self:
        return self

    def accepted(self, pending: Pending, invocation: int) -> None:
        self.waiting.append(invocation)

    def finish(
        self,
        pending: Pending,
        status: int,
        body: bytes,
        error: DeathlessError | None = None,
        headers: Headers = (),
        *,
        content_type: bytes = JSON,
    ) -> None:
        self.ended.append((status, msgspec.json.decode(body)))
        self.headers.append(headers)

    def submit_message(self, message: bytes, receiver: Receiver) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.sent.append(message)


class Connection:
    """Nobody reads what is answered."""

    date_line = b""
    transport = None

    def answered(self) -> None:
        """See Sender."""


def pending(front: Front, key: bytes = b"k") -> Pending:
    return Pending(front, Request(Connection()), Route(bank.specs["deposit"]), b"message", key, 0.0, 30.0, 0)


def test_a_result_an_error_and_a_wait_are_told_as_they_are() -> None:
    front = Front()
    pending(front).answered(ok_reply(msgspec.msgpack.encode(5)))
    pending(front).answered(error_reply("DL3048", "TooPoor", "balance is 0"))
    pending(front).answered(accepted_reply(9))
    ((status, value), (refused, told)) = front.ended
    assert (status, value) == (200, 5)
    assert refused == 409
    assert isinstance(told, dict)
    assert (told["code"], told["type"], told["error"]) == ("DL3048", "TooPoor", "balance is 0")
    assert front.waiting == [9]


def test_a_call_whose_session_of_ours_expired_is_sent_once_more() -> None:
    front = Front()
    call = pending(front)
    call.failed(SessionExpired("it is gone"))
    assert (front.sent, front.ended) == ([b"message"], [])
    call.failed(SessionExpired("it is gone"))
    assert [status for status, _ in front.ended] == [SessionExpired.http_status]


def test_a_key_outside_the_window_in_a_second_session_says_that_the_first_may_have_done_it() -> None:
    refused = error_reply(KeyOutsideWindow.code, KeyOutsideWindow.__name__, "outside the window")
    front = Front()
    pending(front).answered(refused)
    call = pending(front)
    call.failed(SessionExpired("it is gone"))
    call.answered(refused)
    assert [status for status, _ in front.ended] == [KeyOutsideWindow.http_status, OutcomeUnknown.http_status]


def test_a_query_is_not_and_what_can_not_be_sent_again_is_told() -> None:
    front = Front()
    pending(front, b"").failed(SessionExpired("it is gone"))
    front.refusal = NotPrimary("nobody leads")
    pending(front).failed(SessionExpired("it is gone"))
    assert [status for status, _ in front.ended] == [SessionExpired.http_status, NotPrimary.http_status]
    assert front.sent == []


def test_a_refusal_and_a_late_answer_are_told() -> None:
    front = Front()
    pending(front).refused(Overloaded("too many"))
    pending(front).finish_late(202, b"{}", [(b"location", b"/bank/-/invocations/9")])
    assert [status for status, _ in front.ended] == [429, 202]
    assert front.headers[1] == [(b"location", b"/bank/-/invocations/9")]
