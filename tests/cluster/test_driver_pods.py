"""A SparkPipeline whose drivers are pods, while a service that it reads from and writes to is called all the time.

Each call notes a tag, whose row a driver reads and sends back to the service. In the end every tag came back once: one
less is a row that was lost, one more is one that was delivered twice.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest
from lab.cluster.cluster import SHARED, Pod
from lab.cluster.machine import ROOT, CommandFailed, run
from tests.cluster.front_door import Callers
from tests.cluster.installed import CALM, Lab, Ledger, claim, volume

from deathless_operator.model import names

pytestmark = [pytest.mark.cluster, pytest.mark.driver_pods, pytest.mark.usefixtures("deathless")]

DRIVER_IMAGE = "docker.io/library/deathless-driver:0.1.0"
IMAGE = "docker.io/library/deathless-copies:1"
OTHER_IMAGE = "docker.io/library/deathless-copies:2"  # the same query, written in another way
NAME = "copies"
CODE = ROOT / "tests" / "cluster" / "copying"
WARM_S = 600.0  # two drivers that start beside all else take minutes on a machine with two cores


def build_image(tag: str, base: str, code: dict[str, str], context: Path) -> Path:
    """Put modules on top of an image; gives a docker archive."""
    context.mkdir()
    for name, text in code.items():
        (context / name).write_text(text)
    (context / "Dockerfile").write_text(f"FROM {base}\nCOPY *.py /app/\n")
    output = context / "image.tar"
    build = (sys.executable, str(ROOT / "tools" / "image.py"))
    run(*build, "--tag", tag, "--output", output, "--file", context / "Dockerfile", context, timeout_s=1200)
    return output


def build_images(folder: Path) -> list[Path]:
    """Build the image for drivers, and two of a user's on top of it; gives archives of these."""
    build = (sys.executable, str(ROOT / "tools" / "image.py"))
    run(*build, "--target", "driver", "--tag", DRIVER_IMAGE, "--output", folder / "driver.tar", timeout_s=1800)
    (folder / "driver.tar").unlink()
    code = {each.name: each.read_text() for each in CODE.glob("*.py")}
    other = code | {"copies.py": code["copies.py"].replace("rows.selectExpr", 'rows.where("_position > 0").selectExpr')}
    assert other != code
    return [
        build_image(IMAGE, DRIVER_IMAGE, code, folder / "one"),
        build_image(OTHER_IMAGE, DRIVER_IMAGE, other, folder / "two"),
    ]


class Copies:
    """The pipeline, in the ledger's namespace; the block's end removes it."""

    def __init__(self, ledger: Ledger) -> None:
        self.ledger = ledger
        self._cluster = ledger.cluster
        self._namespace = ledger.namespace
        self._log = f"{self._namespace}-{NAME}"
        self._image = IMAGE

    def __enter__(self) -> Self:
        self._cluster.shared_folder(self._log).chmod(0o777)
        source = {"hostPath": {"path": f"{SHARED}/{self._log}", "type": "Directory"}}
        self._cluster.apply(
            volume(self._log, self._namespace, source, NAME),
            claim(NAME, self._log, self._namespace),
        )
        self.apply(IMAGE)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            sys.stderr.write(self.describe())
        self._cluster.kubectl(
            "-n", self._namespace, "delete", "sp", NAME, "--timeout=180s", "--cascade=foreground", timeout_s=190
        )
        self._cluster.kubectl("delete", "pv", self._log, "--ignore-not-found", "--wait=false")
        shutil.rmtree(self._cluster.shared_folder(self._log), ignore_errors=True)

    def apply(self, image: str) -> None:
        """`kubectl apply` it with an image."""
        spec = {
            "image": image,
            "module": "copies.py:build",
            "replicas": 2,
            "logStorage": {"claimName": NAME},
            "drivers": {
                "replicas": 2,
                "cores": 1,
                "memory": "512m",
                "resources": {"requests": {"cpu": "200m", "memory": "1Gi"}},
            },
            "services": [{"name": self.ledger.name}],
        }
        metadata = {"name": NAME, "namespace": self._namespace}
        self._cluster.apply(
            {"apiVersion": "deathless.dev/v1alpha1", "kind": "SparkPipeline", "metadata": metadata, "spec": spec}
        )

    def status(self) -> dict[str, Any]:
        """What the operator tells of it."""
        found: dict[str, Any] = self._cluster.get("sp", NAME, self._namespace)
        ready: dict[str, Any] = next(
            (each for each in found.get("status", {}).get("conditions", ()) if each["type"] == "Ready"), {}
        )
        current = ready.get("observedGeneration") == found["metadata"]["generation"]
        return {"ready?": ready.get("status") == "True" and current, **found.get("status", {})}

    def number(self) -> int:
        """Under which it is driven."""
        return int(self.status().get("number", 0))

    def drivers(self) -> list[Pod]:
        """Pods of its drivers."""
        chosen = ",".join(f"{key}={value}" for key, value in names.driver_selector(NAME).items())
        return self._cluster.pods(self._namespace, chosen)

    def driver(self) -> Pod:
        """The pod that drives."""
        name = self.status()["driver"]
        return next(pod for pod in self.drivers() if pod.name == name)

    def wait_whole(self) -> None:
        """Wait until one driver drives, and the other one is warm."""

        def whole() -> bool:
            status = self.status()
            pods = self.drivers()
            return bool(
                status["ready?"]
                and status.get("warm") == 1
                and status.get("driver")
                and len(pods) == 2
                and all(pod.ready and not pod.going for pod in pods)
            )

        self.wait_for(whole, "one driver drives and one is warm")

    def wait_other(self, before: int) -> None:
        """Wait until another driver was assigned than the one with this number."""
        self.wait_for(lambda: self.number() > before, f"a driver after number {before}")

    def wait_for(self, condition: Callable[[], object], what: str) -> None:
        """Wait for anything; fails telling what the cluster says."""
        try:
            self.ledger.wait_for(condition, what, WARM_S)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None

    def describe(self) -> str:
        """What the cluster says of it, for a failed test."""
        told = []
        for command in (
            ("get", "sp", NAME, "-o", "yaml"),
            *(("logs", "--tail=25", "--prefix", pod.name) for pod in self.drivers()),
            ("logs", "--tail=15", "--prefix", "-l", f"deathless.dev/service={NAME}"),
        ):
            try:
                told.append(self._cluster.kubectl("-n", self._namespace, *command))
            except CommandFailed as failed:
                told.append(str(failed))
        return "\n---\n".join(told) + "\n"


class Copied(Callers):
    """Callers whose tags come back; what the service holds is what came back."""

    held = "copies"

    def wait_copied(self, copies: Copies) -> None:
        """Wait until all tags that were answered so far came back."""
        goal = set(self.answered)
        copies.wait_for(lambda: goal <= set(asyncio.run(self._held())), f"{len(goal)} tags came back")


@pytest.fixture(name="copies", scope="module")
def driven(cluster: Lab, deathless: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Copies]:
    """The pipeline with two drivers, one of them warm."""
    for archive in build_images(tmp_path_factory.mktemp("drivers")):
        cluster.load_image(archive)
        archive.unlink()
    with Ledger(cluster, "drivers", limits=CALM, module="ledger_with_topic:ledger", image=IMAGE, replicas=2) as ledger:
        ledger.apply(
            topics=[
                {"name": "noted", "readers": [f"spiffe://cluster.local/ns/{ledger.namespace}/service/{NAME}/client"]}
            ],
            peers=[
                {
                    "name": NAME,
                    "addresses": [f"{NAME}-primary.{ledger.namespace}.svc:7401"],
                    "serverName": f"{NAME}.{ledger.namespace}.svc",
                }
            ],
        )
        ledger.wait_ready()
        with Callers(ledger.door()) as callers:  # a topic without a row warms no driver
            callers.wait_more()
        with Copies(ledger) as copies:
            copies.wait_whole()
            yield copies


def test_rows_are_delivered_once_when_the_drivers_pod_is_deleted_or_its_node_hangs(copies: Copies) -> None:
    cluster = copies.ledger.cluster
    with Copied(copies.ledger.door()) as callers:
        callers.wait_more()
        before = copies.number()
        cluster.delete_pod(copies.driver(), grace_s=0)
        copies.wait_other(before)
        callers.wait_copied(copies)

        copies.wait_whole()
        before, old = copies.number(), copies.driver()
        with cluster.frozen_node(old.node):
            copies.wait_other(before)
            callers.wait_copied(copies)
        callers.wait_more()
        callers.wait_copied(copies)
        copies.wait_whole()
    callers.wait_copied(copies)
    callers.check_exactly_once()


def test_rows_are_delivered_once_when_the_drivers_node_is_drained_and_its_image_changed(copies: Copies) -> None:
    cluster = copies.ledger.cluster
    copies.wait_whole()
    with Copied(copies.ledger.door()) as callers:
        callers.wait_more()
        before, old = copies.number(), copies.driver()
        with cluster.drained(old.node):
            copies.wait_other(before)
            callers.wait_copied(copies)
        copies.wait_whole()

        before, pods = copies.number(), {pod.uid for pod in copies.drivers()}
        copies.apply(OTHER_IMAGE)
        copies.wait_for(lambda: pods.isdisjoint(pod.uid for pod in copies.drivers()), "all drivers are new")
        copies.wait_whole()
        assert copies.number() > before
        assert image_of(copies) == {OTHER_IMAGE}
        callers.wait_copied(copies)
    callers.wait_copied(copies)
    callers.check_exactly_once()


def image_of(copies: Copies) -> set[str]:
    """Images that drivers run."""
    found = set()
    for pod in copies.drivers():
        told = copies.ledger.cluster.get("pod", pod.name, pod.namespace)
        found.add(told["spec"]["containers"][0]["image"])
    return found
