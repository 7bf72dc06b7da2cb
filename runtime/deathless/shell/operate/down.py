"""Whether anything of a service runs, for tools that would wait for an answer which nobody can give.

    a replica accepts a connection ----------------> somebody is there: wait
    an address says nothing at all ----------------> nobody knows: wait
    every address refuses, and on this machine
        `deathless up` or a supervisor is at work -> it starts, or stays stopped: then the reason
        nothing is at work ------------------------> nothing runs: say so, and how to start it

Guarantees: a service that may yet answer is never called down; the answer takes no longer than two rounds of
connections and one look at the supervisors. Does not: start or change anything. May import base.
"""

from __future__ import annotations

from pathlib import Path

from deathless.base.errors import DeathlessError, PeerUnreachable
from deathless.shell.directory.members import Member, read_members
from deathless.shell.disk.holders import holder_of
from deathless.shell.net.reachable import any_may_listen
from deathless.shell.operate.runner import running_runner
from deathless.shell.operate.status import Part, look_at_all
from deathless.shell.operate.target import Target


async def why_down(found: Target) -> DeathlessError | None:
    """Give the error for a service of which nothing can answer until somebody acts; None: something may."""
    parts = found.parts
    members = [member for part in parts for member in read_members(str(part.directory)).values()]
    if await any_may_listen([member.client for member in members]):
        return None
    if not (_at_work(found, parts) or await any_may_listen([member.control for member in members])):
        return _nothing_runs(found, members)
    view = await look_at_all(parts)
    if not view.refusal:
        return None
    return PeerUnreachable(
        f"every replica of {found.config.service} stays stopped until somebody acts: {view.refusal}",
        remedy=f"see docs/errors/{view.refusal}.md and `deathless logs --level error`",
    )


def _nothing_runs(found: Target, members: list[Member]) -> PeerUnreachable:
    seen = "no replica that is announced there answers" if members else "no replica is announced there"
    manifest = found.where if found.loaded is not None else "with its manifest"
    return PeerUnreachable(
        f"no process of {found.config.service} runs in {found.config.service_directory}: {seen}",
        remedy=f"start it: `deathless up {manifest}`",
    )


def _at_work(found: Target, parts: list[Part]) -> bool:
    """Is a runner or a supervisor of the service at work on this machine, as far as its files can be looked at?"""
    try:
        if running_runner(Path(found.config.service_directory)):
            return True
        return any(holder_of(path) for part in parts for path in part.directory.glob("replicas/*/supervisor*.lock"))
    except OSError:
        return True
