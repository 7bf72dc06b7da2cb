"""`deathless upgrade drive`: leads through an upgrade in a cluster, where others make and remove the upgraders.

It runs in a pod with the new image. The code behind the upgrade is the image's own; the upgraders are pods, which need
not be there yet. What stops one of them is waited for: the kubelet starts a container again, and an upgrader that has
lost its former code is told to begin anew.

Guarantees: one that is started again goes on where this one was; a log that is of this code already is a success at
once; whatever else than a refusal stands in the way is told as a calling off. Does not: start or stop a replica, write
to the log.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, TypeVar

import msgspec

from deathless.base.config import ReplicaConfig, UpgradeConfig
from deathless.base.errors import DeathlessError, RetryLater, UpgradeCalledOff, UpgradeRefused
from deathless.shell.net.admin_call import Access, access_of, ask
from deathless.shell.operate.status import ReplicaView
from deathless.shell.operate.upgrading.upgrade_lead import Told, UpgradeLead, Waits
from deathless.shell.service_code.code_process import describe_code_of
from deathless.shell.service_code.description import Description
from deathless.shell.service_code.interface_record import recorded
from deathless.shell.upgrade.planning import Head, head_of, plan_upgrade

POLL_S: Final = 0.2
MENDS_MAX: Final = 5  # so often an upgrader's worker is started anew, before what it says is believed
T = TypeVar("T")


class Driven(msgspec.Struct, rename="camel"):
    """What it came to."""

    generation: int
    fingerprint: str  # as replicas announce it
    primary: str
    unavailable_s: float  # from the former primary's last word to the new one's first; 0: it was made before
    from_version: int  # 0: it was made before, and it was not looked from what
    to_version: int


class Prepared(msgspec.Struct, rename="camel"):
    """What it came to where nothing was to be handed over."""

    prepared: bool
    fingerprint: str  # of the code that was tried
    from_version: int
    to_version: int


class PodUpgraders:
    """Those that somebody else starts.

    Args:
        names: of the replicas.
        access: to them.
    """

    def __init__(self, names: Sequence[str], access: Access) -> None:
        self.names = names
        self._access = access
        self._mends: Counter[str] = Counter()  # by name
        self._mended: set[tuple[str, int]] = set()  # workers that were told to end, by name and pid

    def has_ended(self, name: str) -> bool:
        """See Upgraders: a pod that is gone is made again."""
        del name
        return False

    async def passes(self, view: ReplicaView, why: str) -> bool:
        """See Upgraders: a worker that ended is started again; one that lost its former code is told to end."""
        del why
        if view.condition:
            return False
        if view.role != "upgrader" or (view.replica, view.worker_pid) in self._mended:
            return True
        if self._mends[view.replica] >= MENDS_MAX:
            return False
        await ask(view.control, "restart-worker", self._access, {})
        self._mends[view.replica] += 1
        self._mended.add((view.replica, view.worker_pid))
        return True

    def last_words(self, name: str) -> str:
        """See Upgraders."""
        return f"see the log of {name}'s pod"

    async def stop(self) -> None:
        """See Upgraders: their pods are another's to remove."""


class Drive:
    """One run.

    Args:
        config: that the replicas of the new code share, with what opens their ports.
        upgraders: names of the replicas that are to make the upgrade; the first is handed over to.
        environment: of the process that describes the code.
        tell: gets what happens.
        timeout_s: so long it is waited for the service, and for the upgraders.
        only_compatible: refuse what does not leave the interface and all states as they are.
        fingerprint: of the code that was checked, or that a user said yes to; empty: whatever code this is.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        upgraders: Sequence[str],
        environment: Mapping[str, str],
        tell: Callable[[Told], None],
        *,
        timeout_s: float,
        only_compatible: bool = False,
        fingerprint: str = "",
    ) -> None:
        self._config = config
        self._upgraders = PodUpgraders(upgraders, access_of(config))
        self._environment = environment
        self._tell = tell
        self._deadline = time.monotonic() + timeout_s
        self._only_compatible = only_compatible
        self._fingerprint = fingerprint

    async def run(self) -> Driven:
        """Make it, or go on where an earlier run was stopped. Raises: UpgradeCalledOff, UpgradeRefused."""
        described, head = await self._begun()
        if head.is_of(self._config.directory, described):
            return await self._made(described, 0.0, 0)
        lead, upgrade = self._led(described, head)
        try:
            _, unavailable_s = await lead.run(upgrade)
        except UpgradeRefused:
            raise
        except RetryLater as error:
            if not await self._is_made_anyway(described):
                raise _called_off(error) from error
            unavailable_s = 0.0
        return await self._made(described, unavailable_s, upgrade.from_version)

    async def prepare(self) -> Driven | Prepared:
        """Try everything, and hand nothing over; the upgraders go on. Raises: UpgradeCalledOff, UpgradeRefused."""
        described, head = await self._begun()
        if head.is_of(self._config.directory, described):
            return await self._made(described, 0.0, 0)
        lead, upgrade = self._led(described, head)
        try:
            await lead.prepare(upgrade)
        except UpgradeRefused:
            raise
        except RetryLater as error:
            raise _called_off(error) from error
        interface = recorded(self._config.directory, described.fingerprint)
        return Prepared(
            prepared=True,
            fingerprint=described.fingerprint.hex(),
            from_version=upgrade.from_version,
            to_version=interface.version if interface is not None else 0,
        )

    async def _begun(self) -> tuple[Description, Head]:
        """Give this image's code, and the log's head. Raises: as `run`."""
        described = await asyncio.to_thread(describe_code_of, self._config, self._environment)
        self._check_code(described)
        return described, await self._patiently(lambda: head_of(self._config))

    def _led(self, described: Description, head: Head) -> tuple[UpgradeLead, UpgradeConfig]:
        """Give who leads from the log's head to this code. Raises: as `run`."""
        upgrade = plan_upgrade(self._config, head, described)
        self._say(f"from generation {head.cut.generation}, version {upgrade.from_version}, by {self._names()}")
        waits = Waits(ready=max(0.0, self._deadline - time.monotonic()), poll=POLL_S)
        lead = UpgradeLead(
            self._config, described, self._upgraders, self._tell, waits, only_compatible=self._only_compatible
        )
        return lead, upgrade

    async def _made(self, described: Description, unavailable_s: float, from_version: int) -> Driven:
        """Tell the outcome, once somebody leads."""
        config = self._config
        head = await head_of(config)
        lead = UpgradeLead(config, described, self._upgraders, self._tell, Waits(poll=POLL_S))
        view = await self._patiently(lead.serving)
        self._tell(Told(phase="done", text=f"generation {head.cut.generation} serves, {view.primary} is primary"))
        interface = recorded(config.directory, described.fingerprint)
        return Driven(
            generation=head.cut.generation,
            fingerprint=head.cut.fingerprint.hex(),
            primary=view.primary,
            unavailable_s=round(unavailable_s, 4),
            from_version=from_version,
            to_version=interface.version if interface is not None else 0,
        )

    def _check_code(self, described: Description) -> None:
        """Refuse other code than was asked for: one name of an image may stand for another one by now."""
        if self._fingerprint and self._fingerprint not in {each.hex() for each in described.spellings}:
            raise UpgradeRefused(
                f"this image holds code {described.fingerprint.hex()[:12]}, and {self._fingerprint[:12]} was checked: "
                "its tag was moved since",
                remedy="name the image by its digest, or a tag that stays; or delete this pod and the one that checked",
            )

    async def _is_made_anyway(self, described: Description) -> bool:
        """Did the commit come although who leads through it saw something fail?"""
        try:
            head: Head = await head_of(self._config)
        except DeathlessError:
            return False
        return head.is_of(self._config.directory, described)

    async def _patiently(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call until it does not fail for a reason that passes. Raises: UpgradeCalledOff at the deadline."""
        while True:
            try:
                return await call()
            except UpgradeCalledOff:
                raise
            except RetryLater as error:
                if time.monotonic() > self._deadline:
                    raise _called_off(error) from error
            await asyncio.sleep(POLL_S)

    def _names(self) -> str:
        return ", ".join(self._upgraders.names)

    def _say(self, text: str) -> None:
        self._tell(Told(phase="preparing", text=text))


def _called_off(error: RetryLater) -> UpgradeCalledOff:
    return error if isinstance(error, UpgradeCalledOff) else UpgradeCalledOff(str(error))
