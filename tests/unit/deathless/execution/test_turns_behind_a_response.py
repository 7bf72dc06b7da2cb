"""Whose message the running page names while a RESPONSE causes several turns (I11).

A message that waited for its key may stand in the frame of the RESPONSE that frees it, and that frame is in no log yet:
after a death nobody could name it by its lsn. So the page names what came, and that is what is set aside.
"""

from __future__ import annotations

import msgspec

from deathless.base.limits import Limits
from deathless.codec.messages import Kind, encode
from deathless.codec.peer_messages import Reference, Target, encode_response
from deathless.codec.wire import ok_reply
from deathless.core.keys import KeyTable
from deathless.execution.context import Context
from deathless.execution.executor import HandlerExecutor
from deathless.execution.running import PAGE_BYTES, Cells, Running, read_running
from deathless.execution.service import Service

OTHER, PEER_SESSION = Target("other", 0), 99


class State(msgspec.Struct):
    count: int = 0


def test_page_names_the_response_also_while_what_waited_for_the_key_runs() -> None:
    service, page = Service("svc", state=State), bytearray(PAGE_BYTES)
    seen: list[tuple[str, Running | None]] = []

    @service.handler
    async def asks(state: State, ctx: Context) -> int:
        given = await ctx.call("other", "k", "m", {}, result=int)
        seen.append(("asks", read_running(page)))
        return given

    @service.handler
    def waited(state: State, ctx: Context) -> int:
        seen.append(("waited", read_running(page)))
        return 1

    limits = Limits()
    executor = HandlerExecutor(service, limits, bytes(32), KeyTable(limits), Cells(page))
    calls = [encode(Kind.CALL, method=method, key=b"a", args=b"\x80") for method in (b"asks", b"waited")]
    executor.execute(5, 1, 10, 1, calls)
    assert not seen
    executor.execute_peer(OTHER, 3, 20, 2, [encode_response(Reference(10, 1), ok_reply(b"\x07"))], PEER_SESSION)
    named = Running(PEER_SESSION, 3)
    assert seen == [("asks", named), ("waited", named)]
    assert read_running(page) is None
