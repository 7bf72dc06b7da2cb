"""A server of the lab is started, killed, revived, and leaves nothing."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

import pytest
from lab.server import ServerProcess


class Toy(ServerProcess):
    """It answers once it has written a file."""

    def __init__(self, script: str) -> None:
        super().__init__("Toy", "toy-", ready_s=60.0, poll_s=0.01)
        self.script = script

    def create(self) -> None:
        """See ServerProcess."""
        (self.folder / "made").touch()

    def command(self) -> Sequence[str]:
        """See ServerProcess."""
        return [sys.executable, "-c", self.script]

    def answers(self) -> bool:
        """See ServerProcess."""
        return (self.folder / "ready").exists()


READY = "import pathlib, signal; pathlib.Path('ready').touch(); signal.pause()"


def test_it_is_killed_revived_and_leaves_nothing() -> None:
    """One that runs is not revived."""
    with Toy(READY) as toy:
        assert (toy.folder / "made").exists()
        first = toy.pid
        assert not toy.revive()
        toy.freeze()
        toy.thaw()
        toy.kill()
        assert toy.process.returncode == -signal.SIGKILL
        assert toy.revive()
        assert toy.pid != first
        toy.stop()
        assert toy.process.returncode == -signal.SIGTERM
    assert not toy.folder.exists()


def test_one_that_does_not_start_says_what_it_printed() -> None:
    """And leaves nothing either."""
    toy = Toy("raise SystemExit('no room')")
    with pytest.raises(RuntimeError, match=r"Toy does not start: no room"), toy:
        pass
    assert not toy.folder.exists()
