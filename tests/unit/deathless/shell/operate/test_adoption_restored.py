"""Going on from a log that is shorter than what was confirmed, or damaged: what is found, and what is written."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import CorruptFrame, HalfCopy, InvalidArgument, LogTruncated
from deathless.base.ids import ChainHash, Lsn
from deathless.codec.frames import BLOCK
from deathless.codec.witness import Point
from deathless.engine.lock.directory_lock import DirectoryLock
from deathless.engine.log.reader import LogReader
from deathless.engine.log.segment_scan import segment_path
from deathless.shell.directory.adopted import read_adoption
from deathless.shell.directory.identity import Identity, read_identities, write_identity
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.link.status_page import Page, open_page, page_path
from deathless.shell.operate.adoption_restored import RestorePlan, accept_restored, look_restored
from deathless.simulation.models.log_driver import SERVICE_ID, STORE, LogDriver, messages_of


class Shard:
    """A directory with a log of some calls."""

    def __init__(self, folder: Path, calls: int = 3) -> None:
        folder.mkdir()
        self.folder = folder
        self.config = ReplicaConfig(
            service="bank",
            module="m:a",
            directory=str(folder),
            replica="r0",
            allow_any_file_system=True,
        )
        self.fs = RealFileSystem(str(folder))
        self.driver = LogDriver(self.fs, "r0", [])
        self.driver.start()
        self.driver.take_over()
        for number in range(calls):
            assert self.driver.call(b"%d" % number)
        write_identity(str(folder), "r0", Identity("bank", SERVICE_ID, 7, "seal", STORE))

    def witness(self, lsn: int) -> None:
        open_page(str(self.folder), "r0").begin_reign(Point(SERVICE_ID, 7, 1, lsn, bytes(16), by="r0"))

    def look(self, *, cut_only: bool = False) -> RestorePlan:
        return asyncio.run(look_restored(self.config, cut_only=cut_only))

    def flip(self, path: str, offset: int) -> None:
        with (self.folder / path).open("r+b") as file:
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1]))

    def calls(self) -> list[bytes]:
        """What a successor finds."""
        view = DirectoryLock(self.fs, process="look", fresh_store_id="").view()
        tail = LogReader(self.fs).read_tail(view.head, 0, bytes(16), 0)
        return [message for frame, _ in [*tail.confirmed, *tail.unconfirmed] for message in messages_of(frame)]


@pytest.fixture
def shard(tmp_path: Path) -> Shard:
    return Shard(tmp_path / "data")


def told(plan: RestorePlan) -> str:
    return " ".join(f"{each.what} {each.effect}" for each in plan.differences)


def test_what_a_witness_knows_beyond_the_end_is_given_up_and_a_new_incarnation_begins(shard: Shard) -> None:
    shard.witness(50)
    (shard.folder / "members").mkdir()
    (shard.folder / "members" / "r0.json").write_text("{}")
    plan = shard.look()
    assert "lsn 50 was confirmed" in told(plan)
    assert "47 messages, acknowledged to their senders, are given up" in told(plan)
    assert not (shard.folder / "adopted.json").exists(), "nothing is written by a look"
    asyncio.run(accept_restored(plan))
    adoption = read_adoption(str(shard.folder))
    assert adoption.former == [7]
    assert adoption.incarnation not in {0, 7}
    assert adoption.hold_outside
    assert read_identities(str(shard.folder))["r0"].incarnation == adoption.incarnation
    assert list((shard.folder / "members").iterdir()) == []
    point = Page(page_path(str(shard.folder), "r0")).read_confirmed()
    assert point is not None
    assert (point.incarnation, point.lsn, point.final) == (adoption.incarnation, 3, True)
    assert shard.calls() == [b"0", b"1", b"2"]


def test_a_second_restore_gives_up_the_incarnation_of_the_first_too(shard: Shard) -> None:
    asyncio.run(accept_restored(shard.look()))
    first = read_adoption(str(shard.folder)).incarnation
    plan = shard.look()
    assert "nothing here knows how much was confirmed" not in told(plan) or plan.seen == []
    asyncio.run(accept_restored(plan))
    assert read_adoption(str(shard.folder)).former == sorted([7, first])


def test_a_damaged_end_that_nobody_was_told_of_is_cut_and_the_incarnation_stays(shard: Shard) -> None:
    path = segment_path(1, 0)
    offset = shard.driver.log.last_place()[1]
    shard.flip(path, offset + 140)
    with pytest.raises(CorruptFrame):
        shard.calls()
    shard.witness(2)
    plan = shard.look(cut_only=True)
    assert f"offset {offset}" in told(plan)
    asyncio.run(accept_restored(plan))
    assert shard.calls() == [b"0", b"1"]
    assert not (shard.folder / "adopted.json").exists()
    point = Page(page_path(str(shard.folder), "r0")).read_confirmed()
    assert point is not None
    assert point.incarnation == 7


def test_cutting_what_a_witness_knows_is_refused(shard: Shard) -> None:
    shard.flip(segment_path(1, 0), shard.driver.log.last_place()[1] + 140)
    shard.witness(3)
    with pytest.raises(InvalidArgument, match="1 messages after lsn 2 were confirmed"):
        shard.look(cut_only=True)


def test_a_log_that_ends_well_has_nothing_to_cut(shard: Shard) -> None:
    with pytest.raises(InvalidArgument, match="nothing to cut"):
        shard.look(cut_only=True)


def test_a_log_that_went_back_behind_the_locks_head_goes_on_from_what_it_has(shard: Shard) -> None:
    other = LogDriver(shard.fs, "r1", [])
    other.start()
    other.take_over()
    other.call(b"newer")
    (shard.folder / segment_path(2, 0)).unlink()
    asyncio.run(accept_restored(shard.look()))
    assert shard.calls() == [b"0", b"1", b"2"]


def test_damage_before_the_last_takeover_can_not_be_passed(shard: Shard) -> None:
    other = LogDriver(shard.fs, "r1", [])
    other.start()
    other.take_over()
    other.call(b"newer")
    shard.flip(segment_path(1, 0), 2 * BLOCK + 140)
    with pytest.raises(CorruptFrame, match="before the last takeover"):
        shard.look()


def test_a_directory_that_nothing_is_known_of_is_refused(tmp_path: Path) -> None:
    config = msgspec.structs.replace(Shard(tmp_path / "a").config, directory=str(tmp_path / "b"))
    (tmp_path / "b").mkdir()
    with pytest.raises(HalfCopy, match="knows no service"):
        asyncio.run(look_restored(config, cut_only=False))


def checkpoint(shard: Shard, chain: bytes, *, lsn: int, announced: bool = True) -> Path:
    """A checkpoint at a place that may be on the log or not; gives its file."""
    snapshot = replace(shard.driver.snapshot(), lsn=Lsn(lsn), chain=ChainHash(chain))
    name = shard.driver.checkpoints.write(snapshot)
    if announced:
        shard.driver.checkpoints.announce(name)
    return shard.folder / "checkpoints" / name


def test_checkpoints_of_another_history_are_given_up_with_their_marks_wherever_they_stand(shard: Shard) -> None:
    own = shard.folder / "checkpoints" / shard.driver.checkpoint()
    within, beyond = checkpoint(shard, bytes(16), lsn=2), checkpoint(shard, bytes(16), lsn=9)
    plan = shard.look()
    assert within.name in told(plan)
    assert f"lsn 9 was confirmed (checkpoints/{beyond.name})" in told(plan)
    assert "6 messages, acknowledged to their senders, are given up" in told(plan)
    asyncio.run(accept_restored(plan))
    assert {path.name.partition(".ckpt")[0] for path in own.parent.iterdir()} == {own.stem}
    loaded = shard.driver.checkpoints.load_newest()
    assert loaded is not None
    assert LogReader(shard.fs).read(2, loaded.lsn, loaded.chain, bytes_max=1) == ([], True), "it lies on the log"


def test_an_end_is_not_cut_where_a_checkpoint_shows_what_was_confirmed_behind_it(shard: Shard) -> None:
    last = shard.driver.chain
    shard.flip(segment_path(1, 0), shard.driver.log.last_place()[1] + 140)
    behind = checkpoint(shard, last, lsn=3, announced=False)
    plan = shard.look(cut_only=True)
    assert behind.name in told(plan)
    checkpoint(shard, last, lsn=3)
    with pytest.raises(InvalidArgument, match="1 messages after lsn 2 were confirmed"):
        shard.look(cut_only=True)
    behind.with_name(f"{behind.name}.announced").unlink()
    asyncio.run(accept_restored(plan))
    assert not behind.exists(), "nobody may load it, and the next of its lsn has another chain"
    assert shard.calls() == [b"0", b"1"]


def test_a_log_whose_beginning_nothing_of_its_history_holds_can_not_be_gone_on_from(shard: Shard) -> None:
    for number in range(30):
        assert shard.driver.call(b"x" * 3000, b"%d" % number)
    shard.driver.idle()
    own = shard.driver.checkpoint()
    shard.driver.log.collect(30)
    asyncio.run(look_restored(shard.config, cut_only=False))
    shard.driver.checkpoints.remove([own])
    checkpoint(shard, bytes(16), lsn=32)
    with pytest.raises(LogTruncated, match="no checkpoint of its history"):
        shard.look()
