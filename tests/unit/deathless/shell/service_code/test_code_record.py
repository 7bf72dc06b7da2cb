"""What code consists of is written down beside its log, so that a refusal (UpgradeRequired) can say what differs."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from deathless.shell.service_code import code_record
from deathless.shell.service_code.fingerprint import fingerprint_of

OLD = {"source shop.service": "aa", "interpreter": "cpython 3.11.7", "library msgspec": "0.19"}
NEW = {"source shop.service": "bb", "interpreter": "cpython 3.11.7", "interpreter flags": "optimize 2"}


def test_refusal_names_each_part_that_differs(tmp_path: Path) -> None:
    code_record.keep(tmp_path, OLD)
    assert code_record.recorded(tmp_path, fingerprint_of(OLD)) == OLD
    assert code_record.what_differs(tmp_path, fingerprint_of(OLD), NEW) == (
        "interpreter flags is new (optimize 2); library msgspec is gone (was 0.19); "
        "source shop.service changed from aa to bb"
    )


def test_many_differences_are_counted(tmp_path: Path) -> None:
    old, new = ({f"library {n:02}": version for n in range(20)} for version in "12")
    code_record.keep(tmp_path, old)
    told = code_record.what_differs(tmp_path, fingerprint_of(old), new)
    assert told.count("changed from 1 to 2") == code_record.DIFFERENCES_MAX
    assert told.endswith("; and 12 more")


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"a": 1}', b'{"another": "code"}', b"\xff"])
def test_what_nobody_wrote_down_or_what_can_not_be_read_leaves_a_refusal_without_its_list(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "code").mkdir()
        (tmp_path / "code" / f"{fingerprint_of(OLD).hex()}.json").write_bytes(content)
    assert code_record.what_differs(tmp_path, fingerprint_of(OLD), NEW) == ""


def test_a_replica_starts_where_nothing_can_be_written_down(tmp_path: Path) -> None:
    (tmp_path / "code").write_bytes(b"in the way")
    code_record.keep(tmp_path, OLD)
    assert code_record.recorded(tmp_path, fingerprint_of(OLD)) is None
    assert os.listdir(tmp_path) == ["code"]


def test_records_do_not_pile_up_and_the_one_in_use_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code_record, "RECORDS_MAX", 2)
    for n in range(4):
        code_record.keep(tmp_path, {"source": str(n)})
        os.utime(tmp_path / "code" / f"{fingerprint_of({'source': str(n)}).hex()}.json", (n, n))
    code_record.keep(tmp_path, {"source": "2"})
    code_record.keep(tmp_path, {"source": "4"})
    kept = [n for n in range(5) if code_record.recorded(tmp_path, fingerprint_of({"source": str(n)}))]
    assert kept == [2, 4]
