"""`python -m deathless.simulation --seeds N --from M [--jobs J] [--trace SEED] [--services [K] | --streams] [--json]`.

`--record FILE` writes what came out to a page, too.

Why it exists: one command finds seeds that fail and shows what happened in one. Without `--services` the seed alone
says what runs: every tenth is several services that call each other, the others are one cluster each. With it every
seed is several services, K of them or 2 to 5 by the seed. With `--streams` every seed is a cluster that takes streams.

Guarantees: ends with 0 only if every seed was good; a failing seed is named with what was wrong, at once; a page
is written of a failed run, too. Does not: keep anything else.
"""

from __future__ import annotations

import argparse
import datetime as dt
import multiprocessing
import os
import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from deathless.simulation.runs.faults import DRAWN, FaultKind
from deathless.simulation.runs.report import VIOLATIONS_SHOWN_MAX, Summary, commit_of_tree, describe_machine, page
from deathless.simulation.runs.run import Options, Result
from deathless.simulation.runs.seeds import EVERY_SEED, STREAMS, run, run_one, services_of
from deathless.simulation.runs.services import SERVICES_MAX

JOBS: Final = 2
CHUNK: Final = 8  # seeds that a worker process takes at a time


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; gives the exit code."""
    options = _parse(arguments)
    kinds = None if options.kinds is None else [FaultKind(kind) for kind in options.kinds]
    given = Options(kinds=kinds, fence=options.fence, replicas=options.replicas)
    services: int | None = options.services
    if options.trace is not None:
        return _show_trace(options.trace, given, services)
    seeds = range(options.first, options.first + options.seeds)
    commit = commit_of_tree() if options.record else ""  # as it was when the code was loaded
    begun = time.monotonic()
    failed: list[Result] = []
    summary = Summary()
    for result in _run_all(seeds, given, options.jobs, services):
        summary.add(result)
        if not result.good:
            failed.append(result)
            if not options.json:
                _show_failure(result)
        if not options.json:
            summary.show_progress(len(seeds), begun)
    seconds = time.monotonic() - begun
    failed.sort(key=lambda result: result.seed)
    record = summary.record(seeds, failed, seconds)
    if options.record is not None:
        command = _again(sys.argv[1:] if arguments is None else arguments)
        date, machine = dt.datetime.now(dt.UTC).date().isoformat(), describe_machine()
        text = page(record, command=command, date=date, commit=commit, machine=machine, jobs=options.jobs)
        options.record.write_text(text, encoding="utf-8")
    if options.json:
        sys.stdout.write(f"{msgspec.json.encode(record).decode()}\n")
    else:
        sys.stdout.write(summary.verdict(seeds, failed, seconds))
    return 1 if failed else 0


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="deathless.simulation", description="Simulate whole clusters, one per seed.")
    parser.add_argument("--seeds", type=_positive, default=100, metavar="N", help="how many (100)")
    parser.add_argument("--from", type=int, default=0, dest="first", metavar="M", help="the first (0)")
    parser.add_argument("--jobs", type=_positive, default=min(JOBS, os.cpu_count() or 1), help="processes (2)")
    parser.add_argument("--trace", type=int, metavar="SEED", help="show everything that happens in one")
    parser.add_argument("--kinds", nargs="*", choices=[str(kind) for kind in DRAWN], help="faults that may come (all)")
    parser.add_argument("--fence", choices=["seal", "etcd"], help="the fence (drawn)")
    parser.add_argument("--replicas", type=_positive, help="how many replicas (drawn, 1 to 5)")
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--streams",
        action="store_const",
        const=STREAMS,
        dest="services",
        help="a cluster into which two sources send streams, in every seed",
    )
    kind.add_argument(
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
    parser.add_argument("--record", type=Path, metavar="FILE", help="write what came out to this page (Markdown), too")
    options = parser.parse_args(arguments)
    if options.record is not None and options.trace is not None:
        parser.error("--record is of a run of seeds, --trace shows one")
    if options.record is not None and not options.record.parent.is_dir():
        parser.error(f"--record: there is no folder {options.record.parent}")
    return options


def _again(arguments: Sequence[str]) -> str:
    """Give the command that runs the same, without the page that it writes."""
    kept: list[str] = []
    for before, each in zip(["", *arguments], arguments, strict=False):
        if before != "--record" and each != "--record" and not each.startswith("--record="):
            kept.append(each)
    return shlex.join(["python", "-m", "deathless.simulation", *kept])


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


if __name__ == "__main__":
    sys.exit(main())
