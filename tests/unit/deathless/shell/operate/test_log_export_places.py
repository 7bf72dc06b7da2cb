"""Wherever the checkpoint stands and whatever the last message is, an exported log gives what the original gives.

The log has three epochs of several files each, frames of several messages, an epoch without messages of its own, and a
frame that its epoch lost. At every place of it, one after the other, stands the one checkpoint.
"""

from __future__ import annotations

import asyncio
import io
import shutil
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.codec.snapshot import Snapshot
from deathless.engine.log.checkpoint_store import CheckpointStore
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.lock_stores.exported import Exported
from deathless.shell.lock_stores.inspection import Inspection, inspect
from deathless.shell.operate.log_export import plan_export, write_export
from deathless.shell.operate.log_import import read_import
from deathless.shell.operate.replay import frames_between, survey
from deathless.shell.operate.verification import Verification, verify_log
from deathless.simulation.models.log_driver import LogDriver, messages_of

CONFIG = ReplicaConfig(service="bank", module="m:a", directory=".", replica="r1", allow_any_file_system=True)


def looked(folder: Path) -> Inspection:
    return asyncio.run(inspect(msgspec.structs.replace(CONFIG, directory=str(folder))))


def quiet(how_far: str) -> None:
    """Nobody watches."""
    assert how_far


@dataclass
class Original:
    """A log, and the snapshot behind each of its frames of messages."""

    folder: Path
    snapshots: list[Snapshot]
    messages: list[bytes]


def make_original(folder: Path) -> Original:
    folder.mkdir()
    snapshots: list[Snapshot] = []
    messages: list[bytes] = []
    for epoch, frames in enumerate((9, 0, 14, 7), 1):
        driver = LogDriver(RealFileSystem(str(folder)), f"r{epoch}", [])
        driver.start()
        driver.take_over()
        for number in range(frames):
            driver.call(*(b"%d.%d.%d" % (epoch, number, each) for each in range(1 + number % 3)))
            snapshots.append(driver.snapshot())
        if epoch < 4:
            driver.call_unsynced(b"%d.last" % epoch, b"%d.last too" % epoch)
            snapshots += [] if epoch == 2 else [driver.snapshot()]
        else:
            driver.idle()
        messages = driver.applied
    return Original(folder, snapshots, messages)


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Original:
    return make_original(tmp_path_factory.mktemp("places") / "original")


def with_checkpoint(original: Original, folder: Path, snapshot: Snapshot) -> Path:
    """A copy of the log with one checkpoint in it."""
    shutil.copytree(original.folder, folder, ignore=shutil.ignore_patterns("spare*"))
    checkpoints = CheckpointStore(RealFileSystem(str(folder)), "r9")
    name = checkpoints.write(snapshot)
    checkpoints.announce(name)
    checkpoints.verify(name)
    return folder


def carried(folder: Path, to_folder: Path, start: int | None, to: int | None) -> Exported:
    """Export and import."""
    out = io.BytesIO()
    with plan_export(looked(folder), start, to) as plan:
        write_export(plan, out, quiet)
    out.seek(0)
    return read_import(out, "file", to_folder, quiet)


def judge(original: Original, folder: Path, told: Exported, to: int) -> None:
    """Run what is in the folder: from its checkpoint, each message behind it once, and sound."""
    look = looked(folder)
    found = survey(look, ())
    assert found.confirmed == told.confirmed_lsn >= to
    begun: list[bytes] = []
    if told.first_lsn:
        (checkpoint,) = look.checkpoints.names()
        assert checkpoint.lsn == told.first_lsn
        assert found.chains[checkpoint.lsn] == checkpoint.chain
        loaded = look.checkpoints.load(checkpoint.name)
        begun = [loaded.state[key] for key in sorted(loaded.state)]
    frames = list(frames_between(look, told.first_lsn, to))
    for frame in frames:
        assert frame.first_lsn == len(begun) + 1
        begun += messages_of(frame)
    assert begun[:to] == original.messages[:to]
    report: Verification = asyncio.run(verify_log(msgspec.structs.replace(CONFIG, directory=str(folder)), run=False))
    assert (report.problems, report.last_lsn) == ([], told.last_lsn)


def test_every_place_of_the_checkpoint_gives_the_whole_rest(original: Original, tmp_path: Path) -> None:
    for number, snapshot in enumerate(original.snapshots):
        folder = with_checkpoint(original, tmp_path / f"o{number}", snapshot)
        told = carried(folder, tmp_path / f"i{number}", None, None)
        assert (told.first_lsn, told.last_lsn) == (snapshot.lsn, len(original.messages))
        judge(original, tmp_path / f"i{number}", told, told.last_lsn)
        shutil.rmtree(folder)


def test_every_last_message_that_is_asked_for_gives_all_up_to_it(original: Original, tmp_path: Path) -> None:
    folder = with_checkpoint(original, tmp_path / "o", original.snapshots[len(original.snapshots) // 2])
    for to in range(1, len(original.messages) + 1):
        told = carried(folder, tmp_path / f"i{to}", None, to)
        judge(original, tmp_path / f"i{to}", told, to)


def test_checkpoint_that_the_last_message_has_no_part_in_is_left_out(original: Original, tmp_path: Path) -> None:
    for number, snapshot in enumerate(original.snapshots):
        folder = with_checkpoint(original, tmp_path / f"o{number}", snapshot)
        for to in {max(1, snapshot.lsn - 1), snapshot.lsn, min(snapshot.lsn + 1, len(original.messages))}:
            told = carried(folder, tmp_path / f"i{number}.{to}", None, to)
            assert told.first_lsn == (snapshot.lsn if to >= snapshot.lsn else 0)
            judge(original, tmp_path / f"i{number}.{to}", told, to)
        shutil.rmtree(folder)
