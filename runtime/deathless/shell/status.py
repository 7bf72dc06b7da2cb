"""What a service's replicas are now, as their supervisors tell.

Every supervisor knows all the others, but itself best: its own word about itself counts, another's only where it does
not answer. Guarantees: a view of every replica that is announced in members/, answered or not. Does not: decide
anything. May import base.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Final

import msgspec

from deathless.base.errors import DeathlessError
from deathless.shell.admin import Access, ask
from deathless.shell.members import Member, read_members

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


class ServiceView(msgspec.Struct, rename="camel"):
    """All of a service."""

    service: str
    directory: str
    primary: str  # a replica's name; empty: none is known
    epoch: int
    replicas: list[ReplicaView]

    @property
    def serving(self) -> bool:
        """A primary is running."""
        return any(view.replica == self.primary and view.state == "running" for view in self.replicas)

    @property
    def refusal(self) -> str:
        """The code for which all replicas stay stopped until an operator acts; empty: at least one goes on."""
        codes = [view.condition for view in self.replicas if view.state == "dead"]
        return codes[0] if codes and all(codes) and len(codes) == len(self.replicas) else ""

    def of(self, replica: str) -> ReplicaView | None:
        """One replica's view."""
        return next((view for view in self.replicas if view.replica == replica), None)


class _Told(msgspec.Struct):
    """One replica as a supervisor tells it (the fields of `core.detection.Report`)."""

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
    heard_ms: int = msgspec.field(name="heardMs", default=-1)


class _Primary(msgspec.Struct):
    replica: str
    epoch: int


class _Answer(msgspec.Struct):
    replicas: list[_Told]
    primary: _Primary | None = None


async def look(directory: str | Path, access: Access, *, ask_s: float = ASK_S) -> ServiceView:
    """Ask all supervisors that are announced."""
    members = read_members(str(directory))
    answers = await asyncio.gather(*(_ask(member, access, ask_s) for member in members.values()))
    return combine(access.service, str(directory), members, dict(zip(members, answers, strict=True)))


def look_now(directory: str | Path, access: Access, *, ask_s: float = ASK_S) -> ServiceView:
    """As `look`, without an event loop."""
    return asyncio.run(look(directory, access, ask_s=ask_s))


async def _ask(member: Member, access: Access, ask_s: float) -> _Answer | DeathlessError:
    try:
        return msgspec.convert(await ask(member.control, "status", access, answer_s=ask_s), _Answer)
    except DeathlessError as error:
        return error
    except msgspec.ValidationError as error:
        return DeathlessError(f"{member.control}: {error}")


def combine(
    service: str, directory: str, members: dict[str, Member], answers: dict[str, _Answer | DeathlessError]
) -> ServiceView:
    """Join what the supervisors told into one view. Raises: Unauthorized and the like, when all refused us."""
    good = {name: answer for name, answer in answers.items() if isinstance(answer, _Answer)}
    refusals = [
        error for error in answers.values() if isinstance(error, DeathlessError) and error.code.startswith("DL3")
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
        view.full = r.full
    view.answered = answered
    if member is not None:
        view.ingress = view.ingress or member.ingress
        view.control = view.control or member.control
        view.supervisor_pid = view.supervisor_pid or member.pid
    return view
