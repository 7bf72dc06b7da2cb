"""Checkpoints of an application are whole or not there, and what is damaged is never given."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from deathless.base.foreign.binding import FOLDER
from deathless.foreign.checkpoints import (
    CheckpointDamaged,
    Checkpoints,
    Head,
    decode_lanes,
    encode_lanes,
)
from deathless.protocols.ambrosia.lanes import Expectation, Kept, LaneState
from deathless.protocols.ambrosia.messages import SELF, Kind, Oversized, make_call
from deathless.shell.disk.filesystem import RealFileSystem

LANES = (
    LaneState(
        target="bank/alice",
        floor=2,
        chain=b"12345678",
        emitted=4,
        kept=(
            Kept(make_call("bank/alice", 7, Kind.ASYNC, b"!", name="", sequence=3), b"abcdefgh"),
            Kept(
                Oversized(destination="bank/alice", kind=Kind.FORK, method=1, name="", sequence=0, size=9), b"ijklmnop"
            ),
        ),
        expected=(Expectation(9, b"87654321", b"shape", 12),),
    ),
    LaneState(target=SELF, floor=0, chain=bytes(8), emitted=0, kept=(), expected=()),
)


def head(position: int, length: int, **more: Any) -> Head:
    return Head(service_id="ab" * 16, incarnation=7, position=position, records=3, length=length, **more)


def folder(path: Path, writer: str = "r0") -> Checkpoints:
    return Checkpoints(RealFileSystem(path), writer)


def write(checkpoints: Checkpoints, position: int, blob: bytes, **more: bytes) -> bool:
    writing = checkpoints.begin(head(position, len(blob), **more))
    for at in range(0, len(blob), 3):
        writing.write(blob[at : at + 3])
    return writing.end()


def names(path: Path) -> list[str]:
    return sorted(each.name for each in (path / FOLDER).iterdir())


def test_lanes_come_back_as_they_were() -> None:
    """Items that were too long as well, and what is expected."""
    assert decode_lanes(encode_lanes(LANES)) == LANES


def test_what_was_written_is_given_back(tmp_path: Path) -> None:
    """Head and bytes, in pieces."""
    checkpoints = folder(tmp_path)
    assert checkpoints.positions() == []
    assert write(checkpoints, 0, b"", initial=b"begin", lanes=encode_lanes(LANES))
    assert write(checkpoints, 12, b"state of the application")
    assert checkpoints.positions() == [12, 0]
    found = folder(tmp_path, "r1").look(12)
    assert found.head == head(12, 24)
    assert b"".join(checkpoints.blob(found)) == b"state of the application"
    assert decode_lanes(checkpoints.look(0).head.lanes) == LANES


def test_every_damaged_byte_is_found(tmp_path: Path) -> None:
    """And every length that a file was cut to."""
    checkpoints = folder(tmp_path)
    write(checkpoints, 5, b"state")
    (path,) = (tmp_path / FOLDER).iterdir()
    whole = path.read_bytes()
    damaged = [whole[:at] + bytes([whole[at] ^ 0x20]) + whole[at + 1 :] for at in range(len(whole))]
    for data in [*damaged, *(whole[:at] for at in range(len(whole))), whole + b"\0"]:
        path.write_bytes(data)
        with pytest.raises(CheckpointDamaged):
            checkpoints.look(5)
    path.write_bytes(whole)
    path.rename(path.with_name("checkpoint-00000000000000000006"))
    with pytest.raises(CheckpointDamaged, match="of position 5"):
        checkpoints.look(6)


def test_of_two_writers_of_one_position_the_first_counts(tmp_path: Path) -> None:
    """Whatever they write at the same time."""
    one, other = folder(tmp_path), folder(tmp_path, "r1")
    first, second = one.begin(head(0, 1)), other.begin(head(0, 1))
    first.write(b"a")
    second.write(b"b")
    assert second.end()
    assert not first.end()
    assert b"".join(one.blob(one.look(0))) == b"b"
    assert names(tmp_path) == ["checkpoint-00000000000000000000"]


def test_one_that_did_not_become_whole_leaves_nothing(tmp_path: Path) -> None:
    """Neither one that is given up, nor that of a process that died."""
    checkpoints = folder(tmp_path)
    checkpoints.begin(head(3, 5)).drop()
    assert names(tmp_path) == []
    checkpoints.begin(head(3, 5)).write(b"st")
    assert checkpoints.positions() == []
    assert write(checkpoints, 4, b"state")
    assert names(tmp_path) == ["checkpoint-00000000000000000004"]


def test_the_newest_two_stay(tmp_path: Path) -> None:
    """The older one is there if the newest is damaged."""
    checkpoints = folder(tmp_path)
    for position in (0, 5, 9, 12):
        write(checkpoints, position, b"s")
    assert checkpoints.forget() == [12, 9]
    assert checkpoints.positions() == [12, 9]
    assert checkpoints.forget() == [12, 9]


def test_all_stay_where_none_is_to_go(tmp_path: Path) -> None:
    """Whoever runs a log again from its beginning needs the first one."""
    checkpoints = folder(tmp_path)
    for position in (0, 5, 9, 12):
        write(checkpoints, position, b"s")
    assert checkpoints.forget(0) == [12, 9, 5, 0] == checkpoints.positions()


def test_version_is_that_of_the_newest_one(tmp_path: Path) -> None:
    """It is read from the head alone, also where the rest is damaged."""
    checkpoints = folder(tmp_path)
    assert checkpoints.version() == -1
    for position, version in ((0, 0), (5, 3)):
        writing = checkpoints.begin(msgspec.structs.replace(head(position, 1), version=version))
        writing.write(b"s")
        assert writing.end()
    assert (checkpoints.version(), checkpoints.head(0).version) == (3, 0)
    path = tmp_path / "application" / f"checkpoint-{5:020d}"
    path.write_bytes(path.read_bytes()[:-1])
    assert checkpoints.version() == 3
    path.write_bytes(b"no checkpoint at all")
    with pytest.raises(CheckpointDamaged):
        checkpoints.version()


def test_what_an_earlier_process_of_the_replica_left_is_removed_and_no_other_replicas(tmp_path: Path) -> None:
    """A pod's name for its files is another one each time; what it left may be as large as the state."""
    other = folder(tmp_path, "r1.b").begin(head(3, 5))
    folder(tmp_path, "r0.a").begin(head(3, 5)).write(b"st")
    assert write(folder(tmp_path, "r0.c"), 4, b"state")
    assert names(tmp_path) == ["checkpoint-00000000000000000004", "partial-r1.b"]
    other.drop()


def test_head_of_any_length_is_read_again(tmp_path: Path) -> None:
    """A program may emit as much as it likes to one call, and all that is not logged stands there."""
    assert write(folder(tmp_path), 4, b"state", lanes=bytes(65 << 20))
    assert len(folder(tmp_path).look(4).head.lanes) == 65 << 20


def test_bytes_are_read_to_their_end_whoever_removes_the_checkpoint(tmp_path: Path) -> None:
    checkpoints = folder(tmp_path)
    assert write(checkpoints, 12, b"state of the application")
    blob = checkpoints.blob(checkpoints.look(12))
    checkpoints.forget(kept=1)
    (tmp_path / FOLDER / names(tmp_path)[0]).unlink()
    assert b"".join(blob) == b"state of the application"
    blob.close()
    assert list(blob) == [], "it is closed"
