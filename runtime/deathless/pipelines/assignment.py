"""Who drives a pipeline: one of its agents, by a number that grows with each assignment.

An agent is a process that keeps a Spark driver. Agents report again and again, each at the same pace. The one that is
assigned drives; if it says that its driver has ended, or is silent while another one reports SILENT times, the number
grows and the next one is assigned. A warm one is preferred: a cold one is assigned where no warm one is known, or if
none has come while it reported SILENT times itself.

No clock is asked. Silence is counted in reports of others, so while the service itself could not be reached nobody was
silent, and a clock that is set changes nothing. The number is the fencing token: who is assigned makes it known to each
query (`ledger.open_query`), so an agent that was replaced and does not know it decides nothing.

Guarantees: a function of its arguments; times are kept for people alone. Does not: end anybody's process; the agent
does, when it is told. Imports the author's names.
"""

from __future__ import annotations

from typing import Final

from deathless.sdk import CallRefused, Struct, field

SILENT: Final = 8  # reports of another one; agents report four times a second
FORGET: Final = 240  # reports of each other one: an agent that is silent for so long is not shown any more
AGENTS_MAX: Final = 16
QUERIES_MAX: Final = 256
DEATHS_MAX: Final = 5  # drivers that ended one after the other before any batch was decided


class Agent(Struct):
    """What is known of one agent."""

    warm: bool  # its driver has run queries of the same shape
    heard: int = 0  # how many reports there were of all when it was last heard
    heard_us: int = 0  # logical time of that
    waiting: int = 0  # its reports since the one that is assigned was heard, or since nobody is assigned


class Drivers(Struct):
    """State of the drivers' key."""

    number: int = 0  # of the newest assignment
    agent: str = ""  # who is assigned; empty: nobody
    since_us: int = 0  # logical time of the assignment
    reports: int = 0  # ever
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


def report(drivers: Drivers, agent: str, now_us: int, *, warm: bool) -> Assignment:
    """Take a report in, and say who drives.

    Args:
        drivers: of the pipeline.
        agent: who reports.
        now_us: logical time, for people.
        warm: its driver is warm.
    """
    known = _heard(drivers, agent, now_us, warm=warm)
    if agent == drivers.agent:
        _nobody_waits(drivers)
        if drivers.leaving and _warm_other(drivers, agent):
            _release(drivers)
            return Assignment(drivers.number, drives=False)  # the other one's next report takes it
    elif drivers.agent and known.waiting >= SILENT:
        _release(drivers)
        known.waiting = SILENT
    if not drivers.agent and _may_drive(drivers, agent, known):
        drivers.number += 1
        drivers.agent, drivers.since_us = agent, now_us
        _nobody_waits(drivers)
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


def suspend(drivers: Drivers, *, suspended: bool) -> None:
    """Have nobody drive, or somebody again; whatever failed before is forgotten then."""
    drivers.suspended = suspended
    drivers.deaths, drivers.failed = 0, ""
    if suspended:
        _release(drivers)


def _heard(drivers: Drivers, agent: str, now_us: int, *, warm: bool) -> Agent:
    """Note that an agent was heard, and forget who was not for long."""
    drivers.reports += 1
    known = drivers.agents.pop(agent, None) or Agent(warm)
    known.warm, known.heard, known.heard_us = warm, drivers.reports, now_us
    known.waiting += 1
    drivers.agents[agent] = known  # behind all others: the first one was heard longest ago
    gone = drivers.reports - FORGET * len(drivers.agents)
    for name in [name for name, each in drivers.agents.items() if each.heard < gone]:
        del drivers.agents[name]
    while len(drivers.agents) > AGENTS_MAX:
        del drivers.agents[next(iter(drivers.agents))]
    return known


def _nobody_waits(drivers: Drivers) -> None:
    for each in drivers.agents.values():
        each.waiting = 0


def _release(drivers: Drivers) -> None:
    drivers.agent, drivers.leaving = "", False
    _nobody_waits(drivers)


def _may_drive(drivers: Drivers, agent: str, known: Agent) -> bool:
    if drivers.failed or drivers.suspended:
        return False
    return known.warm or known.waiting >= SILENT or not _warm_other(drivers, agent)


def _warm_other(drivers: Drivers, agent: str) -> bool:
    return any(known.warm for name, known in drivers.agents.items() if name != agent)
