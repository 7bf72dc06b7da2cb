"""Which code a service goes back to, and by which name it is refused where there is none."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.unit.deathless.engine.replica.test_upgrade_steps import order as hand_over
from tests.unit.deathless.engine.replica_world import OTHER_FINGERPRINT, Node, World

from deathless.base.config import ReplicaConfig, UpgradeConfig
from deathless.base.errors import FormerCodeMissing, UpgradeRefused
from deathless.codec.generations import Upgraded, decode_upgraded
from deathless.engine.log.segment_scan import segment_path
from deathless.engine.ports import LockView
from deathless.shell.lock_stores.inspection import Inspection
from deathless.shell.operate.upgrading import back_out
from deathless.shell.operate.upgrading.back_out import KeptBefore, _kept_before
from deathless.shell.operate.upgrading.local_upgraders import LocalUpgraders
from deathless.shell.service_code.code_record import CodeRecord, Recorded

CONFIG = ReplicaConfig(service="bank", module="m:a", directory="bank-folder", replica="r0")
KEPT = Recorded(CodeRecord(parts={}, module="service.py:bank", kept=True), Path("code/0000"))


UPGRADE = UpgradeConfig(id="00" * 16, from_generation=1, from_fingerprint="00" * 16, from_version=1)


class Kept:
    """What stands in the folder's code/: the copy of the first code, or None."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: Recorded | None = KEPT
        monkeypatch.setattr(back_out, "recorded", lambda _, fingerprint: self.found)
        monkeypatch.setattr(back_out, "modules_in", lambda folder: {})


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Give what is kept."""
    return Kept(monkeypatch)


def looked(node: Node, view: LockView | None = None) -> Inspection:
    return Inspection(CONFIG, node.world.disk.view(node.name), view or node.lock_store.view(), node.engine.service)


def upgraded(*, calls: bool = True) -> Node:
    """An upgrade from version 1 to 2, and a takeover behind it."""
    world = World()
    node = world.primary()
    if calls:
        node.call(node.register(), 1, b"one")
    world.upgrader(node)
    hand_over(node)
    successor = world.node("r1", fingerprint=OTHER_FINGERPRINT).begin()
    return successor.take_over(successor.lock_store.view().epoch)


def test_it_is_the_code_of_the_generation_before(kept: Kept) -> None:
    assert kept.found is KEPT
    for calls in (True, False):
        assert _kept_before(looked(upgraded(calls=calls))) == KeptBefore(1, 1, "0000", "service.py:bank")


def test_where_nothing_was_upgraded_or_started_there_is_nothing_to_go_back_to(kept: Kept) -> None:
    del kept
    node = World().primary()
    with pytest.raises(UpgradeRefused, match="was never upgraded"):
        _kept_before(looked(node))
    with pytest.raises(UpgradeRefused, match="there is no log yet"):
        _kept_before(looked(node, node.lock_store.view()._replace(head=0)))


def test_what_is_not_kept_or_not_in_the_log_any_more_is_named_with_a_remedy(kept: Kept) -> None:
    look = looked(upgraded())
    kept.found = None
    with pytest.raises(FormerCodeMissing, match="of generation 1 is not kept any more") as raised:
        _kept_before(look)
    assert "deathless upgrade --to" in str(raised.value)
    look.filesystem.unlink(segment_path(2, 0))
    with pytest.raises(UpgradeRefused, match="the log of generation 1 was collected"):
        _kept_before(look)


def left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """An upgrader of the upgrade to head's generation is still there."""
    monkeypatch.setattr(LocalUpgraders, "configs", lambda _: {"r7": UPGRADE})


@pytest.mark.parametrize("back", [True, False])
def test_a_command_that_ended_behind_its_commit_has_its_end_to_see_to(
    kept: Kept, monkeypatch: pytest.MonkeyPatch, *, back: bool
) -> None:
    del kept
    left_behind(monkeypatch)

    def told(body: bytes) -> Upgraded:
        return msgspec.structs.replace(
            decode_upgraded(body), from_version=2 if back else 1, to_version=1 if back else 2
        )

    monkeypatch.setattr(back_out, "decode_upgraded", told)
    found = _kept_before(looked(upgraded()))
    assert (found.generation, found.version) == ((2, 1) if back else (1, 1)), "else it is one of its own"


def test_between_codes_of_one_version_it_is_told_by_the_code_of_earlier(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    del kept
    left_behind(monkeypatch)

    def told(body: bytes) -> Upgraded:
        return msgspec.structs.replace(decode_upgraded(body), from_version=1, to_version=1)

    monkeypatch.setattr(back_out, "decode_upgraded", told)
    look = looked(upgraded())
    assert _kept_before(look).generation == 1
    head = look.reader.routes.cut(look.view.head)
    same = msgspec.structs.replace(head, generation=0)
    monkeypatch.setattr(back_out, "cuts_of", lambda _: iter((head, same)))
    assert _kept_before(look).generation == 2


def test_code_of_a_later_version_is_no_way_back(kept: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    del kept

    def later(body: bytes) -> Upgraded:
        return msgspec.structs.replace(decode_upgraded(body), from_version=3)

    monkeypatch.setattr(back_out, "decode_upgraded", later)
    with pytest.raises(UpgradeRefused, match="was of version 3, later than version 2, which serves"):
        _kept_before(looked(upgraded()))
