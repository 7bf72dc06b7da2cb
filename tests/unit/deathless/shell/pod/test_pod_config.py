"""From a pod's environment to a replica's config: what is given stays, what is missing is named."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from deathless.base.config import ReplicaConfig
from deathless.base.errors import InvalidConfig
from deathless.shell.pod.pod_config import (
    hand_over,
    pod_config,
    pod_of,
    read_plain_config,
    read_pod_config,
    read_shared_config,
    set_and_ordinal,
)

SHARED: dict[str, object] = {"service": "bank", "module": "bank:bank", "directory": "/log"}
POD = {"POD_NAME": "my-bank-2", "POD_UID": "84a7a906-fc7e", "POD_IP": "10.1.2.3"}


def test_pod_is_the_replica_of_its_ordinal_and_the_instance_of_its_uid() -> None:
    config = pod_config(SHARED, POD)
    assert (config.replica, config.instance, config.advertise_host) == ("r2", "84a7a906-fc7e", "10.1.2.3")
    assert config.owner == "r2.84a7a906-fc7e"
    assert (config.announce_kubernetes, config.termination_file) == (True, "/dev/termination-log")
    assert config.ingress_tls == "Server"


@pytest.mark.parametrize(("address", "every"), [("10.1.2.3", "0.0.0.0"), ("fd00::7", "[::]")])
def test_ports_are_fixed_on_every_address_of_the_pods_family(address: str, every: str) -> None:
    config = pod_config(SHARED, {**POD, "POD_IP": address})
    assert (config.client_listen, config.replication_listen) == (f"{every}:7401", f"{every}:7402")
    assert (config.control_listen, config.ingress_listen) == (f"{every}:7403", f"{every}:8080")
    assert config.health_listen == f"{every}:8081"


def test_what_the_shared_file_says_stays() -> None:
    given = {
        "client_listen": "10.0.0.1:9",
        "ingress_listen": "",
        "health_listen": ":7",
        "announce_kubernetes": False,
        "termination_file": "",
        "ingress_tls": "Off",
    }
    config = pod_config({**SHARED, **given}, POD)
    assert (config.client_listen, config.ingress_listen, config.health_listen) == ("10.0.0.1:9", "", "0.0.0.0:7")
    assert (config.announce_kubernetes, config.termination_file, config.ingress_tls) == (False, "", "Off")


@pytest.mark.parametrize("name", ["replica", "instance", "advertise_host"])
def test_shared_file_that_says_who_the_replica_is_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        pod_config({**SHARED, name: "x"}, POD)


@pytest.mark.parametrize("name", ["POD_NAME", "POD_UID", "POD_IP"])
def test_missing_variable_is_named(name: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        pod_config(SHARED, {**POD, name: ""})


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"POD_NAME": "bank"}, "NAME-K"),
        ({"POD_NAME": "bank-x"}, "NAME-K"),
        ({"POD_IP": "nowhere"}, "not an address"),
        ({"POD_UID": "a/b"}, "instance"),
    ],
)
def test_variable_that_does_not_fit_is_named(changes: dict[str, str], text: str) -> None:
    with pytest.raises(InvalidConfig, match=text):
        pod_config(SHARED, {**POD, **changes})


def test_names_of_pods_and_replicas_lead_to_each_other() -> None:
    assert set_and_ordinal("my-bank-10") == ("my-bank", 10)
    assert [pod_of("my-bank", name) for name in ("r0", "r10", "r", "x1", "rx")] == ["my-bank-0", "my-bank-10"] + [
        ""
    ] * 3


def test_token_comes_from_its_file_and_is_left_on_no_disk(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a shared secret\n")
    path = tmp_path / "replica.json"
    path.write_text(json.dumps({**SHARED, "token_file": str(tmp_path / "token")}))
    config = read_pod_config(str(path), POD)
    handed = hand_over(config)
    assert config.token == "a shared secret"
    assert msgspec.json.decode(Path(handed).read_bytes(), type=ReplicaConfig) == config
    assert handed.startswith("/proc/")


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, "No such file"),
        ("[]", "Expected `object`"),
        ("{", "truncated"),
        (json.dumps({"service": "bank"}), "module"),
        (json.dumps({**SHARED, "colour": 1}), "colour"),
        (json.dumps({**SHARED, "token_file": "/no/token"}), "token_file"),
        (json.dumps({**SHARED, "token_file": "/dev/null"}), "empty"),
    ],
)
def test_file_that_can_not_be_used_is_named(tmp_path: Path, content: str | None, text: str) -> None:
    path = tmp_path / "replica.json"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InvalidConfig, match=text):
        read_pod_config(str(path), POD)


def test_operators_token_is_looked_for_where_the_operator_mounts_it() -> None:
    config = pod_config(SHARED, POD)
    assert config.operator_token_file == "/etc/deathless-operator-token/token"
    assert config.operator_token == "", "it is read while the ingress runs"


def test_who_speaks_to_nobody_reads_no_secret(tmp_path: Path) -> None:
    path = tmp_path / "replica.json"
    path.write_text(json.dumps({**SHARED, "token_file": "/nowhere/token"}))
    assert read_plain_config(str(path)).token == ""
    with pytest.raises(InvalidConfig, match="token_file"):
        read_shared_config(str(path))
    path.write_text(json.dumps({**SHARED, "later": 1}))
    with pytest.raises(InvalidConfig, match=r"replica\.json: .*later"):
        read_plain_config(str(path))
