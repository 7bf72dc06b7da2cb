"""Which kept code a replica runs is said by its log, where that code is kept."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
import pytest
from tests.unit.deathless.shell.upgrade_bench import Former, former_code

from deathless.base.config import ReplicaConfig
from deathless.base.errors import LockUnavailable
from deathless.codec.frames import Cut
from deathless.shell.upgrade import following
from deathless.shell.upgrade.following import CodeFollowing, code_of_log, look_for_code

__all__ = ["former_code"]


def cut(fingerprint: bytes, generation: int = 1) -> Cut:
    """Give head's cut, as far as it is looked at."""

    class Told:
        pass

    told = Told()
    told.__dict__.update(fingerprint=fingerprint, generation=generation)
    return cast("Cut", told)


def replica(former: Former, **more: Any) -> ReplicaConfig:
    """Give the config of a replica that runs other kept code."""
    return msgspec.structs.replace(former.config, **{"code": "00" * 16, "upgrade": None, **more})


def test_the_code_of_the_log_is_taken_where_it_is_kept(former_code: Former) -> None:
    found = code_of_log(replica(former_code), cut(former_code.code.fingerprint))
    assert (found.code, found.module) == (former_code.upgrade.code, former_code.upgrade.module)
    assert found == msgspec.structs.replace(replica(former_code), code=found.code, module=found.module)


def test_where_there_is_no_log_or_no_such_code_the_config_stays(former_code: Former) -> None:
    config = replica(former_code)
    assert code_of_log(config, None) is config
    assert code_of_log(config, cut(b"x" * 16)) is config, "it is not kept"
    pod = replica(former_code, code="")
    assert code_of_log(pod, cut(former_code.code.fingerprint)) is pod, "in a pod the image is the code"


def test_an_upgrader_has_the_code_behind_it_until_the_upgrade_is_made(former_code: Former) -> None:
    config = replica(former_code, upgrade=former_code.upgrade)
    assert code_of_log(config, cut(former_code.code.fingerprint, generation=1)) is config
    assert code_of_log(config, cut(former_code.code.fingerprint, generation=2)).code == former_code.upgrade.code


@pytest.mark.parametrize("error", [OSError("gone"), LockUnavailable("away"), TimeoutError()])
def test_a_log_that_can_not_be_read_changes_nothing(
    former_code: Former, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def inspect(_: ReplicaConfig) -> object:
        raise error

    monkeypatch.setattr(following, "inspect", inspect)
    assert asyncio.run(look_for_code(replica(former_code))) is None, "nobody knows"
    pod = replica(former_code, code="")
    assert asyncio.run(look_for_code(pod)) is pod


class Stopped:
    """Stands for the supervisor: an orderly stop is said to whoever follows the code."""

    def __init__(self, config: ReplicaConfig, monkeypatch: pytest.MonkeyPatch, *, code: str) -> None:
        self.config = config
        self.stops = self.not_kept = self.looks = self.away = 0
        self.written: list[ReplicaConfig] = []
        self.looked_at = asyncio.Event()
        self.code = code
        self.following = CodeFollowing(config, self.stop, self.is_not_kept)
        monkeypatch.setattr(following, "look_for_code", self.look_for_code)
        monkeypatch.setattr(following, "write_config", self.write)

    def stop(self) -> None:
        self.stops += 1
        self.following.stop_ordered()

    def is_not_kept(self) -> None:
        self.not_kept += 1

    def write(self, config: ReplicaConfig) -> None:
        self.written.append(config)

    async def look_for_code(self, config: ReplicaConfig) -> ReplicaConfig | None:
        await self.looked_at.wait()
        self.looks += 1
        if self.looks <= self.away:
            return None
        return msgspec.structs.replace(config, code=self.code)

    async def look(self) -> None:
        self.following.look()
        self.looked_at.set()
        await until_idle()


async def until_idle() -> None:
    """Let every task that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.asyncio
async def test_a_supervisor_ends_and_begins_again_with_the_code_of_the_log(
    former_code: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = Stopped(replica(former_code), monkeypatch, code="11" * 16)
    await stopped.look()
    assert (stopped.stops, stopped.following.begins_again, stopped.not_kept) == (1, True, 0)
    assert [each.code for each in stopped.written] == ["11" * 16]


@pytest.mark.asyncio
async def test_where_the_code_is_the_same_or_the_config_can_not_be_written_nothing_ends(
    former_code: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replica(former_code)
    same = Stopped(config, monkeypatch, code=config.code)
    await same.look()
    assert (same.stops, same.written, same.following.begins_again, same.not_kept) == (0, [], False, 1)

    def full(_: ReplicaConfig) -> None:
        raise OSError("no space left")

    other = Stopped(config, monkeypatch, code="11" * 16)
    monkeypatch.setattr(following, "write_config", full)
    await other.look()
    assert (other.stops, other.following.begins_again, other.not_kept) == (0, False, 1)


@pytest.mark.asyncio
async def test_a_lock_store_that_is_away_for_a_while_is_asked_again(
    former_code: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "AGAIN_S", 0.0)
    stopped = Stopped(replica(former_code), monkeypatch, code="11" * 16)
    stopped.away = 2
    await stopped.look()
    await until_idle()
    assert (stopped.stops, stopped.following.begins_again, stopped.not_kept, stopped.looks) == (1, True, 0, 3)


@pytest.mark.asyncio
async def test_who_orders_a_stop_meanwhile_gets_one(former_code: Former, monkeypatch: pytest.MonkeyPatch) -> None:
    behind = Stopped(replica(former_code), monkeypatch, code="11" * 16)
    await behind.look()
    behind.stop()
    assert not behind.following.begins_again, "it was ending in order to begin again"
    before = Stopped(replica(former_code), monkeypatch, code="11" * 16)
    before.following.look()
    await until_idle()
    before.following.stop_ordered()
    before.looked_at.set()
    await until_idle()
    assert (before.written, before.following.begins_again) == ([], False), "it was still looking"
