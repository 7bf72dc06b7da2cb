"""What a service's replicas are now, as their supervisors tell.

A service with several shards is seen as all its replicas, each called SHARD/ID, and as one view of each shard.

Every supervisor knows all the others, but itself best: its own word about itself counts, another's only where it does
not answer. Of other services the primary's worker tells, and is asked only where that is wanted. Guarantees: a view of
every replica that is announced in members/, answered or not. Does not: decide anything. May import base.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError, OtherDirectory
from deathless.shell.directory.members import Member, read_members
from deathless.shell.link.standing import PROGRAM_SERVES, Program
from deathless.shell.net.admin_call import Access, access_of, ask, fitted
from deathless.shell.operate.agents import DriverView, look_at_drivers

ASK_S: Final = 1.0


class ReplicaView(msgspec.Struct, rename="camel"):
    """One replica."""

    replica: str
    state: str  # of its worker; "unreachable": its supervisor does not answer and nobody heard of it lately
    role: str
    epoch: int = 0
    lsn: int = 0
    lag: int | None = None  # messages behind the primary; None: not known
    client: str = ""
    ingress: str = ""
    control: str = ""
    condition: str = ""  # an error's code, or Diverging; empty: none
    supervisor_pid: int = 0
    worker_pid: int = 0
    answered: bool = False
    full: bool = False
    outbox_full: bool = False
    clock: str = ""  # "ahead" of logical time, or "behind"; empty: they go together
    waits_for: int = 0  # of a primary: activities that must run at most once, which it lets end before it hands over
    waits_since: int = 0  # when that began, seconds since 1970
    waits_until: int = 0  # when it hands over all the same
    outside_held: bool = False  # of a primary: what it sends to the outside is held until an operator lets it go
    program: str = ""  # serving, loading, ended or failing; empty: the code is a module, or it is not known
    program_text: str = ""  # why it ended last, while it does not serve
    program_differs: str = ""  # the last message that it sent otherwise when it was run again
    program_skips: int = 0  # rows of which an operator has it skip something


class UnreachedPeer(msgspec.Struct, rename="camel"):
    """Another service, or a driver, that this one sends to and is not connected to."""

    service: str
    shard: int
    driver: bool
    away_s: float | None  # without a connection for so long, as its primary knows it; None: not known
    lag: int  # messages that wait for it
    problem: str  # why it is not connected
    told_by: str = ""  # the primary that says so


class ServiceView(msgspec.Struct, rename="camel"):
    """All of a service."""

    service: str
    directory: str
    primary: str  # a replica's name; empty: none is known
    epoch: int
    replicas: list[ReplicaView]
    shards: list[ServiceView] | msgspec.UnsetType = msgspec.UNSET  # of each; unset: there is one
    unreached_peers: list[UnreachedPeer] | None = None  # None: not asked, or no primary answered
    drivers: list[DriverView] | msgspec.UnsetType = msgspec.UNSET  # of a pipeline, on this machine; unset: none

    @property
    def parts(self) -> list[ServiceView]:
        """The view of each shard: this one, where there is one."""
        return [self] if isinstance(self.shards, msgspec.UnsetType) else self.shards

    @property
    def serving(self) -> bool:
        """A primary is running, in each shard."""
        return all(
            any(view.replica == part.primary and view.state == "running" for view in part.replicas)
            for part in self.parts
        )

    @property
    def without_program(self) -> list[ReplicaView]:
        """The primaries whose program is known not to serve, so that callers wait."""
        led = [view for part in self.parts for view in part.replicas if view.replica == part.primary]
        return [view for view in led if view.program not in ("", PROGRAM_SERVES)]

    @property
    def primaries(self) -> set[str]:
        """Names of the primaries, of each shard."""
        return {part.primary for part in self.parts if part.primary}

    @property
    def refused(self) -> list[ReplicaView]:
        """The replicas of the first shard that all stay stopped until an operator acts; none: each shard goes on."""
        for part in self.parts:
            codes = [view.condition for view in part.replicas if view.state == "dead"]
            if codes and all(codes) and len(codes) == len(part.replicas):
                return part.replicas
        return []

    @property
    def refusal(self) -> str:
        """The code for which they do; empty: at least one goes on."""
        return self.refused[0].condition if self.refused else ""

    def of(self, replica: str) -> ReplicaView | None:
        """One replica's view."""
        return next((view for view in self.replicas if view.replica == replica), None)


class _Told(msgspec.Struct):
    """One replica as a supervisor tells it (the fields of `core.supervisor.detection.Report`)."""

    replica: str
    state: str
    role: str
    epoch: int
    lsn: int
    client: str = ""
    control: str = ""
    ingress: str = ""
    condition: str = ""
    pid: int = 0
    worker_pid: int = 0
    full: bool = False
    outbox_full: bool = False
    clock: str = ""  # "ahead" of logical time, or "behind"; empty: they go together
    waits_for: int = 0
    waits_since: int = 0
    waits_until: int = 0
    outside_held: bool = False
    program: Program | None = None
    heard_ms: int = msgspec.field(name="heardMs", default=-1)


class _Primary(msgspec.Struct):
    replica: str
    epoch: int


class _Answer(msgspec.Struct):
    replicas: list[_Told]
    primary: _Primary | None = None


class _Peer(msgspec.Struct, rename="camel"):
    """Another service as a primary's worker tells it; one of an earlier version says less."""

    service: str
    shard: int
    connected: bool
    lag: int
    problem: str
    driver: bool = False
    idle: bool = False
    away_s: float | None = None


class _Peers(msgspec.Struct):
    peers: list[_Peer]


async def look(directory: str | Path, access: Access, *, ask_s: float = ASK_S, with_peers: bool = False) -> ServiceView:
    """Ask all supervisors that are announced, and `with_peers` the primary for those that it does not reach."""
    members = read_members(str(directory))
    answers = await asyncio.gather(*(_ask(member, access, ask_s) for member in members.values()))
    view = combine(access.service, str(directory), members, dict(zip(members, answers, strict=True)))
    if with_peers:
        view.unreached_peers = await _unreached(view, access, ask_s)
    return view


async def _unreached(view: ServiceView, access: Access, ask_s: float) -> list[UnreachedPeer] | None:
    """Ask a view's primary; None: there is none that answers this."""
    primary = view.of(view.primary)
    if primary is None or primary.state != "running" or not primary.client:
        return None
    try:
        told = fitted(await ask(primary.client, "peers", access, answer_s=ask_s), _Peers).peers
    except DeathlessError:
        return None
    return [
        UnreachedPeer(each.service, each.shard, each.driver, each.away_s, each.lag, each.problem, view.primary)
        for each in told
        if not (each.connected or each.idle)
    ]


class Part(NamedTuple):
    """One shard of a service that is looked at."""

    label: str  # what stands before its replicas' names; empty: there is one shard
    directory: Path
    access: Access


def parts_of(configs: Sequence[ReplicaConfig]) -> list[Part]:
    """Give the shards that these replicas belong to."""
    first = {config.shard: config for config in reversed(configs)}
    return [
        Part(f"{shard}/" if config.shards > 1 else "", Path(config.directory), access_of(config))
        for shard, config in sorted(first.items())
    ]


async def look_at_all(parts: Sequence[Part], *, ask_s: float = ASK_S, with_peers: bool = False) -> ServiceView:
    """Ask all supervisors of a service, and `with_peers` its primaries."""
    views = await asyncio.gather(
        *(look(part.directory, part.access, ask_s=ask_s, with_peers=with_peers) for part in parts)
    )
    for part, view in zip(parts, views, strict=True):
        for one in view.replicas:
            one.replica = part.label + one.replica
        for peer in view.unreached_peers or ():
            peer.told_by = part.label + peer.told_by
        view.primary = part.label + view.primary if view.primary else ""
    if len(parts) == 1:
        views[0].drivers = look_at_drivers(parts[0].directory) or msgspec.UNSET
        return views[0]
    service, folder = parts[0].access.service.partition("/")[0], parts[0].directory.parent.parent
    replicas = [one for view in views for one in view.replicas]
    told = [view.unreached_peers for view in views if view.unreached_peers is not None]
    peers = [peer for of_one in told for peer in of_one] if told else None
    return ServiceView(service, str(folder), "", max(view.epoch for view in views), replicas, views, peers)


def look_now(parts: Sequence[Part], *, ask_s: float = ASK_S, with_peers: bool = False) -> ServiceView:
    """As `look_at_all`, without an event loop."""
    return asyncio.run(look_at_all(parts, ask_s=ask_s, with_peers=with_peers))


async def _ask(member: Member, access: Access, ask_s: float) -> _Answer | DeathlessError:
    try:
        return fitted(await ask(member.control, "status", access, answer_s=ask_s), _Answer)
    except DeathlessError as error:
        return error


def combine(
    service: str, directory: str, members: dict[str, Member], answers: dict[str, _Answer | DeathlessError]
) -> ServiceView:
    """Join what the supervisors told into one view. Raises: Unauthorized and the like, when all refused us."""
    good = {name: answer for name, answer in answers.items() if isinstance(answer, _Answer)}
    refusals = [
        error
        for error in answers.values()
        if isinstance(error, DeathlessError) and (error.code.startswith("DL3") or isinstance(error, OtherDirectory))
    ]
    if refusals and not good:
        raise refusals[0]
    best: dict[str, tuple[int, _Told]] = {}
    for asked, answer in good.items():
        for told in answer.replicas:
            age = 0 if told.replica == asked else max(told.heard_ms, 1)
            if told.replica not in best or age < best[told.replica][0]:
                best[told.replica] = (age, told)
    views = [
        _view(name, members.get(name), best.get(name), answered=name in good) for name in sorted({*members, *best})
    ]
    views = [view for view in views if view.replica in members or view.state != "unreachable"]
    claims = [view for view in views if view.role == "primary" and view.state in ("running", "stuck")]
    claims += [view for view in views if view.role == "primary" and view not in claims]
    primary = max(claims[:1] and [c for c in claims if c.state == claims[0].state], key=lambda v: v.epoch, default=None)
    for view in views:
        if primary is not None and view.state in ("running", "stuck", "stopped"):
            view.lag = max(0, primary.lsn - view.lsn)
    epoch = max((view.epoch for view in views), default=0)
    return ServiceView(service, directory, primary.replica if primary is not None else "", epoch, views)


def _view(name: str, member: Member | None, told: tuple[int, _Told] | None, *, answered: bool) -> ReplicaView:
    if told is None or (not answered and told[0] > 1000):
        view = ReplicaView(replica=name, state="unreachable", role="-")
    else:
        r = told[1]
        view = ReplicaView(
            name,
            r.state,
            r.role,
            r.epoch,
            r.lsn,
            None,
            r.client,
            r.ingress,
            r.control,
            r.condition,
            r.pid,
            r.worker_pid,
        )
        view.full, view.outbox_full, view.clock = r.full, r.outbox_full, r.clock
        view.waits_for, view.waits_since, view.waits_until = r.waits_for, r.waits_since, r.waits_until
        if r.program is not None:
            view.program, view.program_text, view.program_differs = r.program.state, r.program.text, r.program.differs
            view.program_skips = r.program.skipped
        view.outside_held = r.outside_held
    view.answered = answered
    if member is not None:
        view.ingress = view.ingress or member.ingress
        view.control = view.control or member.control
        view.supervisor_pid = view.supervisor_pid or member.pid
    return view
