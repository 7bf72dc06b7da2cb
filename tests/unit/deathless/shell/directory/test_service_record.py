"""The copy of the service's record: written once, whole, compared ever after, and enough to begin a lock store with."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import ForeignDirectory, HalfCopy, ShardsFixed
from deathless.engine.ports import ServiceRecord
from deathless.shell.directory.service_record import (
    FILE,
    Shards,
    check_shards,
    keep_copy,
    keep_shards,
    read_copy,
    read_shards,
)

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
    with pytest.raises(HalfCopy, match="recreated"):
        keep_copy(str(tmp_path), RECORD)


def test_of_first_starts_at_once_one_writes_and_the_others_compare(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(keep_copy, str(tmp_path), RECORD) for _ in range(16)]:
            done.result()
    assert os.listdir(tmp_path) == [FILE]


def shard(folder: Path, number: int, shards: int, service: str = "bank") -> ReplicaConfig:
    """A replica's config of one shard of a service in `folder`."""
    directory = folder / "shards" / str(number) if shards > 1 else folder
    directory.mkdir(parents=True, exist_ok=True)
    return ReplicaConfig(
        service=service, module="m:a", directory=str(directory), replica="r0", shard=number, shards=shards
    )


def test_number_of_shards_is_written_once_and_another_one_refused_by_name(tmp_path: Path) -> None:
    for number in (0, 1, 1):
        keep_shards(shard(tmp_path, number, 2))
    assert (tmp_path / FILE).read_bytes() == b'{\n  "name": "bank",\n  "shards": 2\n}'
    assert read_shards(str(tmp_path)) == Shards("bank", 2)
    for shards in (1, 3):
        with pytest.raises(ShardsFixed, match=f"shards: 2, the manifest says {shards}"):
            keep_shards(shard(tmp_path, 0, shards))
    with pytest.raises(ForeignDirectory, match="belongs to service 'bank', not 'shop'"):
        keep_shards(shard(tmp_path, 0, 2, "shop"))


def test_service_of_one_shard_stays_one(tmp_path: Path) -> None:
    keep_shards(shard(tmp_path, 0, 1))
    assert os.listdir(tmp_path) == []
    keep_copy(str(tmp_path), RECORD)
    keep_shards(shard(tmp_path, 0, 1))
    with pytest.raises(ShardsFixed, match="shards: 1, the manifest says 2"):
        keep_shards(shard(tmp_path, 1, 2))


def test_number_that_can_not_be_read_is_half_a_copy(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"{")
    with pytest.raises(HalfCopy):
        check_shards(shard(tmp_path, 0, 2))
    assert check_shards(shard(tmp_path, 0, 1)) is None, "of one shard `read_copy` says so"
