"""Who drives a pipeline: one of its agents, by a number that grows with each assignment.

An agent is a process that keeps a Spark driver. Agents report again and again. The one that is assigned drives; if it
says that its driver has ended, or is silent while another one reports for `suspect_us`, the number grows and the next
one is assigned, a warm one if there is any. Being silent is counted from the first report of another agent on, not
from the last of its own: while the service itself could not be reached, nobody was heard, and nobody is to blame.

The number is the fencing token: who is assigned makes it known to each query (`ledger.open_query`), so an agent that
was replaced and does not know it decides nothing.

Guarantees: a function of its arguments. Does not: end anybody's process; the agent does, when it is told or hears
nothing. Imports the author's names.
"""

from __future__ import annotations

from typing import Final

from deathless.sdk import CallRefused, Struct, field

SUSPECT_US: Final = 2_000_000
FORGET_US: Final = 60_000_000  # an agent that is silent for so long is not shown any more
AGENTS_MAX: Final = 64
QUERIES_MAX: Final = 256
DEATHS_MAX: Final = 5  # drivers that ended one after the other before any batch was decided


class Agent(Struct):
    """What is known of one agent."""

    heard_us: int  # logical time of its last report
    warm: bool  # its driver has run queries of the same shape


class Drivers(Struct):
    """State of the drivers' key."""

    number: int = 0  # of the newest assignment
    agent: str = ""  # who is assigned; empty: nobody
    since_us: int = 0
    missed_us: int = 0  # logical time of the first report of another one since it was heard; 0: none
    agents: dict[str, Agent] = field(default_factory=dict)
    deaths: int = 0  # drivers that ended by themselves since a batch was decided
    failed: str = ""  # why nobody is assigned any more; empty: somebody may be
    leaving: bool = False  # the one that is assigned is to hand over to a warm one
    suspended: bool = False  # nobody is to drive
    queries: list[str] = field(default_factory=list)  # names, as the newest driver has them


class Assignment(Struct):
    """What an agent is told."""

    number: int
    drives: bool
    failed: str = ""


def report(drivers: Drivers, agent: str, now_us: int, *, warm: bool, suspect_us: int = SUSPECT_US) -> Assignment:
    """Take a report in, and say who drives."""
    for name in [name for name, known in drivers.agents.items() if known.heard_us + FORGET_US < now_us]:
        del drivers.agents[name]
    if agent in drivers.agents or len(drivers.agents) < AGENTS_MAX:
        drivers.agents[agent] = Agent(now_us, warm)
    if agent == drivers.agent:
        drivers.missed_us = 0
        if drivers.leaving and _warm_other(drivers, now_us, suspect_us):
            _release(drivers)
            return Assignment(drivers.number, drives=False)  # the next report of the other one takes it
    elif drivers.agent:
        drivers.missed_us = drivers.missed_us or now_us
        if now_us - drivers.missed_us >= suspect_us:
            _release(drivers)
    if not drivers.agent and _may_drive(drivers, agent, now_us, suspect_us, warm=warm):
        drivers.number += 1
        drivers.agent, drivers.since_us, drivers.missed_us = agent, now_us, 0
    return Assignment(drivers.number, drivers.agent == agent, drivers.failed)


def declare(drivers: Drivers, number: int, queries: list[str]) -> None:
    """Note which queries a driver runs, for people; what an older driver says changes nothing. Raises: CallRefused."""
    if len(queries) > QUERIES_MAX:
        raise CallRefused(f"a pipeline has at most {QUERIES_MAX} queries, not {len(queries)}")
    if number == drivers.number:
        drivers.queries = queries


def resign(drivers: Drivers, agent: str, number: int, *, progressed: bool, ordered: bool) -> None:
    """Take in that a driver has ended.

    Args:
        drivers: of the pipeline.
        agent: whose it was.
        number: of its assignment.
        progressed: it had decided a batch.
        ordered: it ended because it was told to.
    """
    if agent in drivers.agents:
        drivers.agents[agent].warm = False
    if agent != drivers.agent or number != drivers.number:
        return
    _release(drivers)
    if progressed:
        drivers.deaths = 0
    drivers.deaths += not ordered
    if drivers.deaths >= DEATHS_MAX:
        drivers.failed = f"{drivers.deaths} drivers ended one after the other before a batch was decided"


def _release(drivers: Drivers) -> None:
    drivers.agent, drivers.missed_us, drivers.leaving = "", 0, False


def _may_drive(drivers: Drivers, agent: str, now_us: int, suspect_us: int, *, warm: bool) -> bool:
    if drivers.failed or drivers.suspended:
        return False
    return warm or not _warm_other(drivers, now_us, suspect_us, agent)


def _warm_other(drivers: Drivers, now_us: int, suspect_us: int, agent: str = "") -> bool:
    """Say whether an agent is warm that was heard lately, other than this one and the one that is assigned."""
    but = (agent, drivers.agent)
    return any(
        known.warm and known.heard_us + suspect_us > now_us for name, known in drivers.agents.items() if name not in but
    )


def suspend(drivers: Drivers, *, suspended: bool) -> None:
    """Have nobody drive, or somebody again; whatever failed before is forgotten then."""
    drivers.suspended = suspended
    drivers.deaths, drivers.failed = 0, ""
    if suspended:
        _release(drivers)
