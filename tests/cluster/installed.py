"""Deathless installed in the lab's cluster as a user installs it, and a service to break.

    install_for_tests(cluster)                        # both charts, by helm
    with Ledger(cluster, "kills") as ledger:          # a namespace, a volume, `kubectl apply` of a DeathlessService
        ledger.wait_ready()
        with Callers(ledger.door()) as callers: ...

Guarantees: nothing waits for a guessed time; a wait that ends without its condition tells what the cluster said.
Does not: judge (the callers do).
"""

from __future__ import annotations

import base64
import json
import shutil
import sys
import uuid
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from lab.cluster.bare import BareCluster
from lab.cluster.cluster import LOG, SHARED, Pod
from lab.cluster.kind import KindCluster
from lab.cluster.machine import ROOT, CommandFailed, LabError, run, wait_until
from tests.cluster.front_door import Door

Lab = BareCluster | KindCluster
NAMESPACE = "deathless-system"
IMAGE = "docker.io/library/deathless"
LEDGER_IMAGE = "docker.io/library/deathless-ledger:1"
OTHER_IMAGE = "docker.io/library/deathless-ledger:2"  # the same service with other code
MISFIT_IMAGE = "docker.io/library/deathless-ledger:3"  # it has no place for what is stored
RELEASE = "deathless"
VALUES: dict[str, Any] = {
    "image": {"repository": IMAGE, "pullPolicy": "IfNotPresent"},
    "lockStore": {
        "image": {"repository": "gcr.io/etcd-development/etcd", "tag": "v3.6.16"},
        "storage": {"type": "HostPath", "hostPath": "/srv/shared/deathless-lock-store"},
    },
    "drills": {"privileged": {"enabled": True}, "nodeDrain": {"enabled": True}},
}
UNSYNCED: dict[str, Any] = VALUES["lockStore"] | {"fsync": False}
"""The lock store of tests: no fault of theirs takes what a member wrote from the machine, and a disk that stalls is no
finding. What is measured is measured with VALUES as they are."""
LOCK_STORE = "app.kubernetes.io/component=lock-store"
OPERATOR = "app.kubernetes.io/component=operator"
READY_S = 400.0  # a whole roll on a slow machine
HELM_S = 400  # what helm waits for: it may roll the lock store
CALM = {"suspectAfterS": 5.0, "logCallMaxS": 30.0}
"""Limits for tests that count takeovers: where processor and disk are busy a live replica may stand for a moment."""


def build_images(folder: Path) -> list[Path]:
    """Build our image and three of a user's on top of it; gives docker archives, ours first."""
    build = [sys.executable, str(ROOT / "tools" / "image.py")]
    archives = [Path(run(*build, timeout_s=1800).strip().splitlines()[-1])]
    source = (ROOT / "tests" / "process" / "ledger.py").read_text()
    codes = {
        LEDGER_IMAGE: source,
        OTHER_IMAGE: source.replace("len(notes.tags)", "0 + len(notes.tags)"),
        MISFIT_IMAGE: source.replace("tags", "marks"),
    }
    for tag, code in codes.items():
        context = folder / tag.rpartition(":")[2]
        context.mkdir()
        shutil.copy(ROOT / "examples" / "image" / "Dockerfile", context / "Dockerfile")
        (context / "ledger.py").write_text(code)
        lines = (context / "Dockerfile").read_text().replace("bank.py", "ledger.py")
        (context / "Dockerfile").write_text(lines)
        output = context / "image.tar"
        run(*build, "--tag", tag, "--output", output, "--file", context / "Dockerfile", context, timeout_s=600)
        archives.append(output)
    return archives


def install(cluster: Lab, **values: Any) -> None:
    """Install or upgrade both charts, and wait until operator and lock store are ready."""
    given = cluster.kubeconfig.parent / "values.json"
    given.write_text(json.dumps({**VALUES, **values}))
    cluster.helm("upgrade", "--install", "deathless-crds", str(ROOT / "charts" / "deathless-crds"))
    cluster.helm(
        *("upgrade", "--install", RELEASE, str(ROOT / "charts" / "deathless"), "--namespace", NAMESPACE),
        *("--create-namespace", "--values", str(given), "--wait", "--timeout", f"{HELM_S}s"),
        timeout_s=HELM_S + 30,
    )


def install_for_tests(cluster: Lab, **values: Any) -> None:
    """As `install`, with the lock store of tests."""
    install(cluster, **{"lockStore": UNSYNCED, **values})


def says_it_leads(pod: Pod) -> bool:
    """Is it primary by its label and by its own status? The label alone stays for seconds on one that leads no more."""
    told = json.loads(pod.annotations.get("deathless.dev/status", "{}"))
    return pod.labels.get("deathless.dev/role") == "primary" and told.get("role") == "primary"


class Ledger:
    """A ledger service in a namespace of its own; the block's end removes both.

    Args:
        cluster: where.
        name: the namespace's begins with it; the service is called `ledger`. What a former run left in the lock store
            belongs to another namespace, for a service that finds keys and no log refuses to start.
        top: where nodes have the log's folder: the plain shared one, or LOG, whose file system is each node's own and
            can hang.
        volume: folder below the shared one; the namespace's name when empty.
        spec: changes to the service's spec.
    """

    def __init__(
        self, cluster: Lab, name: str, *, top: str = SHARED, volume: str = "", claim: bool = True, **spec: Any
    ) -> None:
        self.cluster = cluster
        self.namespace = f"{name}-{uuid.uuid4().hex[:5]}"
        self.name = "ledger"
        self.volume = volume or f"{self.namespace}-log"
        # Nodes of kind have the shared folder alone.
        self._top = SHARED if top == LOG and isinstance(cluster, KindCluster) else top
        self._claim = claim
        self._spec = spec
        self.keep_volume = False  # somebody else's: leave it at the end

    def __enter__(self) -> Self:
        cluster = self.cluster
        cluster.kubectl("create", "namespace", self.namespace)
        cluster.kubectl("label", "namespace", self.namespace, "pod-security.kubernetes.io/enforce=restricted")
        if self._claim:
            self.make_claim()
        self.apply()
        return self

    def make_claim(self) -> None:
        """Make the volume and its claim."""
        folder = self.cluster.shared_folder(self.volume)
        if not any(folder.iterdir()):
            folder.chmod(0o777)
        path = f"{self._top}/{self.volume}"
        source = {"hostPath": {"path": path, "type": "Directory"}}
        self.cluster.apply(
            volume(f"{self.namespace}-log", self.namespace, source),
            claim("log", f"{self.namespace}-log", self.namespace),
        )

    def delete_claim(self) -> None:
        """Take volume and claim away; the folder stays with what is in it, for `make_claim` to find it again."""
        self.cluster.kubectl("-n", self.namespace, "delete", "pvc", "log")
        self.cluster.kubectl("delete", "pv", f"{self.namespace}-log")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            sys.stderr.write(self.describe())
        cluster = self.cluster
        stuck: list[CommandFailed] = []
        for kinds in ("fdr", "dls"):
            try:
                cluster.kubectl("-n", self.namespace, "delete", kinds, "--all", "--timeout=180s", timeout_s=190)
            except CommandFailed as failed:
                stuck.append(failed)
        # Nobody calls any more: neither the pods' polite end nor the rest of the namespace is waited for.
        cluster.kubectl("delete", "namespace", self.namespace, "--ignore-not-found", "--wait=false")
        cluster.kubectl("-n", self.namespace, "delete", "pods", "--all", "--force", "--grace-period=0", "--wait=false")
        cluster.kubectl("delete", "pv", f"{self.namespace}-log", "--ignore-not-found", "--wait=false")
        if not self.keep_volume:
            shutil.rmtree(cluster.shared_folder(self.volume), ignore_errors=True)
        if stuck and error is None:
            raise stuck[0]

    # ---- asking and ordering -----------------------------------------------------------------------------------

    def resource(self, **spec: Any) -> dict[str, Any]:
        """The DeathlessService as it is applied."""
        whole = {
            "module": "ledger:ledger",
            "image": LEDGER_IMAGE,
            "replicas": 3,
            "logStorage": {"claimName": "log"},
            "ingress": {},
            # Without a request its share of a busy node is next to nothing beside the lock store's and the operator's.
            "resources": {"requests": {"cpu": "200m", "memory": "64Mi"}},
            **self._spec,
            **spec,
        }
        return {
            "apiVersion": "deathless.dev/v1alpha1",
            "kind": "DeathlessService",
            "metadata": {"name": self.name, "namespace": self.namespace},
            "spec": whole,
        }

    def apply(self, **spec: Any) -> None:
        """`kubectl apply` with changes to the spec, which stay."""
        self._spec |= spec
        self.cluster.apply(self.resource())

    def keep(self, **spec: Any) -> None:
        """Remember what was changed by another way than `apply`."""
        self._spec |= spec

    def forget(self, name: str) -> None:
        """Leave a field of the spec out from now on."""
        del self._spec[name]

    def replace(self) -> None:
        """`kubectl replace`: what is not given is gone."""
        self.cluster.kubectl("replace", "-f", "-", stdin=json.dumps(self.resource()))

    def get(self) -> dict[str, Any]:
        """The resource as the API server has it."""
        return self.cluster.get("dls", self.name, self.namespace)

    def told(self) -> str:
        """All that its status says, as one text."""
        return json.dumps(self.get().get("status", {}))

    def condition(self, name: str) -> tuple[str, str, str]:
        """(status, reason, message) of a condition; three empty texts where there is none."""
        found = self.get().get("status", {}).get("conditions", [])
        for one in found:
            if one["type"] == name:
                return one["status"], one["reason"], one.get("message", "")
        return "", "", ""

    def wait_condition(self, name: str, status: str, reason: str = "", within_s: float = READY_S) -> str:
        """Wait for a condition; gives its message."""

        def holds() -> bool:
            now, why, _ = self.condition(name)
            return now == status and reason in ("", why)

        self.wait_for(holds, f"condition {name}={status} {reason}", within_s)
        return self.condition(name)[2]

    def wait_told(self, name: str, status: str, reason: str = "", within_s: float = READY_S) -> str:
        """Wait for a condition that the operator tells of this very generation of the spec; gives its message."""
        messages: list[str] = []

        def told() -> bool:
            whole = self.get()
            messages[:] = [
                one.get("message", "")
                for one in whole.get("status", {}).get("conditions", [])
                if one["type"] == name
                and one["status"] == status
                and reason in ("", one["reason"])
                and one.get("observedGeneration") == whole["metadata"]["generation"]
            ]
            return bool(messages)

        self.wait_for(told, f"condition {name}={status} {reason} of the spec as it is", within_s)
        return messages[0]

    def wait_ready(self, within_s: float = READY_S) -> None:
        """Wait until the operator says, of this generation, that all is well."""
        self.wait_told("Ready", "True", within_s=within_s)

    def pods(self) -> list[Pod]:
        """The replicas' pods."""
        selector = f"deathless.dev/service={self.name},deathless.dev/replica"
        return self.cluster.pods(self.namespace, selector)

    def primary(self) -> Pod:
        """The pod that says it leads; waits for one."""
        found: list[Pod] = []

        def look() -> bool:
            found[:] = [pod for pod in self.pods() if says_it_leads(pod)]
            return len(found) == 1

        self.wait_for(look, "one pod is primary", READY_S)
        return found[0]

    def epoch(self) -> int:
        """The highest epoch that pods announce."""
        told = [json.loads(pod.annotations.get("deathless.dev/status", "{}")) for pod in self.pods()]
        return max((int(one.get("epoch", 0)) for one in told), default=0)

    def wait_other_primary(self, old: Pod) -> Pod:
        """Wait until another pod leads."""
        found: list[Pod] = []

        def look() -> bool:
            found[:] = [pod for pod in self.pods() if says_it_leads(pod) and pod.uid != old.uid]
            return bool(found)

        self.wait_for(look, "another pod is primary", READY_S)
        return found[0]

    def door(self, service: str = "") -> Door:
        """The front door: the Service of any replica, or the one named."""
        address = self.cluster.get("service", service or self.name, self.namespace)["spec"]["clusterIP"]
        secret = self.cluster.get("secret", f"{self.name}-client-tls", self.namespace)["data"]
        authority = base64.b64decode(secret["ca.crt"]).decode()
        return Door(f"{address}:80", self.name, authority, f"{self.name}.{self.namespace}.svc")

    def describe(self) -> str:
        """What the cluster says of it, for a failed test; what decides who leads comes first."""
        told = [self._turns()]
        for command in (
            ("get", "pods", "-o", "wide", "--show-labels"),
            ("get", "events", "--sort-by=.lastTimestamp"),
            ("logs", "--all-containers", "--tail=15", "--prefix", "-l", f"deathless.dev/service={self.name}"),
            ("get", "dls", self.name, "-o", "yaml"),
        ):
            try:
                told.append(self.cluster.kubectl("-n", self.namespace, *command))
            except CommandFailed as failed:
                told.append(str(failed))
        try:
            operator = ("-n", NAMESPACE, "logs", "--tail=40", "-l", OPERATOR)
            told.append(self.cluster.kubectl(*operator))
        except CommandFailed as failed:
            told.append(str(failed))
        return "\n---\n".join(told) + "\n"

    def _turns(self) -> str:
        """Who led and followed, why, and what replicas warned of, by time."""
        command = ("logs", "--all-containers", "--tail=200", "-l", f"deathless.dev/service={self.name}")
        try:
            lines = [json.loads(line) for line in self.cluster.kubectl("-n", self.namespace, *command).splitlines()]
        except (CommandFailed, ValueError) as failed:
            return str(failed)
        lines = [line for line in lines if line["level"] != "info" or line["text"] in ("role", "worker ends")]
        names = ("time", "replica", "text", "role", "epoch", "why")
        lines.sort(key=itemgetter("time"))
        return "\n".join(" ".join(str(line.get(name, "-")) for name in names) for line in lines)

    def wait_for(self, condition: Callable[[], object], what: str, within_s: float = READY_S) -> None:
        """Wait for anything; fails telling what the cluster says."""

        def careful() -> bool:
            try:
                return bool(condition())
            except CommandFailed:  # the API server may be what a test breaks
                return False

        try:
            wait_until(careful, what, within_s=within_s)
        except LabError as error:
            raise AssertionError(f"{error}\n{self.describe()}") from None


def volume(name: str, namespace: str, source: dict[str, Any], claim_name: str = "log") -> dict[str, Any]:
    """A ReadWriteMany PersistentVolume for one claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteMany"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "",
            "claimRef": {"namespace": namespace, "name": claim_name},
            **source,
        },
    }


def claim(name: str, volume_name: str, namespace: str) -> dict[str, Any]:
    """Its claim."""
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "volumeName": volume_name,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
