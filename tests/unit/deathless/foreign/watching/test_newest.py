"""The newest checkpoint is told by its name and its file alone."""

import os
from pathlib import Path

from deathless.base.foreign.binding import FOLDER
from deathless.foreign.checkpoints import Checkpoints, Head
from deathless.foreign.watching.newest import NONE, Newest, newest_checkpoint
from deathless.shell.disk.filesystem import RealFileSystem


def test_newest_checkpoint_is_told_with_its_size_and_time(tmp_path: Path) -> None:
    """What is still written, and whatever else stands in the folder, is none."""
    folder = Checkpoints(RealFileSystem(tmp_path), "r0")
    for position in (0, 40, 7):
        head = Head(service_id="ab" * 16, incarnation=1, position=position, records=1, length=5)
        writing = folder.begin(head)
        writing.write(b"state")
        assert writing.end()
    path = tmp_path / FOLDER / f"checkpoint-{40:020d}"
    os.utime(path, ns=(0, 5_000_000_000))
    (tmp_path / FOLDER / "checkpoint-later").write_bytes(b"")
    assert newest_checkpoint(str(tmp_path)) == Newest(40, path.stat().st_size, 5_000_000)


def test_nothing_is_told_where_there_is_none(tmp_path: Path) -> None:
    assert newest_checkpoint(str(tmp_path)) == NONE
    (tmp_path / FOLDER).mkdir()
    assert newest_checkpoint(str(tmp_path)) == NONE
