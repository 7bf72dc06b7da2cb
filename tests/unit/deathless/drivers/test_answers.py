"""Answers on their way to the service: in order, until it has confirmed them, whoever sent some in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.drivers.lab import Primary, closed, run
from tests.unit.deathless.drivers.memory_sink import Memory

from deathless.base.config import PeerConfig
from deathless.codec.wire import ReplyError, ok_reply
from deathless.drivers import answers as module
from deathless.drivers.answers import Answers, service_id
from deathless.drivers.port import Answer, Reference, Source
from deathless.shell.worker import peer_links

SOURCE = Source("shop", 0, b"i" * 16, 1, 5)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_links, "AGAIN_MIN_S", 0.001)
    monkeypatch.setattr(peer_links, "AGAIN_MAX_S", 0.01)


def answers_for(primary: Primary, confirmed: Callable[[], None] = lambda: None) -> Answers:
    peer = PeerConfig(name="shop", directory=primary.config.directory)
    config = msgspec.structs.replace(primary.config, service="ledger", peers=(peer,), drivers=())
    return Answers(config, "ledger", SOURCE, confirmed=confirmed, message_bytes_max=200)


def answer(position: int, reply: bytes = b"\0\xc0") -> Answer:
    return Answer(position, Reference(position, 1), reply)


def references(primary: Primary) -> list[int]:
    return [reference.invocation for reference in primary.answers]


async def ended(answers: Answers, primary: Primary) -> None:
    answers.close()
    await closed(primary)


def test_answers_are_kept_until_they_are_confirmed(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        primary = await Primary(folder).begin()
        told: list[int | None] = []
        answers = answers_for(primary, lambda: told.append(answers.lowest))
        answers.add([answer(3), answer(7)])
        assert answers.lowest == 3
        answers.add([answer(7), answer(9)])
        await primary.wait(lambda: answers.lowest is None)
        assert references(primary) == [3, 7, 9]
        assert primary.answer_count == 3, "one that is under way is not sent twice"
        assert told[-1] is None
        assert primary.introduced[0].hello.service_id == service_id("ledger")
        assert primary.introduced[0].epoch == 5
        await ended(answers, primary)

    run(tmp_path, story)


def test_what_was_lost_is_sent_again_from_where_the_service_says(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        primary = await Primary(folder).begin()
        primary.confirms = False
        answers = answers_for(primary)
        answers.add([answer(1), answer(2)])
        await primary.wait(lambda: len(primary.introduced) >= 3)
        assert answers.lowest == 1
        primary.next_answer += 2  # another host sent some meanwhile: that proves nothing of ours
        primary.confirms = True
        await primary.wait(lambda: answers.lowest is None)
        assert references(primary) == [1, 2]
        await ended(answers, primary)

    run(tmp_path, story)


def test_more_than_the_window_is_sent_as_it_is_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WINDOW_MESSAGES", 5)
    monkeypatch.setattr(module, "PACKET_BYTES_MAX", 50)

    async def story(folder: Path, memory: Memory) -> None:
        primary = await Primary(folder).begin()
        answers = answers_for(primary)
        answers.add([answer(number) for number in range(1, 60)])
        await primary.wait(lambda: answers.lowest is None)
        assert references(primary) == list(range(1, 60))
        await ended(answers, primary)

    run(tmp_path, story)


def test_a_service_that_confirms_nothing_is_connected_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STALL_S", 0.01)

    async def story(folder: Path, memory: Memory) -> None:
        primary = await Primary(folder).begin()
        primary.silent = True
        answers = answers_for(primary)
        answers.add([answer(1)])
        await primary.wait(lambda: len(primary.introduced) >= 3)
        primary.silent = False
        await primary.wait(lambda: answers.lowest is None)
        await ended(answers, primary)

    run(tmp_path, story)


def test_an_answer_that_no_message_holds_is_told_as_an_error(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        primary = await Primary(folder).begin()
        answers = answers_for(primary)
        answers.add([answer(1, ok_reply(b"x" * 500))])
        await primary.wait(lambda: bool(primary.answers))
        (reply,) = primary.answers.values()
        assert msgspec.msgpack.decode(reply[1:], type=ReplyError).code == "DL3006"
        await ended(answers, primary)
        await asyncio.sleep(0)

    run(tmp_path, story)
