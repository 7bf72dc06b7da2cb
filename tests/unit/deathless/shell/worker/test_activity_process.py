"""The process that runs activities: an author's function in, its reply out; it ends with its parent's pipe."""

from __future__ import annotations

import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import Closed, HandlerFailed, NotRetryable
from deathless.codec.peer_messages import ActivityStart
from deathless.codec.wire import PacketReader, ReplyError, decode_struct, packet, struct_packet
from deathless.execution.author.service import Service
from deathless.execution.turn.activity_call import current_activity
from deathless.shell.worker.activities import BACK, BEAT, COUNT, ENDED, READY, RETURNED, START, worker_command
from deathless.shell.worker.activity_process import run_activity

SERVICE = '''
import asyncio
from deathless import Service, Struct, current_activity

class Nothing(Struct):
    """No state."""

shop = Service("shop", state=Nothing)

@shop.activity
def charge(card: str, cents: int) -> str:
    call = current_activity()
    call.heartbeat()
    return f"{card} {cents} {call.key} {call.attempt}"

@shop.activity
async def wait(turns: int) -> int:
    for _ in range(turns):
        await asyncio.sleep(0)
    return turns

@shop.activity
def fail(text: str) -> None:
    raise ValueError(text)

@shop.activity
def forever() -> None:
    while True:
        current_activity().heartbeat()
'''


class Nothing(msgspec.Struct):
    """No state."""


class Process:
    """A worker process, and our end of its pipe."""

    def __init__(self, folder: Path) -> None:
        module = folder / "shop_with_activities.py"
        module.write_text(SERVICE)
        config = ReplicaConfig(service="shop", module=f"{module}:shop", directory="d", replica="r0")
        self.pair, theirs = socket.socketpair()
        with theirs:
            descriptor = theirs.fileno()
            self.process = subprocess.Popen(worker_command(config)(descriptor), pass_fds=(descriptor,))
        self._reader = PacketReader(1 << 20)
        self._packets: list[tuple[int, bytes]] = []

    def start(self, name: str, **arguments: object) -> None:
        start = ActivityStart(1, 2, 3, name, msgspec.msgpack.encode(arguments), "key-1", False, False)
        self.pair.sendall(struct_packet(START, start))

    def next(self) -> tuple[int, bytes]:
        while not self._packets:
            data = self.pair.recv(65536)
            assert data, "the process ended"
            self._packets += self._reader.take(data)
        return self._packets.pop(0)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    """One that is ended behind the test."""
    one = Process(tmp_path)
    assert one.next() == (READY, b"")
    yield one
    one.pair.close()
    one.process.wait(30)


def reply_error(body: bytes) -> ReplyError:
    assert body[:1] == b"\x01"
    return decode_struct(ReplyError, body[1:])


def test_a_process_answers_activity_after_activity_with_signs_of_life(process: Process) -> None:
    process.start("charge", card="c", cents=5)
    assert process.next() == (BEAT, b"")
    assert process.next() == (ENDED, b"\x00" + msgspec.msgpack.encode("c 5 key-1 3"))
    process.start("wait", turns=4)
    assert process.next() == (ENDED, b"\x00" + msgspec.msgpack.encode(4))


def test_what_waits_is_returned_and_forgotten(process: Process) -> None:
    process.start("forever")
    assert process.next() == (BEAT, b"")  # it runs
    for _ in range(3):
        process.start("charge", card="c", cents=5)
    process.pair.sendall(packet(BACK))
    assert next(body for kind, body in iter(process.next, None) if kind == RETURNED) == COUNT.pack(3)
    process.pair.sendall(packet(BACK))
    assert next(body for kind, body in iter(process.next, None) if kind == RETURNED) == COUNT.pack(0)


def test_what_a_function_raises_is_its_reply(process: Process) -> None:
    process.start("fail", text="no")
    kind, body = process.next()
    assert (kind, reply_error(body)) == (ENDED, ReplyError(HandlerFailed.code, "ValueError", "no"))
    process.start("charge", card="c", cents="many")
    assert reply_error(process.next()[1]) == ReplyError(
        NotRetryable.code, "InvalidArgument", "Expected `int`, got `str` - at `$.cents`"
    )


class Loop(msgspec.Struct):
    inside: list[Any] = []


def endless() -> Loop:
    loop = Loop()
    loop.inside.append(loop.inside)
    return loop


@pytest.mark.parametrize(
    ("stated", "given", "kind"),
    [
        (str, 1, "InvalidResult"),
        (int, "1", "InvalidResult"),
        (Any, object(), "InvalidResult"),
        (dict[str, Any], {"lock": threading.Lock()}, "InvalidResult"),
        (Any, 1 << 70, "InvalidResult"),
        (str, "\ud800", "InvalidResult"),
        (Loop, endless(), "InvalidResult"),
        (bytes, bytes(64 << 20), "TooLarge"),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_what_can_not_be_a_result_is_not_tried_again(stated: object, given: object, kind: str) -> None:
    service = Service("shop", state=Nothing)

    def give() -> object:
        return given

    give.__annotations__["return"] = stated
    service.activity(give)
    reply = run_activity(service, ActivityStart(1, 1, 1, "give", b"\x80", "k", False, False), lambda: None)
    told = reply_error(reply)
    assert (told.code, told.type) == (NotRetryable.code, kind)
    assert told.text


def test_an_activity_says_itself_that_it_can_not_succeed() -> None:
    service = Service("shop", state=Nothing)

    @service.activity
    def charge() -> None:
        raise NotRetryable("the card is stolen")

    reply = run_activity(service, ActivityStart(1, 1, 1, "charge", b"\x80", "k", False, False), lambda: None)
    assert reply_error(reply) == ReplyError(NotRetryable.code, "NotRetryable", "the card is stolen")


def test_a_process_whose_pipe_is_closed_ends_in_the_middle_of_a_function(process: Process) -> None:
    process.start("forever")
    assert process.next() == (BEAT, b"")
    process.pair.close()
    assert process.process.wait(30) == -9


def test_an_activity_that_is_not_registered_is_told_so() -> None:
    start = ActivityStart(1, 2, 3, "missing", b"\x80", "key-1", False, False)
    reply = run_activity(Service("shop", state=Nothing), start, lambda: None)
    assert reply_error(reply) == ReplyError(NotRetryable.code, "UnknownHandler", "shop has no activity 'missing'")


def test_there_is_a_call_only_while_an_activity_runs() -> None:
    service = Service("shop", state=Nothing)
    seen: list[str] = []

    @service.activity
    def look() -> None:
        seen.append(current_activity().name)

    run_activity(service, ActivityStart(1, 1, 1, "look", b"\x80", "k", False, False), lambda: None)
    assert seen == ["look"]
    with pytest.raises(Closed):
        current_activity()
