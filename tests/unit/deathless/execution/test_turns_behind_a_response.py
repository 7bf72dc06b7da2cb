"""Whose message the running page names while a message causes turns of others (I11).

What dies there is set aside by the next primary, so an innocent one must not be named: not the RESPONSE (its invocation
would be killed), and not the CALL that completes a promise.
"""

from __future__ import annotations

import msgspec

from deathless.base.limits import Limits
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import Order, Reference, Target, encode_response
from deathless.codec.wire import ok_reply
from deathless.core.tables.keys import KeyTable
from deathless.execution.author.service import Service
from deathless.execution.executor import HandlerExecutor
from deathless.execution.turn.context import Context
from deathless.execution.turn.running import PAGE_BYTES, Cells, Running, read_running

OTHER, PEER_SESSION = Target("other", 0), 99
ANSWER = encode_response(Reference(10, 1), ok_reply(b"\x07"))


class State(msgspec.Struct):
    promise: str = ""


class Place:
    """An executor, its page, and who was named while each handler ran."""

    def __init__(self) -> None:
        self.page = bytearray(PAGE_BYTES)
        self.seen: list[tuple[str, Running | None]] = []
        service = Service("svc", state=State)
        limits = Limits()

        def see(what: str) -> None:
            self.seen.append((what, read_running(self.page)))

        @service.handler
        async def asks(state: State, ctx: Context) -> int:
            given = await ctx.call("other", "k", "m", {}, result=int)
            see("asks")
            return given

        @service.handler
        async def promised(state: State, ctx: Context) -> int:
            promise = ctx.promise(int)
            state.promise = promise.id
            given = await promise
            see("promised")
            return given

        @service.handler(shared=True)
        def settle(state: State, ctx: Context) -> int:
            see("settle")
            if state.promise:
                ctx.complete(state.promise, 1)
            return 1

        @service.handler
        def plain(state: State, ctx: Context) -> int:
            see("plain")
            return 1

        self.executor = HandlerExecutor(service, limits, bytes(32), KeyTable(limits), Cells(self.page))

    def call(self, session: int, seq: int, lsn: int, *methods: bytes, key: bytes = b"a") -> None:
        messages = [encode(Kind.CALL, method=method, key=key, args=b"\x80") for method in methods]
        self.executor.execute(session, seq, lsn, 1, messages)

    def answer(self, lsn: int) -> None:
        self.executor.execute_peer(OTHER, 3, lsn, 2, [ANSWER], PEER_SESSION)

    def frame(self) -> Place:
        self.executor.open()
        return self

    def __enter__(self) -> None:
        """See `frame`."""

    def __exit__(self, *_: object) -> None:
        self.executor.close()


def test_i11_page_names_what_waited_in_the_log_by_its_id_and_not_the_response() -> None:
    place = Place()
    place.call(5, 1, 10, b"asks", b"plain")
    assert not place.seen
    place.answer(20)
    assert place.seen == [("asks", Running(PEER_SESSION, 3)), ("plain", Running(0, 11))]
    assert read_running(place.page) is None


def test_i11_page_names_what_waited_in_the_same_frame_by_its_own_session_and_seq() -> None:
    place = Place()
    place.call(5, 1, 10, b"asks")
    with place.frame():
        place.call(6, 40, 20, b"plain", b"plain")
        place.answer(30)
    named = Running(PEER_SESSION, 3)
    assert place.seen == [("asks", named), ("plain", Running(6, 40)), ("plain", Running(6, 41))]


def test_i11_page_names_the_handler_whose_promise_is_completed_and_then_the_message_again() -> None:
    place = Place()
    place.call(5, 1, 10, b"promised")
    place.call(6, 7, 20, b"plain", b"settle", b"plain", key=b"a")
    settle, freed = ("settle", Running(6, 8)), ("plain", Running(6, 7))
    assert place.seen == [settle, ("promised", Running(0, 10)), freed, ("plain", Running(6, 9))]


def test_i11_a_run_that_is_no_part_of_the_frame_is_not_taken_for_one() -> None:
    place = Place()
    place.call(5, 1, 10, b"asks", b"plain")
    with place.frame():
        place.call(6, 40, 20, b"plain", key=b"b")
        place.answer(30)
    assert place.seen[-1] == ("plain", Running(0, 11))
    with place.frame():
        place.call(5, 3, 31, b"asks")
        place.executor.order(32, 3, Order("cancel", 31))
    assert read_running(place.page) is None
