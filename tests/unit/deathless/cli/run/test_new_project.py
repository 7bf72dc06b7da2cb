"""The files of a new project."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless.base.errors import InvalidArgument
from deathless.cli.run.new_project import FILES, write_project
from deathless.shell.service_code.loading import load_service


def test_the_files_are_those_of_a_service_of_this_name(tmp_path: Path) -> None:
    folder = tmp_path / "projects" / "my-bank"
    assert write_project("my-bank", folder) == list(FILES)
    assert sorted(path.name for path in folder.iterdir()) == sorted(FILES)
    assert all("@NAME@" not in path.read_text() for path in folder.iterdir())
    assert load_service(f"{folder}/service.py:service").name == "my-bank"


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    write_project("bank", tmp_path)
    assert (tmp_path / "service.yaml").is_file()


def test_a_folder_that_holds_something_stays_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "precious").touch()
    for folder in (tmp_path, tmp_path / "precious"):
        with pytest.raises(InvalidArgument, match="not an empty folder"):
            write_project("bank", folder)
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


@pytest.mark.parametrize("name", ["", "My-Bank", "bank_1", "-bank", "b" * 41])
def test_a_name_that_no_service_can_have_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="NAME"):
        write_project(name, tmp_path / "new")
    assert not (tmp_path / "new").exists()
