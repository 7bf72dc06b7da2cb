"""The code that wrote a log is kept with it, whole, and can be run from there."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from deathless.base.errors import FormerCodeMissing
from deathless.base.limits import Limits
from deathless.shell.service_code import kept_code, kept_import
from deathless.shell.service_code.code_record import CodeRecord, read_record, recorded
from deathless.shell.service_code.description import Description, fingerprint_of
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.service_code.former_command import former_command
from deathless.shell.service_code.kept_code import (
    edited_since,
    former_spellings,
    is_kept,
    keep,
    modules_in,
    prune,
)
from deathless.shell.service_code.loading import load_kept, load_service

TEXT = """
from deathless import Context, Service, Struct
from purse_rates import RATE
class Purse(Struct):
    total: int = 0
purse = Service("purse", state=Purse)
@purse.handler
def add(state: Purse, ctx: Context, amount: int) -> int:
    state.total += amount * RATE
    return state.total
"""


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    before = list(sys.path)
    yield
    kept_import.remove()
    sys.path[:] = before
    for name in ("purse_service", "purse_rates"):
        sys.modules.pop(name, None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "tree"
    folder.mkdir()
    (folder / "purse_rates.py").write_text("RATE = 2\n")
    (folder / "purse_service.py").write_text(TEXT)
    return folder / "purse_service.py"


def described(path: Path) -> Description:
    for name in ("purse_service", "purse_rates"):
        sys.modules.pop(name, None)
    return describe(load_service(f"{path}:purse"), Limits())


def kept(directory: Path, path: Path) -> Description:
    code = described(path)
    assert keep(directory, code, service="purse", module=f"{path}:purse")
    return code


def test_code_is_kept_whole_and_says_where_it_came_from(tmp_path: Path, path: Path) -> None:
    code = kept(tmp_path / "log", path)
    found = recorded(tmp_path / "log", code.fingerprint)
    assert found is not None
    assert found.folder is not None
    record = found.record
    assert (record.parts, record.former, record.kept) == (code.parts, code.former, True)
    assert (record.module, record.service, record.executable) == (f"{path}:purse", "purse", sys.executable)
    assert (found.folder / "files" / "purse_service.py").read_text() == TEXT
    assert recorded(tmp_path / "log", fingerprint_of(code.former)) == found, "found in the way of older releases too"
    assert sorted(os.listdir(tmp_path / "log" / "code")) == [code.fingerprint.hex()], "nothing half written is left"
    assert is_kept(tmp_path / "log", code.fingerprint)


def test_kept_code_runs_as_it_was_whatever_became_of_the_files(tmp_path: Path, path: Path) -> None:
    code = kept(tmp_path / "log", path)
    path.write_text(TEXT.replace("+=", "-="))
    (path.parent / "purse_rates.py").unlink()
    _, folder, module = former_command(tmp_path / "log", code.fingerprint)
    assert sorted(edited_since(folder)) == [str(path.parent / "purse_rates.py"), str(path)]
    asked = (
        "import sys; from deathless.base.limits import Limits; "
        "from deathless.shell.service_code.loading import fingerprint, load_kept; "
        "print(fingerprint(load_kept(sys.argv[1], sys.argv[2]), Limits()).hex())"
    )
    done = subprocess.run(
        [sys.executable, "-c", asked, str(folder), module], capture_output=True, text=True, check=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )  # fmt: skip
    assert done.stdout.strip() == code.fingerprint.hex()


def test_code_is_loaded_from_its_copy_where_the_project_has_moved(tmp_path: Path, path: Path) -> None:
    code = kept(tmp_path / "log", path)
    path.parent.rename(tmp_path / "moved")
    sys.modules.pop("purse_service")
    folder = former_command(tmp_path / "log", code.fingerprint).folder
    service = load_kept(folder, f"{tmp_path / 'moved'}/purse_service.py:purse")
    assert describe(service, Limits()).fingerprint == code.fingerprint


def test_files_that_are_edited_meanwhile_are_not_kept_as_what_they_were(tmp_path: Path, path: Path) -> None:
    code = described(path)
    path.write_text(TEXT.replace("+=", "-="))
    assert not keep(tmp_path / "log", code, service="purse", module=str(path))
    assert not (tmp_path / "log" / "code").exists()


def test_too_much_code_is_not_kept_and_that_is_said_once(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(kept_code, "KEPT_BYTES_MAX", 100)
    code = described(path)
    with caplog.at_level(logging.WARNING, "deathless.code"):
        for _ in range(2):
            assert not keep(tmp_path, code, service="purse", module=str(path))
    assert len(caplog.records) == 1
    found = recorded(tmp_path, code.fingerprint)
    assert found is not None, "what it consists of is written down all the same"
    assert (found.record.kept, found.record.files) == (False, {})
    with pytest.raises(FormerCodeMissing):
        former_command(tmp_path, code.fingerprint)


def test_a_replica_starts_where_nothing_can_be_kept(tmp_path: Path, path: Path) -> None:
    (tmp_path / "code").write_bytes(b"in the way")
    code = described(path)
    assert not keep(tmp_path, code, service="purse", module=str(path))
    assert former_spellings(tmp_path, code) == frozenset()
    prune(tmp_path, set)


def test_another_replica_that_was_faster_is_not_disturbed(tmp_path: Path, path: Path) -> None:
    code = kept(tmp_path, path)
    folder = tmp_path / "code" / code.fingerprint.hex()
    record = read_record(folder)
    assert record is not None
    kept_code._write(folder, msgspec.structs.replace(record, module="later"), {})
    assert read_record(folder) == record


@pytest.mark.parametrize("change", ["edited", "gone", "elsewhere"])
def test_copy_that_is_not_what_was_kept_is_not_run(tmp_path: Path, path: Path, change: str) -> None:
    code = kept(tmp_path, path)
    folder = tmp_path / "code" / code.fingerprint.hex()
    copy = folder / "files" / "purse_rates.py"
    if change == "edited":
        copy.write_text("RATE = 3\n")
    elif change == "gone":
        copy.unlink()
    else:
        copy.unlink()
        copy.symlink_to(path.parent / "purse_rates.py")
    with pytest.raises(FormerCodeMissing, match=r"purse_rates\.py"):
        modules_in(folder)
    assert not is_kept(tmp_path, code.fingerprint)
    with pytest.raises(FormerCodeMissing):
        former_command(tmp_path, code.fingerprint)


def test_log_of_an_older_release_goes_on_after_a_comment_was_changed(tmp_path: Path, path: Path) -> None:
    before = kept(tmp_path, path)
    path.write_text(TEXT + "# a comment\n")
    after = described(path)
    spelled = fingerprint_of(before.former)
    assert spelled not in after.spellings
    assert former_spellings(tmp_path, after) == {spelled}
    path.write_text(TEXT.replace("+=", "-="))
    assert former_spellings(tmp_path, described(path)) == frozenset()


def test_spelling_counts_only_if_the_kept_files_have_it(tmp_path: Path, path: Path) -> None:
    code = kept(tmp_path, path)
    folder = tmp_path / "code" / code.fingerprint.hex()
    record = read_record(folder)
    assert record is not None
    for former in ({**record.former, "source purse_rates": "ab"}, {**record.former, "library msgspec": "0"}):
        (folder / "parts.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(record, former=former)))
        assert former_spellings(tmp_path, code) == frozenset()
    other_zones = {**record.former, "time zones": "system of another day"}
    (folder / "parts.json").write_bytes(msgspec.json.encode(msgspec.structs.replace(record, former=other_zones)))
    assert former_spellings(tmp_path, code) == {fingerprint_of(other_zones)}, "no zone is used: their rules say nothing"


def test_old_code_is_removed_but_not_what_the_log_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_code, "KEPT_MAX", 2)
    records = [CodeRecord(parts={"n": str(n)}, former={"f": str(n)}) for n in range(6)]
    for n, record in enumerate(records):
        folder = tmp_path / "code" / record.fingerprint.hex()
        kept_code._write(folder, record, {})
        os.utime(folder / "parts.json", (n, n))
    abandoned = tmp_path / "code" / ".half.1.ab"
    abandoned.mkdir()
    os.utime(abandoned, (1, 1))
    prune(tmp_path, lambda: None)
    assert len(list((tmp_path / "code").iterdir())) == 6, "what can't be told is not removed; a half one is"
    prune(tmp_path, lambda: {records[0].fingerprint, fingerprint_of(records[1].former)})
    left = {each.name for each in (tmp_path / "code").iterdir()}
    assert left == {records[n].fingerprint.hex() for n in (0, 1, 4, 5)}


def test_a_clock_that_stepped_ahead_removes_a_half_written_copy_and_keeps_nobody_from_starting(
    tmp_path: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = described(path)

    def swept(folder: Path) -> None:
        if folder.name.startswith("."):
            monkeypatch.setattr(time, "time", lambda: 1e12)
            prune(tmp_path, set)

    monkeypatch.setattr(kept_code, "sync_folder", swept)
    assert not keep(tmp_path, code, service="purse", module=str(path))
    monkeypatch.undo()
    assert keep(tmp_path, code, service="purse", module=str(path))
