"""What code consists of is written down beside its log, so that a refusal (UpgradeRequired) can say what differs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from deathless.shell.service_code import code_record
from deathless.shell.service_code.code_record import CodeRecord, recorded, records, what_differs
from deathless.shell.service_code.description import Description, fingerprint_of

OLD = {"source shop.service": "aa", "interpreter": "cpython 3.11.7", "library msgspec": "0.19", "description": "2"}
OLD_FORMER = {
    "source shop.service": "f0",
    "interpreter": "cpython 3.11.7",
    "library msgspec": "0.19",
    "time zones": "1",
}
NEW = {
    "source shop.service": "bb",
    "interpreter": "cpython 3.11.7",
    "interpreter flags": "optimize 2",
    "description": "2",
}
NEW_FORMER = {
    "source shop.service": "f1",
    "interpreter": "cpython 3.11.7",
    "library msgspec": "0.19",
    "time zones": "1",
}
OURS = Description(NEW, NEW_FORMER)
TOLD = "shop.service changed (file shop/service.py)"


def write(directory: Path, record: CodeRecord) -> None:
    folder = directory / "code" / record.fingerprint.hex()
    folder.mkdir(parents=True)
    (folder / "parts.json").write_bytes(msgspec.json.encode(record))


def test_refusal_names_each_part_that_differs(tmp_path: Path) -> None:
    write(tmp_path, CodeRecord(parts=OLD, former=OLD_FORMER))
    found = recorded(tmp_path, fingerprint_of(OLD))
    assert found is not None
    assert found.record.parts == OLD
    assert what_differs(tmp_path, fingerprint_of(OLD), OURS) == (
        f"{TOLD}; interpreter flags none -> optimize 2; library msgspec 0.19 -> none"
    )


def test_code_that_an_older_release_described_is_compared_in_its_way(tmp_path: Path) -> None:
    write(tmp_path, CodeRecord(parts=OLD, former=OLD_FORMER))
    assert what_differs(tmp_path, fingerprint_of(OLD_FORMER), OURS) == TOLD


def test_record_of_an_older_release_is_read(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{fingerprint_of(OLD_FORMER).hex()}.json").write_bytes(msgspec.json.encode(OLD_FORMER))
    found = recorded(tmp_path, fingerprint_of(OLD_FORMER))
    assert found is not None
    assert (found.record.former, found.folder) == (OLD_FORMER, None)
    assert what_differs(tmp_path, fingerprint_of(OLD_FORMER), OURS) == TOLD


def test_many_differences_are_counted(tmp_path: Path) -> None:
    old, new = ({f"library {n:02}": version for n in range(20)} for version in "12")
    write(tmp_path, CodeRecord(parts=old))
    told = what_differs(tmp_path, fingerprint_of(old), Description(new, {}))
    assert told.count(" 1 -> 2") == code_record.DIFFERENCES_MAX
    assert told.endswith("; and 12 more")


def test_other_processor_is_told_with_both_nodes_and_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code_record, "processor_features", lambda: ["avx", "sse2"])
    old = {**OLD, "processor": "aa"}
    write(tmp_path, CodeRecord(parts=old, node="node-a", features=("avx512f", "sse2")))
    told = what_differs(tmp_path, fingerprint_of(old), Description({**OLD, "processor": "bb"}, {}), "node-b")
    assert told == (
        "processor with other features, by which numpy chooses its arithmetic; the log was written on node node-a, "
        "this is node node-b, only there: avx512f, only here: avx"
    )


@pytest.mark.parametrize("content", [None, b"", b"{", b"[]", b'{"a": 1}', b'{"another": "code"}', b"\xff"])
def test_what_nobody_wrote_down_or_what_can_not_be_read_leaves_a_refusal_without_its_list(
    tmp_path: Path, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / "code" / fingerprint_of(OLD).hex()).mkdir(parents=True)
        (tmp_path / "code" / f"{fingerprint_of(OLD).hex()}.json").write_bytes(content)
        (tmp_path / "code" / fingerprint_of(OLD).hex() / "parts.json").write_bytes(content)
    assert what_differs(tmp_path, fingerprint_of(OLD), OURS) == ""


def test_record_in_the_folder_of_another_code_is_none(tmp_path: Path) -> None:
    write(tmp_path, CodeRecord(parts=OLD))
    folder = tmp_path / "code" / fingerprint_of(OLD).hex()
    folder.rename(folder.with_name(fingerprint_of(NEW).hex()))
    assert recorded(tmp_path, fingerprint_of(NEW)) is None
    assert list(records(tmp_path)) == []
