"""A peer that asks twice under one reference, which only a broken one does: all replicas do the same (I6)."""

from __future__ import annotations

import msgspec
from tests.encoded import encode_cancel, encode_fork
from tests.unit.deathless.execution.messaging_bench import Hub, Target

from deathless.codec.peer_messages import Order, Reference, Request, encode_request
from deathless.execution.author.service import Service
from deathless.execution.turn.context import Context

A = Target("a", 0)


class State(msgspec.Struct):
    count: int = 0


service = Service("shop", state=State)


@service.handler
async def approve(state: State, ctx: Context) -> str:
    return await ctx.promise(str)


FIRST = Request(5, 1)
ZEROS = Request(0, 0)


def ask(key: str, request: Request = FIRST) -> bytes:
    return encode_request(request, method=b"approve", key=key.encode(), args=msgspec.msgpack.encode({}))


@service.handler
async def at_once(state: State, ctx: Context) -> None: ...


def test_i6_what_nobody_waits_for_ends_no_request_of_its_sender_under_a_reference_of_zeros() -> None:
    twins = [Hub(service), Hub(service)]
    for hub in twins:
        hub.receive(ask("x", ZEROS), encode_fork(method=b"at_once", key=b"z", args=b"\x80"), peer=A)
    twins[1].restart()
    for hub in twins:
        hub.receive(ask("y", ZEROS), peer=A)
    assert twins[0].executor.suspended() == twins[1].executor.suspended()
    assert len(twins[0].waiting()) == 1


def test_i6_a_request_under_a_reference_that_is_worked_for_is_not_run_so_a_restored_replica_knows_the_same() -> None:
    twins = [Hub(service), Hub(service)]
    for hub in twins:
        hub.receive(ask("x"), ask("y"), peer=A)
        (first, *_) = hub.waiting()
        hub.record(Order("kill", first))
    twins[1].restart()
    for hub in twins:
        hub.receive(encode_cancel(Reference(5, 1)), peer=A)
    assert twins[0].executor.suspended() == twins[1].executor.suspended()
    assert twins[0].sent == twins[1].sent
