"""A process with the code of a log is started by an interpreter that ran it, or one of that version, or not at all."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec
import pytest

from deathless.base.errors import FormerCodeMissing
from deathless.base.limits import Limits
from deathless.shell.service_code.code_record import read_record
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.former_command import _version_of, former_command
from deathless.shell.service_code.kept_code import keep
from deathless.shell.service_code.loading import load_service

MODULE = str(Path(__file__).parents[4] / "process" / "bank_fake.py") + ":bank"


def kept(directory: Path) -> Path:
    code = describe(load_service(MODULE), Limits())
    assert keep(directory, code, service="bank", module=MODULE)
    return directory / "code" / code.fingerprint.hex()


@pytest.mark.parametrize(
    ("executable", "version", "told"),
    [
        (sys.executable, "", ""),
        ("/moved/python", "", ""),
        (sys.executable, "cpython 3.99.0", "was run by cpython 3.99.0, and"),
        ("/moved/python", "cpython 3.99.0", "/moved/python is gone"),
    ],
)
def test_command_names_an_interpreter_of_the_version_that_ran_it(
    tmp_path: Path, executable: str, version: str, told: str
) -> None:
    folder = kept(tmp_path)
    record = read_record(folder)
    assert record is not None
    parts = {**record.parts, "interpreter": version or record.parts["interpreter"]}
    changed = msgspec.structs.replace(record, executable=executable, parts=parts)
    (folder / "parts.json").write_bytes(msgspec.json.encode(changed))
    place = folder.rename(folder.with_name(changed.fingerprint.hex()))
    if not told:
        assert former_command(tmp_path, changed.fingerprint) == (sys.executable, place, MODULE)
        return
    with pytest.raises(FormerCodeMissing, match=told) as raised:
        former_command(tmp_path, changed.fingerprint)
    assert "install cpython 3.99.0" in raised.value.advice


def test_interpreter_that_is_another_program_is_not_taken_for_one(tmp_path: Path) -> None:
    assert _version_of("/bin/false") == ""
    assert _version_of(sys.executable) == _version_of(os.path.realpath(sys.executable))


def test_unknown_code_is_told(tmp_path: Path) -> None:
    with pytest.raises(FormerCodeMissing, match="is not kept in"):
        former_command(tmp_path, bytes(16))
