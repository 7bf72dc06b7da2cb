"""The copy of the service's record: written once, whole, compared ever after, and enough to begin a lock store with."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from deathless.base.errors import ForeignDirectory, HalfCopy
from deathless.engine.ports import ServiceRecord
from deathless.shell.service_copy import FILE, keep_copy, read_copy

RECORD = ServiceRecord("bank", bytes(range(16)), 7, bytes(32), 99, "etcd", live=True)


def test_copy_is_written_once_and_gives_the_record_back(tmp_path: Path) -> None:
    assert read_copy(str(tmp_path)) is None
    keep_copy(str(tmp_path), RECORD)
    before = (tmp_path / FILE).read_bytes()
    keep_copy(str(tmp_path), msgspec.structs.replace(RECORD, fence="seal", live=False))
    assert (tmp_path / FILE).read_bytes() == before
    kept = read_copy(str(tmp_path))
    assert kept is not None
    assert kept.record() == msgspec.structs.replace(RECORD, live=False)
    assert os.listdir(tmp_path) == [FILE]


@pytest.mark.parametrize(
    "change", [{"name": "shop"}, {"service_id": bytes(16)}, {"incarnation": 8}, {"seed": b"x" * 32}, {"hash_seed": 1}]
)
def test_copy_of_another_service_or_seed_refuses(tmp_path: Path, change: dict[str, object]) -> None:
    keep_copy(str(tmp_path), RECORD)
    with pytest.raises(ForeignDirectory, match=next(iter(change)).replace("_", " ")):
        keep_copy(str(tmp_path), msgspec.structs.replace(RECORD, **change))


@pytest.mark.parametrize("content", [b"", b"{", b"\xff", b'{"name": "bank"}'])
def test_copy_that_can_not_be_read_is_half_a_copy(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(HalfCopy, match="written again"):
        keep_copy(str(tmp_path), RECORD)


def test_of_first_starts_at_once_one_writes_and_the_others_compare(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(keep_copy, str(tmp_path), RECORD) for _ in range(16)]:
            done.result()
    assert os.listdir(tmp_path) == [FILE]
