"""Whose directory it is: first starts agree, half copies and foreign directories are refused."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import (
    ForeignDirectory,
    HalfCopy,
    InvalidConfig,
    PermissionRefused,
    StorageFailed,
    StorageReadOnly,
    StorageUnfit,
    VolumeTooSmall,
)
from deathless.engine.ports import ServiceRecord
from deathless.shell.directory import identity
from deathless.shell.directory.adopted import Adoption, write_adoption
from deathless.shell.directory.identity import identity_path, prepare, read_identities, write_identity
from deathless.shell.directory.service_record import keep_copy, read_copy
from deathless.shell.disk import open_log as storage


def config(directory: Path, replica: str = "r0", **changes: str) -> ReplicaConfig:
    whole = ReplicaConfig(
        service="bank", module="m:a", directory=str(directory), replica=replica, allow_any_file_system=True
    )
    return msgspec.structs.replace(whole, **changes)


def start(of: ReplicaConfig) -> ServiceRecord:
    return asyncio.run(prepare(of))


def remember(directory: Path, replica: str, **changes: object) -> None:
    """Change what a replica remembers."""
    old = read_identities(str(directory))[replica]
    write_identity(str(directory), replica, msgspec.structs.replace(old, **changes))


def test_a_first_start_creates_the_service_and_remembers_it(tmp_path: Path) -> None:
    record = start(config(tmp_path / "new"))
    assert (record.name, record.fence, record.live) == ("bank", "seal", False)
    mine = read_identities(str(tmp_path / "new"))["r0"]
    assert (mine.service, mine.service_id, mine.incarnation) == ("bank", record.service_id, record.incarnation)
    assert mine.store_id
    assert os.listdir(identity_path(str(tmp_path / "new"), "r0").parent) == ["identity.json"]


def test_later_starts_and_other_replicas_find_the_same_service(tmp_path: Path) -> None:
    record = start(config(tmp_path))
    before = identity_path(str(tmp_path), "r0").read_bytes()
    assert start(config(tmp_path)) == record
    assert start(config(tmp_path, "r1")) == record
    assert identity_path(str(tmp_path), "r0").read_bytes() == before
    assert set(read_identities(str(tmp_path))) == {"r0", "r1"}


def test_replicas_that_start_together_agree_on_one_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["r0", "r1", "r2"]
    meeting = threading.Barrier(len(names))
    draw = identity.draw_service

    def draw_together(of: ReplicaConfig) -> ServiceRecord:
        meeting.wait(30)  # all have seen that there is no service
        return draw(of)

    monkeypatch.setattr(identity, "draw_service", draw_together)
    with ThreadPoolExecutor(len(names)) as pool:
        records = list(pool.map(start, [config(tmp_path, name) for name in names]))
    assert records[0] == records[1] == records[2]
    remembered = read_identities(str(tmp_path))
    assert set(remembered) == set(names)
    assert len(set(remembered.values())) == 1


@pytest.mark.parametrize("first", ["we", "neighbour"])
def test_a_neighbours_first_start_in_between_is_no_half_copy(
    first: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = identity.read_identities
    neighbours: list[ServiceRecord] = []

    def read_slowly(directory: str) -> dict[str, identity.Identity]:
        monkeypatch.setattr(identity, "read_identities", read)
        before = read(directory)
        with ThreadPoolExecutor(1) as pool:
            neighbours.append(pool.submit(start, config(tmp_path, "r1")).result(30))
        return before if first == "we" else read(directory)

    monkeypatch.setattr(identity, "read_identities", read_slowly)
    assert start(config(tmp_path)) == neighbours[0]


def test_a_directory_without_its_lock_store_is_half_a_copy(tmp_path: Path) -> None:
    start(config(tmp_path))
    os.rename(tmp_path / "lock", tmp_path / "elsewhere")
    for replica in ("r0", "r1"):
        with pytest.raises(HalfCopy, match="the lock store knows no service"):
            start(config(tmp_path, replica))


def test_a_log_that_nobody_remembers_is_half_a_copy(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    start_with = config(tmp_path)
    (tmp_path / "log" / "1.seg").write_bytes(b"")
    with pytest.raises(HalfCopy, match="log holds 1 segments"):
        start(start_with)
    (tmp_path / "log" / "1.seg").unlink()
    assert start(start_with).name == "bank"


@pytest.mark.parametrize("broken", [b"", b'{"service":"ba', b"\xff\xfe", b'{"service":"\xff"}'])
def test_an_identity_that_can_not_be_read_is_half_a_copy(broken: bytes, tmp_path: Path) -> None:
    start(config(tmp_path))
    identity_path(str(tmp_path), "r0").write_bytes(broken)
    with pytest.raises(HalfCopy, match=r"identity\.json"):
        start(config(tmp_path))


def test_an_identity_that_the_storage_does_not_give_is_half_a_copy(tmp_path: Path) -> None:
    identity_path(str(tmp_path), "r0").mkdir(parents=True)
    with pytest.raises(HalfCopy, match="Is a directory"):
        read_identities(str(tmp_path))


def test_a_directory_of_another_service_or_fence_is_refused(tmp_path: Path) -> None:
    start(config(tmp_path))
    with pytest.raises(ForeignDirectory, match="belongs to service 'bank', not 'shop'"):
        start(config(tmp_path, service="shop"))
    with pytest.raises(ForeignDirectory, match="fence is 'etcd' in the manifest and 'seal' in the log"):
        start(config(tmp_path, fence="etcd"))


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"service_id": b"x" * 16}, "another incarnation"),
        ({"incarnation": 2}, "another incarnation"),
        ({"store_id": "other"}, "knows lock store 'other'"),
    ],
)
def test_a_replica_that_remembers_otherwise_is_refused(changes: dict[str, object], told: str, tmp_path: Path) -> None:
    start(config(tmp_path))
    start(config(tmp_path, "r1"))
    remember(tmp_path, "r0", **changes)
    with pytest.raises(ForeignDirectory, match=told):
        start(config(tmp_path))
    assert start(config(tmp_path, "r1")).name == "bank", "the others are not concerned"


def test_an_adopted_fence_counts_instead_of_the_first(tmp_path: Path) -> None:
    start(config(tmp_path))
    write_adoption(str(tmp_path), Adoption(fence="etcd"))
    assert start(config(tmp_path, fence="etcd")).fence == "etcd"
    with pytest.raises(ForeignDirectory, match="fence is 'seal'"):
        start(config(tmp_path))


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_a_folder_that_we_may_not_use_is_refused_with_its_name(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refused(path: str, flags: int, mode: int = 0o777) -> int:
        if "probe" in str(path) and flags & os.O_CREAT:
            raise OSError(number, os.strerror(number), path)
        return real(path, flags, mode)

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(PermissionRefused, match="probe.*: " + os.strerror(number)):
        start(config(tmp_path))
    assert not (tmp_path / "lock").exists(), "nothing was begun"


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EROFS, StorageReadOnly), (errno.EIO, StorageFailed), (errno.ESTALE, StorageFailed)]
)
@pytest.mark.parametrize("call", ["open", "fdatasync"])
def test_a_storage_that_is_away_for_a_while_is_told_as_what_passes(
    number: int, kind: type[Exception], call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = getattr(os, call)

    def refused(what: str | int, *rest: int) -> object:
        if call == "fdatasync" or ("probe" in str(what) and rest[0] & os.O_CREAT):
            raise OSError(number, os.strerror(number), str(what))
        return real(what, *rest)

    monkeypatch.setattr(os, call, refused)
    with pytest.raises(kind):
        start(config(tmp_path))


def test_a_directory_that_is_a_file_is_a_wrong_config(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidConfig, match="file: File exists"):
        start(config(tmp_path / "file"))


def test_a_storage_that_can_not_carry_the_fence_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise StorageUnfit("fence seal on a file system of type nfs4")

    monkeypatch.setattr(identity, "check_local", refuse)
    with pytest.raises(StorageUnfit, match="nfs4"):
        start(config(tmp_path))
    assert start(config(tmp_path, fence="etcd")).fence == "etcd", "another fence asks nothing of the kind"


def test_a_storage_without_links_is_refused_before_anything_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(source: str, target: str, **_: object) -> NoReturn:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM), source, None, target)  # as file systems without links do

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(StorageUnfit, match=r"lacks a call that the log needs: .*Operation not permitted"):
        start(config(tmp_path))
    assert [found.name for found in tmp_path.iterdir()] == ["probe"] and not any((tmp_path / "probe").iterdir())


def test_first_start_keeps_a_copy_and_each_later_one_compares_it(tmp_path: Path) -> None:
    record = start(config(tmp_path))
    kept = read_copy(str(tmp_path))
    assert kept is not None
    assert kept.record() == record
    (tmp_path / "service.json").unlink()
    assert start(config(tmp_path)) == record
    assert read_copy(str(tmp_path)) == kept, "a directory without it gets it"
    (tmp_path / "service.json").unlink()
    keep_copy(str(tmp_path), msgspec.structs.replace(record, seed=b"x" * 32))
    with pytest.raises(ForeignDirectory, match=r"service\.json has another seed"):
        start(config(tmp_path))


def test_copy_beside_a_lock_store_that_knows_no_service_is_no_first_start(tmp_path: Path) -> None:
    record = start(config(tmp_path / "other"))
    keep_copy(str(tmp_path), record)
    with pytest.raises(HalfCopy, match="knows no service"):
        start(config(tmp_path))


def small_volume(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(storage, "volume_bytes", lambda _: size)


def test_a_first_start_on_a_volume_that_is_too_small_begins_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_volume(monkeypatch, (64 << 20) - 1)
    with pytest.raises(VolumeTooSmall, match=r"DL3050 .* least for 1 replica with these limits is 64Mi"):
        start(config(tmp_path))
    assert not read_identities(str(tmp_path))
    small_volume(monkeypatch, 64 << 20)
    assert start(config(tmp_path)).name == "bank", "the volume grew"


def test_a_service_that_was_begun_starts_on_a_volume_that_is_too_small_and_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    record = start(config(tmp_path))
    small_volume(monkeypatch, 1 << 20)
    assert start(config(tmp_path)) == record
    assert start(config(tmp_path, "r1")) == record
    assert {getattr(found, "code", "") for found in caplog.records} == {VolumeTooSmall.code}


def test_a_later_start_counts_the_checkpoint_that_stands_and_the_replicas_that_were_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("r0", "r1", "r2"):
        start(config(tmp_path, name))
    folder = tmp_path / "checkpoints"
    folder.mkdir()
    (folder / f"{1:016d}-{'0' * 32}.ckpt").write_bytes(bytes(1 << 20))
    small_volume(monkeypatch, 99 << 20)
    start(config(tmp_path))
    assert not caplog.records
    small_volume(monkeypatch, (99 << 20) - 1)
    start(config(tmp_path))
    assert [getattr(found, "code", "") for found in caplog.records] == ["DL3050"]
