"""What is told of a run of many seeds: lines for people, a record for programs, a page that keeps it.

Why a page: that a thousand seeds were good is worth something only with the commit, the seeds and the judges beside it.

Guarantees: every number comes from the results; a run in which something was wrong is recorded as one, with its seeds
and what was wrong; a page names each judge that the runs had. Does not: judge. May import the simulation's parts.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from deathless.simulation.runs.run import Result

PROGRESS_S: Final = 2.0  # between two lines of progress where there is no terminal
FAILED_SHOWN_MAX: Final = 50  # seeds whose violations stand on the page; the others are named
VIOLATIONS_SHOWN_MAX: Final = 3  # of a seed

JUDGES: Final = {
    "crash": "no part of Deathless ended with an unexpected exception",
    "stopped": "no worker found its log or its checkpoint damaged, or its own computation wrong",
    "liveness": "after the last fault was healed, every operation was answered in time",
    "settling": "after that, all replicas reached the same position",
    "recovery": "a new process can read the log that remains",
    "agreement": "every replica that runs has the state that a crash-free replay of that log produces",
    "released": "everything that left a replica is in that log, byte for byte",
    "copies": "no connection between a directory and its copy is accepted; a copy of the files says that it is one",
    "replies": "a request has one reply, which is that of the replay, however often it was sent",
}
"""Of every run: what must be so, by the judge's name."""
JUDGES_OF_ONE: Final = {
    "order": "a client's messages ran in the order in which they were sent",
    "exactly_once": "an answered operation ran once, a refused one never, any other at most once",
    "conservation": "money is neither created nor lost",
    "log_order": "the answers are those of running the operations in the order of the log",
    "linearizability": "they are those of an order consistent with real time, where the search for one is not too long",
}
"""Of runs of one cluster, besides."""
JUDGES_OF_SEVERAL: Final = {
    "pairs": "what one service sent to another is what the other received: each message once, in order",
    "answers": "every request between services has one answer",
    "effects": "an operation left its tags in all services exactly once; an unanswered one at most once",
    "results": "every result that a caller received is that of the replay",
    "wire": "what any primary, even a deposed one, sent to another service is in the replay at the same position",
    "told": "what a service reported as received from another, it had received",
    "activities": "an activity is in the log before it begins, and one that must run at most once ran at most once",
}
"""Of runs of several services that call each other, besides."""
JUDGES_OF_STREAMS: Final = {
    "inputs": "an input of a stream is applied once, in its place; a refused one as its stream asked for",
}
"""Of runs of one cluster that takes streams, besides."""


class Record(msgspec.Struct, kw_only=True):
    """A run of many seeds, as `--json` tells it."""

    seeds: int
    runs_of_services: int  # among them
    services: int  # in these, together
    runs_of_streams: int = 0  # of one cluster that takes streams, among them
    first: int = msgspec.field(name="from")
    good: bool
    failed: dict[str, list[str]]  # what was wrong, by seed
    faults: int
    takeovers: int
    operations: int
    virtual_s: float
    cpu_s: float
    slowest_s: float  # of processor time, of one run
    seconds: float


class Summary:
    """Adds results up."""

    def __init__(self) -> None:
        self.done = 0
        self.several = 0  # runs of services that call each other, among them
        self.services = 0  # in these
        self.streams = 0  # runs of one cluster that takes streams
        self.operations = 0
        self.epochs = 0
        self.faults = 0
        self.virtual_s = 0.0
        self.cpu_s = 0.0
        self.slowest_s = 0.0
        self._shown_at = 0.0

    def add(self, result: Result) -> None:
        """Take one result in."""
        self.done += 1
        if result.services > 1:
            self.several += 1
            self.services += result.services
        self.streams += result.streams > 0
        self.operations += result.operations
        self.epochs += result.epochs
        self.faults += len(result.plan.faults)
        self.virtual_s += result.virtual_s
        self.cpu_s += result.cpu_s
        self.slowest_s = max(self.slowest_s, result.cpu_s)

    def show_progress(self, count: int, begun: float) -> None:
        """Say how far it is, now and then."""
        now = time.monotonic()
        terminal = sys.stdout.isatty()
        if now - self._shown_at < (0.2 if terminal else PROGRESS_S) and self.done < count:
            return
        self._shown_at = now
        left_s = (now - begun) / self.done * (count - self.done)
        line = f"{self.done} of {count} seeds, {self.epochs} takeovers, {left_s:.0f} s to go"
        sys.stdout.write(f"\r{line}   " if terminal else f"{line}\n")
        sys.stdout.flush()

    def verdict(self, seeds: Sequence[int], failed: Sequence[Result], seconds: float) -> str:
        """Give the last lines."""
        names = ", ".join(str(result.seed) for result in failed)
        last = f"FAILED: seeds {names}" if failed else "all good"
        several = f"{self.several} runs of {self.services} services that call each other"
        which = f"{self.done - self.several} clusters and {several} (seeds {seeds[0]} to {seeds[-1]})"
        what = f"{self.faults} faults, {self.epochs} takeovers, {self.operations} operations"
        cost = f"{1000 * self.cpu_s / max(1, self.done):.0f} ms of CPU each, the slowest {self.slowest_s:.2f} s"
        return f"\n{which} simulated {self.virtual_s / 60:.0f} minutes in {seconds:.0f} s: {what}, {cost}\n{last}\n"

    def record(self, seeds: Sequence[int], failed: Sequence[Result], seconds: float) -> Record:
        """Give the same for programs and pages."""
        return Record(
            seeds=self.done,
            runs_of_services=self.several,
            services=self.services,
            runs_of_streams=self.streams,
            first=seeds[0],
            good=not failed,
            failed={str(one.seed): [str(violation) for violation in one.violations] for one in failed},
            faults=self.faults,
            takeovers=self.epochs,
            operations=self.operations,
            virtual_s=self.virtual_s,
            cpu_s=self.cpu_s,
            slowest_s=self.slowest_s,
            seconds=seconds,
        )


def page(record: Record, *, command: str, date: str, commit: str, machine: str, jobs: int) -> str:
    """Give the page that `--record` writes.

    Args:
        record: of a run of consecutive seeds, one at least.
        command: that runs the same seeds again.
        date: of the day, as ISO 8601 writes it.
        commit: of the code that ran.
        machine: in words.
        jobs: processes that shared the seeds.
    """
    one = record.seeds - record.runs_of_services
    several = f"{record.runs_of_services:,}, with {record.services:,} services"
    rows = {
        "runs": f"{record.seeds:,}",
        "seeds": f"{record.first} to {record.first + record.seeds - 1}",
        "runs of several services that call each other": several,
        "runs of one cluster": f"{one:,}",
        "runs of one cluster that takes streams, among them": f"{record.runs_of_streams:,}",
        "services in all runs, each with its replicas": f"{one + record.services:,}",
        "faults": f"{record.faults:,}",
        "takeovers, including those of first primaries": f"{record.takeovers:,}",
        "operations of clients": f"{record.operations:,}",
        "minutes of simulated time": f"{record.virtual_s / 60:,.1f}",
        "seconds that the runs took": f"{record.seconds:,.0f}",
        "processes that shared the runs": f"{jobs}",
        "processor time of a run, mean": f"{1000 * record.cpu_s / record.seeds:,.0f} ms",
        "processor time of a run, maximum": f"{1000 * record.slowest_s:,.0f} ms",
        "runs in which something was wrong": f"{len(record.failed):,}",
    }
    lines = [
        "# Simulated clusters",
        "",
        "`make sim-record` writes this page; no number is typed by hand. In a run, whole clusters run in virtual time",
        "on simulated disks, networks and locks. The seed determines what clients request and which faults occur. All",
        "faults are healed in the end; then checkers examine what was answered, what left the replicas and which log",
        "remains.",
        "",
        f"**{'PASSED' if record.good else 'FAILED'}**, {date}, commit {commit}",
        "",
        f"    {command}",
        "",
        f"On {machine}.",
        "",
        "| | |",
        "| --- | ---: |",
        *(f"| {name} | {value} |" for name, value in rows.items()),
        "",
        *_wrong(record),
        "## The checkers",
        "",
        "| checker | what must hold |",
        "| --- | --- |",
        *(f"| {name} | {what} |" for name, what in judges(record).items()),
    ]
    return "\n".join(lines) + "\n"


def judges(record: Record) -> dict[str, str]:
    """Give who judged, and what each looks for."""
    of_one = JUDGES_OF_ONE if record.seeds > record.runs_of_services else {}
    of_several = JUDGES_OF_SEVERAL if record.runs_of_services else {}
    return JUDGES | of_one | of_several | (JUDGES_OF_STREAMS if record.runs_of_streams else {})


def _wrong(record: Record) -> list[str]:
    if not record.failed:
        return []
    lines = ["## What was wrong", "", f"Seeds {', '.join(record.failed)}.", ""]
    for seed, violations in list(record.failed.items())[:FAILED_SHOWN_MAX]:
        lines += [f"- seed {seed}, {len(violations)} in all"]
        lines += [f"    - `{_one_line(each)}`" for each in violations[:VIOLATIONS_SHOWN_MAX]]
    return [*lines, ""]


def _one_line(text: str) -> str:
    """Give a text as it may stand between two backticks of a list."""
    return " ".join(text.replace("`", '"').split())


def commit_of_tree() -> str:
    """Name the commit of this code, with a mark if files differ from it; `unknown` outside a repository."""
    git = shutil.which("git")
    if git is None:
        return "unknown"
    command = [git, "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - no word is anybody's
    return asked.stdout.strip() or "unknown"


def describe_machine() -> str:
    """Give processor, cores, system and Python."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text(encoding="utf-8").splitlines() if line.startswith("model name")]
        model = names[0].partition(":")[2].strip() if names else model
    system = f"{platform.system()} {platform.release()}"
    return f"{os.cpu_count() or 1} cores of {model}, {system}, Python {platform.python_version()}"
