"""A service that is deleted with its log leaves nothing behind, and nobody else loses anything by it."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab.cluster.bare import BareCluster
from lab.cluster.machine import CommandFailed
from tests.cluster.installed import LOCK_STORE, NAMESPACE, Lab, Ledger, volume
from tests.cluster.under_load import called

from deathless_operator.model import names

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

DELETE = {"size": "1Gi", "deletionPolicy": "Delete"}


@pytest.fixture
def log(bare: BareCluster) -> Iterator[Path]:
    """A folder that each node has under this machine's name for it; Kubernetes erases it with its volume."""
    # The only place whose folders Kubernetes itself erases with a volume of the reclaim policy Delete.
    folder = Path(tempfile.mkdtemp(prefix="deathless-log-", dir="/tmp"))
    folder.chmod(0o777)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def keys(cluster: Lab) -> set[str]:
    """The keys that the installation's lock store holds, but for locks: those of former tests end by themselves."""
    member = cluster.pods(NAMESPACE, LOCK_STORE)[0]
    command = (
        "etcdctl",
        "--command-timeout=60s",
        "--dial-timeout=30s",
        "get",
        "--prefix",
        "--keys-only",
        "/deathless/",
    )
    found = cluster.exec(member, *command, timeout_s=90).split()
    return {key for key in found if not key.endswith("/lock")}


def is_there(cluster: Lab, kind: str, name: str, namespace: str | None = None) -> bool:
    """Does an object exist?"""
    try:
        cluster.get(kind, name, namespace)
    except CommandFailed as failed:
        if "NotFound" in failed.output:
            return False
        raise
    return True


def test_service_deleted_with_its_log_leaves_neither_keys_nor_log_and_takes_nobody_elses(
    cluster: Lab, settled: Ledger, log: Path
) -> None:
    with called(settled) as others, Ledger(cluster, "erased", claim=False, logStorage=DELETE) as ledger:
        whole = volume(f"{ledger.namespace}-log", ledger.namespace, {"hostPath": {"path": str(log)}})
        whole["spec"]["claimRef"]["name"] = claim = names.log_claim(ledger.name)
        whole["spec"]["persistentVolumeReclaimPolicy"] = "Delete"
        cluster.apply(whole)
        with called(ledger):
            pass
        own = f"/deathless/{ledger.namespace}/"
        record = names.erase_record(ledger.namespace, ledger.name)
        before = keys(cluster)
        kept = {key for key in before if not key.startswith(own)}
        assert any(key.startswith(f"/deathless/{settled.namespace}/") for key in kept)
        assert before > kept and any(log.iterdir())
        assert is_there(cluster, "configmap", record, NAMESPACE)

        cluster.kubectl("-n", ledger.namespace, "delete", "dls", ledger.name, "--wait=false")
        ledger.wait_for(lambda: not is_there(cluster, "configmap", record, NAMESPACE), "the keys are erased")

        assert keys(cluster) == kept
        assert not is_there(cluster, "pvc", claim, ledger.namespace)
        ledger.wait_for(lambda: not is_there(cluster, "pv", whole["metadata"]["name"]), "the volume is gone")
        assert not log.exists()
        left = json.loads(cluster.kubectl("-n", NAMESPACE, "get", "pods", "-o", "json"))["items"]
        annotated = [pod["metadata"].get("annotations", {}).get(names.ERASE_ANNOTATION) for pod in left]
        assert f"{ledger.namespace}/{ledger.name}" not in annotated
        others.wait_more()

        # Nothing of it stands in the way of a new one of its name, which begins from nothing.
        log.mkdir()
        log.chmod(0o777)
        cluster.apply(whole)
        ledger.apply()
        with called(ledger):
            pass
