"""The interface of code that runs is written down beside what the code consists of."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bank_fake import bank

from deathless.base.errors import UpgradeRefused
from deathless.base.limits import Limits
from deathless.execution.interface.interface import interface_of
from deathless.shell.service_code import interface_record
from deathless.shell.service_code.description import fingerprint_of
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.kept_code import keep

CODE = bytes(range(16))


def test_what_was_kept_comes_back_and_is_touched_when_it_runs_again(tmp_path: Path) -> None:
    interface_record.keep(tmp_path, CODE, bank, Limits())
    path = tmp_path / "code" / f"{CODE.hex()}.interface.json"
    os.utime(path, (1, 1))
    interface_record.keep(tmp_path, CODE, bank, Limits())
    assert path.stat().st_mtime > 1
    assert interface_record.recorded(tmp_path, CODE) == interface_of(bank, Limits())


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"format": 1}', b"\xff"])
def test_what_can_not_be_read_is_no_record(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / f"{CODE.hex()}.interface.json").write_bytes(content)
    assert interface_record.recorded(tmp_path, CODE) is None


def test_a_log_that_knows_the_code_in_the_way_of_older_releases_finds_its_interface(tmp_path: Path) -> None:
    code = describe(bank, Limits())
    assert keep(tmp_path, code, service="bank", module="bank_fake:bank")
    interface_record.keep(tmp_path, code.fingerprint, bank, Limits())
    older = fingerprint_of(code.former)
    assert older != code.fingerprint
    assert interface_record.needed(tmp_path, older) == interface_of(bank, Limits())


def test_an_upgrade_from_code_that_nobody_has_written_down_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        UpgradeRefused, match=f"no interface is recorded for the code that serves .{CODE.hex()}"
    ) as caught:
        interface_record.needed(tmp_path, CODE)
    assert "start a replica once with the code that serves" in caught.value.advice


def test_a_disk_that_refuses_stops_nobody(tmp_path: Path) -> None:
    (tmp_path / "code").touch()
    interface_record.keep(tmp_path, CODE, bank, Limits())
    assert interface_record.recorded(tmp_path, CODE) is None
