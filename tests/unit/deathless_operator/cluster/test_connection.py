"""Where the API server is: a pod's account, kubeconfigs, and what is wrong with them."""

from __future__ import annotations

import ssl
import sys
from pathlib import Path
from typing import Any

import pytest
import trustme
import yaml

from deathless_operator.cluster.connection import TokenFile, connect, from_kubeconfig, from_service_account
from deathless_operator.cluster.errors import NoCluster


@pytest.fixture
def authority(tmp_path: Path) -> trustme.CA:
    made = trustme.CA()
    made.cert_pem.write_to_path(tmp_path / "ca.crt")
    return made


def write(folder: Path, user: dict[str, Any], **cluster: Any) -> Path:
    config = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "one", "user": "me", "namespace": "shop"}}],
        "clusters": [
            {
                "name": "one",
                "cluster": {"server": "https://one.test:6443/", "certificate-authority": "ca.crt"} | cluster,
            }
        ],
        "users": [{"name": "me", "user": user}],
    }
    path = folder / "config"
    path.write_text(yaml.safe_dump(config))
    return path


def test_kubeconfig_with_client_certificate_makes_a_context(tmp_path: Path, authority: trustme.CA) -> None:
    leaf = authority.issue_cert("me.test")
    leaf.private_key_pem.write_to_path(tmp_path / "me.key")
    leaf.cert_chain_pems[0].write_to_path(tmp_path / "me.crt")
    found = from_kubeconfig(write(tmp_path, {"client-certificate": "me.crt", "client-key": "me.key"}))
    assert (found.server, found.namespace, found.token()) == ("https://one.test:6443", "shop", "")
    context = found.ssl_context()
    assert isinstance(context, ssl.SSLContext) and context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname


def test_kubeconfig_that_says_so_does_not_verify(tmp_path: Path, authority: trustme.CA) -> None:
    found = from_kubeconfig(write(tmp_path, {"token": "t"}, **{"insecure-skip-tls-verify": True}))
    context = found.ssl_context()
    assert isinstance(context, ssl.SSLContext) and context.verify_mode is ssl.CERT_NONE and found.token() == "t"


def test_login_command_of_a_kubeconfig_is_run(tmp_path: Path, authority: trustme.CA) -> None:
    script = "import json, os; print(json.dumps({'status': {'token': os.environ['WHO']}}))"
    command = {"command": sys.executable, "args": ["-c", script], "env": [{"name": "WHO", "value": "cloud"}]}
    assert from_kubeconfig(write(tmp_path, {"exec": command})).token() == "cloud"


@pytest.mark.parametrize(
    "text", ["", "{", "current-context: none", "contexts: 7", "current-context: a\ncontexts: [{name: a}]"]
)
def test_kubeconfig_that_makes_no_sense_is_no_cluster(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(NoCluster, match="config"):
        from_kubeconfig(path)
    with pytest.raises(NoCluster):
        connect(str(tmp_path / "none"))


def test_pod_uses_its_account(tmp_path: Path, authority: trustme.CA) -> None:
    (tmp_path / "namespace").write_text("deathless-system\n")
    (tmp_path / "token").write_text("first\n")
    found = from_service_account({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert (found.server, found.namespace, found.token()) == ("https://[fd00::1]:443", "deathless-system", "first")


def test_pod_without_account_files_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(NoCluster):
        from_service_account({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)


def test_first_kubeconfig_of_the_environment_that_is_there_counts(tmp_path: Path, authority: trustme.CA) -> None:
    path = write(tmp_path, {"token": "t"})
    found = connect(environment={"KUBECONFIG": f"{tmp_path}/none:{path}"})
    assert found.server == "https://one.test:6443"


def test_token_is_read_again_after_a_minute_and_outlives_a_missing_file(tmp_path: Path) -> None:
    now = 0.0
    path = tmp_path / "token"
    path.write_text("first")
    token = TokenFile(path, clock=lambda: now)
    assert token() == "first"
    path.write_text("second")
    now = 59.0
    assert token() == "first"
    now = 61.0
    assert token() == "second"
    path.unlink()
    now = 200.0
    assert token() == "second"
