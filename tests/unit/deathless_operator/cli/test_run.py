"""Options of `run`: by argument, by environment, checked."""

from __future__ import annotations

import pytest

from deathless.base.errors import InvalidConfig
from deathless_operator.cli.run import command, listed, port_numbers, run_options
from deathless_operator.cluster.connection import Connection
from deathless_operator.handlers.process import RunOptions

HERE = Connection(server="https://one.test", namespace="from-account")


def options(*arguments: str) -> RunOptions:
    with command.make_context("run", list(arguments)) as context:
        return run_options(dict(context.params), HERE)


def test_nothing_given_means_the_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("POD_NAMESPACE", "POD_NAME"):
        monkeypatch.delenv(name, raising=False)
    found = options()
    assert found.settings.namespace == found.lease_namespace == "from-account"
    assert found.namespaces == () and found.elect and found.ports == (8081, 8080)
    assert not found.settings.lock_users
    assert found.lease_name == "deathless-operator" and found.settings.api_server_ports == (443, 6443)


def test_arguments_of_the_chart_are_understood() -> None:
    found = options(
        "--namespace=ops",
        "--identity=pod-1",
        "--image=deathless:1",
        "--image-pull-policy=Never",
        "--image-pull-secrets=a, b",
        "--cluster-domain=example.test",
        "--watch-namespaces=shop,bank",
        "--no-leader-election",
        "--lock-endpoints=https://e0:2379,https://e1:2379",
        "--lock-tls-secret=tls",
        "--lock-user-secret=user",
        "--lock-users",
        "--no-network-policies",
        "--api-server-ports=443",
        "--drill-agents",
        "--drill-agent-service-account=agent",
        "--prometheus-url=http://prometheus.monitoring:9090/",
        "--resync-seconds=60",
    )
    settings = found.settings
    assert (found.namespaces, found.elect, found.identity) == (("shop", "bank"), False, "pod-1")
    assert settings.pull_secrets == ("a", "b") and settings.pull_policy == "Never"
    assert settings.lock_endpoints == ("https://e0:2379", "https://e1:2379")
    assert (settings.lock_tls_secret, settings.lock_user_secret, settings.lock_users) == ("tls", "user", True)
    assert settings.prometheus_url == "http://prometheus.monitoring:9090"
    assert (settings.network_policies, settings.drill_agents, settings.resync_s) == (False, True, 60)


def test_environment_gives_what_arguments_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "ops")
    monkeypatch.setenv("DEATHLESS_LOCK_ENDPOINTS", "https://e0:2379")
    monkeypatch.setenv("DEATHLESS_RESYNC_SECONDS", "77")
    found = options("--resync-seconds=88")
    assert found.settings.namespace == "ops"
    assert found.settings.lock_endpoints == ("https://e0:2379",) and found.settings.resync_s == 88


@pytest.mark.parametrize("text", ["", "http", "0", "443,70000"])
def test_wrong_ports_are_refused(text: str) -> None:
    with pytest.raises(InvalidConfig):
        port_numbers(text)


@pytest.mark.parametrize("text", ["prometheus:9090", "http://", "file:///etc", "http://p:9090?query=up", "http://p#x"])
def test_what_is_no_address_of_a_prometheus_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="--prometheus-url"):
        options(f"--prometheus-url={text}")


def test_lease_times_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(InvalidConfig, match="lease"):
        options("--lease-seconds=5", "--renew-seconds=10")


def test_lists_have_no_empty_parts() -> None:
    assert listed(" a,,b ,") == ("a", "b") and listed("") == ()
