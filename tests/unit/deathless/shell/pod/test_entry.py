"""What a pod is for, where other code is served beside it; its start is in `tests/process/test_pod_replica`."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from tests.unit.deathless.shell.upgrade_bench import LIMITS, Former, former_code, new_code

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, LockUnavailable, UpgradeRefused
from deathless.shell.pod import entry
from deathless.shell.pod.entry import what_it_is_for
from deathless.shell.service_code.description import Description
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.upgrade.planning import Head

__all__ = ["former_code"]
SOCKET = "/tmp/former.sock"


class Pod:
    """A pod of the new image, beside the former one."""

    def __init__(self, former: Former, monkeypatch: pytest.MonkeyPatch) -> None:
        self.former = former
        self.config = msgspec.structs.replace(former.config, upgrade=None, former=SOCKET)
        self.described = describe(new_code(), LIMITS)
        self.fingerprint: bytes = former.code.fingerprint  # of head's cut
        self.error: DeathlessError | None = None
        self.answers = asyncio.Event()
        self.answers.set()
        monkeypatch.setattr(entry, "describe_code_of", self.describe_code_of)
        monkeypatch.setattr(entry, "head_of", self.head_of)

    def describe_code_of(self, config: ReplicaConfig, environment: object, *, bounded: bool) -> Description:
        assert (config, environment) == (self.config, {})
        return self.described

    async def head_of(self, _: ReplicaConfig) -> Head:
        await self.answers.wait()
        if self.error is not None:
            raise self.error
        cut = SimpleNamespace(fingerprint=self.fingerprint, generation=1)
        return Head(cast("Any", cut), cast("Any", SimpleNamespace(service_id=bytes(16))))

    def found(self) -> ReplicaConfig:
        return what_it_is_for(self.config, {})


@pytest.fixture
def pod(former_code: Former, monkeypatch: pytest.MonkeyPatch) -> Pod:
    return Pod(former_code, monkeypatch)


def test_where_the_log_is_of_other_code_it_is_an_upgrader_from_that(pod: Pod) -> None:
    found = pod.found()
    assert found.upgrade is not None
    assert (found.upgrade.from_generation, found.upgrade.from_version, found.upgrade.former) == (1, 1, SOCKET)
    assert found.upgrade.from_fingerprint == pod.former.code.fingerprint.hex()
    assert msgspec.structs.replace(found, upgrade=None) == pod.config


def test_where_the_log_is_of_its_own_code_it_is_a_replica_like_others(pod: Pod) -> None:
    pod.fingerprint = pod.described.fingerprint
    assert pod.found() is pod.config


def test_where_head_can_not_be_read_nothing_is_begun(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    pod.error = LockUnavailable("away")
    with pytest.raises(LockUnavailable, match="away"):
        pod.found()
    monkeypatch.setattr(entry, "LOOK_S", 0.0)
    pod.answers.clear()
    with pytest.raises(LockUnavailable, match="nobody knows yet whether this pod is an upgrader"):
        pod.found()


def test_from_code_that_nobody_has_written_down_it_does_not_begin(pod: Pod) -> None:
    pod.fingerprint = b"x" * 16
    with pytest.raises(UpgradeRefused, match="no interface is recorded"):
        pod.found()
