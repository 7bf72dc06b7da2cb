"""Makes docs/benchmarks-messaging.md of bench/results/messaging.json: groups that were measured one by one.

Guarantees: every number of the page comes from the file; each row says when and at which commit it was measured. Does
not: measure, or write the file (bench.kubernetes.results does, group by group).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bench.dated_page import dated_page
from bench.figures import RESULTS
from bench.kubernetes.results import ClusterResults
from bench.report import PAGE

MESSAGING_RESULTS: Final = RESULTS.with_name("messaging.json")
MESSAGING_PAGE: Final = PAGE.with_name("benchmarks-messaging.md")

HEAD: Final = """# Benchmarks of services that talk

`make bench-messaging` writes this page and `bench/results/messaging.json`; no number is typed by hand. Two services,
each with a log, a lock and replicas of its own, run on the one machine described below, together with the clients; the
peers run there too, alternating with Deathless. Arguments have 64 bytes unless a line says otherwise. Every message is
durable at the sender before it is sent and at the receiver before it is acknowledged, and messages are counted at the
end: everything that was sent has arrived exactly once. The **floor** is one fdatasync of 4 KiB and one round trip over
loopback. What each peer promises is described below the notes; peers that were measured **elsewhere** ran on other
machines with other loads, so their figures show only the order of magnitude.

"""

TAIL: Final = """
## What the peers are and promise

Each peer is started when it is to be measured, and then ended. It has one server, Python clients and its default
durability.

- **Two Python processes that sync and answer, no more** (`bench/peers/bare.py`): the two syncs and the two ways of
  one call, on the event loop that Deathless uses, with nothing around them; they promise nothing.
- **gRPC Python** (a stream; unary calls) stores nothing on disk and loses everything in progress when a process dies:
  it shows what two Python processes can exchange.
- **NATS JetStream** (nats-server 2.15.2, nats-py): a publisher with up to 4,000 unacknowledged messages, a stream in
  files, a consumer that acknowledges each message. With a sync after every message it promises what Deathless does; by
  default it syncs every two minutes, and a machine that loses power loses what was acknowledged since the last sync.
- **Restate** (restate-server 1.7.12, its Python SDK behind Hypercorn): the same two services with the same keys and
  states; the server keeps log and states on this disk with its defaults. There are one-way sends from handlers; calls
  from handler to handler, one outstanding; and a handler with one `run`, called over HTTP like that of Deathless.
- **DBOS** (its Python library on PostgreSQL with `fsync` and `synchronous_commit` on): a workflow of one step, called
  by threads of its own process. Its figures include no HTTP, unlike those of Deathless and Restate.

## What keeps a missed goal from being met

- **One call outstanding**: when calls are made one after the other, each takes two frames that wait for each other:
  the frame that runs the request at the other service, and the frame that receives the reply at the caller, whose turn
  sends the next request. With two directions over loopback that is slightly less than two floors. The column of peers
  shows two Python processes that do no more than this. The time beyond theirs is processor time of both workers, which
  the note states: nothing else runs meanwhile, and each worker starts with whatever a sleep left in its caches. To
  reach three floors, the runtime, including handlers, would have to fit between the figure in that column and the
  goal. A compiled core reduces 8.1 floors to 7.0 ([design 0006](design/0006-messaging.md#where-the-time-goes)). What
  remains to be tried, and has not been measured, is a runtime that is native all the way from socket to log.
- **256 outstanding, forks**: sender and receiver have one core each, so the rate is what one core achieves for the
  slower of the two. The note states how much processor time a message takes at both, and how far apart the rounds
  were. Whatever else runs on the two cores, including the client that counts, directly reduces these figures.

Each group of figures is measured separately and has its own date and commit: `python -m bench --messaging --only NAME`
replaces the figures of one group and rewrites this page; `--list` prints the names. AMBROSIA's rates come from its own
repository (github.com/microsoft/AMBROSIA, `AmbrosiaTest/AmbrosiaTest/Cmp/activeactivekillprimary_ClientJob.cmp`, which
does not say on which machine they were measured). Where a figure could not be measured here, its note says why.
"""


def messaging_page(results: ClusterResults, order: Sequence[str]) -> str:
    """The whole page; groups of `order` that have no figures are named with the reason."""
    return dated_page(HEAD, results, order, TAIL)


def write_messaging_page(results: ClusterResults, order: Sequence[str], path: Path = MESSAGING_PAGE) -> None:
    """Write docs/benchmarks-messaging.md."""
    path.write_text(messaging_page(results, order), encoding="utf-8")
