"""Fixtures of tests that talk to a real API server: one server for all of them, a namespace for each."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from real_api_server import ROOT, RealApiServer


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealApiServer]:
    """A running API server that knows our kinds."""
    with RealApiServer(tmp_path_factory.mktemp("apiserver")) as server:
        server.install(*sorted(Path(ROOT, "crds").glob("*.yaml")))
        yield server


@pytest.fixture
def namespace(api_server: RealApiServer) -> str:
    """A fresh namespace."""
    name = f"test-{secrets.token_hex(4)}"
    api_server.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    return name
