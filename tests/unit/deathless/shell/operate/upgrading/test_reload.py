"""What makes files count as changed; that a save is upgraded to shows tests/process/test_cli_dev.py."""

import os
from pathlib import Path

from deathless.shell.operate.upgrading.reload import signature_of


def test_files_left_alone_have_the_signature_they_had(tmp_path: Path) -> None:
    (one := tmp_path / "a.py").write_text("a")
    (two := tmp_path / "b.py").write_text("b")
    assert signature_of([one, two]) == signature_of([two, one, one])


def test_each_way_of_saving_changes_the_signature(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    found = {signature_of([path])}
    path.write_text("a")
    found.add(signature_of([path]))
    path.write_text("ab")
    found.add(signature_of([path]))
    os.utime(path, ns=(1, 1))
    found.add(signature_of([path]))
    (other := tmp_path / "new").write_text("ab")
    os.utime(other, ns=(1, 1))
    other.replace(path)
    found.add(signature_of([path]))
    assert len(found) == 5


def test_a_file_that_is_gone_counts_as_changed(tmp_path: Path) -> None:
    (path := tmp_path / "a.py").write_text("a")
    before = signature_of([path])
    path.unlink()
    assert signature_of([path]) != before
