"""Files that start this Python; no other file is touched."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deathless.base.errors import InvalidArgument
from deathless.cli.ambrosia.launchers import install


def test_launchers_run_and_pass_on_their_words_and_their_folder(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    paths = install(folder)
    assert [path.name for path in paths] == ["Ambrosia", "ImmortalCoordinator", "UnsafeDeregisterInstance"]
    assert install(folder) == paths
    words = ["RegisterInstance", "-i=counter", "-rp=1000", "-sp=1001", "-l", str(tmp_path / "the logs")]
    done = subprocess.run([paths[0], *words], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "The instance counter is registered.\n"), done.stderr
    assert "the logs" in (folder / "registrations" / "counter.json").read_text()


@pytest.mark.parametrize("name", ["Ambrosia", "ImmortalCoordinator", "UnsafeDeregisterInstance"])
def test_what_is_no_launcher_of_ours_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x7fELF")
    with pytest.raises(InvalidArgument, match=name):
        install(tmp_path)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"\x7fELF"]
