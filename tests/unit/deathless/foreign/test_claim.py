"""An upgrade and replicas' programs are never there at once."""

import errno
import fcntl
from pathlib import Path

import pytest

from deathless.base.errors import ProgramClaimed
from deathless.foreign.claim import claim


def refused(directory: str, *, alone: bool) -> None:
    with pytest.raises(ProgramClaimed), claim(directory, alone=alone):
        pass


def test_replicas_share_it_and_an_upgrade_has_it_alone(tmp_path: Path) -> None:
    """Whoever comes second is refused, until the first has let go."""
    directory = str(tmp_path)
    with claim(directory, alone=False), claim(directory, alone=False):
        refused(directory, alone=True)
    with claim(directory, alone=True):
        refused(directory, alone=True)
        refused(directory, alone=False)
    with claim(directory, alone=False):
        pass


def test_storage_without_locks_keeps_no_replica_from_running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nobody upgrades there, since nobody knows who runs."""

    def refuses(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(fcntl, "flock", refuses)
    with claim(str(tmp_path), alone=False):
        pass
    with pytest.raises(OSError, match="no locks"), claim(str(tmp_path), alone=True):
        pass


def test_whoever_had_it_alone_shares_it_from_then_on(tmp_path: Path) -> None:
    """Without a moment in which nobody has it that would let two have it alone."""
    directory = str(tmp_path)
    with claim(directory, alone=True) as held:
        refused(directory, alone=False)
        held.share()
        with claim(directory, alone=False):
            refused(directory, alone=True)
    with claim(directory, alone=True) as held:
        assert held.alone
