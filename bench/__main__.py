"""Measures: `python -m bench [--messaging | --upgrades | --foreign | --data] [--only NAME ...] [--quick] ...`.

Writes bench/results/latest.json and, of it, docs/benchmarks.md: whole runs alone, so with `--only` the results go to
standard output (or `--output FILE`) and both files stay as they are. With `--messaging`, of services that talk and
wait, each group is put into messaging.json as soon as it is measured, in the place of its former self, and
docs/benchmarks-messaging.md is made of all that is there; `--only` then says which. With `--upgrades`, of other code
for a service, likewise upgrades.json and docs/benchmarks-upgrades.md; with `--foreign`, of programs in other languages,
foreign.json and docs/benchmarks-foreign.md; with `--data`, of rows that come in and go out, data.json and
docs/benchmarks-data.md. `--quick` writes none of them.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from bench.figures import RESULTS, Figure, Machine, Results, write_results
from bench.groups import (
    calls,
    checkpoint,
    footprint,
    ingress,
    messaging,
    recovery,
    shards,
    takeover,
    waiting,
)
from bench.groups.data import drivers, sources, stores, topics
from bench.groups.data.page import DATA_RESULTS, write_data_page
from bench.groups.foreign import checkpoints
from bench.groups.foreign import rates as foreign_rates
from bench.groups.foreign import takeover as foreign_takeover
from bench.groups.foreign.page import FOREIGN_RESULTS, write_foreign_page
from bench.groups.messaging_page import MESSAGING_RESULTS, write_messaging_page
from bench.groups.upgrades import beside, failed_cut, live, rates
from bench.groups.upgrades.page import UPGRADES_RESULTS, write_upgrades_page
from bench.kubernetes.results import ClusterResults, write_group, write_left_out
from bench.kubernetes.results import Group as Measured
from bench.machine import describe
from bench.report import line, write_page
from bench.setting import Setting
from deathless.shell.process import event_loop

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
    "shards": shards.shards,
    "service-takeover": messaging.service_takeover,
    "one-step": waiting.one_step,
    "timers": waiting.timers,
    "suspended": waiting.suspended,
}
UPGRADES: Final[dict[str, Group]] = {
    "upgrade": live.upgrade,
    "failed-cut": failed_cut.failed_cut,
    "beside-upgrades": beside.beside,
    "migration": rates.migration,
    "log-runs": rates.runs,
    "testing": rates.testing,
}
FOREIGN: Final[dict[str, Group]] = {
    "foreign-forks": foreign_rates.foreign_forks,
    "foreign-self-calls": foreign_rates.foreign_self_calls,
    "foreign-calls": foreign_rates.foreign_calls,
    "foreign-takeover": foreign_takeover.foreign_takeover,
    "foreign-checkpoints": checkpoints.foreign_checkpoints,
}
DATA: Final[dict[str, Group]] = {
    "stream-in": sources.stream_in,
    "stream-acknowledgements": sources.acknowledgements,
    "stream-takeover": sources.stream_takeover,
    "kafka-in": sources.kafka_in,
    "topics": topics.topics,
    "published": stores.published,
    "stored": stores.stored,
    "pipeline-batch": drivers.pipeline_batch,
    "pipeline-rate": drivers.pipeline_rate,
    "driver-takeover": drivers.driver_takeover,
    "driver-memory": drivers.driver_memory,
}
EVERY: Final = {**GROUPS, **MESSAGING, **UPGRADES, **FOREIGN, **DATA}
PROFILES: Final = Path(__file__).resolve().parents[1] / "build" / "profiles"


def _arguments(given: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure; see bench/__main__.py.")
    parser.add_argument("--only", nargs="+", choices=list(EVERY), metavar="NAME", help="these groups of figures alone")
    parser.add_argument("--messaging", action="store_true", help="services that talk and wait, instead of one alone")
    parser.add_argument("--upgrades", action="store_true", help="other code for a service, instead")
    parser.add_argument("--foreign", action="store_true", help="services whose code is a program, instead")
    parser.add_argument("--data", action="store_true", help="rows that come in and go out, instead")
    parser.add_argument("--divide", type=int, default=1, metavar="N", help="full sizes are divided by so much")
    parser.add_argument("--list", action="store_true", help="print the names of all groups")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything work?")
    parser.add_argument("--no-peers", action="store_true", help="without PostgreSQL and etcd")
    parser.add_argument("--profile", action="store_true", help=f"write profiles of the workers below {PROFILES.name}/")
    parser.add_argument("--directory", type=Path, help="where the replicas write; a temporary folder when left out")
    parser.add_argument("--output", type=Path, help="where the results go instead of latest.json")
    return parser.parse_args(given)


class Family(NamedTuple):
    """Groups that are measured one by one, whose page is made of what was measured last of each."""

    groups: dict[str, Group]
    results: Path
    write_page: Callable[[ClusterResults, Sequence[str]], object]
    in_part: bool = False  # a figure of a group may be left out alone, where what it needs is not installed

    def keep(self, machine: Machine, name: str, group: Measured) -> None:
        """Put a group into the file of results, and make the page anew.

        Of one that broke its reason alone is put there: it keeps its former figures, and the page names it as missing.
        """
        found = [each.value is not None for each in group.figures]
        write = write_group if all(found) or (self.in_part and any(found)) else write_left_out
        self.write_page(write(self.results, machine, name, group, list(self.groups)), list(self.groups))


FAMILIES: Final = {
    "messaging": Family(MESSAGING, MESSAGING_RESULTS, write_messaging_page),
    "upgrades": Family(UPGRADES, UPGRADES_RESULTS, write_upgrades_page),
    "foreign": Family(FOREIGN, FOREIGN_RESULTS, write_foreign_page),
    "data": Family(DATA, DATA_RESULTS, write_data_page, in_part=True),
}
"""By the option that asks for them."""
Keep = Callable[[Machine, str, Measured], None]


async def measure(setting: Setting, names: list[str], machine: Machine, done: Keep | None = None) -> list[Figure]:
    """Run groups of figures one after the other; one that breaks is left out and says why. `done`: told of each."""
    figures: list[Figure] = []
    for name in names:
        group = Measured(
            began=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
            took_s=0.0,
            commit=machine.commit,
            load_before=round(os.getloadavg()[0], 2),
            load_after=0.0,
            figures=[],
        )
        began = time.monotonic()
        setting.say(f"{name} ...")
        try:
            found = await EVERY[name](setting)
        except Exception as error:  # the other figures must not be lost with one
            if os.environ.get("DEATHLESS_BENCH_RAISE"):
                raise
            reason = f"left out: {type(error).__name__}: {error}"
            found = [Figure(name=name, title=name, value=None, unit="", note=reason)]
        for each in found:
            setting.say(f"  {line(each)}")
        group.took_s, group.load_after = round(time.monotonic() - began, 1), round(os.getloadavg()[0], 2)
        setting.say(f"  ({group.took_s:.0f} s)")
        group.figures = found
        if done is not None:
            done(machine, name, group)
        figures.extend(found)
    return figures


def main(given: list[str] | None = None) -> int:
    """Measure and write. Returns: 0; 1 when a figure was left out. A missed goal is a result, no error."""
    options = _arguments(given)
    if options.list:
        print("\n".join(EVERY))
        return 0
    flag = next((each for each in FAMILIES if getattr(options, each)), "")
    family = FAMILIES.get(flag)
    names = options.only or list(GROUPS if family is None else family.groups)
    if family is not None and not family.groups.keys() >= set(names):
        raise SystemExit(f"of --{flag} are: {', '.join(family.groups)}")
    kept = family.keep if family is not None and not options.quick and options.output is None else None
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="deathless-bench-", dir=options.directory) as scratch:
        folder = Path(scratch)
        machine = describe(folder, quick=options.quick)
        profile = PROFILES if options.profile else None
        setting = Setting(
            folder, quick=options.quick, profile=profile, peers=not options.no_peers, divide=options.divide
        )
        try:
            figures = event_loop.run(measure(setting, names, machine, kept))
        finally:
            setting.close()
    machine.took_s = round(time.monotonic() - began, 1)
    machine.load_after = round(os.getloadavg()[0], 2)
    results = Results(machine=machine, figures=figures)
    whole = not options.only and not options.quick and options.divide == 1
    if options.output is not None:
        write_results(results, options.output)
    elif kept is not None:
        pass  # group by group
    elif whole and family is None:
        write_results(results, RESULTS)
        write_page(results)
    else:
        print(msgspec.json.format(msgspec.json.encode(results), indent=2).decode())
    return 1 if any(each.value is None for each in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
