"""Lines of a file: each effect once, whatever is torn, whoever else has the file open."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from deathless.base.errors import DeliveryRefused, Deposed, InvalidConfig, SinkUnavailable
from deathless.codec.wire import error_reply, ok_reply
from deathless.drivers import files
from deathless.drivers.conformance import World, check
from deathless.drivers.files import FileSink, Line, sink
from deathless.drivers.port import Answer, Delivery, Reference, Settings, Source

pytestmark = pytest.mark.asyncio
SOURCE = Source("shop", 0, b"i" * 16, 1, 1)


def delivery(position: int, *, waits: bool = False) -> Delivery:
    reference = Reference(position, 1) if waits else None
    return Delivery(position, "paid", "alice", {"number": position}, reference, 0, f"id-{position}")


def lines(path: Path) -> list[Line]:
    return [msgspec.json.decode(text, type=Line) for text in path.read_bytes().splitlines()]


def positions(path: Path) -> list[int]:
    return [line.position for line in lines(path)]


async def opened(path: Path, first: int = 1, *, epoch: int = 1, source: Source = SOURCE) -> tuple[FileSink, int]:
    made = FileSink(path)
    told = await made.open(msgspec.structs.replace(source, epoch=epoch), first)
    return made, told.next_position


@pytest.mark.parametrize("seed", range(12))
async def test_the_kit_finds_each_effect_once(seed: int, tmp_path: Path) -> None:
    path = tmp_path / "effects.jsonl"

    async def arrived() -> Sequence[int]:
        return positions(path) if path.exists() else []

    await check(World(sink=lambda: FileSink(path, sync=False), arrived=arrived), seed=seed)


async def test_without_the_fence_the_kit_finds_a_deposed_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileSink, "_check_ours", lambda _: None)

    async def all_seeds() -> None:
        for seed in range(12):
            path = tmp_path / f"{seed}.jsonl"

            async def arrived(path: Path = path) -> Sequence[int]:
                return positions(path)

            def make(path: Path = path) -> FileSink:
                return FileSink(path, sync=False)

            await check(World(sink=make, arrived=arrived), seed=seed)

    with pytest.raises(AssertionError):
        await all_seeds()


async def test_a_line_says_what_was_sent_and_a_handler_that_waits_gets_its_position(tmp_path: Path) -> None:
    path = tmp_path / "effects.jsonl"
    made = sink(Settings("ledger", {"path": "effects.jsonl"}, str(tmp_path)))
    await made.open(SOURCE, 5)
    (answer,) = await made.deliver([delivery(5), delivery(6, waits=True)])
    assert answer == Answer(6, Reference(6, 1), ok_reply(msgspec.msgpack.encode(6)))
    first, second = map(msgspec.json.decode, path.read_bytes().splitlines())
    assert first == {"position": 5, "method": "paid", "key": "alice", "arguments": {"number": 5}, "id": "id-5"}
    assert second["waits"] == [6, 1]


@pytest.mark.parametrize("torn", [b'{"position":3,"meth', b"\0" * 5000, b'{"position":3}\0\0\n', b"\n"])
async def test_a_torn_last_line_is_cut(torn: bytes, tmp_path: Path) -> None:
    path = tmp_path / "effects.jsonl"
    made, _ = await opened(path)
    await made.deliver([delivery(1), delivery(2)])
    with path.open("ab") as file:
        file.write(torn)
    if torn == b"\n":  # a whole line, which we never write
        with pytest.raises(SinkUnavailable, match="no line of this driver"):
            await opened(path)
        return
    made, next_position = await opened(path)
    assert next_position == 3
    await made.deliver([delivery(3)])
    assert positions(path) == [1, 2, 3]


async def test_answers_outlive_the_process_until_the_service_has_them(tmp_path: Path) -> None:
    path = tmp_path / "effects.jsonl"
    made, _ = await opened(path)
    await made.deliver([delivery(1, waits=True), delivery(2), delivery(3, waits=True)])
    refused = Answer(4, Reference(4, 1), error_reply("DL3040", "DeliveryRefused", "no"))
    await made.pass_over(4, refused)
    told = await FileSink(path).open(SOURCE, 1)
    assert told.next_position == 5
    assert [answer.position for answer in told.answers] == [1, 3, 4]
    assert told.answers[-1] == refused
    made, _ = await opened(path)
    await made.confirmed(3)
    assert (await FileSink(path).open(SOURCE, 1)).answers == [refused]
    made, _ = await opened(path)
    await made.confirmed(4)
    told = await FileSink(path).open(SOURCE, 1)
    assert (told.next_position, told.answers) == (5, [])


async def test_a_later_epoch_ends_an_earlier_one_whatever_it_does(tmp_path: Path) -> None:
    path = tmp_path / "effects.jsonl"
    early, _ = await opened(path)
    await early.deliver([delivery(1)])
    late, next_position = await opened(path, epoch=2)
    assert next_position == 2
    for attempt in (early.deliver([delivery(2)]), early.pass_over(2, None), early.confirmed(1), early.open(SOURCE, 1)):
        with pytest.raises(Deposed):
            await attempt
    await late.deliver([delivery(2)])
    assert positions(path) == [1, 2]


async def test_a_holder_of_the_lock_that_is_frozen_is_named_and_its_end_frees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "effects.jsonl"
    early, _ = await opened(path)
    await early.deliver([delivery(1)])
    monkeypatch.setattr(files, "LOCK_WAIT_S", 0.0)
    frozen = os.open(path.with_name("effects.jsonl.lock"), os.O_RDWR)
    fcntl.flock(frozen, fcntl.LOCK_EX)  # as a process that stopped within a write
    late = FileSink(path)
    with pytest.raises(SinkUnavailable, match=f"held by process {os.getpid()} on "):
        await late.open(msgspec.structs.replace(SOURCE, epoch=2), 1)
    with pytest.raises(SinkUnavailable, match="kill -KILL"):
        await early.deliver([delivery(2)])
    os.close(frozen)
    assert (await late.open(msgspec.structs.replace(SOURCE, epoch=2), 1)).next_position == 2


async def test_a_service_created_anew_begins_behind_what_stands_there(tmp_path: Path) -> None:
    path = tmp_path / "effects.jsonl"
    made, _ = await opened(path, epoch=7)
    await made.deliver([delivery(1), delivery(2)])
    with path.open("ab") as file:
        file.write(b"torn")
    made, next_position = await opened(path, source=msgspec.structs.replace(SOURCE, incarnation=2))
    assert next_position == 1
    await made.deliver([delivery(1)])
    assert positions(path) == [1, 2, 1]


async def test_lines_that_a_killed_process_left_are_synced_before_they_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may be in the page cache alone: a machine that then loses its power must not have them counted."""
    path = tmp_path / "effects.jsonl"
    one, _ = await opened(path)

    def killed(_: int) -> None:
        raise KeyboardInterrupt

    synced: list[int] = []
    counted: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "fdatasync", killed)
    with pytest.raises(KeyboardInterrupt):
        one._deliver([delivery(1)])
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    write_place = FileSink._write_place

    def counts(self: FileSink, place: files.Place) -> None:
        counted.append((place.next_position, sum(synced)))
        write_place(self, place)

    monkeypatch.setattr(FileSink, "_write_place", counts)
    await opened(path)
    assert counted == [(2, path.stat().st_size)]


async def test_a_message_that_is_no_json_is_refused_and_no_other_one(tmp_path: Path) -> None:
    one, _ = await opened(tmp_path / "effects.jsonl")
    bad = msgspec.structs.replace(delivery(2), arguments={"number": float("nan")})
    with pytest.raises(DeliveryRefused, match="holds nan") as told:
        await one.deliver([delivery(1), bad])
    assert (told.value.position, positions(tmp_path / "effects.jsonl")) == (2, [])
    await one.deliver([delivery(1)])
    await one.close()


async def test_a_failed_write_leaves_nothing_and_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "effects.jsonl"
    made, _ = await opened(path)
    await made.deliver([delivery(1)])

    def half(descriptor: int, data: bytes, at: int) -> None:
        os.pwrite(descriptor, data[: len(data) // 2], at)
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(files, "write_all", half)
        with pytest.raises(SinkUnavailable, match="No space left"):
            await made.deliver([delivery(2)])
    assert positions(path) == [1]
    told = await made.open(SOURCE, 1)
    assert told.next_position == 2
    await made.deliver([delivery(2)])
    assert positions(path) == [1, 2]


async def test_a_file_that_lost_lines_is_told_and_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "effects.jsonl"
    made, _ = await opened(path)
    await made.deliver([delivery(1, waits=True), delivery(2)])
    await made.confirmed(2)
    os.truncate(path, 3)
    with pytest.raises(SinkUnavailable, match="were written"):
        await made.deliver([delivery(3)])
    with pytest.raises(SinkUnavailable, match="were written"):
        await opened(path)
    (tmp_path / "effects.jsonl.position").unlink()
    with pytest.raises(SinkUnavailable, match="is gone"):
        await made.deliver([delivery(3)])
    _, next_position = await opened(path, 3)
    assert next_position == 3


async def test_a_place_that_is_no_place_is_told(tmp_path: Path) -> None:
    (tmp_path / "effects.jsonl.position").write_text("{}")
    with pytest.raises(SinkUnavailable, match="position"):
        await opened(tmp_path / "effects.jsonl")


async def test_a_start_reads_only_the_last_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "REMEMBER_LINES", 3)
    path = tmp_path / "effects.jsonl"
    made, _ = await opened(path)
    await made.deliver([delivery(1), delivery(2), delivery(3, waits=True)])
    await made.deliver([delivery(4), delivery(5)])
    whole = path.read_bytes()
    path.write_bytes(b"x" * whole.index(b'{"position":3') + whole[whole.index(b'{"position":3') :])
    told = await FileSink(path).open(SOURCE, 1)
    assert told.next_position == 6
    assert [answer.position for answer in told.answers] == [3]


async def test_a_write_whose_caller_gave_up_is_over_before_the_next(tmp_path: Path) -> None:
    path = tmp_path / "effects.jsonl"
    made, _ = await opened(path)
    task = asyncio.ensure_future(made.deliver([delivery(1)]))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await made.close()
    assert positions(path) in ([], [1])
    size = path.stat().st_size
    await asyncio.sleep(0)
    assert path.stat().st_size == size


@pytest.mark.parametrize("options", [{}, {"path": "no/such/folder/x"}, {"path": "."}, {"path": ""}, {"file": "x"}])
async def test_options_that_are_wrong_are_named(options: dict[str, object], tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="driver ledger"):
        sink(Settings("ledger", options, str(tmp_path)))
