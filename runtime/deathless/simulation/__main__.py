"""`python -m deathless.simulation --seeds N --from M [--jobs J] [--trace SEED] [--services [K]] [--json]`.

Why it exists: one command finds seeds that fail and shows what happened in one. Without `--services` the seed alone
says what runs: every tenth is several services that call each other, the others are one cluster each. With it every
seed is several services, K of them or 2 to 5 by the seed.

Guarantees: ends with 0 only if every seed was good; a failing seed is named with what was wrong, at once. Does not:
keep anything.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Final

from deathless.simulation.faults import FaultKind
from deathless.simulation.run import Options, Result
from deathless.simulation.seeds import EVERY_SEED, run, run_one, services_of
from deathless.simulation.services import SERVICES_MAX

JOBS: Final = 2
CHUNK: Final = 8  # seeds that a worker process takes at a time
PROGRESS_S: Final = 2.0  # between two lines of progress where there is no terminal
VIOLATIONS_SHOWN_MAX: Final = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; gives the exit code."""
    options = _parse(arguments)
    kinds = None if options.kinds is None else [FaultKind(kind) for kind in options.kinds]
    given = Options(kinds=kinds, fence=options.fence, replicas=options.replicas)
    services: int | None = options.services
    if options.trace is not None:
        return _show_trace(options.trace, given, services)
    seeds = range(options.first, options.first + options.seeds)
    begun = time.monotonic()
    failed: list[Result] = []
    summary = _Summary()
    for result in _run_all(seeds, given, options.jobs, services):
        summary.add(result)
        if not result.good:
            failed.append(result)
            if not options.json:
                _show_failure(result)
        if not options.json:
            summary.show_progress(len(seeds), begun)
    seconds = time.monotonic() - begun
    if options.json:
        json.dump(summary.record(seeds, failed, seconds), sys.stdout)
        sys.stdout.write("\n")
    else:
        sys.stdout.write(summary.verdict(seeds, failed, seconds))
    return 1 if failed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="deathless.simulation", description="Simulate whole clusters, one per seed.")
    parser.add_argument("--seeds", type=_positive, default=100, metavar="N", help="how many (100)")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="M", help="the first (0)")
    parser.add_argument("--jobs", type=_positive, default=min(JOBS, os.cpu_count() or 1), help="processes (2)")
    parser.add_argument("--trace", type=int, metavar="SEED", help="show everything that happens in one")
    parser.add_argument(
        "--kinds", nargs="*", choices=[str(kind) for kind in FaultKind], help="faults that may come (all)"
    )
    parser.add_argument("--fence", choices=["seal", "etcd"], help="the fence (drawn)")
    parser.add_argument("--replicas", type=_positive, help="how many replicas (drawn, 1 to 5)")
    parser.add_argument(
        "--services",
        type=int,
        nargs="?",
        const=EVERY_SEED,
        choices=range(1, SERVICES_MAX + 1),
        metavar="K",
        help=f"services that call each other in every seed: K of them (1 to {SERVICES_MAX}), or 2 to {SERVICES_MAX} by "
        "the seed where no K is given (left out: so in every tenth seed, and one cluster in the others)",
    )
    parser.add_argument("--json", action="store_true", help="one JSON object at the end, nothing else")
    return parser.parse_args(arguments)


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _run_all(seeds: Sequence[int], options: Options, jobs: int, services: int | None) -> Iterator[Result]:
    work = ((seed, services_of(seed, services), options) for seed in seeds)
    if jobs == 1:
        yield from map(run, work)
        return
    # Fresh interpreters, because greenlets do not survive a fork.
    context = multiprocessing.get_context("spawn")
    with context.Pool(min(jobs, len(seeds))) as pool:
        yield from pool.imap_unordered(run_one, work, CHUNK)


def _show_failure(result: Result) -> None:
    what = f"{result.setup.replicas} replicas, fence {result.setup.fence}"
    if result.services > 1:
        what = f"{result.services} services"
    sys.stdout.write(f"\rseed {result.seed} FAILED ({what})\n")
    for violation in result.violations[:VIOLATIONS_SHOWN_MAX]:
        sys.stdout.write(f"    {violation}\n")
    more = len(result.violations) - VIOLATIONS_SHOWN_MAX
    if more > 0:
        sys.stdout.write(f"    and {more} more\n")


def _show_trace(seed: int, options: Options, services: int | None) -> int:
    kept = Options(kinds=options.kinds, fence=options.fence, replicas=options.replicas, keep_trace=True)
    result = run((seed, services_of(seed, services), kept))
    for line in result.trace:
        at_us, _, rest = line.partition(" ")
        sys.stdout.write(f"{int(at_us) / 1e6:12.6f} {rest}\n")
    setup = result.setup
    sys.stdout.write(f"\nseed {seed}: {setup.replicas} replicas, fence {setup.fence}, trace {result.trace_hash}\n")
    for violation in result.violations:
        sys.stdout.write(f"{violation}\n")
    sys.stdout.write("good\n" if result.good else "FAILED\n")
    return 0 if result.good else 1


class _Summary:
    """Adds results up."""

    def __init__(self) -> None:
        self.done = 0
        self.several = 0  # runs of services that call each other, among them
        self.services = 0  # in these
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
        return f"\n{which} lived {self.virtual_s / 60:.0f} minutes in {seconds:.0f} s: {what}, {cost}\n{last}\n"

    def record(self, seeds: Sequence[int], failed: Sequence[Result], seconds: float) -> dict[str, object]:
        """Give the same for programs."""
        return {
            "seeds": self.done,
            "runs_of_services": self.several,
            "services": self.services,
            "from": seeds[0],
            "good": not failed,
            "failed": {str(result.seed): [str(violation) for violation in result.violations] for result in failed},
            "faults": self.faults,
            "takeovers": self.epochs,
            "operations": self.operations,
            "virtual_s": self.virtual_s,
            "cpu_s": self.cpu_s,
            "seconds": seconds,
        }


if __name__ == "__main__":
    sys.exit(main())
