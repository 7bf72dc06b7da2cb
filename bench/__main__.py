"""Measures: `python -m bench [--messaging] [--only NAME ...] [--quick] [--profile] [--no-peers] [--directory FOLDER]`.

Writes bench/results/latest.json and, of it, docs/benchmarks.md; with `--messaging` messaging.json and
docs/benchmarks-messaging.md, of services that talk and wait. With `--only` or `--quick` the results go to standard
output (or `--output FILE`) and the two files stay as they are: they hold whole runs alone.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec

from bench import calls, checkpoint, footprint, ingress, messaging, recovery, takeover, waiting
from bench.figures import MESSAGING_RESULTS, RESULTS, Figure, Results, write_results
from bench.machine import describe
from bench.report import line, write_messaging_page, write_page
from bench.setting import Setting
from deathless.shell import event_loop

Group = Callable[[Setting], Awaitable[list[Figure]]]
GROUPS: Final[dict[str, Group]] = {
    "one-client": calls.one_client,
    "64-clients": calls.clients_64,
    "pipelined": calls.pipelined,
    "http": ingress.http,
    "takeover": takeover.killed,
    "frozen": takeover.frozen,
    "switchover": takeover.switchover,
    "recovery": recovery.recovery,
    "checkpoint": checkpoint.checkpoint,
    "memory": footprint.memory,
    "log-bytes": footprint.log_bytes,
}
MESSAGING: Final[dict[str, Group]] = {
    "forks": messaging.forks,
    "payloads": messaging.payloads,
    "service-calls": messaging.service_calls,
    "service-takeover": messaging.service_takeover,
    "one-step": waiting.one_step,
    "timers": waiting.timers,
}
PROFILES: Final = Path(__file__).resolve().parents[1] / "build" / "profiles"


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure; see bench/__main__.py.")
    names = [*GROUPS, *MESSAGING]
    parser.add_argument("--only", nargs="+", choices=names, metavar="NAME", help="these groups of figures alone")
    parser.add_argument("--messaging", action="store_true", help="services that talk and wait, instead of one alone")
    parser.add_argument("--list", action="store_true", help="print the names of all groups")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything work?")
    parser.add_argument("--no-peers", action="store_true", help="without PostgreSQL and etcd")
    parser.add_argument("--profile", action="store_true", help=f"write profiles of the workers below {PROFILES.name}/")
    parser.add_argument("--directory", type=Path, help="where the replicas write; a temporary folder when left out")
    parser.add_argument("--output", type=Path, help="where the results go instead of latest.json")
    return parser.parse_args(given)


async def measure(setting: Setting, names: list[str]) -> list[Figure]:
    """Run groups of figures one after the other; one that breaks is left out and says why."""
    figures: list[Figure] = []
    for name in names:
        began = time.monotonic()
        setting.say(f"{name} ...")
        try:
            found = await {**GROUPS, **MESSAGING}[name](setting)
        except Exception as error:  # the other figures must not be lost with one
            if os.environ.get("DEATHLESS_BENCH_RAISE"):
                raise
            reason = f"left out: {type(error).__name__}: {error}"
            found = [Figure(name=name, title=name, value=None, unit="", note=reason)]
        for each in found:
            setting.say(f"  {line(each)}")
        setting.say(f"  ({time.monotonic() - began:.0f} s)")
        figures.extend(found)
    return figures


def main(given: list[str] | None = None) -> int:
    """Measure and write. Returns: 0; 1 when a figure was left out. A missed goal is a result, no error."""
    options = _arguments(given)
    if options.list:
        print("\n".join([*GROUPS, *MESSAGING]))
        return 0
    names = options.only or list(MESSAGING if options.messaging else GROUPS)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deathless-bench-", dir=options.directory) as scratch:
        folder = Path(scratch)
        machine = describe(folder, quick=options.quick)
        profile = PROFILES if options.profile else None
        setting = Setting(folder, quick=options.quick, profile=profile, peers=not options.no_peers)
        try:
            figures = event_loop.run(measure(setting, names))
        finally:
            setting.close()
    machine.took_s = round(time.monotonic() - began, 1)
    machine.load_after = round(os.getloadavg()[0], 2)
    results = Results(machine=machine, figures=figures)
    whole = not options.only and not options.quick
    if options.output is not None:
        write_results(results, options.output)
    elif whole and options.messaging:
        write_results(results, MESSAGING_RESULTS)
        write_messaging_page(results)
    elif whole:
        write_results(results, RESULTS)
        write_page(results)
    else:
        print(msgspec.json.format(msgspec.json.encode(results), indent=2).decode())
    return 1 if any(each.value is None for each in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
