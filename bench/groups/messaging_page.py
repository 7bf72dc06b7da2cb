"""Makes docs/benchmarks-messaging.md of bench/results/messaging.json: groups that were measured one by one.

Guarantees: every number of the page comes from the file; each row says when and at which commit it was measured. Does
not: measure, or write the file (bench.kubernetes.results does, group by group).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.figures import RESULTS, Figure
from bench.kubernetes.results import ClusterResults, Group, missing_groups
from bench.report import PAGE, number

MESSAGING_RESULTS: Final = RESULTS.with_name("messaging.json")
MESSAGING_PAGE: Final = PAGE.with_name("benchmarks-messaging.md")

HEAD: Final = """# Benchmarks of services that talk

`make bench-messaging` wrote this page and `bench/results/messaging.json`; no number is typed by hand. Two services,
each with a log, a lock and replicas of its own, run on the one machine described below, with the clients and, in turns
with ours, the peers. Arguments have 64 bytes unless a line says otherwise; every message is durable at the sender
before it leaves and at the receiver before it is acknowledged, and is counted at the end: what was sent has come
exactly once. The **floor** is one fdatasync of 4 KiB and one round trip over loopback. What each peer promises is below
the notes; those that were measured **elsewhere** ran on other machines with other loads: they show the order of
magnitude, no more.

"""

TAIL: Final = """
## What the peers are and promise

Each is started for its turn, measured and ended, with one server, Python clients and its default durability.

- **Two Python processes that sync and answer, no more** (`bench/peers/bare.py`): the two syncs and two ways of one call
  on the event loop of ours, with nothing around them; it promises nothing.
- **gRPC Python** (a stream; unary calls) keeps nothing on any disk and forgets what was under way when a process dies:
  it marks what two Python processes can exchange.
- **NATS JetStream** (nats-server 2.15.2, nats-py): a publisher with up to 4,000 messages unacknowledged, a stream in
  files, a consumer that acks each message. With a sync behind every message it promises what ours does; by default it
  syncs every two minutes, and a machine that loses its power loses what was acknowledged since.
- **Restate** (restate-server 1.7.12, its Python SDK behind Hypercorn): the same two services with the same keys and
  states; the server keeps log and states on this disk with its defaults. One-way sends from handlers; calls from
  handler to handler, one outstanding; a handler with one `run`, called over HTTP as ours.
- **DBOS** (its Python library on PostgreSQL with `fsync` and `synchronous_commit` on): a workflow of one step, called
  by threads of its own process: there is no HTTP between, which ours and Restate's figures hold.

## What keeps a missed goal from being met

- **One call outstanding**: of calls one after the other each takes two frames that wait for each other, the one that
  runs the request at the other service, and the one that takes the reply in at the caller, whose turn sends the next
  request; with two ways over loopback that is a bit less than two floors. Two Python processes that do no more than
  this stand in the column of peers. What is above them is processor time of both workers, which the note says: nothing
  else runs meanwhile, and each begins with what a sleep left in its caches. For three floors the runtime, handlers
  included, would have to fit into what is left between that column and the goal. A compiled core brings 8.1 floors to
  7.0 ([design 0006](design/0006-messaging.md#where-the-time-goes)); what is left to try, and not measured, is a runtime
  that is native all the way from socket to log.
- **256 outstanding, forks**: sender and receiver have a core each, so the rate is what one core gives the slower one;
  the note says what a message takes of both, and how far apart the rounds were. Whatever else runs on the two cores,
  the client that counts among it, takes from these figures directly.

Each group of figures is measured by itself and has its own date and commit: `python -m bench --messaging --only NAME`
puts one in the place of its former self and writes this page anew; `--list` names them. AMBROSIA's rates come from its
own repository (github.com/microsoft/AMBROSIA, `AmbrosiaTest/AmbrosiaTest/Cmp/activeactivekillprimary_ClientJob.cmp`,
which does not say on which machine they were taken). A figure that could not be measured here says why in its note.
"""


def messaging_page(results: ClusterResults, order: Sequence[str]) -> str:
    """The whole page; groups of `order` that have no figures are named with the reason."""
    machine = results.machine
    size = " in tiny sizes" if machine.quick else ""
    took_s = sum(group.took_s for group in results.groups.values())
    where = (
        f"All groups took {took_s:,.0f} s{size}. {machine.cores} cores of {machine.processor}, {machine.memory_gib:g} "
        f"GiB, Linux {machine.kernel}, {machine.file_system}, Python {machine.python}. Load is the machine's in the "
        "last minute, before and after the group; about the cores and less is the bench itself, more is others.\n\n"
    )
    rows = [
        "| figure | here | floor | peers | goal | met | measured | at | load |",
        "| --- | ---: | ---: | --- | --- | --- | --- | --- | --- |",
        *(_row(each, group) for group in results.groups.values() for each in group.figures),
    ]
    notes = [
        f"- **{each.title}**: {each.note}." for group in results.groups.values() for each in group.figures if each.note
    ]
    missing = missing_groups(results, order)
    return HEAD + where + "\n".join(rows) + "\n\n## Notes\n\n" + "\n".join(notes) + "\n" + missing + TAIL


def _row(figure: Figure, group: Group) -> str:
    value = f"{number(figure.value)} {figure.unit}".rstrip() if figure.value is not None else "left out"
    peers = "; ".join(f"{peer} {number(value)}" for peer, value in figure.peers.items() if value is not None)
    met = {True: "yes", False: "**no**", None: ""}[figure.goal_met]
    load = f"{group.load_before:g}, {group.load_after:g}"
    cells = (
        figure.title, value, number(figure.floor), peers, figure.goal or "", met, group.began, group.commit, load
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def write_messaging_page(results: ClusterResults, order: Sequence[str], path: Path = MESSAGING_PAGE) -> None:
    """Write docs/benchmarks-messaging.md."""
    path.write_text(messaging_page(results, order), encoding="utf-8")
