"""A driver beside a primary: real sockets, the real links and outreach of the primary, a sink in memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.drivers import memory_sink
from tests.unit.deathless.drivers.lab import LEDGER, Primary, closed, hosted, run
from tests.unit.deathless.drivers.memory_sink import MEMORIES, Memory

from deathless.base.config import DriverConfig
from deathless.base.errors import InvalidConfig, InvalidService, PortTaken, SinkUnavailable
from deathless.codec.peer_messages import Reference
from deathless.codec.wire import ReplyError, ok_reply
from deathless.core.primary import sending as outreach
from deathless.drivers import answers, host, session
from deathless.drivers.host import factory_of, make_sink
from deathless.shell.worker import peer_links


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_links, "AGAIN_MIN_S", 0.001)
    monkeypatch.setattr(peer_links, "AGAIN_MAX_S", 0.01)
    monkeypatch.setattr(session, "AGAIN_MIN_S", 0.001)
    monkeypatch.setattr(session, "AGAIN_MAX_S", 0.01)
    monkeypatch.setattr(session, "REFUSED_MAX_S", 0.01)


def error_of(reply: bytes) -> ReplyError:
    assert reply[0] == 1
    return msgspec.msgpack.decode(reply[1:], type=ReplyError)


def test_what_a_service_sends_arrives_in_order_and_is_forgotten_by_it(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        primary = await Primary(folder).begin()
        primary.fork(1, 2, 3)  # before there is a driver
        driver = await hosted(primary.config)
        primary.fork(*range(4, 12))
        await primary.wait(lambda: primary.kept == 0)
        assert await memory.numbers() == list(range(1, 12))
        assert len({each.idempotency_key for each in memory.arrived}) == 11
        assert memory.arrived[0].idempotency_key == f"shop/0/{b'i'.hex() * 8}/1/ledger/1"
        assert (memory.arrived[0].method, memory.arrived[0].key) == ("write", "k")
        await closed(primary, driver)
        assert memory.closed == memory.opened == 1

    run(tmp_path, story)


def test_a_handler_that_waits_gets_the_answer_and_only_then_is_the_message_forgotten(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        primary = await Primary(folder).begin()
        primary.confirms = False
        driver = await hosted(primary.config)
        asked = primary.ask(1)
        await primary.wait(lambda: len(primary.introduced) > 2)
        assert await memory.numbers() == [1]
        assert primary.kept == 1, "durable, but nobody has the answer"
        primary.confirms = True
        await primary.wait(lambda: primary.kept == 0)
        assert primary.answers == {asked: ok_reply(msgspec.msgpack.encode(1))}
        await primary.wait(lambda: not memory.answers)
        said = primary.introduced[0]
        assert (said.hello.service, said.hello.service_id, said.epoch) == ("ledger", answers.service_id("ledger"), 1)
        await closed(primary, driver)

    run(tmp_path, story)


def test_an_answer_that_the_sink_kept_is_told_by_the_next_host(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        primary = await Primary(folder).begin()
        primary.confirms = False
        driver = await hosted(primary.config)
        asked = primary.ask(1)
        await primary.wait(lambda: bool(memory.answers))
        await closed(driver)  # its memory is gone
        primary.confirms = True
        driver = await hosted(primary.config)
        await primary.wait(lambda: asked in primary.answers)
        await primary.wait(lambda: primary.kept == 0)
        assert memory.positions == [1]
        await closed(primary, driver)

    run(tmp_path, story)


def test_a_successor_goes_on_and_the_deposed_primary_is_refused(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        first = await Primary(folder).begin()
        driver = await hosted(first.config)
        first.fork(1, 2)
        await first.wait(lambda: first.kept == 0)
        first.close()
        later = await Primary(folder, epoch=3, outbox=first.outbox).begin()
        later.fork(3)
        await later.wait(lambda: memory.positions == [1, 2, 3])
        late = await Primary(folder, epoch=1).begin()
        late.fork(1, 2, 99)
        await late.wait(lambda: "DL2001" in late.problem)
        assert memory.positions == [1, 2, 3]
        assert memory.epoch == 3
        await closed(late, later, driver)

    run(tmp_path, story)


def test_a_sink_that_knows_of_a_later_epoch_ends_the_session(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        memory.epoch = 9  # of a driver beside another replica
        primary = await Primary(folder).begin()
        driver = await hosted(primary.config)
        primary.fork(1)
        await primary.wait(lambda: "DL2001" in primary.problem)
        assert memory.positions == []
        await closed(primary, driver)

    run(tmp_path, story)


def test_a_sink_that_takes_nothing_is_opened_again_and_operators_see_why(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        memory.fails = [SinkUnavailable("the disk is full")] * 50
        primary = await Primary(folder).begin()
        driver = await hosted(primary.config)
        primary.fork(1, 2, 3)
        await primary.wait(lambda: "DL1020 the disk is full" in primary.problem)
        await primary.wait(lambda: primary.kept == 0)
        assert memory.positions == [1, 2, 3]
        assert memory.opened >= 25
        await closed(primary, driver)

    run(tmp_path, story)


def test_a_refused_message_is_answered_to_who_waits_and_the_others_go_on(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        primary = await Primary(folder).begin()
        primary.fork(1)
        asked = primary.ask(2, method="no")
        primary.fork(3)
        driver = await hosted(primary.config)
        await primary.wait(lambda: primary.kept == 0)
        assert await memory.numbers() == [1, 3]
        told = error_of(primary.answers[asked])
        assert (told.code, told.type, told.text) == ("DL3040", "DeliveryRefused", "the world says no")
        await closed(primary, driver)

    run(tmp_path, story)


def test_a_refused_message_that_nobody_waits_for_stops_the_driver_until_it_is_taken(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        memory.refuses = {2}
        primary = await Primary(folder).begin()
        primary.fork(1, 2, 3)
        driver = await hosted(primary.config)
        await primary.wait(lambda: "DL3040 message 2" in primary.problem)
        assert memory.positions == [1]
        memory.refuses.clear()
        await primary.wait(lambda: primary.kept == 0)
        assert memory.positions == [1, 2, 3]
        await closed(primary, driver)

    run(tmp_path, story)


def test_a_refused_message_may_be_skipped(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        memory.refuses = {2, 3}
        primary = await Primary(folder).begin()
        skips = msgspec.structs.replace(primary.config.drivers[0], on_refusal="skip")
        driver = await hosted(msgspec.structs.replace(primary.config, drivers=(skips,)))
        primary.fork(1, 2, 3, 4)
        await primary.wait(lambda: primary.kept == 0)
        assert memory.positions == [1, 4]
        assert driver._running[LEDGER._replace(service="shop")].session.given_up == 2
        # The service knows them by their positions, in answers to nobody, before they are acknowledged.
        assert set(primary.answers) == {Reference(0, 2), Reference(0, 3)}
        await closed(primary, driver)

    run(tmp_path, story)


def test_what_is_cancelled_or_late_is_no_effect(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        primary = await Primary(folder).begin()
        late = primary.ask(1, deadline_us=1)
        primary.cancel(late)
        driver = await hosted(primary.config)
        await primary.wait(lambda: primary.kept == 0)
        assert memory.positions == []
        assert memory.position == 3, "the positions are done all the same"
        assert error_of(primary.answers[late]).code == "DL3022"
        await closed(primary, driver)

    run(tmp_path, story)


def test_a_slow_sink_is_not_asked_twice_when_its_primary_connects_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outreach, "STALL_S", 0.01)

    async def story(folder: Path, memory: Memory) -> None:
        memory.hold = asyncio.Event()
        primary = await Primary(folder).begin()
        driver = await hosted(primary.config)
        primary.fork(1, 2)
        await primary.wait(lambda: "confirmed nothing" in primary.outreach.views()[0].problem)
        memory.hold.set()
        await primary.wait(lambda: primary.kept == 0)
        assert memory.positions == [1, 2]
        assert memory.opened == 1
        await closed(primary, driver)

    run(tmp_path, story)


def test_a_sink_that_lost_what_was_confirmed_is_a_peer_that_is_behind(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        primary = await Primary(folder).begin()
        driver = await hosted(primary.config)
        primary.fork(1, 2, 3)
        await primary.wait(lambda: primary.kept == 0)
        await closed(primary, driver)
        memory.position = 2  # restored from a backup
        primary = await Primary(folder, epoch=2, outbox=primary.outbox).begin()
        driver = await hosted(primary.config)
        primary.fork(4)
        await primary.wait(lambda: "DL4010" in primary.outreach.views()[0].problem)
        await closed(primary, driver)

    run(tmp_path, story)


def test_a_bug_of_a_sink_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        memory.fails = [ZeroDivisionError("oh")] * 9  # type: ignore[list-item]  # no error of ours
        primary = await Primary(folder).begin()
        driver = await hosted(primary.config)
        primary.fork(1)
        await primary.wait(lambda: "ZeroDivisionError: oh" in primary.problem)
        await primary.wait(lambda: primary.kept == 0)
        await closed(primary, driver)

    run(tmp_path, story)


def test_options_that_are_wrong_are_told_to_operators(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        del MEMORIES["it"]
        primary = await Primary(folder).begin()
        driver = await hosted(primary.config)
        primary.fork(1)
        await primary.wait(lambda: "DL3001 driver ledger: no memory 'it'" in primary.problem)
        await closed(primary, driver)

    run(tmp_path, story)


def test_another_service_is_not_served(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        primary = await Primary(folder).begin()
        driver = await hosted(msgspec.structs.replace(primary.config, service="bank"))
        primary.fork(1)
        await primary.wait(lambda: "DL3005" in primary.problem)
        assert memory.opened == 0
        await closed(primary, driver)

    run(tmp_path, story)


def test_another_users_process_is_neither_served_nor_told_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        primary = await Primary(folder).begin()
        driver = await hosted(primary.config)
        with monkeypatch.context() as other:
            other.setattr(host, "is_own", lambda _: False)
            primary.fork(1)
            await primary.wait(lambda: "closed the connection" in primary.problem)
        assert memory.opened == 0
        await primary.wait(lambda: primary.kept == 0)
        await closed(primary, driver)

    run(tmp_path, story)


def test_one_process_is_the_driver(tmp_path: Path) -> None:
    async def story(folder: Path, memory: Memory) -> None:
        primary = Primary(folder)
        driver = await hosted(primary.config)
        with pytest.raises(PortTaken):
            await hosted(primary.config)
        await closed(primary, driver)

    run(tmp_path, story)


def test_kinds_name_their_factories_and_what_is_not_there_is_told() -> None:
    with pytest.raises(InvalidConfig, match="path"):
        make_sink(DriverConfig(name="d", kind="files"))
    own = DriverConfig(name="d", kind="tests.unit.deathless.drivers.memory_sink:factory")
    assert factory_of(own) is memory_sink.factory
    with pytest.raises(InvalidService):
        factory_of(DriverConfig(name="d", kind="no.such.module:factory"))
