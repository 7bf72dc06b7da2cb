"""`deathless-operator drill-run`: the calls of a drill and their verdict, in a pod of its own.

Guarantees: leaves one JSON report, on standard output and in its termination message, whatever happens to it short of
kill -9; the exit code is 0 whenever there is a report, since a failed drill is no failed pod. Does not: plan.
"""

from __future__ import annotations

import asyncio
import secrets
import signal
import time
from pathlib import Path

import click

from deathless.base.shards import SHARDS_MAX, checked_shard, shard_of
from deathless_operator.drill.front_door import HttpFrontDoor
from deathless_operator.drill.leave import TERMINATION_LOG, leave
from deathless_operator.drill.readiness import Readiness
from deathless_operator.drill.runner import Pace, Runner, run_and_judge
from deathless_operator.plan.drill.reports import RunnerReport


def draw_series(shard: int, shards: int) -> str:
    """Draw the key of a run's calls, on the shard that something happens to. Raises: InvalidArgument: there is none."""
    checked_shard(shard, shards)
    while True:
        series = f"drill-{secrets.token_hex(8)}"
        if shard_of(series.encode(), shards) == shard:
            return series


@click.command(name="drill-run")
@click.option("--run", required=True, help="The run's mark: namespace/drill/run.")
@click.option("--service", required=True, help="Name of the service to call.")
@click.option("--url", required=True, help="URL of the service: http(s)://host:port.")
@click.option("--primary-url", default="", help="URL of the primary, for witnesses; default: --url.")
@click.option("--clients", default=4, type=click.IntRange(1, 64))
@click.option(
    "--witnesses", default=2, type=click.IntRange(0, 64), help="Additional clients that wait without a limit."
)
@click.option(
    "--per-second", default=50.0, type=click.FloatRange(0.1, 1000), help="Calls per second of all clients together."
)
@click.option(
    "--warm", default=5.0, type=click.FloatRange(0), help="Seconds for which calls must succeed before the fault."
)
@click.option("--observe", default=30.0, type=click.FloatRange(0), help="Seconds of calls after that.")
@click.option(
    "--settle", default=10.0, type=click.FloatRange(0), help="Seconds for which calls must succeed at the end."
)
@click.option(
    "--unavailable-max",
    default=5.0,
    type=click.FloatRange(0),
    help="The drill fails if a client waits longer than these seconds.",
)
@click.option(
    "--deadline", default=600.0, type=click.FloatRange(1), help="Seconds after which the run ends in any case."
)
@click.option(
    "--call-timeout", default=30.0, type=click.FloatRange(0.1), help="Seconds after which a call is abandoned."
)
@click.option("--tls", type=click.Path(path_type=Path), help="Folder with ca.crt, tls.crt and tls.key.")
@click.option("--token-file", type=click.Path(path_type=Path), help="File with the token that callers must present.")
@click.option("--shard", default=0, type=click.IntRange(0, SHARDS_MAX - 1), help="The shard to call.")
@click.option("--shards", default=1, type=click.IntRange(1, SHARDS_MAX), help="Number of the service's shards.")
@click.option("--ready-port", default=8081, type=click.IntRange(0, 65535))
@click.option("--report", default=TERMINATION_LOG, show_default=True, metavar="FILE", help="File for the report.")
def command(  # noqa: PLR0913, PLR0917 - one parameter per option, click passes them by name
    run: str,
    service: str,
    url: str,
    primary_url: str,
    clients: int,
    witnesses: int,
    per_second: float,
    warm: float,
    observe: float,
    settle: float,
    unavailable_max: float,
    deadline: float,
    call_timeout: float,
    tls: Path | None,
    token_file: Path | None,
    shard: int,
    shards: int,
    ready_port: int,
    report: str,
) -> int:
    """Call a service while a fault is caused in it, and judge the result."""
    pace = Pace(
        clients=clients,
        witnesses=witnesses,
        per_second=per_second,
        warm_s=warm,
        observe_s=observe,
        settle_s=settle,
        deadline_s=deadline,
        call_timeout_s=call_timeout,
        unavailable_max_s=unavailable_max,
    )

    async def work(token: str) -> RunnerReport:
        series = draw_series(shard, shards)
        door = HttpFrontDoor(
            url,
            service,
            series,
            clients=clients,
            witnesses=witnesses,
            primary_url=primary_url,
            tls=tls,
            token=token,
        )
        async with door, Readiness(ready_port) as readiness:
            runner = Runner(door=door, pace=pace, told=readiness.become_ready)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, runner.terminate)
            return await run_and_judge(run, runner)

    began = time.time()
    try:
        found = asyncio.run(work(token_file.read_text().strip() if token_file is not None else ""))
    except (OSError, ValueError) as error:  # certificates or token can't be read, the port is taken
        text = f"the runner could not begin: {error}"
        found = RunnerReport(run=run, verdict="Aborted", reason="NotWarm", message=text, began_at=began)
    leave(found, report)
    return 0
