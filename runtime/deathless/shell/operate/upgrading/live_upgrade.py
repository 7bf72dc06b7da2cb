"""`deathless upgrade --to`: other code for a service that runs, without a pause that callers would call one.

    preparing   upgraders are started: replicas of the new code, which follow by the former code (shell.upgrade)
    ready, checking, cutting           up to the commit (upgrade_lead)
    following   the replicas of before begin again with the new code by themselves, and catch up
    leaving     one of them takes over from the upgrader, and the upgraders are stopped

Nothing is decided here that the replicas do not decide themselves: a tool that dies at any of these steps leaves a set
that serves, and the same command goes on where it was, for an upgrade's id is made from what it is about.

Guarantees: up to the commit everything can be called off, and is, where a step fails; one upgrade of a shard is under
way at a time. Does not: import the author's code. May import base, engine and the shell.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidArgument, UpgradeRefused
from deathless.shell.link.config_file import config_path
from deathless.shell.net.admin_call import Access, access_of, ask
from deathless.shell.operate.status import ReplicaView, ServiceView, look
from deathless.shell.operate.upgrading.kept_topics import kept_by_all
from deathless.shell.operate.upgrading.local_upgraders import LocalUpgraders
from deathless.shell.operate.upgrading.upgrade_lead import Told, UpgradeLead, Waits
from deathless.shell.service_code.code_process import describe_code_of
from deathless.shell.service_code.code_record import what_differs
from deathless.shell.service_code.description import Description
from deathless.shell.service_code.former_command import former_command
from deathless.shell.service_code.kept_code import is_kept, keep
from deathless.shell.upgrade.planning import Head, head_of, plan_upgrade

__all__ = ["LiveUpgrade", "Outcome", "Told", "Waits", "absolute_module"]


class Outcome(msgspec.Struct, rename="camel"):
    """What an upgrade of a shard came to."""

    shard: int
    generation: int
    fingerprint: str
    primary: str
    epoch: int
    unavailable_s: float  # from the primary's last word to the new one's first
    missing: list[str]  # replicas that did not follow in time


class LiveUpgrade:
    """The upgrade of one shard.

    Args:
        template: config of a replica of the shard, as the manifest gives it.
        module: of the new code, absolute where it is a file.
        environment: of the replicas' processes, the whole of it.
        tell: gets what happens.
        upgraders: how many; two, so that the commit does not leave one replica alone.
        waits: how long each step may take.
        code: name of the folder in code/ with the copy of the new code, for a way back; empty: the module as it stands.
    """

    def __init__(
        self,
        template: ReplicaConfig,
        module: str,
        environment: Mapping[str, str],
        tell: Callable[[Told], None],
        *,
        upgraders: int = 2,
        waits: Waits | None = None,
        code: str = "",
    ) -> None:
        self._template = template
        self._directory = Path(template.directory)
        self._access: Access = access_of(template)
        self._module = module
        self._code = code
        self._environment = environment
        self._tell = tell
        self._waits = waits or Waits()
        self._upgraders = LocalUpgraders(template.directory, environment, upgraders)

    @property
    def names(self) -> list[str]:
        """Of the upgraders."""
        return self._upgraders.names

    async def run(self) -> Outcome:
        """Make it, or go on where an earlier run was stopped.

        Raises: UpgradeCalledOff where it can't be made, and nothing has changed; what its steps raise.
        """
        template = self._template
        described = self._describe()
        lead = UpgradeLead(template, described, self._upgraders, self._tell, self._waits)
        before = await lead.serving()
        head = await head_of(template)
        unavailable_s = 0.0
        if head.is_of(template.directory, described):
            self._upgraders.find_left_by(head.cut)
            if head.cut.generation == 1 and not self.names:
                raise InvalidArgument(
                    f"{self._module} is the code that runs already", remedy="name the changed code with --to"
                )
            self._say("following", f"{self._module} serves already, generation {head.cut.generation}")
            view, generation = before, head.cut.generation
        else:
            config = self._config(head, described)
            assert config.upgrade is not None
            generation = head.cut.generation + 1
            others = await self._upgraders.stop_others(config.upgrade)
            if others:
                self._say("preparing", f"{', '.join(others)} of another upgrade stop")
            what = "found" if self._upgraders.start(before, config) else "started"
            self._say("preparing", f"{what} {', '.join(self.names)}, which run the log by the former code")
            view, unavailable_s = await lead.run(config.upgrade)
        missing = await self._followed(before)
        view = await self._leave(view, missing)
        return Outcome(
            shard=template.shard,
            generation=generation,
            fingerprint=described.fingerprint.hex(),
            primary=view.primary,
            epoch=view.epoch,
            unavailable_s=round(unavailable_s, 4),
            missing=missing,
        )

    def _describe(self) -> Description:
        kept = kept_by_all(self._template.directory, self._template.drivers)
        wanted = msgspec.structs.replace(self._template, module=self._module, code=self._code, drivers=kept)
        described = describe_code_of(wanted, self._environment)
        if self._code and self._code not in {each.hex() for each in described.spellings}:
            told = what_differs(self._template.directory, bytes.fromhex(self._code), described)
            raise UpgradeRefused(
                f"the code {self._code[:12]} that is kept is another one here, by interpreter or libraries: {told}",
                remedy="give the command with those that ran it, or name its source: `deathless upgrade --to`",
            )
        return described

    def _config(self, head: Head, described: Description) -> ReplicaConfig:
        """Give the config of an upgrader, but for its name."""
        template = self._template
        upgrade = plan_upgrade(template, head, described)
        interpreter, folder, module = former_command(template.directory, head.cut.fingerprint)
        if not self._code:
            keep(template.directory, described, service=template.service, module=self._module)
        return msgspec.structs.replace(
            template,
            module=self._module,
            code=described.fingerprint.hex() if is_kept(template.directory, described.fingerprint) else "",
            client_listen=_any_port(template.client_listen),
            replication_listen=_any_port(template.replication_listen),
            control_listen=_any_port(template.control_listen),
            ingress_listen="",
            health_listen="",
            upgrade=msgspec.structs.replace(upgrade, interpreter=interpreter, code=folder.name, module=module),
        )

    # ---- behind it -------------------------------------------------------------------------------------------------

    async def _followed(self, before: ServiceView) -> list[str]:
        """Wait until those of before follow with the new code; gives the names of those that do not in time."""
        upgraders = self._upgraders.configs()
        # The others may tell of an upgrader for a while that was stopped: its folder is gone.
        names = [
            each.replica
            for each in before.replicas
            if each.replica not in upgraders
            and each.supervisor_pid
            and config_path(self._directory, each.replica).exists()
        ]
        self._say("following", f"{', '.join(names)} begin again with the new code")
        deadline = time.monotonic() + self._waits.follow
        while True:
            view = await look(self._directory, self._access)
            late = [name for name in names if not _follows(view.of(name), view)]
            if not late or time.monotonic() > deadline:
                return late
            await asyncio.sleep(self._waits.poll)

    async def _leave(self, view: ServiceView, missing: list[str]) -> ServiceView:
        """Hand the upgrader's role to a replica that stays, and stop the upgraders; gives the last view."""
        view = await look(self._directory, self._access)
        staying = [each for each in view.replicas if _follows(each, view) and each.replica not in self.names]
        if missing or not staying:
            self._say("leaving", f"{', '.join(self.names)} stay until {', '.join(missing) or 'others'} follow")
            return view
        if view.primary in self.names:
            primary = view.of(view.primary)
            assert primary is not None
            heir = max(staying, key=lambda each: (each.role == "standby", each.lsn)).replica
            self._say("leaving", f"{view.primary} hands over to {heir}, and {', '.join(self.names)} stop")
            await ask(primary.client, "switchover", self._access, {"target": heir}, answer_s=self._waits.cut)
            view = await self._served(view.epoch)
        await self._upgraders.stop()
        self._say("done", f"{view.primary} is primary, epoch {view.epoch}")
        return view

    async def _served(self, epoch: int) -> ServiceView:
        deadline = time.monotonic() + self._waits.cut
        while True:
            view = await look(self._directory, self._access)
            if (view.serving and view.epoch > epoch) or time.monotonic() > deadline:
                return view
            await asyncio.sleep(self._waits.poll)

    def _say(self, phase: str, text: str) -> None:
        self._tell(Told(phase=phase, text=text))


def absolute_module(target: str, folder: Path) -> str:
    """Give a module's name as a config has it: a file's path absolute, a dotted name as it is.

    Args:
        target: as for `load_service`.
        folder: what a relative path is relative to.
    """
    path, colon, attribute = target.rpartition(":")
    if not (colon and path.endswith(".py")):
        return target
    return f"{(folder / path).resolve()}{colon}{attribute}"


def _any_port(listen: str) -> str:
    host, _, _ = listen.rpartition(":")
    return f"{host}:0"


def _follows(view: ReplicaView | None, of: ServiceView) -> bool:
    """Does it go on with the new code? Also one that leads by now does, where the upgrader died."""
    if view is None or view.state != "running" or view.epoch != of.epoch:
        return False
    return view.role in ("standby", "checkpointer") or view.replica == of.primary
