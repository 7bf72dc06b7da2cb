"""`deathless-operator drill-agent`: the fault of a drill, in a privileged pod on the victim's node.

Guarantees: leaves one JSON report, on standard output and in its termination message, whatever happens to it short of
kill -9; the exit code is 0 whenever there is a report, since a failed drill is no failed pod. Does not: plan.
"""

from __future__ import annotations

import sys
from typing import get_args

import click

from deathless_operator.drill.agent import FaultName, Order
from deathless_operator.drill.agent import run as run_agent
from deathless_operator.drill.filters import Cut, check_ports
from deathless_operator.drill.leave import TERMINATION_LOG, leave


@click.command(name="drill-agent")
@click.option("--run", default="", help="The run's mark, shown to people who inspect the pod.")
@click.option("--pod-uid", required=True, help="Uid of the pod that is hit.")
@click.option("--fault", required=True, type=click.Choice(get_args(FaultName)))
@click.option(
    "--process",
    default="worker",
    type=click.Choice(["worker", "replica"]),
    help="For ProcessKill: the process to kill.",
)
@click.option(
    "--duration", default=10.0, type=click.FloatRange(0, 3600), help="Duration in seconds, except for ProcessKill."
)
@click.option("--everything", is_flag=True, help="For Partition: cut off everything but loopback.")
@click.option("--served", multiple=True, type=int, metavar="PORT", help="TCP ports between replicas to cut off.")
@click.option("--called", multiple=True, type=int, metavar="PORT", help="TCP ports that the pod calls, to cut off.")
@click.option("--report", default=TERMINATION_LOG, show_default=True, metavar="FILE", help="File for the report.")
def command(
    run: str,
    pod_uid: str,
    fault: FaultName,
    process: str,
    duration: float,
    everything: bool,
    served: tuple[int, ...],
    called: tuple[int, ...],
    report: str,
) -> int:
    """Cause a fault in one pod on this node, and undo it when its time is over."""
    cut = Cut(everything=everything, served=check_ports(served), called=check_ports(called))
    order = Order(
        pod_uid=pod_uid,
        fault=fault,
        process="worker" if process == "worker" else "replica",
        duration_s=duration,
        cut=cut,
    )
    sys.stderr.write(f"drill-agent: {fault} of pod {pod_uid} for run {run or '-'}\n")
    leave(run_agent(order), report)
    return 0
