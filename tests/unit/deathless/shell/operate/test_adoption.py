"""Nothing is adopted beside a living replica, whichever of its locks that holds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deathless.base.errors import InvalidArgument, OtherSupervisor
from deathless.shell.disk.holders import take
from deathless.shell.operate.adoption import refuse_while_running


@pytest.mark.parametrize("name", ["supervisor.lock", "supervisor.0a1b2c.lock"])
def test_replica_that_holds_its_lock_is_named(tmp_path: Path, name: str) -> None:
    """A pod's instance has a lock of its own, which its uid names."""
    for replica in ("r0", "r1"):
        (tmp_path / "replicas" / replica).mkdir(parents=True)
    path = tmp_path / "replicas" / "r1" / name
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
    try:
        os.write(descriptor, b"4711\n")
        refuse_while_running(str(tmp_path))
        take(descriptor)
        with pytest.raises(OtherSupervisor, match="replica r1 is running"):
            refuse_while_running(str(tmp_path))
    finally:
        os.close(descriptor)
    refuse_while_running(str(tmp_path))


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="is not a folder"):
        refuse_while_running(str(tmp_path / "nothing"))
