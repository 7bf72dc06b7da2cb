"""A process beside a replica works until its supervisor is gone, and knows from it whether the replica leads."""

from __future__ import annotations

import asyncio
import socket

import msgspec
import pytest

from deathless.base.errors import DeathlessError
from deathless.shell.link.side_process import keep_beside, led_epoch
from deathless.shell.link.standing import Program, Standing

PRIMARY = Standing(service="airports", replica="r0", role="primary", epoch=3, service_id="ab")


class Side:
    """Such a process, which notes what happens to it."""

    def __init__(self) -> None:
        self.notes: list[object] = []
        self.heard = asyncio.Event()

    async def start(self) -> None:
        self.notes.append("started")

    def told(self, record: object) -> None:
        self.notes.append(record)
        self.heard.set()

    async def run(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.notes.append("ended")


@pytest.mark.parametrize(
    ("changed", "epoch"),
    [({}, 3), ({"role": "standby"}, 0), ({"outside_held": True}, 0), ({"service_id": ""}, 0)],
)
def test_a_replica_leads_that_is_primary_and_may_reach_the_outside(changed: dict[str, object], epoch: int) -> None:
    assert led_epoch(msgspec.structs.replace(PRIMARY, **changed)) == epoch
    assert led_epoch(None) == 0


def test_it_hears_its_supervisor_and_ends_with_it() -> None:
    async def live() -> list[object]:
        side = Side()
        ours, theirs = socket.socketpair()
        with theirs:
            life = asyncio.create_task(keep_beside(side, ours, lambda: side.notes.append("begun")))
            theirs.sendall(msgspec.json.encode(PRIMARY) + b"\n")
            await asyncio.wait_for(side.heard.wait(), 30)
        await asyncio.wait_for(life, 30)
        return side.notes

    assert asyncio.run(live()) == ["started", "begun", PRIMARY, "ended"]


def test_callback_that_fails_is_told_and_a_connection_that_is_lost_is_not() -> None:
    async def live() -> list[str]:
        side, told = Side(), list[str]()
        heard = asyncio.Event()
        ours, theirs = socket.socketpair()

        def hear(error: DeathlessError) -> None:
            told.append(str(error))
            heard.set()

        def fail() -> None:
            raise KeyError("of a callback")

        with theirs:
            life = asyncio.create_task(keep_beside(side, ours, lambda: None, callback_failed=hear))
            theirs.sendall(msgspec.json.encode(PRIMARY) + b"\n")
            await side.heard.wait()
            loop = asyncio.get_running_loop()
            loop.call_exception_handler({"message": "lost", "exception": ConnectionResetError(), "transport": None})
            loop.call_soon(fail)
            await heard.wait()
        await life
        return told

    (only,) = asyncio.run(live())
    assert "KeyError('of a callback')" in only


def test_process_can_say_something_to_its_supervisor() -> None:
    async def live() -> bytes:
        side = Side()
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        program = Program(state="serving")
        with theirs:
            life = asyncio.create_task(keep_beside(side, ours, lambda: None, lambda say: say(program)))
            said = await asyncio.wait_for(asyncio.get_running_loop().sock_recv(theirs, 1000), 30)
        await asyncio.wait_for(life, 30)
        return said

    assert msgspec.json.decode(asyncio.run(live()), type=Program) == Program(state="serving")
