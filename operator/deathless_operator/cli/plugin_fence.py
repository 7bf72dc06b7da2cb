"""`kubectl deathless fence`, `unfence`, `pause`, `resume`: what a person holds back, by an annotation of the service.

Each waits until that is in force: replicas announce that they are fenced, the operator tells the condition Paused. So
who fences in a script goes on when nothing is served any more, and not when it was asked for.

Guarantees: nothing is taken as done because it was asked for; what was asked for stays so when the wait ends without
it. Does not: touch pods; the operator does.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import click

from deathless.base.errors import InvalidArgument, OutcomeUnknown
from deathless_operator.cli import plugin_view as view
from deathless_operator.cli.plugin_cluster import LOOK_S, Cluster, check_members, fenced
from deathless_operator.cli.plugin_options import common, json_option, on_cluster, service_argument, timeout_option
from deathless_operator.model import names
from deathless_operator.model.status import condition
from deathless_operator.plan.snapshot import PodView, ResourceView

FENCED: Final = "fenced"  # role of a replica whose worker is stopped on purpose, as it announces it

no_wait_option = click.option("--no-wait", is_flag=True, help="Ask for it, and return.")


@click.command()
@service_argument
@click.argument("replicas", nargs=-1)
@common
@json_option
@no_wait_option
@timeout_option
def fence(
    service: str,
    replicas: tuple[str, ...],
    namespace: str,
    kubeconfig: str,
    as_json: bool,
    no_wait: bool,
    timeout: float,
) -> int:
    """Stop REPLICAS (r0, r1, ..., of several shards 0/r0, 1/r0, ...; none named: all) until they are unfenced.

    The command ends when they have stopped.
    """

    async def work(cluster: Cluster) -> str:
        found = await cluster.service(service)
        check_members(found, replicas)
        _check_looked_after(found, no_wait)
        now = fenced(found)
        wanted = "*" if not replicas or "*" in now else ",".join(sorted({*now, *replicas}))
        await cluster.annotate(service, names.FENCED_ANNOTATION, wanted)
        if not no_wait:
            await _until(partial(_not_yet_fenced, cluster, service, replicas, fenced=True), timeout)
        return wanted

    held = on_cluster(namespace, kubeconfig, work)
    _say(as_json, {"name": service, "fenced": held.split(",")}, f"{service}: fenced {held}")
    return 0


@click.command()
@service_argument
@click.argument("replicas", nargs=-1)
@common
@json_option
@no_wait_option
@timeout_option
def unfence(
    service: str,
    replicas: tuple[str, ...],
    namespace: str,
    kubeconfig: str,
    as_json: bool,
    no_wait: bool,
    timeout: float,
) -> int:
    """Let REPLICAS (none named: all) serve again. The command ends when they have been told."""

    async def work(cluster: Cluster) -> str:
        found = await cluster.service(service)
        now = fenced(found)
        if replicas and "*" in now:
            told = f"all replicas of {service} are fenced together"
            raise InvalidArgument(told, remedy=f"`kubectl deathless unfence {service}` lets all serve again")
        _check_looked_after(found, no_wait)
        left = ",".join(one for one in now if replicas and one not in replicas)
        await cluster.annotate(service, names.FENCED_ANNOTATION, left or None)
        if not no_wait:
            await _until(partial(_not_yet_fenced, cluster, service, replicas, fenced=False), timeout)
        return left

    left = on_cluster(namespace, kubeconfig, work)
    told: dict[str, object] = {"name": service, "fenced": left.split(",") if left else []}
    _say(as_json, told, f"{service}: {'still fenced ' + left if left else 'nobody is fenced'}")
    return 0


@click.command()
@service_argument
@common
@json_option
@no_wait_option
@timeout_option
def pause(service: str, namespace: str, kubeconfig: str, as_json: bool, no_wait: bool, timeout: float) -> int:
    """Let the operator change nothing about a service. Replicas serve and take over all the same.

    The command ends when the operator says that it leaves the service alone.
    """
    on_cluster(namespace, kubeconfig, partial(_pause, service, None if no_wait else timeout, paused=True))
    _say(as_json, {"name": service, "paused": True}, f"{service}: the operator leaves it alone")
    return 0


@click.command()
@service_argument
@common
@json_option
@no_wait_option
@timeout_option
def resume(service: str, namespace: str, kubeconfig: str, as_json: bool, no_wait: bool, timeout: float) -> int:
    """Let the operator look after a service again. The command ends when the operator says that it does."""
    on_cluster(namespace, kubeconfig, partial(_pause, service, None if no_wait else timeout, paused=False))
    _say(as_json, {"name": service, "paused": False}, f"{service}: the operator looks after it again")
    return 0


async def _pause(service: str, timeout_s: float | None, cluster: Cluster, *, paused: bool) -> None:
    await cluster.annotate(service, names.PAUSED_ANNOTATION, "true" if paused else None)
    if timeout_s is not None:
        await _until(partial(_not_yet_paused, cluster, service, paused=paused), timeout_s)


def _check_looked_after(resource: ResourceView, no_wait: bool) -> None:
    """Refuse to wait for an operator that was told to change nothing. Raises: InvalidArgument."""
    if resource.annotations.get(names.PAUSED_ANNOTATION) == "true" and not no_wait:
        raise InvalidArgument(
            f"{resource.name} is paused: the operator fences nobody until it is resumed",
            remedy=f"`kubectl deathless resume {resource.name}` first, or ask for it beforehand by --no-wait",
        )


async def _not_yet_fenced(cluster: Cluster, service: str, replicas: tuple[str, ...], *, fenced: bool) -> str:
    """Say which of the replicas (none named: all) do not announce yet that they are fenced, or are not."""
    resource = await cluster.service(service)
    shards = resource.spec.shards if resource.spec is not None else 1
    waited = [
        pod.name
        for pod in await cluster.pods(service)
        if pod.phase == "Running" and _is_fenced(pod) != fenced and (not replicas or _called(pod, shards) in replicas)
    ]
    return f"{', '.join(waited)} to {'stop' if fenced else 'be let go'}" if waited else ""


async def _not_yet_paused(cluster: Cluster, service: str, *, paused: bool) -> str:
    """Say that the operator has not told yet what it does, if so."""
    found = condition((await cluster.service(service)).status.conditions, "Paused")
    if found is not None and (found.status == "True") == paused:
        return ""
    return f"the operator to {'leave it alone' if paused else 'look after it'}"


def _called(pod: PodView, shards: int) -> str:
    """A pod's replica, as people write it."""
    replica, shard = pod.labels.get(names.LABEL_REPLICA, ""), pod.labels.get(names.LABEL_SHARD, "0")
    return f"{shard}/{replica}" if shards > 1 else replica


def _is_fenced(pod: PodView) -> bool:
    return pod.announced is not None and pod.announced.role == FENCED


async def _until(not_yet: Callable[[], Awaitable[str]], timeout_s: float) -> None:
    """Look until nothing is waited for, and say meanwhile what is. Raises: OutcomeUnknown."""
    began, told = time.monotonic(), ""
    while waits := await not_yet():
        if time.monotonic() - began >= timeout_s:
            raise OutcomeUnknown(
                f"waited {timeout_s:g} s for {waits}",
                remedy="it stays asked for, and comes once the operator and the replicas are there: see `status`",
            )
        if waits != told:
            sys.stderr.write(f"waiting for {waits}\n")
            told = waits
        await asyncio.sleep(LOOK_S)


def _say(as_json: bool, told: dict[str, object], text: str) -> None:
    """Print what was done: for programs, or for people."""
    if as_json:
        view.emit(told)
    else:
        view.console().print(text, markup=False)
