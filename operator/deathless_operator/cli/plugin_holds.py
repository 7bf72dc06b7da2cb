"""`kubectl deathless fence`, `unfence`, `pause`, `resume`: what keeps replicas or the operator from their work.

Each is an annotation on the service. The operator reads it, marks pods, and replicas do as their pod says, all in
their own time, so a command waits until those that are to obey have told so:

    fence     the pod is marked, and its replica announces that it is fenced: its worker has ended
    unfence   the pod is not marked, and its replica is ready
    pause     the status says that the service is paused: what the operator had begun is over
    resume    the status says that it is not

Guarantees: without --no-wait the exit code is 0 only once it is so. Running out of time takes nothing back. Does not:
mark pods; the operator does.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

import click

from deathless.base.errors import InvalidArgument, OutcomeUnknown
from deathless_operator.cli import plugin_view as view
from deathless_operator.cli.plugin_cluster import SWITCH_S, Cluster
from deathless_operator.cli.plugin_options import (
    common,
    handover_timeout_option,
    json_option,
    on_cluster,
    service_argument,
    timeout_option,
)
from deathless_operator.model import names
from deathless_operator.model.grace import handover_wait_s
from deathless_operator.model.status import condition
from deathless_operator.plan.service.pods import serves, trouble
from deathless_operator.plan.service.reading import is_fenced
from deathless_operator.plan.snapshot import PodView, ResourceView

LOOK_S: Final = 0.2
SAY_S: Final = 2.0  # nothing is said of a shorter wait
ROLE_FENCED: Final = "fenced"  # as a replica announces it
SHOWN: Final = 4  # replicas that a sentence names

Members = dict[str, PodView | None]  # by the names that people give replicas; None: there is no pod of it


async def members_of(cluster: Cluster, resource: ResourceView) -> Members:
    """Give the replicas that a service is to have, or has a pod of."""
    spec, name = resource.spec, resource.name
    shards = spec.shards if spec is not None else 1
    pods = {pod.name: pod for pod in await cluster.pods(name)}
    found: Members = {}
    for shard in range(shards):
        base = names.of_shard(name, shard)
        for ordinal in range(spec.replicas if spec is not None else 0):
            found[names.member(ordinal, shard, shards)] = pods.pop(names.pod(base, ordinal), None)
    for pod in pods.values():  # that go, or of a spec that can't be read
        shard_of, replica = pod.labels.get(names.LABEL_SHARD), pod.labels[names.LABEL_REPLICA]
        found[f"{shard_of}/{replica}" if shard_of is not None else replica] = pod
    return found


def check_known(resource: ResourceView, members: Members, replicas: tuple[str, ...]) -> None:
    """Refuse names of replicas that would fence nobody. Raises: InvalidArgument."""
    for one in replicas:
        if one not in members:
            known = ", ".join([*list(members)[:SHOWN], "..."] if len(members) > SHOWN else members)
            remedy = f"they are called {known}, as `status` shows them" if known else "it has none now"
            raise InvalidArgument(f"{one} is no replica of {resource.name}", remedy=remedy)


def fenced_by(resource: ResourceView) -> list[str]:
    """Give the replicas that a service's annotation fences; ["*"]: all."""
    return [one for one in resource.annotations.get(names.FENCED_ANNOTATION, "").split(",") if one]


def serves_on(pod: PodView) -> str:
    """Say why a replica does not count as fenced yet; empty: it does."""
    role = pod.announced.role if pod.announced is not None else ""
    if pod.deleted_at is not None:
        return f"{pod.name} is ending"
    if not is_fenced(pod):
        return f"{pod.name} is not marked by the operator yet"
    return "" if role == ROLE_FENCED else f"{pod.name} has not stopped yet (it is {role or 'silent'})"


def stays_away(pod: PodView) -> str:
    """Say why a replica does not serve again yet; empty: it does."""
    if pod.deleted_at is not None:
        return f"{pod.name} is ending"
    if is_fenced(pod):
        return f"{pod.name} is still marked as fenced"
    if serves(pod) and not (pod.announced is not None and pod.announced.role == ROLE_FENCED):
        return ""
    _, said = trouble(pod)
    return f"{pod.name} is not ready yet{f': {said}' if said else ''}"


async def wait_for_replicas(
    cluster: Cluster, service: str, wanted: frozenset[str] | None, left: Callable[[PodView], str]
) -> list[str]:
    """Say of each replica for which it is waited why.

    Args:
        cluster: where it is.
        service: of the replicas.
        wanted: for these; None: for all.
        left: why it is waited for one that has a pod; empty: it is not.

    Raises: UnknownService; OutcomeUnknown where it is waited in vain, since the operator does nothing.
    """
    resource = await cluster.service(service)
    stopped = resource.spec is None or resource.spec.suspend  # no pod is made, or nobody knows which
    reasons: list[str] = []
    for name, pod in (await members_of(cluster, resource)).items():
        if wanted is not None and name not in wanted:
            continue
        if pod is not None:
            reasons.append(left(pod))
        elif not stopped:
            reasons.append(f"{name} has no pod that tells of itself")
    found = list(filter(None, reasons))
    if found and is_paused(resource):
        raise OutcomeUnknown(
            f"{service} is paused, so the operator marks no pod; it is done once the service is resumed",
            remedy=f"`kubectl deathless resume {service}`",
        )
    return found


def is_paused(resource: ResourceView) -> bool:
    """Tell whether somebody asked the operator to change nothing."""
    return resource.annotations.get(names.PAUSED_ANNOTATION) == "true"


async def wait_for_operator(cluster: Cluster, service: str, *, paused: bool) -> list[str]:
    """Say that the operator has not told yet whether it leaves a service alone, as was asked; nothing: it has."""
    told = condition((await cluster.service(service)).status.conditions, "Paused")
    if told is not None and (told.status == "True") is paused:
        return []
    return [f"the operator has not told yet that it {'leaves it alone' if paused else 'looks after it again'}"]


async def wait_until_done(
    look: Callable[[], Awaitable[list[str]]], timeout_s: float, said: Callable[[str], None], remedy: str
) -> None:
    """Wait until a look finds nothing more to wait for.

    Args:
        look: gives for what it is waited.
        timeout_s: how long at most, seconds.
        said: told for what, where it takes longer.
        remedy: of the error.

    Raises: OutcomeUnknown when time has run out; what `look` raises.
    """
    began, before = time.monotonic(), ""
    while left := await look():
        shown = "; ".join([*left[:SHOWN], f"and {len(left) - SHOWN} more"] if len(left) > SHOWN else left)
        passed = time.monotonic() - began
        if passed >= timeout_s:
            told = f"{shown}, after {timeout_s:g} s. It stays asked for, and is done without this command"
            raise OutcomeUnknown(told, remedy=remedy)
        if passed >= SAY_S and shown != before:
            said(f"waiting: {shown}")
            before = shown
        await asyncio.sleep(LOOK_S)


no_wait_option = click.option("--no-wait", is_flag=True, help="Return at once, without waiting for confirmation.")


def _remedy(service: str) -> str:
    return f"see `kubectl deathless status {service}`; does the operator run?"


def _say(as_json: bool, told: dict[str, object], text: str) -> None:
    """Print what was done: for programs, or for people."""
    if as_json:
        view.emit(told)
    else:
        view.console().print(text, markup=False)


@click.command()
@service_argument
@click.argument("replicas", nargs=-1)
@common
@json_option
@no_wait_option
@handover_timeout_option
def fence(
    service: str,
    replicas: tuple[str, ...],
    namespace: str,
    kubeconfig: str,
    as_json: bool,
    no_wait: bool,
    timeout: float | None,
) -> int:
    """Stop REPLICAS (r0, r1, ..., with shards 0/r0, 1/r0, ...; default: all) until they are unfenced.

    Waits until each of them confirms that it is fenced. If one does not confirm in time, the exit code is 75: it
    may still serve. The request remains in place.
    """

    async def work(cluster: Cluster) -> str:
        found = await cluster.service(service)
        check_known(found, await members_of(cluster, found), replicas)
        now = fenced_by(found)
        wanted = "*" if not replicas or "*" in now else ",".join(sorted({*now, *replicas}))
        await cluster.annotate(service, names.FENCED_ANNOTATION, wanted)
        if not no_wait:
            waited_s = SWITCH_S + (handover_wait_s(found.spec) if found.spec is not None else 0.0)
            chosen = frozenset(replicas) if replicas else None
            await wait_until_done(
                lambda: wait_for_replicas(cluster, service, chosen, serves_on),
                waited_s if timeout is None else timeout,
                view.tell,
                f"{_remedy(service)} `kubectl deathless unfence {service}` takes it back",
            )
        return wanted

    held = on_cluster(namespace, kubeconfig, work)
    _say(as_json, {"name": service, "fenced": held.split(",")}, f"{service}: {_done(no_wait)}fenced {held}")
    return 0


def _done(no_wait: bool) -> str:
    return "asked for: " if no_wait else ""


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
    """Let REPLICAS (default: all) serve again.

    Waits until each that was fenced is ready. If one is not in time, the exit code is 75. The request remains in place.
    """

    async def work(cluster: Cluster) -> str:
        found = await cluster.service(service)
        now = fenced_by(found)
        if replicas and "*" in now:
            told = f"all replicas of {service} are fenced together"
            raise InvalidArgument(told, remedy=f"`kubectl deathless unfence {service}` unfences all replicas")
        left = ",".join(one for one in now if replicas and one not in replicas)
        members = await members_of(cluster, found)
        await cluster.annotate(service, names.FENCED_ANNOTATION, left or None)
        if not no_wait:
            marked = [name for name, pod in members.items() if pod is not None and is_fenced(pod)]
            chosen = None if "*" in now else frozenset(replicas or (*now, *marked))
            await wait_until_done(
                lambda: wait_for_replicas(cluster, service, chosen, stays_away), timeout, view.tell, _remedy(service)
            )
        return left

    left = on_cluster(namespace, kubeconfig, work)
    told: dict[str, object] = {"name": service, "fenced": left.split(",") if left else []}
    _say(as_json, told, f"{service}: {_done(no_wait)}{'still fenced ' + left if left else 'nobody is fenced'}")
    return 0


@click.command()
@service_argument
@common
@json_option
@no_wait_option
@timeout_option
def pause(service: str, namespace: str, kubeconfig: str, as_json: bool, no_wait: bool, timeout: float) -> int:
    """Stop the operator from changing anything about a service. Replicas still serve and take over.

    Waits until the operator confirms. If it does not in time, the exit code is 75. The request remains in place.
    """
    _set_paused(service, True, namespace, kubeconfig, no_wait, timeout)
    _say(as_json, {"name": service, "paused": True}, f"{service}: {_done(no_wait)}the operator leaves it alone")
    return 0


def _set_paused(service: str, paused: bool, namespace: str, kubeconfig: str, no_wait: bool, timeout_s: float) -> None:
    async def work(cluster: Cluster) -> None:
        await cluster.annotate(service, names.PAUSED_ANNOTATION, "true" if paused else None)
        if not no_wait:
            await wait_until_done(
                lambda: wait_for_operator(cluster, service, paused=paused), timeout_s, view.tell, _remedy(service)
            )

    on_cluster(namespace, kubeconfig, work)


@click.command()
@service_argument
@common
@json_option
@no_wait_option
@timeout_option
def resume(service: str, namespace: str, kubeconfig: str, as_json: bool, no_wait: bool, timeout: float) -> int:
    """Let the operator manage a service again.

    Waits until the operator confirms. If it does not in time, the exit code is 75. The request remains in place.
    """
    _set_paused(service, False, namespace, kubeconfig, no_wait, timeout)
    _say(as_json, {"name": service, "paused": False}, f"{service}: {_done(no_wait)}the operator looks after it again")
    return 0


HOLDS: Final = (fence, unfence, pause, resume)
