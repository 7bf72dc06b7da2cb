"""`kubectl deathless adopt`: a person's word, carried to where the log is.

`deathless adopt` needs the log, the lock store and the code of the service, so it runs in a pod with the replicas'
own image, volumes and settings, while the service is suspended and no replica's pod is left.

    look     the pod runs `deathless adopt --dry-run` and says what differs; nothing is written
    ask      at a terminal; with --yes the person has said it already
    do       the pod runs `deathless adopt --yes`

`kubectl deathless upgrade --offline` does the same with `deathless upgrade --offline` and the image that the spec
names, and tells the operator which code was upgraded to: an annotation with its fingerprint on the service.

Guarantees: nothing is done while the service is not suspended or a pod of it is there; one such pod at a time, since
its name is taken; it ends by itself, also where this command was killed. Who goes on with the service meanwhile is held
back by the operator, which starts no replica beside such a pod (`plan.rollout`). Does not: decide what may be adopted
(the program in the pod does), or start the service again.
"""

from __future__ import annotations

import asyncio
import math
import shutil
import sys
import time
from dataclasses import dataclass
from typing import Any, Final

import click

from deathless.base.errors import InvalidArgument, OutcomeUnknown
from deathless_operator.cli import plugin_view as view
from deathless_operator.cli.plugin_cluster import Cluster, end_program, read_words
from deathless_operator.cli.plugin_options import (
    common,
    json_option,
    on_cluster,
    service_argument,
    shard_option,
    timeout_option,
)
from deathless_operator.cluster.kinds import POD, SERVICE, STATEFUL_SET
from deathless_operator.model import names
from deathless_operator.model.values import text
from deathless_operator.plan.service.pods import ENDED, container
from deathless_operator.plan.service.reading import read_pod
from deathless_operator.plan.service.upgrading.image_check import PURPOSE as PURPOSE_CHECK
from deathless_operator.plan.service.upgrading.image_check import fingerprint_in
from deathless_operator.plan.snapshot import PodView, ResourceView
from deathless_operator.plan.tool_pods import CONFIG, pod_spec, template_of, whole

LOOK_S: Final = 0.5


def adopt_manifest(
    resource: ResourceView, stateful_set: dict[str, Any], words: list[str], image: str, timeout_s: float
) -> dict[str, Any]:
    """Give the pod that runs `deathless adopt`, or `deathless upgrade --offline`.

    Args:
        resource: the service.
        stateful_set: of the shard, whose template says how its log is reached.
        words: of the command, behind `deathless`; it takes -f.
        image: instead of the template's; empty: that one.
        timeout_s: so long the pod may run.
    """
    template = template_of(stateful_set)
    program = whole(template, names.CONTAINER, [words[0], "-f", CONFIG, *words[1:]], image)
    spec = pod_spec(template, [program], math.ceil(timeout_s))
    labels = names.labels(resource.name) | {
        names.LABEL_NAME: "deathless-adopt",  # no replica: neither Services nor the set find it
        names.LABEL_PURPOSE: names.PURPOSE_ADOPT,
    }
    owner = {"apiVersion": names.API_VERSION, "kind": names.SERVICE_KIND, "name": resource.name, "uid": resource.uid}
    metadata = {
        "namespace": resource.namespace,
        "name": names.adopt_pod(stateful_set["metadata"]["name"]),
        "labels": labels,
        "ownerReferences": [owner],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def suspended(cluster: Cluster, name: str) -> ResourceView:
    """Give a service that is suspended. Raises: UnknownService; InvalidArgument while it is not."""
    resource = await cluster.service(name)
    if resource.spec is None or not resource.spec.suspend:
        patch = '{"spec":{"suspend":true}}'
        how = f"kubectl -n {resource.namespace} patch deathlessservice {name} --type merge -p '{patch}'"
        raise InvalidArgument(f"{name} is not suspended: its replicas must be stopped", remedy=f"`{how}`, then again")
    return resource


async def check_stopped(cluster: Cluster, name: str, timeout_s: float) -> ResourceView:
    """Give a service that is suspended and has no pods any more.

    Raises: UnknownService; InvalidArgument while it is not suspended; OutcomeUnknown while a pod does not end.
    """
    began = time.monotonic()
    while True:
        resource = await suspended(cluster, name)
        pods = [pod.name for pod in await cluster.pods(name)]
        if not pods:
            return resource
        if time.monotonic() - began > timeout_s:
            raise OutcomeUnknown(
                f"{', '.join(pods)} did not end within {timeout_s:g} s",
                remedy="see `kubectl describe pod`; make sure that the node of a pod that hangs is off",
            )
        await asyncio.sleep(LOOK_S)


async def run_pod(cluster: Cluster, service: str, manifest: dict[str, Any], timeout_s: float) -> tuple[int, str]:
    """Run the pod to its end and take it away; gives exit code and what it said.

    Raises: InvalidArgument where another one runs, or the service is suspended no more; OutcomeUnknown when it has not
        ended in time.
    """
    name, began = manifest["metadata"]["name"], time.monotonic()
    if await cluster.api.find(POD, cluster.namespace, name) is not None:
        how = f"kubectl -n {cluster.namespace} logs {name}"
        raise InvalidArgument(f"pod {name} is there already", remedy=f"see `{how}`; delete it once it has ended")
    made = await cluster.api.create(manifest)
    uid = str(made["metadata"].get("uid") or "")
    try:
        await suspended(cluster, service)  # the operator may have started replicas before the pod was there to be seen
        while True:
            raw = await cluster.api.get(POD, cluster.namespace, name)
            pod = read_pod(raw)
            if pod.phase in ENDED:
                return _end_of(pod), await _said(cluster.namespace, pod)
            if time.monotonic() - began > timeout_s:
                found = container(pod)
                why = pod.unschedulable or (f"{found.waiting_reason} {found.waiting_message}" if found else pod.phase)
                raise OutcomeUnknown(f"pod {name} has not ended within {timeout_s:g} s: {why.strip()}")
            await asyncio.sleep(LOOK_S)
    finally:
        await cluster.api.delete(POD, cluster.namespace, name, uid=uid or None, grace_s=0)


def _end_of(pod: PodView) -> int:
    found = container(pod)
    return found.exit_code if found is not None and found.exit_code is not None else 1


async def _said(namespace: str, pod: PodView) -> str:
    """Give what the pod printed: by kubectl, which called us; without it what it ended with."""
    kubectl, found = shutil.which("kubectl"), container(pod)
    if kubectl is not None:
        pipe = asyncio.subprocess.PIPE
        words = (kubectl, "--namespace", namespace, "logs", pod.name)
        process = await asyncio.create_subprocess_exec(*words, stdout=pipe, stderr=asyncio.subprocess.DEVNULL)
        assert process.stdout is not None
        try:
            printed = await read_words(process.stdout)
        finally:
            await end_program(process)  # which is still there where it has more to say than is read, or nobody waits
        if printed:
            return printed
    return found.message.strip() if found is not None else ""


async def code_of_image(cluster: Cluster, name: str) -> str:
    """Give the fingerprint of the new image's code, as the pod that looked into it tells. Raises: InvalidArgument."""
    labels = f"{names.LABEL_SERVICE}={name},{names.LABEL_PURPOSE}={PURPOSE_CHECK}"
    for raw in await cluster.api.list(POD, cluster.namespace, labels=labels):
        found = container(read_pod(raw), PURPOSE_CHECK)
        told = fingerprint_in(found.message) if found is not None and found.exit_code == 0 else ""
        if told:
            return told
    raise InvalidArgument(
        f"no pod {name}-check-... tells which code the image holds",
        remedy="set spec.image to the new image, and wait until UpgradeRequired is True",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What a person asked for."""

    options: tuple[str, ...]  # of the command
    shard: int | None
    yes: bool
    dry_run: bool
    wait_s: float
    command: str = "adopt"  # or "upgrade", of a service that is suspended


async def work(cluster: Cluster, service: str, asked: Asked) -> tuple[int, str]:
    """Do the whole; gives exit code and words of the program in the pod.

    Raises: as `check_stopped` and `run_pod`.
    """
    await cluster.shard_of(service, asked.shard)
    resource = await check_stopped(cluster, service, asked.wait_s)
    found = await cluster.api.find(STATEFUL_SET, cluster.namespace, names.of_shard(service, asked.shard or 0))
    if found is None or resource.spec is None:
        raise InvalidArgument(f"{service} has no StatefulSet yet: nothing of it was ever started")
    image = told = ""
    if asked.command == "upgrade":
        accepted = text(found, "metadata", "annotations", names.MODULE_ANNOTATION)
        if resource.spec.module != accepted:
            raise InvalidArgument(
                f"spec.module is {resource.spec.module}, and {accepted} was accepted",
                remedy="upgrade to the new image under the previous module first",
            )
        image, told = resource.spec.image, await code_of_image(cluster, service)

    async def run(word: str) -> tuple[int, str]:
        manifest = adopt_manifest(resource, found, [asked.command, *asked.options, word], image, asked.wait_s)
        return await run_pod(cluster, service, manifest, asked.wait_s)

    if asked.dry_run or not asked.yes:
        status, said = await run("--dry-run")
        if status or asked.dry_run:
            return status, said
        if not view.confirmed("Go on with that?", about=said):
            return 0, "nothing was done"
        await check_stopped(cluster, service, asked.wait_s)  # somebody may have gone on with it since it was looked at
    status, said = await run("--yes")
    if told and not status:
        body = {"metadata": {"uid": resource.uid, "annotations": {names.ADOPTED_CODE_ANNOTATION: told}}}
        await cluster.api.patch(SERVICE, cluster.namespace, service, body)
    return status, said


@click.command()
@service_argument
@click.option("--code", is_flag=True, hidden=True, help="Says what is to be used in its place.")
@click.option("--restored", is_flag=True, help="Accept a log that was restored from a backup or a snapshot.")
@click.option("--cut-at-end", is_flag=True, help="Accept that the damaged end of the log is cut off.")
@click.option("--as-new", is_flag=True, help="Turn a copied log into a service of its own.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@click.option("--dry-run", is_flag=True, help="Only show what differs.")
@shard_option
@common
@json_option
@timeout_option
def adopt(  # noqa: PLR0913, PLR0917 - one parameter per option, click passes them by name
    service: str,
    code: bool,
    restored: bool,
    cut_at_end: bool,
    as_new: bool,
    yes: bool,
    dry_run: bool,
    shard: int | None,
    namespace: str,
    kubeconfig: str,
    as_json: bool,
    timeout: float,
) -> int:
    """Accept what replicas refuse to start from: another lock store, a restored log.

    The service must be suspended. A pod with its image, volumes and settings runs `deathless adopt`, shows what
    differs, and asks before it changes anything. Afterwards set spec.suspend to false.

    \b
    kubectl deathless adopt bank --dry-run
    kubectl deathless adopt bank --yes
    kubectl deathless adopt bank --restored --yes
    """  # noqa: D301 - click's mark for a paragraph that keeps its lines
    if code:
        raise InvalidArgument(
            "adopting takes no code: it is upgraded to, also while the service is suspended",
            remedy="`kubectl deathless upgrade --offline`, which takes --yes, --dry-run and --shard as well",
        )
    given = {"--restored": restored, "--cut-at-end": cut_at_end, "--as-new": as_new, "--json": as_json}
    options = tuple(option for option, is_set in given.items() if is_set)
    asked = Asked(options=options, shard=shard, yes=yes, dry_run=dry_run, wait_s=timeout)
    status, said = on_cluster(namespace, kubeconfig, lambda cluster: work(cluster, service, asked))
    (sys.stderr if status else sys.stdout).write(f"{said}\n")
    return int(status)
