"""`kubectl deathless upgrade`: what a service is or would be upgraded to, and a person's word for it.

    look     the code that serves, the one that the spec names, how far the operator is, what driving pods said
    --go     an annotation on the service that names the fingerprint of the spec's code: it counts for that code alone
    --action an annotation on a LiveUpgrade, which counts before its spec
    --offline of a service that is suspended: a pod runs `deathless upgrade --offline` (plugin_adopt)

Guarantees: without these options nothing is changed. Does not: upgrade, or wait for it; the operator does, and `status`
and this command tell how far it is.
"""

from __future__ import annotations

import sys
from typing import Any

import click
import msgspec

from deathless.base.errors import InvalidArgument
from deathless.codec.untrusted import read_json
from deathless_operator.cli import plugin_view as view
from deathless_operator.cli.plugin_adopt import Asked
from deathless_operator.cli.plugin_adopt import work as upgrade_offline
from deathless_operator.cli.plugin_cluster import Cluster
from deathless_operator.cli.plugin_options import (
    common,
    json_option,
    on_cluster,
    service_argument,
    shard_option,
    timeout_option,
)
from deathless_operator.cluster.errors import NotFound
from deathless_operator.cluster.kinds import LIVE_UPGRADE, POD, SERVICE, STATEFUL_SET
from deathless_operator.model import names
from deathless_operator.model.live_upgrade import ACTIONS, ENDED, Action, LiveUpgradeResource
from deathless_operator.model.status import condition
from deathless_operator.model.values import JsonObject, text
from deathless_operator.plan.service.objects import UpgradingTo
from deathless_operator.plan.service.pods import container
from deathless_operator.plan.service.reading import read_live_upgrade, read_pod
from deathless_operator.plan.service.upgrading.asked_for import MAY_GO_BACK, action_of
from deathless_operator.plan.service.upgrading.image_check import PURPOSE as PURPOSE_CHECK
from deathless_operator.plan.service.upgrading.image_check import fingerprint_in
from deathless_operator.plan.service.upgrading.upgrade import WORD_DIGITS_MIN
from deathless_operator.plan.snapshot import ResourceView


class Driver(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that leads through an upgrade, or did."""

    pod: str
    attempt: str
    phase: str
    message: str  # what it ended with


class ShardCode(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The code that a shard runs."""

    shard: int
    image: str
    module: str
    fingerprint: str


class LiveUpgradeLine(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A LiveUpgrade of the service."""

    name: str
    image: str  # that it upgrades to
    action: str
    phase: str
    message: str


class Standing(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How an upgrade stands."""

    service: str
    image: str  # that serves
    module: str
    fingerprint: str
    wanted_image: str
    wanted_module: str
    wanted_fingerprint: str  # empty: the same code, or not known yet
    policy: str
    asked_for: bool  # a person has given the word for it
    state: str  # reason of the condition that tells most
    message: str
    drivers: tuple[Driver, ...]
    shards: tuple[ShardCode, ...]  # of a service that has several
    live_upgrades: tuple[LiveUpgradeLine, ...]  # the oldest first


async def _pods(cluster: Cluster, service: str, purpose: str) -> list[Any]:
    labels = f"{names.LABEL_SERVICE}={service},{names.LABEL_PURPOSE}={purpose}"
    return [read_pod(raw) for raw in await cluster.api.list(POD, cluster.namespace, labels=labels)]


async def wanted_fingerprint(cluster: Cluster, resource: ResourceView) -> str:
    """Give the fingerprint of the spec's code, where it is other code than what serves and known; empty: it is not."""
    for pod in await _pods(cluster, resource.name, PURPOSE_CHECK):
        found = container(pod, PURPOSE_CHECK)
        if found is not None and found.exit_code == 0 and (told := fingerprint_in(found.message)):
            return told
    spec = resource.spec
    for shard in range(spec.shards if spec is not None else 0):
        found_set = await cluster.api.find(STATEFUL_SET, cluster.namespace, names.of_shard(resource.name, shard))
        noted = _noted(found_set) if found_set is not None else None
        if noted is not None and spec is not None and (noted.image, noted.module) == (spec.image, spec.module):
            return noted.fingerprint
    return ""


def _noted(found_set: JsonObject) -> UpgradingTo | None:
    note = text(found_set, "metadata", "annotations", names.UPGRADING_TO_ANNOTATION)
    try:
        return read_json(note.encode(), UpgradingTo) if note else None
    except msgspec.MsgspecError:  # somebody wrote there
        return None


async def look(cluster: Cluster, service: str) -> tuple[ResourceView, Standing]:
    """Give a service and how an upgrade of it stands. Raises: UnknownService."""
    resource = await cluster.service(service)
    spec, status = resource.spec, resource.status
    wanted = await wanted_fingerprint(cluster, resource)
    told = [found for kind in ("UpgradeRequired", "Progressing") if (found := condition(status.conditions, kind))]
    first = next((found for found in told if found.status == "True"), told[0] if told else None)
    drivers = []
    for pod in await _pods(cluster, service, names.PURPOSE_UPGRADE):
        program = container(pod, names.PURPOSE_UPGRADE)
        attempt = pod.annotations.get(names.ATTEMPT_ANNOTATION, "")
        said = program.message.strip() if program is not None else ""
        drivers.append(Driver(pod=pod.name, attempt=attempt, phase=pod.phase, message=said))
    word = resource.annotations.get(names.UPGRADE_ANNOTATION, "").strip().lower()
    return resource, Standing(
        service=service,
        image=status.image,
        module=status.module,
        fingerprint=status.fingerprint,
        wanted_image=spec.image if spec is not None else "",
        wanted_module=spec.module if spec is not None else "",
        wanted_fingerprint=wanted if wanted != status.fingerprint else "",
        policy=spec.upgrade_policy if spec is not None else "",
        asked_for=bool(wanted) and len(word) >= WORD_DIGITS_MIN and wanted.startswith(word),
        state=first.reason if first is not None else "",
        message=first.message if first is not None else "",
        drivers=tuple(drivers),
        shards=tuple(
            ShardCode(shard=each.shard, image=each.image, module=each.module, fingerprint=each.fingerprint)
            for each in status.shards
        ),
        live_upgrades=tuple(
            LiveUpgradeLine(
                name=each.name,
                image=each.spec.to.image if each.spec is not None else "",
                action=action_of(each),
                phase=each.status.phase,
                message=each.status.message or "; ".join(each.problems),
            )
            for each in await live_upgrades(cluster, service)
        ),
    )


async def live_upgrades(cluster: Cluster, service: str) -> list[LiveUpgradeResource]:
    """Give the LiveUpgrades of a service, the oldest first; none where their kind is not served."""
    try:
        found = [read_live_upgrade(raw) for raw in await cluster.api.list(LIVE_UPGRADE, cluster.namespace)]
    except NotFound:
        return []
    return sorted((each for each in found if each.service == service), key=lambda each: (each.created_at, each.name))


async def order(cluster: Cluster, service: str, action: str) -> Standing:
    """Change the action of the LiveUpgrade that is under way; BackOut is for the last one that has ended.

    Raises: UnknownService, InvalidArgument where there is no such LiveUpgrade.
    """
    await cluster.service(service)
    every = await live_upgrades(cluster, service)
    open_ones = [each for each in every if each.status.phase not in ENDED]
    ended = [each for each in every if each.status.phase in MAY_GO_BACK]
    which = next(iter(open_ones), None)
    if which is None and action == "BackOut":
        which = next(reversed(ended), None)
    if which is None:
        raise InvalidArgument(
            f"{service} has no LiveUpgrade that could be told {action}",
            remedy="see `kubectl get liveupgrades`; for the spec's own image there is --go",
        )
    body = {"metadata": {"uid": which.uid, "annotations": {names.ACTION_ANNOTATION: action}}}
    await cluster.api.patch(LIVE_UPGRADE, cluster.namespace, which.name, body)
    return (await look(cluster, service))[1]


async def ask(cluster: Cluster, service: str) -> Standing:
    """Give the word for the code that the spec names. Raises: UnknownService, InvalidArgument where there is none."""
    resource, found = await look(cluster, service)
    if not found.wanted_fingerprint:
        raise InvalidArgument(
            f"{service} has nothing to be upgraded to: no check of another image or module has told its code",
            remedy="set spec.image or spec.module, and wait until UpgradeRequired is True",
        )
    body = {"metadata": {"uid": resource.uid, "annotations": {names.UPGRADE_ANNOTATION: found.wanted_fingerprint}}}
    await cluster.api.patch(SERVICE, cluster.namespace, service, body)
    return msgspec.structs.replace(found, asked_for=True)


def _show(found: Standing, *, asked: bool) -> None:
    console = view.console()
    for each in found.shards or (found,):
        shard = f"shard {each.shard} " if isinstance(each, ShardCode) else ""
        told = f"{each.image} {each.module} ({each.fingerprint[:12] or 'nothing yet'})"
        console.print(f"{shard}serves  {told}", markup=False)
    if found.wanted_fingerprint:
        named = f"{found.wanted_image} {found.wanted_module} ({found.wanted_fingerprint[:12]})"
        word = "asked for" if found.asked_for else f"policy {found.policy}"
        console.print(f"wanted  {named}, {word}", markup=False)
    else:
        console.print("wanted  the code that serves", markup=False)
    for driver in found.drivers:
        console.print(f"{driver.pod}  attempt {driver.attempt}, {driver.phase} {driver.message}".rstrip(), markup=False)
    for line in found.live_upgrades:
        told = f"LiveUpgrade {line.name} to {line.image}, action {line.action}: {line.phase or 'new'} {line.message}"
        console.print(told.rstrip(), markup=False)
    if asked:
        console.print(
            "The operator begins with it now; the same command without --go shows how far it is", markup=False
        )
    elif found.message:
        console.print(f"{found.state}: {found.message}", markup=False)


@click.command()
@service_argument
@click.option("--go", is_flag=True, help="Upgrade to the code that the spec names, with its migrations.")
@click.option(
    "--action",
    type=click.Choice(ACTIONS),
    help="Tell the service's LiveUpgrade to go, hold, abort, or go back, whatever its spec says.",
)
@click.option("--offline", is_flag=True, help="Upgrade a suspended service to spec.image, in a pod of its own.")
@click.option("--dry-run", is_flag=True, help="With --offline: only check, and say what would be done.")
@click.option("-y", "--yes", is_flag=True, help="With --offline: do not ask for confirmation.")
@shard_option
@common
@json_option
@timeout_option
def upgrade(  # noqa: PLR0913, PLR0917 - one parameter per option, click passes them by name
    service: str,
    go: bool,
    action: Action | None,
    offline: bool,
    dry_run: bool,
    yes: bool,
    shard: int | None,
    namespace: str,
    kubeconfig: str,
    as_json: bool,
    timeout: float,
) -> int:
    """Show to which code a service is or would be upgraded, and how far that is; --go asks for it.

    What does not need to be asked for says spec.upgradePolicy. The word counts for this code alone, and is withdrawn by
    removing the annotation deathless.dev/upgrade.

    With --offline the service is suspended: a pod with the image of the spec migrates the state from the checkpoint at
    the log's end, and asks before it changes anything. Afterwards set spec.suspend to false.

    \b
    kubectl deathless upgrade bank
    kubectl deathless upgrade bank --go
    kubectl deathless upgrade bank --action Hold
    kubectl deathless upgrade bank --offline --yes
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines
    if go and action is not None:
        raise InvalidArgument(
            "--go is for the spec's image, --action for a LiveUpgrade",
            remedy="write one of them; `kubectl deathless upgrade` shows which there is",
        )

    if offline:
        if go or action is not None:
            raise InvalidArgument(
                "--offline is for a service that is suspended, --go and --action for one that runs",
                remedy="write one of them",
            )
        options = ("--offline", "--json") if as_json else ("--offline",)
        asked = Asked(options=options, shard=shard, yes=yes, dry_run=dry_run, wait_s=timeout, command="upgrade")
        status, said = on_cluster(namespace, kubeconfig, lambda cluster: upgrade_offline(cluster, service, asked))
        (sys.stderr if status else sys.stdout).write(f"{said}\n")
        return int(status)
    if dry_run or yes or shard is not None:
        raise InvalidArgument("--dry-run, --yes and --shard are for --offline", remedy="leave them out, or add it")

    async def work(cluster: Cluster) -> Standing:
        if action is not None:
            return await order(cluster, service, action)
        return await ask(cluster, service) if go else (await look(cluster, service))[1]

    found = on_cluster(namespace, kubeconfig, work)
    if as_json:
        view.emit(msgspec.to_builtins(found))
    else:
        _show(found, asked=go)
    return 0
