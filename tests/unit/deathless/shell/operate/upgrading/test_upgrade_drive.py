"""What who drives an upgrade does about upgraders; the whole is in `tests/process/test_pod_upgrade`."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.unit.deathless.shell.upgrade_bench import LIMITS, Former, former_code, new_code

from deathless.base.config import ReplicaConfig
from deathless.base.errors import LockUnavailable, PeerUnreachable, UpgradeCalledOff, UpgradeRefused
from deathless.shell.net.admin_call import Access
from deathless.shell.operate.status import ReplicaView
from deathless.shell.operate.upgrading import upgrade_drive
from deathless.shell.operate.upgrading.upgrade_drive import MENDS_MAX, Drive, Driven, PodUpgraders, Prepared
from deathless.shell.operate.upgrading.upgrade_lead import Told
from deathless.shell.service_code import interface_record
from deathless.shell.service_code.fingerprint import describe
from deathless.shell.upgrade.planning import Head

__all__ = ["former_code"]


class Asked:
    """Stands for control ports."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.orders: list[tuple[str, str]] = []
        self.answers = True
        monkeypatch.setattr(upgrade_drive, "ask", self.ask)

    async def ask(self, address: str, command: str, *_: object) -> dict[str, object]:
        if not self.answers:
            raise PeerUnreachable("away")
        self.orders.append((address, command))
        return {}


def upgrader(worker: int, role: str = "upgrader", condition: str = "") -> ReplicaView:
    return ReplicaView("r3", "running", role, control="10.0.0.3:7403", worker_pid=worker, condition=condition)


def test_one_that_lost_its_former_code_is_told_once_to_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, pods = Asked(monkeypatch), PodUpgraders(["r3", "r4"], Access("bank"))

    async def run() -> None:
        for _ in range(3):
            assert await pods.passes(upgrader(7), "it ended")
        assert asked.orders == [("10.0.0.3:7403", "restart-worker")]
        for worker in range(8, 7 + MENDS_MAX):
            assert await pods.passes(upgrader(worker), "it ended")
        assert len(asked.orders) == MENDS_MAX
        assert not await pods.passes(upgrader(99), "it ended"), "by then its word is believed"
        await pods.stop()

    asyncio.run(run())
    assert (list(pods.names), pods.has_ended("r3"), "r3's pod" in pods.last_words("r3")) == (["r3", "r4"], False, True)


def test_one_that_ended_is_started_again_by_others_unless_it_needs_an_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, pods = Asked(monkeypatch), PodUpgraders(["r3"], Access("bank"))
    assert asyncio.run(pods.passes(upgrader(7, "dead"), "it ended"))
    assert not asyncio.run(pods.passes(upgrader(7, "dead", "DL3013"), "no such module"))
    assert asked.orders == []


def test_an_order_that_did_not_arrive_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, pods = Asked(monkeypatch), PodUpgraders(["r3"], Access("bank"))
    asked.answers = False
    for _ in range(MENDS_MAX + 1):
        with pytest.raises(PeerUnreachable):
            asyncio.run(pods.passes(upgrader(7), "it ended"))
    asked.answers = True
    assert asyncio.run(pods.passes(upgrader(7), "it ended"))


class Driving:
    """A drive whose service is played."""

    def __init__(self, former: Former, monkeypatch: pytest.MonkeyPatch, timeout_s: float = 600.0) -> None:
        self.described = describe(new_code(), LIMITS)
        self.fingerprint = former.code.fingerprint  # of head's cut
        self.failures: list[Exception] = []  # of looks at head, first the next one
        self.led: Exception | float = 0.5  # what leading through it comes to
        self.told: list[Told] = []
        interface_record.keep(former.directory, self.described.fingerprint, new_code(), LIMITS)
        monkeypatch.setattr(upgrade_drive, "describe_code_of", lambda *_: self.described)
        monkeypatch.setattr(upgrade_drive, "head_of", self.head_of)
        monkeypatch.setattr(upgrade_drive, "UpgradeLead", lambda *_, **__: self)
        monkeypatch.setattr(upgrade_drive, "POLL_S", 0.0)
        self.drive = Drive(former.config, ["r3", "r4"], {}, self.told.append, timeout_s=timeout_s)

    async def head_of(self, _: ReplicaConfig) -> Head:
        if self.failures:
            raise self.failures.pop(0)
        cut = SimpleNamespace(fingerprint=self.fingerprint, generation=1)
        return Head(cast("Any", cut), cast("Any", SimpleNamespace(service_id=bytes(16))))

    async def serving(self) -> object:
        return SimpleNamespace(primary="r3")

    async def prepare(self, _: object) -> None:
        if isinstance(self.led, Exception):
            raise self.led

    async def run(self, _: object) -> tuple[object, float]:
        if isinstance(self.led, Exception):
            raise self.led
        self.fingerprint = self.described.fingerprint
        return None, self.led


def test_outcome_names_both_versions_and_who_leads(former_code: Former, monkeypatch: pytest.MonkeyPatch) -> None:
    driving = Driving(former_code, monkeypatch)
    driving.failures = [LockUnavailable("away"), PeerUnreachable("away")]
    found = asyncio.run(driving.drive.run())
    assert (found.primary, found.unavailable_s, found.from_version, found.to_version) == ("r3", 0.5, 1, 2)
    assert found.fingerprint == driving.described.fingerprint.hex()


def test_what_is_of_this_code_already_is_a_success_at_once(
    former_code: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    driving = Driving(former_code, monkeypatch)
    driving.fingerprint, driving.led = driving.described.fingerprint, AssertionError("nobody leads")
    found = asyncio.run(driving.drive.run())
    assert (found.unavailable_s, found.from_version, found.to_version) == (0.0, 0, 2)


def test_prepared_nothing_is_handed_over_and_both_versions_are_told(
    former_code: Former, monkeypatch: pytest.MonkeyPatch
) -> None:
    driving = Driving(former_code, monkeypatch)
    found = asyncio.run(driving.drive.prepare())
    assert isinstance(found, Prepared)
    assert (found.prepared, found.from_version, found.to_version) == (True, 1, 2)
    assert driving.fingerprint == former_code.code.fingerprint, "the log is of the former code"
    driving.led = PeerUnreachable("nobody serves")
    with pytest.raises(UpgradeCalledOff, match="nobody serves"):
        asyncio.run(driving.drive.prepare())
    driving.fingerprint = driving.described.fingerprint
    assert isinstance(asyncio.run(driving.drive.prepare()), Driven), "it is made already"


@pytest.mark.parametrize("on", [True, False])
def test_an_image_with_other_code_than_was_checked_is_refused(
    former_code: Former, on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    driving = Driving(former_code, monkeypatch)
    driving.drive._fingerprint = "ee" * 16 if on else driving.described.fingerprint.hex()
    if on:
        with pytest.raises(UpgradeRefused, match="eeeeeeeeeeee was checked: its tag was moved since"):
            asyncio.run(driving.drive.run())
    else:
        assert asyncio.run(driving.drive.run()).primary == "r3"


@pytest.mark.parametrize(
    ("error", "kind"),
    [(PeerUnreachable("nobody serves"), UpgradeCalledOff), (UpgradeRefused("HandlerGone"), UpgradeRefused)],
)
def test_whatever_else_than_a_refusal_stands_in_the_way_is_a_calling_off(
    former_code: Former, error: Exception, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    driving = Driving(former_code, monkeypatch)
    driving.led = error
    with pytest.raises(UpgradeCalledOff) as caught:
        asyncio.run(driving.drive.run())
    assert type(caught.value) is kind
    assert str(error) in str(caught.value)


def test_lock_store_that_stays_away_calls_it_off(former_code: Former, monkeypatch: pytest.MonkeyPatch) -> None:
    driving = Driving(former_code, monkeypatch, timeout_s=0.05)
    driving.failures = [LockUnavailable("away")] * 1_000_000
    with pytest.raises(UpgradeCalledOff, match="away"):
        asyncio.run(driving.drive.run())
