"""What is never cut over: code that was not tried, or that a person has to say yes to. Real sets: tests/process."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from deathless.base.config import ReplicaConfig, UpgradeConfig
from deathless.base.errors import LockUnavailable, PeerUnreachable, UpgradeCalledOff, UpgradeRefused
from deathless.shell.net.admin_call import Access
from deathless.shell.operate.status import ReplicaView, ServiceView
from deathless.shell.operate.upgrading import upgrade_lead
from deathless.shell.operate.upgrading.upgrade_drive import PodUpgraders
from deathless.shell.operate.upgrading.upgrade_lead import UpgradeLead, Waits

CONFIG = ReplicaConfig(service="bank", module="bank:bank", directory="/none", replica="r0")
UPGRADE = UpgradeConfig(id="ab" * 16, from_generation=1, from_fingerprint="aa" * 16, from_version=1)


class Service:
    """A service that is led through an upgrade, as far as its replicas say."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *roles: str, compatible: bool = True) -> None:
        self.roles = list(roles)  # of the upgrader at each look; the last one stays
        self.generation = 1
        self.asked: list[str] = []
        self.stopped = 0
        self._compatible = compatible
        self.differs = ""  # what was logged gives something else
        monkeypatch.setattr(upgrade_lead, "compare_with_log", self.compare)
        for name, fake in (("look", self.look), ("ask", self.ask), ("head_of", self.head_of)):
            monkeypatch.setattr(upgrade_lead, name, fake)

    async def look(self, *_: object) -> ServiceView:
        role = self.roles.pop(0) if len(self.roles) > 1 else self.roles[0]
        primary = ReplicaView("r0", "running", "primary", client="p:1", epoch=1)
        return ServiceView("bank", "/none", "r0", 1, [primary, ReplicaView("r3", "running", role, client="u:1")])

    async def ask(self, _: str, command: str, *__: object, **___: object) -> dict[str, object]:
        self.asked.append(command)
        if command == "status":
            return {"lsn": 0, "upgrade": {"id": UPGRADE.id, "former_lsn": 0}}
        if command == "try_upgrade":
            return {"compatible": self._compatible, "notes": ["a reply changes"]}
        self.generation = 2
        return {}

    async def head_of(self, _: ReplicaConfig) -> object:
        if self.generation == 0:
            raise LockUnavailable("away")
        return SimpleNamespace(cut=SimpleNamespace(generation=self.generation), is_of=lambda *_: True)

    async def compare(self, *_: object) -> str:
        self.asked.append("compare")
        if self.differs:
            raise UpgradeRefused(self.differs)
        return "nothing differs"

    async def stop(self) -> None:
        self.stopped += 1

    def lead(self, *, only_compatible: bool = False, cut_s: float = 600.0) -> None:
        pods = PodUpgraders(["r3"], Access("bank"))
        pods.stop = self.stop  # type: ignore[method-assign]
        waits = Waits(ready=600.0, cut=cut_s, poll=0.0)
        lead = UpgradeLead(
            CONFIG, cast("Any", None), pods, lambda _: None, waits, only_compatible=only_compatible
        )  # fmt: skip
        asyncio.run(lead.run(UPGRADE))


def test_an_upgrader_that_is_not_seen_for_a_moment_is_tried_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(monkeypatch, "upgrader", "-", "starting", "upgrader", compatible=False)
    with pytest.raises(UpgradeRefused, match="not compatible: a reply changes"):
        service.lead(only_compatible=True)
    assert service.asked == ["status", "try_upgrade"]
    assert service.stopped == 1


def test_an_upgrader_that_can_not_be_asked_is_not_handed_over_to(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(monkeypatch, "upgrader", "-")
    with pytest.raises(UpgradeCalledOff, match="r3 is -"):
        service.lead(cut_s=0.02)
    assert "switchover" not in service.asked


def test_where_nobody_can_tell_whether_it_is_made_the_upgraders_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(monkeypatch, "upgrader", compatible=False)

    async def away(_: str, command: str, *__: object, **___: object) -> dict[str, object]:
        if command == "try_upgrade":
            service.generation = 0
            return {"compatible": False}
        return {"lsn": 0, "upgrade": {"id": UPGRADE.id, "former_lsn": 0}}

    monkeypatch.setattr(upgrade_lead, "ask", away)
    with pytest.raises(UpgradeRefused):
        service.lead(only_compatible=True)
    assert service.stopped == 0


def test_what_answers_otherwise_is_not_cut_over_without_a_word(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Service(monkeypatch, "upgrader")
    service.differs = "AnswerDiffers: lsn 5"
    with pytest.raises(UpgradeRefused, match="AnswerDiffers: lsn 5"):
        service.lead(only_compatible=True)
    assert service.asked == ["status", "try_upgrade", "compare"]
    assert service.stopped == 1
    with pytest.raises(PeerUnreachable):  # nobody leads in this play
        service.lead(cut_s=0.02)
    assert service.asked[3:] == ["status", "try_upgrade", "switchover"], "with a word nothing is compared"
