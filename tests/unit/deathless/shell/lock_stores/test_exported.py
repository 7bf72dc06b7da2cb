"""What an exported log carries in place of a lock."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig, NewerFormat
from deathless.shell.disk.filesystem import RealFileSystem
from deathless.shell.lock_stores.exported import FILE, FORMAT_VERSION, Exported, read_exported
from deathless.shell.lock_stores.inspection import inspect
from deathless.shell.lock_stores.opening import open_lock

TOLD = Exported(
    name="bank",
    service_id=bytes(16),
    incarnation=7,
    seed=bytes(32),
    hash_seed=3,
    fence="etcd",
    store_id="etcd-1",
    head=4,
    first_lsn=10,
    last_lsn=20,
    confirmed_lsn=19,
    fingerprint="ab" * 16,
    exported_at="2026-01-01T00:00:00+00:00",
    version="0.1.0",
)
CONFIG = ReplicaConfig(service="bank", module="m:a", directory=".", replica="r0")


def write(folder: Path, told: Exported) -> None:
    (folder / FILE).write_bytes(msgspec.json.encode(told))


def test_tools_read_what_the_lock_said(tmp_path: Path) -> None:
    assert read_exported(tmp_path) is None
    write(tmp_path, TOLD)
    assert read_exported(tmp_path) == TOLD
    look = asyncio.run(inspect(msgspec.structs.replace(CONFIG, directory=str(tmp_path))))
    assert (look.view.head, look.view.store_id, look.view.holder) == (4, "etcd-1", None)
    assert (look.record.seed, look.record.hash_seed, look.record.incarnation) == (bytes(32), 3, 7)


def test_nobody_gets_a_lock_in_its_folder(tmp_path: Path) -> None:
    write(tmp_path, TOLD)
    config = msgspec.structs.replace(CONFIG, directory=str(tmp_path))
    with pytest.raises(InvalidConfig, match="holds an exported log"):
        open_lock(config, RealFileSystem(str(tmp_path)), "worker")
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_later_format_and_what_is_none_are_refused_with_the_file(tmp_path: Path) -> None:
    write(tmp_path, msgspec.structs.replace(TOLD, format_version=FORMAT_VERSION + 1, version="9.0"))
    with pytest.raises(NewerFormat, match=r"exported\.json: format version 2, written by deathless 9\.0;"):
        read_exported(tmp_path)
    (tmp_path / FILE).write_text('{"formatVersion": 1}')
    with pytest.raises(InvalidConfig, match=r"exported\.json: .*name"):
        read_exported(tmp_path)
