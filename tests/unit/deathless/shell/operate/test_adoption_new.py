"""A copy becomes a service of its own, or the same one moved; nothing is written before that is allowed."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import CopiedDirectory, ForeignDirectory, HalfCopy, InvalidArgument
from deathless.engine.ports import ServiceRecord
from deathless.shell.directory import place
from deathless.shell.directory.adopted import read_adoption
from deathless.shell.directory.identity import prepare, read_identities
from deathless.shell.directory.members import Member, read_members, write_member
from deathless.shell.operate.adoption_new import AS_NEW, MOVED, accept, accept_copies, look_copy

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def counting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Inodes count, wherever the tests' folder lies."""
    monkeypatch.setattr(place, "filesystem_type", lambda _path: "ext4")


def config_of(folder: Path) -> ReplicaConfig:
    return ReplicaConfig(service="bank", module="m:a", directory=str(folder), replica="r0")


async def begun(folder: Path) -> ServiceRecord:
    """A service that was started in a folder, as its first supervisor does."""
    (folder / "replicas" / "r0").mkdir(parents=True)
    record = await prepare(config_of(folder))
    write_member(str(folder), Member("r0", "127.0.0.1:1"))
    return record


async def test_a_service_of_its_own_shares_the_seeds_alone(tmp_path: Path) -> None:
    before = await begun(tmp_path / "job")
    shutil.copytree(tmp_path / "job", tmp_path / "copy")
    copy = config_of(tmp_path / "copy")
    with pytest.raises(CopiedDirectory):
        await prepare(copy)
    assert before.service_id.hex() in (await look_copy(copy, as_new=True))[0].what
    assert await accept_copies([copy], AS_NEW) == [copy.directory]
    assert await accept_copies([copy], AS_NEW) == [], "it is none any more"
    after = await prepare(copy)
    assert (after.seed, after.hash_seed) == (before.seed, before.hash_seed)
    assert after.service_id != before.service_id
    assert after.incarnation != before.incarnation
    assert read_adoption(copy.directory).hold_outside
    assert read_adoption(copy.directory).former_services == [before.service_id]
    assert read_identities(copy.directory)["r0"].service_id == after.service_id
    assert read_members(copy.directory) == {}
    assert await prepare(config_of(tmp_path / "job")) == before


async def test_a_folder_that_was_moved_is_the_same_service(tmp_path: Path) -> None:
    before = await begun(tmp_path / "job")
    shutil.copytree(tmp_path / "job", tmp_path / "copy")
    copy = config_of(tmp_path / "copy")
    with pytest.raises(InvalidArgument, match="still exists"):
        await look_copy(copy, as_new=False)
    shutil.rmtree(tmp_path / "job")
    assert await accept_copies([copy], MOVED) == [copy.directory]
    assert await prepare(copy) == before
    assert read_members(copy.directory) == {}


async def test_a_backup_put_back_is_accepted_as_moved(tmp_path: Path) -> None:
    before = await begun(tmp_path / "job")
    shutil.copytree(tmp_path / "job", tmp_path / "backup")
    shutil.rmtree(tmp_path / "job")
    shutil.copytree(tmp_path / "backup", tmp_path / "job")
    await accept(config_of(tmp_path / "job"), as_new=False)
    assert await prepare(config_of(tmp_path / "job")) == before


async def test_what_is_no_copy_was_not_moved(tmp_path: Path) -> None:
    await begun(tmp_path / "job")
    with pytest.raises(InvalidArgument, match="is not a copy"):
        await look_copy(config_of(tmp_path / "job"), as_new=False)


async def test_a_copy_that_keeps_another_name_is_refused(tmp_path: Path) -> None:
    await begun(tmp_path / "job")
    other = msgspec.structs.replace(config_of(tmp_path / "job"), service="till")
    with pytest.raises(ForeignDirectory, match="name the right folder"):
        await look_copy(other, as_new=True)


async def test_a_folder_that_does_not_know_whose_it_is_is_refused(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    with pytest.raises(HalfCopy, match="says nowhere"):
        await look_copy(config_of(tmp_path / "job"), as_new=True)
