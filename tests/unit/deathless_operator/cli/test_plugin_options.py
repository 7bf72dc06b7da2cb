"""Completion offers what the API server tells at once, and nothing otherwise."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from tests.unit.deathless_operator.cli.plugin_world import api_server, put_bank

from deathless_operator.cli.plugin_options import complete_service


def offered(kubeconfig: str, incomplete: str) -> list[str]:
    command = click.Command("x", params=[])
    context = click.Context(command)
    context.params = {"namespace": "ns", "kubeconfig": kubeconfig}
    argument = click.Argument(["service"])
    return [item.value for item in complete_service(context, argument, incomplete)]


def test_services_of_the_namespace_are_offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with api_server(tmp_path) as (server, kubeconfig):
        put_bank(server)
        assert offered(kubeconfig, "ba") == ["bank"]
        assert offered(kubeconfig, "x") == []


def test_nothing_is_offered_where_no_cluster_is(tmp_path: Path) -> None:
    assert offered(str(tmp_path / "none"), "") == []
