"""What is written into an exported log: from where, how far, and what is left out."""

from __future__ import annotations

import asyncio
import io
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import PeerConfig, ReplicaConfig, TlsConfig
from deathless.base.errors import InvalidArgument, RetryLater
from deathless.codec.frames import Frame, FrameKind
from deathless.engine.log.reader import LogReader
from deathless.engine.log.segment_scan import segment_path
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.lock_stores.inspection import Inspection, inspect
from deathless.shell.operate import log_export
from deathless.shell.operate.log_export import plan_export, write_export
from deathless.simulation.models.log_driver import LogDriver, messages_of

SECRET = "do-not-tell-this-token"
CONFIG = ReplicaConfig(
    service="bank",
    module="m:a",
    directory=".",
    replica="r1",
    client_listen="10.9.8.7:7401",
    token=SECRET,
    token_file="/etc/secret",
    tls=TlsConfig(certificate="/etc/tls.crt", key="/etc/tls.key", ca="/etc/ca.crt"),
    peers=(PeerConfig(name="shop", addresses=("10.1.1.1:7401",), token=SECRET, shards=3),),
    limits={"parked_max": 5},
    allow_any_file_system=True,
)


def driver_in(folder: Path) -> LogDriver:
    """A log with two epochs of calls: 1 to 3, a checkpoint behind 2, and 4 to 6."""
    folder.mkdir()
    filesystem = RealFileSystem(str(folder))
    first = LogDriver(filesystem, "r0", [])
    first.start()
    first.take_over()
    first.call(b"1")
    first.call(b"2")
    first.checkpoint()
    first.call(b"3")
    second = LogDriver(filesystem, "r1", [])
    second.start()
    second.take_over()
    for number in (4, 5, 6):
        second.call(b"%d" % number)
    second.idle()
    return second


def quiet(how_far: str) -> None:
    """Nobody watches."""
    assert how_far.startswith(("exported", "imported"))


def looked(folder: Path) -> Inspection:
    return asyncio.run(inspect(msgspec.structs.replace(CONFIG, directory=str(folder))))


def exported(folder: Path, start: int | None = None, to: int | None = None) -> dict[str, bytes]:
    """The files of an exported log."""
    out = io.BytesIO()
    with plan_export(looked(folder), start, to) as plan:
        write_export(plan, out, quiet)
    out.seek(0)
    with tarfile.open(fileobj=out) as archive:
        return {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]


def calls_in(folder: Path, files: dict[str, bytes], head: int) -> list[bytes]:
    """The messages that a reader finds in the files alone."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    reader = LogReader(RealFileSystem(str(folder)))
    frames: list[Frame] = [step.found.frame for step in reader.walk(reader.routes.find_oldest(head), judge=False)]
    return [message for frame in frames if frame.kind == FrameKind.DATA for message in messages_of(frame)]


def test_it_begins_with_the_newest_checkpoint_and_has_every_message_behind_it(tmp_path: Path) -> None:
    driver_in(tmp_path / "data")
    files = exported(tmp_path / "data")
    names = list(files)
    assert (names[:2], names[-1]) == (["exported.json", "replicas/r0/config.json"], "digests.json")
    told = msgspec.json.decode(files["exported.json"])
    assert told["firstLsn"] > 0
    assert [name.rpartition(".")[2] for name in names if name.startswith("checkpoints/")] == [
        "ckpt",
        "announced",
        "verified",
    ]
    found = calls_in(tmp_path / "other", files, told["head"])
    assert [call for call in found if call in (b"4", b"5", b"6")] == [b"4", b"5", b"6"]
    assert told["confirmedLsn"] == told["lastLsn"]


def test_run_from_the_beginning_takes_all_of_it(tmp_path: Path) -> None:
    driver_in(tmp_path / "data")
    files = exported(tmp_path / "data", 0)
    told = msgspec.json.decode(files["exported.json"])
    assert told["firstLsn"] == 0
    found = calls_in(tmp_path / "other", files, told["head"])
    assert [call for call in found if call.isdigit()] == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_it_ends_where_it_was_asked_to_in_the_epoch_that_this_is_of(tmp_path: Path) -> None:
    driver_in(tmp_path / "data")
    whole = msgspec.json.decode(exported(tmp_path / "data")["exported.json"])
    files = exported(tmp_path / "data", to=3)
    told = msgspec.json.decode(files["exported.json"])
    assert told["head"] <= whole["head"]
    assert told["confirmedLsn"] >= 3
    assert told["lastLsn"] < whole["lastLsn"]
    assert calls_in(tmp_path / "other", files, told["head"])


def test_segment_ends_behind_the_last_frame_that_was_whole(tmp_path: Path) -> None:
    driver = driver_in(tmp_path / "data")
    path = segment_path(driver.epoch, 0)
    files = exported(tmp_path / "data")
    (name,) = [name for name in files if name == path]
    assert 0 < len(files[name]) < (tmp_path / "data" / path).stat().st_size, "zeros behind it are left out"


def test_what_opens_doors_and_where_they_are_is_left_out(tmp_path: Path) -> None:
    driver_in(tmp_path / "data")
    config = exported(tmp_path / "data")["replicas/r0/config.json"]
    assert msgspec.json.decode(config) == {
        "service": "bank",
        "module": "m:a",
        "directory": ".",
        "replica": "r0",
        "peers": [{"name": "shop", "directory": "", "addresses": [], "token": "", "server_name": "", "shards": 3}],
        "limits": {"parked_max": 5},
    }
    assert SECRET.encode() not in b"".join(exported(tmp_path / "data").values())


@pytest.mark.parametrize(
    ("start", "to", "said"),
    [
        (9, 3, "--from 9 is above --to 3"),
        (None, 10_000, "--to 10000 is above the last confirmed message"),
    ],
)
def test_place_that_is_not_there_is_refused(tmp_path: Path, start: int | None, to: int, said: str) -> None:
    driver_in(tmp_path / "data")
    with pytest.raises(InvalidArgument, match=said):
        plan_export(looked(tmp_path / "data"), start, to)


def test_empty_log_is_refused(tmp_path: Path) -> None:
    driver_in(tmp_path / "data")
    look = looked(tmp_path / "data")
    with pytest.raises(InvalidArgument, match="is empty"):
        plan_export(replace(look, view=look.view._replace(head=0)))


def test_file_that_is_collected_meanwhile_has_it_begun_again_by_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver_in(tmp_path / "data")
    opened: list[object] = []

    def open_and_lose(export: log_export.Export, look: Inspection, ends: dict[tuple[int, int], int]) -> None:
        opens(export, look, ends)
        opened.extend(source.file for source in export.sources)
        raise FileNotFoundError(2, "gone", "log/e1")

    opens: Callable[[log_export.Export, Inspection, dict[tuple[int, int], int]], None] = log_export._open
    monkeypatch.setattr(log_export, "_open", open_and_lose)
    with pytest.raises(RetryLater, match="log/e1 was collected"):
        plan_export(looked(tmp_path / "data"))
    assert opened
    assert all(file.closed for file in opened)  # type: ignore[attr-defined]
