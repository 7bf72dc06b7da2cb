"""The chart looks whether users of the lock store are still handed out, and goes on until they are withdrawn."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
from lab import kubernetes
from real_api_server import RealApiServer
from tests.unit.charts.rendering import CHART, KUBERNETES

from deathless_operator.cluster.kinds import SECRET
from deathless_operator.model import names

pytestmark = pytest.mark.apiserver


def rendered(server: RealApiServer, namespace: str, *words: str) -> str:
    """The release as `helm upgrade` would make it now."""
    command = [str(kubernetes.ensure("helm")["helm"]), "template", "deathless", str(CHART), "--dry-run=server"]
    command += [f"--kube-version={KUBERNETES}"]
    command += [f"--namespace={namespace}", f"--kubeconfig={server.kubeconfig()}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_setting_that_goes_back_withdraws_before_it_takes_anything_away(
    api_server: RealApiServer, namespace: str
) -> None:
    never = rendered(api_server, namespace)
    assert "lock-users" not in never
    on = rendered(api_server, namespace, "--set=lockStore.users.enabled=true")
    assert "- --lock-users" in on and "--withdraw" not in on
    metadata: dict[str, Any] = {"name": names.LOCK_USERS_SECRET}
    api_server.request("POST", SECRET.path(namespace), {"metadata": metadata})
    assert rendered(api_server, namespace, "--set=lockStore.users.enabled=true") == on
    back = rendered(api_server, namespace)
    assert "- --lock-users" in back and "- --withdraw" in back, "the operator keeps users mounted meanwhile"
    metadata["annotations"] = {names.WITHDRAWN_ANNOTATION: "true"}
    path = SECRET.path(namespace, names.LOCK_USERS_SECRET)
    api_server.request("PATCH", path, {"metadata": metadata}, content="application/merge-patch+json")
    assert rendered(api_server, namespace) == never
