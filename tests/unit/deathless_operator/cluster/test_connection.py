"""Where the API server is: a pod's account."""

from __future__ import annotations

from pathlib import Path

import pytest

from deathless_operator.cluster.connection import TokenFile, from_service_account
from deathless_operator.cluster.errors import NoCluster


def test_pod_uses_its_account(tmp_path: Path) -> None:
    (tmp_path / "ca.crt").write_text("authorities")
    (tmp_path / "namespace").write_text("deathless-system\n")
    (tmp_path / "token").write_text("first\n")
    found = from_service_account({"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBERNETES_SERVICE_PORT": "443"}, tmp_path)
    assert (found.server, found.namespace, found.token()) == ("https://[fd00::1]:443", "deathless-system", "first")


def test_pod_without_account_files_is_no_cluster(tmp_path: Path) -> None:
    with pytest.raises(NoCluster):
        from_service_account({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path)


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
