"""What a user changes on a running service, and on the installation: no call fails, one takeover at most."""

from __future__ import annotations

import json
from functools import partial

import pytest
from tests.cluster.front_door import Callers
from tests.cluster.installed import LEDGER_IMAGE, NAMESPACE, OTHER_IMAGE, Lab, Ledger, install
from tests.cluster.lab.machine import CommandFailed

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]


def test_rolling_change_of_resources_takes_over_once_and_fails_no_call(cluster: Lab) -> None:
    with Ledger(cluster, "roll") as ledger:
        ledger.wait_ready()
        epoch, before = ledger.epoch(), {pod.uid for pod in ledger.pods()}
        with Callers(ledger.door()) as callers:
            callers.wait_more()
            ledger.apply(resources={"requests": {"cpu": "15m", "memory": "96Mi"}})
            ledger.wait_for(lambda: not before & {pod.uid for pod in ledger.pods()}, "every pod is a new one")
            ledger.wait_ready()
            callers.wait_more()
        callers.check_exactly_once()
        assert ledger.epoch() <= epoch + 1
        assert not callers.failures, callers.failures[:5]


def test_scale_up_and_down_keeps_serving(cluster: Lab) -> None:
    with Ledger(cluster, "scale") as ledger:
        ledger.wait_ready()
        with Callers(ledger.door()) as callers:
            for replicas in (5, 1, 3):
                cluster.kubectl("-n", ledger.namespace, "scale", f"dls/{ledger.name}", f"--replicas={replicas}")
                ledger.keep(replicas=replicas)
                ledger.wait_for(partial(has_pods, ledger, replicas), f"{replicas} pods")
                ledger.wait_ready()
                callers.wait_more()
        callers.check_exactly_once()


def has_pods(ledger: Ledger, count: int) -> bool:
    """Are there so many?"""
    return len(ledger.pods()) == count


def test_image_with_other_code_is_refused_and_the_old_one_goes_on(cluster: Lab) -> None:
    with Ledger(cluster, "upgrade") as ledger:
        ledger.wait_ready()
        with Callers(ledger.door()) as callers:
            ledger.apply(image=OTHER_IMAGE)
            message = ledger.wait_condition("UpgradeRequired", "True")
            assert OTHER_IMAGE in message or "fingerprint" in message
            callers.wait_more()
            ledger.apply(image=LEDGER_IMAGE)
            ledger.wait_condition("UpgradeRequired", "False")
            ledger.wait_ready()
        callers.check_exactly_once()
        assert not callers.failures, callers.failures[:5]


def test_image_that_does_not_exist_is_told_and_the_old_one_goes_on(cluster: Lab) -> None:
    with Ledger(cluster, "wrong") as ledger:
        ledger.wait_ready()
        with Callers(ledger.door()) as callers:
            ledger.apply(image="docker.io/library/nobody-has-this:1")
            ledger.wait_for(
                lambda: "nobody-has-this" in json.dumps(ledger.get()["status"]), "the status names the image"
            )
            callers.wait_more()
            ledger.apply(image=LEDGER_IMAGE)
            ledger.wait_ready()
        callers.check_exactly_once()


def test_suspend_and_resume_keep_the_state(cluster: Lab) -> None:
    with Ledger(cluster, "suspend") as ledger:
        ledger.wait_ready()
        with Callers(ledger.door()) as callers:
            callers.wait_more()
        ledger.apply(suspend=True)
        ledger.wait_for(lambda: not ledger.pods(), "no pods")
        ledger.apply(suspend=False)
        ledger.wait_ready()
        callers.check_exactly_once()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"shards": 2}, "shards"),
        ({"logStorage": {"claimName": "other"}}, "logStorage"),
        ({"replicas": 0}, "replicas"),
        ({"module": "nonsense"}, "module"),
        ({"fence": "seal"}, "fence"),
    ],
)
def test_spec_that_must_not_be_is_refused_by_the_api_server(
    cluster: Lab, settled: Ledger, change: dict[str, object], said: str
) -> None:
    whole = settled.resource(**change)
    with pytest.raises(CommandFailed, match=said):
        cluster.apply(whole)


def test_helm_upgrade_touches_no_service(cluster: Lab, settled: Ledger) -> None:
    before = {pod.uid for pod in settled.pods()}
    with Callers(settled.door()) as callers:
        callers.wait_more()
        install(cluster, operator={"podAnnotations": {"changed": "by-a-test"}})
        callers.wait_more()
        settled.wait_ready()
    callers.check_exactly_once()
    assert {pod.uid for pod in settled.pods()} == before
    assert not callers.failures


def test_crd_of_a_newer_version_with_more_fields_changes_nothing(cluster: Lab, settled: Ledger) -> None:
    name = "deathlessservices.deathless.dev"
    crd = cluster.get("crd", name)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    schema["ofTomorrow"] = {"type": "string", "description": "A field of a later release."}
    before = {pod.uid for pod in settled.pods()}
    cluster.kubectl("replace", "-f", "-", stdin=json.dumps(crd))
    try:
        settled.apply(ofTomorrow="yes")
        settled.wait_for(lambda: settled.get()["spec"].get("ofTomorrow") == "yes", "the field is stored")
        settled.wait_condition("Available", "True")
        assert {pod.uid for pod in settled.pods()} == before
    finally:
        settled.forget("ofTomorrow")
        settled.replace()
        install(cluster)
    settled.wait_ready()


def test_operator_killed_again_and_again_while_it_works(cluster: Lab) -> None:
    with Ledger(cluster, "restless") as ledger:
        for step in range(4):
            for pod in cluster.pods(NAMESPACE, "app.kubernetes.io/component=operator"):
                cluster.delete_pod(pod, grace_s=0)
            ledger.apply(resources={"requests": {"cpu": f"{20 + step}m", "memory": "96Mi"}})
        ledger.wait_ready(240)
        with Callers(ledger.door()) as callers:
            callers.wait_more()
        callers.check_exactly_once()
