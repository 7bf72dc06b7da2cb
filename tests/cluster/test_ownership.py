"""Who may touch a service: one that is deleted without its pods is taken up again, a paused one is left alone, a fenced
replica is stopped and comes back. Callers are served all the time.
"""

from __future__ import annotations

from functools import partial

import pytest
from lab.cluster.cluster import Pod
from lab.cluster.machine import CommandFailed
from tests.cluster.installed import CALM, Lab, Ledger
from tests.cluster.under_load import called, check_no_call_failed, uids, wait_epoch

from deathless_operator.model import names

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

WORKER = "deathless.shell.worker.worker"


def owner(ledger: Ledger, kind: str, name: str) -> str:
    """The uid of the service that controls an object; empty: nobody."""
    found = ledger.cluster.get(kind, name, ledger.namespace)["metadata"].get("ownerReferences", [])
    return next((str(one["uid"]) for one in found if one.get("controller")), "")


def is_owner(ledger: Ledger, uid: str, kind: str, name: str) -> bool:
    """Does that service control an object?"""
    return owner(ledger, kind, name) == uid


def uid_of(ledger: Ledger, kind: str, name: str) -> str:
    """The uid of an object; empty where there is none."""
    try:
        return str(ledger.cluster.get(kind, name, ledger.namespace)["metadata"]["uid"])
    except CommandFailed as failed:
        if "NotFound" in failed.output:
            return ""
        raise


def annotate(ledger: Ledger, note: str) -> None:
    """Set an annotation of the service, `key=value`, or take it away, `key-`."""
    ledger.cluster.kubectl("-n", ledger.namespace, "annotate", "--overwrite", "dls", ledger.name, note)


def test_service_deleted_without_its_pods_and_made_again_keeps_them_and_fails_no_call(cluster: Lab) -> None:
    with Ledger(cluster, "adopted", limits=CALM) as ledger:
        with called(ledger, patient=True) as callers:
            before, epoch, service = uids(ledger), ledger.epoch(), ledger.get()["metadata"]["uid"]
            children = [("statefulset", ledger.name), ("service", ledger.name)]
            stood = [uid_of(ledger, *child) for child in children]
            assert [owner(ledger, *child) for child in children] == [service] * 2

            cluster.kubectl("-n", ledger.namespace, "delete", "dls", ledger.name, "--cascade=orphan")
            ledger.wait_for(lambda: not uid_of(ledger, "dls", ledger.name), "the service is gone")
            callers.wait_more()
            assert [uid_of(ledger, *child) for child in children] == stood
            assert uids(ledger) == before

            ledger.apply()
            again = ledger.get()["metadata"]["uid"]
            assert again != service
            ledger.wait_ready()
            for child in children:
                ledger.wait_for(partial(is_owner, ledger, again, *child), f"{child} has its owner again")
        assert (uids(ledger), ledger.epoch()) == (before, epoch)
        assert [uid_of(ledger, *child) for child in children] == stood
        check_no_call_failed(callers)


def test_fenced_replicas_worker_stops_and_comes_back_when_it_is_unfenced(cluster: Lab) -> None:
    with Ledger(cluster, "fenced", limits=CALM) as ledger, called(ledger) as callers:
        for role in ("standby", "primary"):
            primary = ledger.primary()
            chosen = primary if role == "primary" else next(pod for pod in ledger.pods() if pod.uid != primary.uid)
            epoch = ledger.epoch()
            annotate(ledger, f"{names.FENCED_ANNOTATION}=r{chosen.name.rpartition('-')[2]}")
            assert chosen.name in ledger.wait_told("Fenced", "True", "ByAnnotation")
            ledger.wait_for(partial(rests, ledger, chosen), f"{chosen.name} has no worker")
            if role == "primary":
                ledger.wait_other_primary(chosen)
                wait_epoch(ledger, epoch)
            callers.wait_more()
            assert rests(ledger, chosen), "until it is unfenced"

            annotate(ledger, f"{names.FENCED_ANNOTATION}-")
            ledger.wait_told("Fenced", "False")
            ledger.wait_for(partial(works, ledger, chosen), f"{chosen.name} has a worker")
            ledger.wait_ready()
            assert chosen.uid in uids(ledger), "its pod stayed"
            callers.wait_more()


def config_of(ledger: Ledger) -> str:
    """Name of the ConfigMap that the service's pods mount."""
    found = ledger.cluster.get("statefulset", ledger.name, ledger.namespace)
    volumes = found["spec"]["template"]["spec"]["volumes"]
    return next(str(each["configMap"]["name"]) for each in volumes if each["name"] == "deathless-config")


def works(ledger: Ledger, pod: Pod) -> bool:
    """Does a replica have its worker?"""
    return bool(ledger.cluster.processes(pod, WORKER))


def rests(ledger: Ledger, pod: Pod) -> bool:
    """Is it without one?"""
    return not works(ledger, pod)


def test_paused_service_is_left_alone_until_it_is_resumed(cluster: Lab) -> None:
    with Ledger(cluster, "paused", limits=CALM) as ledger:
        with called(ledger, patient=True) as callers:
            children = [("service", names.primary_service(ledger.name)), ("configmap", config_of(ledger))]
            before = uids(ledger)
            annotate(ledger, f"{names.PAUSED_ANNOTATION}=true")
            ledger.wait_told("Paused", "True", "ByAnnotation")
            gone = [uid_of(ledger, *child) for child in children]
            assert all(gone)
            for kind, name in children:
                cluster.kubectl("-n", ledger.namespace, "delete", kind, name)
            # What the operator tells of a spec of later says that it has looked since, and it did neither.
            ledger.apply(replicas=4)
            ledger.wait_told("Paused", "True", "ByAnnotation")
            callers.wait_more()
            assert [uid_of(ledger, *child) for child in children] == ["", ""]
            assert uids(ledger) == before

            ledger.apply(replicas=3)
            annotate(ledger, f"{names.PAUSED_ANNOTATION}-")
            ledger.wait_told("Paused", "False")
            for child in children:
                ledger.wait_for(partial(uid_of, ledger, *child), f"{child} is there again")
            ledger.wait_ready()
        assert not set(gone) & {uid_of(ledger, *child) for child in children}
        assert uids(ledger) == before
        check_no_call_failed(callers)
