"""What a user changes on a running service, and on the installation: no call fails, one takeover at most."""

from __future__ import annotations

import json
import random
import threading
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Self

import pytest
from lab.cluster.machine import CommandFailed, LabError
from tests.cluster.drilling import drill, judged
from tests.cluster.installed import (
    CALM,
    LEDGER_IMAGE,
    NAMESPACE,
    OPERATOR,
    OTHER_IMAGE,
    Lab,
    Ledger,
    install_for_tests,
)
from tests.cluster.under_load import called, chance, check_no_call_failed, uids, wait_gone, wait_pods

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

KILLS_S = 20.0, 45.0
"""Between two kills. Who waits leads 15 s after one that led was killed, and gets some seconds to work in."""


def test_rolling_change_of_resources_takes_over_once_and_fails_no_call(cluster: Lab) -> None:
    with Ledger(cluster, "roll", limits=CALM) as ledger:
        with called(ledger, patient=True) as callers:
            epoch, before = ledger.epoch(), uids(ledger)
            ledger.apply(resources={"requests": {"cpu": "250m", "memory": "96Mi"}})
            wait_gone(ledger, before)
            ledger.wait_ready()
        assert ledger.epoch() <= epoch + 1
        check_no_call_failed(callers)


def test_roll_to_quantities_that_the_api_server_writes_otherwise_ends_after_one_takeover(cluster: Lab) -> None:
    with Ledger(cluster, "words", limits=CALM) as ledger:
        with called(ledger, patient=True) as callers:
            epoch, before = ledger.epoch(), uids(ledger)
            ledger.apply(resources={"requests": {"cpu": "1000m", "memory": "1024Mi"}})
            wait_gone(ledger, before)
            ledger.wait_ready()
            ledger.wait_told("Progressing", "False", "Done")
            rolled = uids(ledger)
            asked = cluster.get("pod", ledger.primary().name, ledger.namespace)["spec"]["containers"][0]["resources"]
            assert (asked["requests"]["cpu"], asked["requests"]["memory"]) == ("1", "1Gi"), "it writes them otherwise"
            callers.wait_more()
        assert uids(ledger) == rolled, "and that is no reason to roll again"
        assert ledger.epoch() <= epoch + 1
        check_no_call_failed(callers)


def test_scaling_up_takes_over_never_and_scaling_down_only_where_the_primary_goes(cluster: Lab) -> None:
    with Ledger(cluster, "scale", limits=CALM) as ledger:
        with called(ledger, patient=True) as callers:
            for replicas in (5, 1, 3):
                epoch, ordinal = ledger.epoch(), int(ledger.primary().name.rpartition("-")[2])
                cluster.kubectl("-n", ledger.namespace, "scale", f"dls/{ledger.name}", f"--replicas={replicas}")
                ledger.keep(replicas=replicas)
                wait_pods(ledger, replicas)
                ledger.wait_ready()
                callers.wait_more()
                # Each handover goes to a replica with a lower ordinal, since those above the primary ended before.
                assert ledger.epoch() - epoch <= max(0, ordinal + 1 - replicas)
        check_no_call_failed(callers)


def test_image_with_other_code_waits_for_a_word_and_the_old_one_goes_on(cluster: Lab) -> None:
    with Ledger(cluster, "other", limits=CALM, upgradePolicy="Manual") as ledger:
        with called(ledger, patient=True) as callers:
            ledger.apply(image=OTHER_IMAGE)
            message = ledger.wait_condition("UpgradeRequired", "True")
            assert OTHER_IMAGE in message or "fingerprint" in message
            callers.wait_more()
            ledger.apply(image=LEDGER_IMAGE)
            ledger.wait_condition("UpgradeRequired", "False")
        check_no_call_failed(callers)


def test_image_that_does_not_exist_is_told_and_the_old_one_goes_on(cluster: Lab) -> None:
    with Ledger(cluster, "wrong", limits=CALM) as ledger:
        with called(ledger, patient=True) as callers:
            ledger.apply(image="docker.io/library/nobody-has-this:1")
            ledger.wait_for(lambda: "nobody-has-this" in ledger.told(), "the status names the image")
            callers.wait_more()
            ledger.apply(image=LEDGER_IMAGE)
        check_no_call_failed(callers)


def test_suspend_and_resume_keep_the_state(cluster: Lab) -> None:
    with Ledger(cluster, "suspend") as ledger, called(ledger):
        ledger.apply(suspend=True)
        wait_pods(ledger, 0)
        ledger.apply(suspend=False)
        ledger.wait_ready()


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
    cluster: Lab, calm: Ledger, change: dict[str, object], said: str
) -> None:
    before, generation = uids(calm), calm.get()["metadata"]["generation"]
    with called(calm, patient=True) as callers:
        with pytest.raises(CommandFailed, match=said):
            cluster.apply(calm.resource(**change))
        callers.wait_more()
    assert (uids(calm), calm.get()["metadata"]["generation"]) == (before, generation)
    check_no_call_failed(callers)


def test_helm_upgrade_touches_no_service(cluster: Lab, calm: Ledger) -> None:
    before = uids(calm)
    with called(calm, patient=True) as callers:
        install_for_tests(cluster, operator={"podAnnotations": {"changed": "by-a-test"}})
    assert uids(calm) == before
    check_no_call_failed(callers)


def test_crd_of_a_newer_version_with_more_fields_changes_nothing(cluster: Lab, calm: Ledger) -> None:
    name = "deathlessservices.deathless.dev"
    crd = cluster.get("crd", name)
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    schema["ofTomorrow"] = {"type": "string", "description": "A field of a later release."}
    before = uids(calm)

    def stored() -> bool:
        calm.apply(ofTomorrow="yes")  # refused until the API server has read the new schema
        found: dict[str, object] = calm.get()["spec"]
        return found.get("ofTomorrow") == "yes"

    with called(calm, patient=True) as callers:
        cluster.kubectl("replace", "-f", "-", stdin=json.dumps(crd))
        try:
            calm.wait_for(stored, "the field is stored")
            assert "ofTomorrow" in calm.wait_told("Accepted", "False", "InvalidSpec")
            calm.wait_told("Available", "True")
            callers.wait_more()
            assert uids(calm) == before
        finally:
            calm.forget("ofTomorrow")
            calm.replace()
            install_for_tests(cluster)
        calm.wait_told("Accepted", "True")
    assert uids(calm) == before
    check_no_call_failed(callers)


def kill_operators(cluster: Lab) -> None:
    """Kill the one that leads and the one that waits."""
    # One that was killed before may vanish meanwhile.
    now = ("--force", "--grace-period=0", "--ignore-not-found", "--wait=false")
    cluster.kubectl("-n", NAMESPACE, "delete", "pods", "-l", OPERATOR, *now)


def test_operator_killed_while_it_rolls_scales_and_suspends_leaves_nothing_half_done(cluster: Lab) -> None:
    with Ledger(cluster, "restless") as ledger, chance() as dice, called(ledger) as callers:
        before = uids(ledger)
        ledger.apply(resources={"requests": {"cpu": "250m", "memory": "96Mi"}})
        wait_gone(ledger, before, left=dice.randint(0, 3))
        kill_operators(cluster)
        wait_gone(ledger, before)
        ledger.wait_ready()

        ledger.apply(replicas=5)
        callers.wait_more(dice.randint(1, 400))
        kill_operators(cluster)
        wait_pods(ledger, 5)
        ledger.apply(replicas=2)
        ledger.wait_for(partial(at_most, ledger, dice.randint(2, 5)), "some are gone")
        kill_operators(cluster)
        wait_pods(ledger, 2)

        ledger.apply(suspend=True)
        ledger.wait_for(partial(at_most, ledger, dice.randint(0, 2)), "some are gone")
        kill_operators(cluster)
        wait_pods(ledger, 0)
        ledger.apply(suspend=False, replicas=3)
        ledger.wait_ready()
        assert len(ledger.pods()) == 3


class Killer:
    """Kills one of the operator's pods, leading or waiting, at moments that chance draws, in a thread of its own."""

    def __init__(self, cluster: Lab, seed: int) -> None:
        self.killed: list[str] = []
        self._cluster = cluster
        self._dice = random.Random(seed)
        self._errors: list[LabError] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(260)  # two calls of kubectl take 240 s at most
        if error is None:
            assert not self._thread.is_alive(), "kubectl does not end"
            if self._errors:
                raise self._errors[0]

    def _run(self) -> None:
        try:
            while not self._stop.wait(self._dice.uniform(*KILLS_S)):
                with suppress(CommandFailed):  # on a busy machine one may get no answer: the next kills all the same
                    self._kill()
        except LabError as error:
            self._errors.append(error)

    def _kill(self) -> None:
        place = ("-n", NAMESPACE)
        pods = self._cluster.kubectl(*place, "get", "pods", "-l", OPERATOR, "-o", "name").split()
        if pods:
            chosen = self._dice.choice(pods)
            now = ("--force", "--grace-period=0", "--ignore-not-found", "--wait=false")
            self._cluster.kubectl(*place, "delete", chosen, *now)
            self.killed.append(chosen)


def left_of(ledger: Ledger) -> str:
    """The names of what a service has left."""
    kinds = "pods,statefulsets,services,secrets,configmaps"
    selector = f"deathless.dev/service={ledger.name}"
    return ledger.cluster.kubectl("-n", ledger.namespace, "get", kinds, "-l", selector, "-o", "name").strip()


def test_operators_killed_at_random_through_a_services_life_leave_nothing_half_done(cluster: Lab) -> None:
    with Ledger(cluster, "haunted", replicas=2) as ledger, chance() as dice:
        with Killer(cluster, dice.getrandbits(32)) as killer:
            with called(ledger) as callers:
                epoch, before = ledger.epoch(), uids(ledger)
                ledger.apply(resources={"requests": {"cpu": "150m", "memory": "80Mi"}})
                wait_gone(ledger, before)
                ledger.wait_ready()
                ledger.apply(replicas=3)
                wait_pods(ledger, 3)
                ledger.apply(suspend=True)
                wait_pods(ledger, 0)
                ledger.apply(suspend=False)
                ledger.wait_ready()
                cluster.apply(drill(ledger, "haunted", {"type": "PodDelete"}, limits={"unavailableSecondsMax": 60.0}))
                last = judged(ledger, "haunted", within_s=600)
                assert last["verdict"] != "Failed", json.dumps(last)
                assert (last.get("callsLost", 0), last.get("callsDoubled", 0)) == (0, 0)
            cluster.kubectl("-n", ledger.namespace, "delete", "dls", ledger.name, "--timeout=180s", timeout_s=190)
            ledger.wait_for(lambda: not left_of(ledger), "all that was the service's is gone")
            ledger.apply()
            with called(ledger):
                pass
            assert killer.killed
        cluster.wait_rolled_out(NAMESPACE, "deployment/deathless-operator")
        callers.move(ledger.door())
        callers.check_exactly_once()
        assert ledger.epoch() > epoch
        ledger.wait_for(lambda: ledger.get()["status"]["epoch"] == ledger.epoch(), "the status tells the epoch")
        assert len(ledger.pods()) == 3


def at_most(ledger: Ledger, count: int) -> bool:
    """Are there no more pods than that?"""
    return len(ledger.pods()) <= count
