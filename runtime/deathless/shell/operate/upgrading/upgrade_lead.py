"""Leads through an upgrade up to its commit, whoever started the replicas of the new code.

    preparing   the upgraders follow by the former code
    ready       they have run all of the log
    checking    one of them migrates all that there is, to see what does not fit: that is refused here, by name; code
                for which nobody gave a word runs what was logged lately, and is to answer it in the same way
    cutting     the primary hands over to one of them, which makes the upgrade: the commit is its head in the lock

On a machine of one's own the upgraders are processes that `live_upgrade` starts; in a cluster they are pods
(`upgrade_drive`). What differs between the two is the port `Upgraders`.

Guarantees: nothing is decided here that the replicas do not decide themselves; where a step fails before the commit the
upgraders are told to stop, and who led is told why. Does not: start a replica, nor see to what comes behind the commit.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec

from deathless.base.config import ReplicaConfig, UpgradeConfig
from deathless.base.errors import (
    DeathlessError,
    NotPrimary,
    PeerUnreachable,
    RetryLater,
    UpgradeCalledOff,
    UpgradeRefused,
)
from deathless.shell.net.admin_call import Access, access_of, ask, fitted
from deathless.shell.operate.status import ReplicaView, ServiceView, look
from deathless.shell.operate.upgrading.logged_answers import compare_with_log
from deathless.shell.service_code.description import Description
from deathless.shell.upgrade.planning import Head, head_of

TOLD_S: Final = 2.0  # between two words about how far the upgraders are


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What happened, for who waits."""

    phase: str  # preparing | ready | checking | cutting | following | leaving | done
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waits:
    """How long each step may take, seconds.

    Attributes:
        ready: until the upgraders have run all of the log.
        cut: from the order until the new code serves.
        follow: until the replicas of before follow it.
        poll: between two looks; a fifth of it while nobody serves.
    """

    ready: float = 600.0
    cut: float = 60.0
    follow: float = 120.0
    poll: float = 0.05


class Upgraders(Protocol):
    """The replicas of the new code."""

    @property
    def names(self) -> Sequence[str]:
        """Of all of them; the first is handed over to."""
        ...

    def has_ended(self, name: str) -> bool:
        """Is this one gone, and does it not come back?"""
        ...

    async def passes(self, view: ReplicaView, why: str) -> bool:
        """Does what keeps this one from going on pass by itself, or by what is done about it here?"""
        ...

    def last_words(self, name: str) -> str:
        """Say what its log says last, or where that stands."""
        ...

    async def stop(self) -> None:
        """Have all of them go, where that is ours to do."""
        ...


class _Upgrade(msgspec.Struct, frozen=True):
    id: str = ""
    former_lsn: int = 0
    waiting_bytes: int = 0
    problem: str = ""


class _Status(msgspec.Struct, frozen=True):
    lsn: int
    generation: int = 1
    upgrade: _Upgrade = _Upgrade()


class _Misfit(msgspec.Struct, frozen=True):
    word: str
    subject: str
    text: str


class _Trial(msgspec.Struct, frozen=True):
    problem: str = ""
    misfits: tuple[_Misfit, ...] = ()
    notes: tuple[str, ...] = ()
    compatible: bool = False
    keys: int = 0
    lsn: int = 0
    seconds: float = 0.0


class UpgradeLead:
    """The way of one shard to the commit of one upgrade.

    Args:
        config: of a replica of the shard.
        described: the code behind the upgrade.
        upgraders: that are to make it.
        tell: gets what happens.
        waits: how long each step may take.
        only_compatible: refuse what does not leave the interface and all states as they are, or answers what was
            logged lately in another way.
    """

    def __init__(
        self,
        config: ReplicaConfig,
        described: Description,
        upgraders: Upgraders,
        tell: Callable[[Told], None],
        waits: Waits,
        *,
        only_compatible: bool = False,
    ) -> None:
        self._config = config
        self._access: Access = access_of(config)
        self._described = described
        self._upgraders = upgraders
        self._tell = tell
        self._waits = waits
        self._only_compatible = only_compatible

    async def run(self, upgrade: UpgradeConfig) -> tuple[ServiceView, float]:
        """Go through the steps, or go on where somebody else was stopped; gives the view then, and the pause, seconds.

        Raises: UpgradeCalledOff where it can't be made, and nothing has changed; UpgradeRefused; what the steps raise.
        """
        try:
            if not await self._prepared(upgrade):
                await self._tried(upgrade)
            return await self._cut_over(upgrade)
        except BaseException:
            await self._call_off(upgrade)
            raise

    async def prepare(self, upgrade: UpgradeConfig) -> None:
        """Go through the steps before the cut. One that is made meanwhile is no error. Raises: as `run`."""
        if not await self._prepared(upgrade):
            await self._tried(upgrade)

    async def is_made(self, upgrade: UpgradeConfig) -> bool:
        """Is the log of the new code by now? Raises: UpgradeCalledOff where it is of a third one."""
        head: Head = await head_of(self._config)
        if head.cut.generation == upgrade.from_generation:
            return False
        if not head.is_of(self._config.directory, self._described):
            raise UpgradeCalledOff(f"another upgrade was faster: generation {head.cut.generation} is of other code")
        return True

    # ---- preparing -----------------------------------------------------------------------------------------------

    async def _prepared(self, upgrade: UpgradeConfig) -> bool:
        """Wait until each upgrader has run all that the primary has; True: it is made already, by an earlier run.

        Raises: UpgradeCalledOff.
        """
        deadline = time.monotonic() + self._waits.ready
        told_at, names = 0.0, self._upgraders.names
        while True:
            stand = "nobody could be asked"
            try:
                view = await self._look()
                behind = {name: await self._behind(view.of(name), view, upgrade) for name in names}
                if view.serving and all(lag == 0 for lag in behind.values()):
                    self._say("ready", f"{', '.join(names)} have run all of the log, to lsn {_lsn_of(view)}")
                    return False
                if await self.is_made(upgrade):
                    return True
                stand = "; ".join(self._stand(name, view.of(name), lag) for name, lag in behind.items())
            except UpgradeCalledOff:
                raise
            except RetryLater as error:  # the lock store, or all replicas, for a moment
                stand = str(error)
            gone = [name for name in names if self._upgraders.has_ended(name)]
            if gone:
                raise UpgradeCalledOff(f"{gone[0]} ended: {self._upgraders.last_words(gone[0])}")
            if time.monotonic() > deadline:
                raise UpgradeCalledOff(f"the upgraders are not ready after {self._waits.ready:g} s: {stand}")
            if time.monotonic() - told_at > TOLD_S:
                told_at = time.monotonic()
                self._say("preparing", stand)
            await asyncio.sleep(self._waits.poll)

    async def _behind(self, view: ReplicaView | None, of: ServiceView, upgrade: UpgradeConfig) -> int | None:
        """How many messages an upgrader's former code has still to run; None: it does not say. Raises: as above."""
        if view is None:
            return None
        if view.role != "upgrader" or not view.client:
            if view.state == "dead":
                told = f", {view.condition}" if view.condition else ""
                await self._stands_in_the_way(view, f"can't go on{told}: {self._upgraders.last_words(view.replica)}")
            return None
        try:
            status = await self._status(view)
        except DeathlessError:
            return None
        if status.upgrade.id != upgrade.id:
            return None  # it was started for another, and is about to go
        if status.upgrade.problem:
            await self._stands_in_the_way(view, status.upgrade.problem)
            return None
        return max(_lsn_of(of) - status.upgrade.former_lsn, status.lsn - status.upgrade.former_lsn, 0)

    async def _stands_in_the_way(self, view: ReplicaView, why: str) -> None:
        if not await self._upgraders.passes(view, why):
            raise UpgradeCalledOff(f"{view.replica}: {why}")

    def _stand(self, name: str, view: ReplicaView | None, lag: int | None) -> str:
        if lag is not None:
            return f"{name} is {lag} messages behind"
        if view is None:
            return f"{name} is not there yet"
        if view.role == "upgrader":
            return f"{name} does not say how far it is with this upgrade"
        return f"{name} is {view.role} ({self._upgraders.last_words(name)})"

    async def _to_be_asked(self, upgrade: UpgradeConfig) -> ReplicaView | None:
        """Give the upgrader that says what fits; None: the upgrade is made. Nothing is cut over that was not tried.

        Raises: UpgradeCalledOff where it can't be seen to be one any more.
        """
        name, deadline = self._upgraders.names[0], time.monotonic() + self._waits.cut
        while True:
            view = (await self._look()).of(name)
            if view is not None and view.role == "upgrader" and view.client:
                return view
            if await self.is_made(upgrade):
                return None
            if time.monotonic() > deadline:
                raise UpgradeCalledOff(self._stand(name, view, None))
            await asyncio.sleep(self._waits.poll)

    async def _status(self, view: ReplicaView) -> _Status:
        return fitted(await ask(view.client, "status", self._access, {}), _Status)

    # ---- checking ------------------------------------------------------------------------------------------------

    async def _tried(self, upgrade: UpgradeConfig) -> None:
        """Have an upgrader migrate all that there is, without a cut. Raises: UpgradeRefused with what does not fit."""
        view = await self._to_be_asked(upgrade)
        if view is None:
            return  # it is made: an earlier run of this came further
        self._say("checking", f"{view.replica} migrates what there is")
        try:
            answer = await ask(view.client, "try_upgrade", self._access, {}, answer_s=self._waits.ready)
        except PeerUnreachable as error:
            raise UpgradeCalledOff(f"{view.replica} did not tell what fits: {error.message}") from error
        found = fitted(answer, _Trial)
        if found.problem:
            raise UpgradeCalledOff(found.problem)
        for note in found.notes:
            self._say("checking", f"note: {note}")
        if found.misfits:
            raise UpgradeRefused("; ".join(each.text for each in found.misfits))
        if self._only_compatible and not found.compatible:
            raise UpgradeRefused(
                f"the new code fits, but is not compatible: {'; '.join(found.notes) or 'states are migrated'}",
                remedy=f"it needs a person's word: `kubectl deathless upgrade {self._config.service}`",
            )
        if self._only_compatible:
            self._say("checking", await compare_with_log(self._config, upgrade))
        how = "stay as they are" if found.compatible else "are migrated"
        self._say("checking", f"it fits: {found.keys:,} keys {how}, to lsn {found.lsn}, in {found.seconds:.2f} s")

    # ---- the cut ---------------------------------------------------------------------------------------------------

    async def _cut_over(self, upgrade: UpgradeConfig) -> tuple[ServiceView, float]:
        """Have the primary hand over, and wait for the commit. Raises: UpgradeCalledOff."""
        before, target = await self.serving(), self._upgraders.names[0]
        primary = before.of(before.primary)
        assert primary is not None
        if await self.is_made(upgrade):  # an earlier run of this came as far
            return before, 0.0
        self._say("cutting", f"{primary.replica} hands over to {target}")
        arguments = {"target": target, "upgrade": upgrade.id}
        # One that dies meanwhile gives no answer: what came of it the log says.
        with contextlib.suppress(PeerUnreachable):
            await ask(primary.client, "switchover", self._access, arguments, answer_s=self._waits.cut)
        gone = time.monotonic()
        while time.monotonic() - gone < self._waits.cut:
            view = await self._look()
            if view.serving and view.epoch > before.epoch:
                if await self.is_made(upgrade):
                    self._say("cutting", f"{view.primary} serves, epoch {view.epoch}")
                    return view, time.monotonic() - gone
                why = self._upgraders.last_words(target)
                raise UpgradeCalledOff(f"{view.primary} of the former code serves on, epoch {view.epoch}: {why}")
            await asyncio.sleep(self._waits.poll / 5)
        raise PeerUnreachable(
            f"{primary.replica} let go, but nobody serves after {self._waits.cut:g} s", remedy="see `deathless status`"
        )

    async def _call_off(self, upgrade: UpgradeConfig) -> None:
        """Stop the upgraders, unless the upgrade is made, or nobody can tell: then they are replicas like others."""
        try:
            head = await head_of(self._config)
        except (DeathlessError, OSError):
            return
        if head.cut.generation == upgrade.from_generation:
            await self._upgraders.stop()

    # ---- looking -------------------------------------------------------------------------------------------------

    async def serving(self) -> ServiceView:
        """Look at a service that has a primary. Raises: NotPrimary where it has none."""
        view = await self._look()
        if not view.serving:
            raise NotPrimary(
                f"{view.service} has no primary to be upgraded", remedy="start it, and see `deathless status`"
            )
        return view

    async def _look(self) -> ServiceView:
        return await look(self._config.directory, self._access)

    def _say(self, phase: str, text: str) -> None:
        self._tell(Told(phase=phase, text=text))


def _lsn_of(view: ServiceView) -> int:
    primary = view.of(view.primary)
    return primary.lsn if primary is not None else 0
