"""The objects of a service, as 0005 lists them."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest
from tests.unit.deathless_operator.plan.plan_world import SETTINGS, SPEC, World

from deathless.base.config import ReplicaConfig
from deathless.base.foreign.binding import INPUTS, LIMITS, SERVICE_MODULE
from deathless.base.source_kinds import SOURCE_KINDS
from deathless_operator.model import names
from deathless_operator.plan.service.objects import Code, Lock, Objects, code_of
from deathless_operator.plan.snapshot import SecretFacts

LOCK = Lock(endpoints=("https://e:2379",), prefix="/deathless/prod/", tls_secret="t", user_secret="u")
CODE = Code(image="bank:1", module="bank:bank")


def made(**spec: Any) -> Objects:
    """The objects of a service with these fields."""
    resource = World(spec={**SPEC, **spec}).snapshot().resource
    assert resource.spec is not None, resource.problems
    return Objects(resource, resource.spec, SETTINGS)


def test_every_object_bears_labels_owner_and_hash() -> None:
    for manifest in made().supports(LOCK, [CODE]):
        metadata: Any = manifest["metadata"]
        assert metadata["labels"] == names.labels("bank")
        assert metadata["ownerReferences"] == [made().owner()]
        assert metadata["namespace"] == "prod"
        assert len(metadata["annotations"][names.APPLIED_ANNOTATION]) == 10


def test_pods_may_patch_their_own_set_and_nothing_else() -> None:
    _, role, binding = made().access()
    rules: Any = role["rules"]
    assert [rule["verbs"] for rule in rules] == [["get", "watch", "patch"]]
    assert rules[0]["resourceNames"] == [f"bank-{ordinal}" for ordinal in range(9)]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "bank", "namespace": "prod"}]


def config(lock: Lock = LOCK, **spec: Any) -> dict[str, Any]:
    """replica.json."""
    data: Any = made(**spec).config_map(lock, CODE)["data"]
    found: dict[str, Any] = json.loads(data["replica.json"])
    return found


def test_replica_json_is_a_config_without_what_tells_replicas_apart() -> None:
    found = config()
    assert not {"replica", "instance", "advertise_host", "client_listen"} & set(found)
    assert set(found) <= set(ReplicaConfig.__struct_fields__)
    assert (found["lock"], found["fence"], found["directory"]) == ("etcd", "etcd", "/var/lib/deathless/log")
    assert found["etcd"]["prefix"] == "/deathless/prod/"
    assert found["etcd"]["tls"]["ca"] == "/etc/deathless-lock-tls/ca.crt"
    assert found["etcd"]["usernameFile"] == "/etc/deathless-lock-user/username"
    assert found["tls"]["requireClientCertificate"] is True, "required by default in a cluster"
    assert found["tls"]["serverName"] == "bank.prod.svc"


def test_replica_json_follows_the_spec() -> None:
    plain = Lock(endpoints=("http://e:2379",), prefix="/x/")
    found = config(
        plain,
        tls={"issuer": "Off"},
        tokenSecretRef={"name": "t", "key": "k"},
        promoteCheckpointer="Always",
        limits={"turnMaxS": 3},
        retention={"checkpointsKept": 4},
    )
    assert "tls" not in found
    assert (found["token_file"], found["promote_checkpointer"]) == ("/etc/deathless-token/k", "Always")
    assert found["limits"] == {"turn_max_s": 3, "checkpoints_kept": 4}
    assert not (found["etcd"].get("tls") or found["etcd"].get("passwordFile"))
    assert config(tls={"requireClientCertificate": False})["tls"]["requireClientCertificate"] is False


def test_replica_json_has_the_program_and_its_topic() -> None:
    """It runs in the image's working directory; longer messages are let through than for a module."""
    fields = {"module": SERVICE_MODULE, "binding": {"command": ["/app/counter"], "environment": {"A": "b"}}}
    objects = made(**fields)
    data: Any = objects.config_map(LOCK, code_of(objects._spec))["data"]
    found = json.loads(data["replica.json"])
    assert found["binding"] == {
        "command": ["/app/counter"], "instance": "bank", "receive_port": 0, "send_port": 0, "environment": {"A": "b"},
        "folder": ".", "compare": "Bytes", "checkpoint_rows": 10_000, "checkpoint_bytes": 64 << 20, "connect_s": 30.0,
        "load_s": 600.0, "snapshot_s": 600.0, "handler_s": 60.0, "checkpoints_kept": 2, "version": -1,
        "next_version": -1,
    }  # fmt: skip
    assert [each["name"] for each in found["drivers"]] == [INPUTS.name]
    assert LIMITS.items() <= found["limits"].items()
    assert "binding" not in config()


def test_replica_json_has_the_wait_that_a_short_grace_leaves_and_is_as_before_where_the_default_fits() -> None:
    assert "limits" not in config()
    assert config(podTemplate={"terminationGracePeriodSeconds": 25})["limits"] == {"handover_wait_s": 4}
    assert config(limits={"handoverWaitS": 0})["limits"] == {"handover_wait_s": 0}


def test_replica_json_says_how_callers_prove_who_they_are() -> None:
    assert "authentication" not in config()
    token = config(ingress={"authentication": {"type": "Token", "token": {"secretRef": {"name": "callers"}}}})
    assert (token["authentication"]["type"], token["authentication"]["tokens"]) == ("Token", "/etc/deathless-callers")
    oidc = {
        "issuer": "https://login.example.org",
        "audiences": ["bank"],
        "caSecretRef": {"name": "ca", "key": "ca.crt"},
    }
    found = config(ingress={"authentication": {"type": "OIDC", "oidc": oidc}})["authentication"]
    assert (found["issuer"], found["ca"]) == ("https://login.example.org", "/etc/deathless-issuer-ca/ca.crt")


def test_certificate_for_the_lock_store_is_shown_where_the_secret_has_one() -> None:
    both = Lock(endpoints=("https://e:1",), prefix="/x/", tls_secret="t", tls_has_certificate=True)
    assert config(both)["etcd"]["tls"]["certificate"] == "/etc/deathless-lock-tls/tls.crt"
    assert not config()["etcd"]["tls"].get("certificate")


def test_services_point_at_any_replica_and_at_the_primary() -> None:
    every, primary, headless = (manifest["spec"] for manifest in made().services())
    assert every["selector"] == {**names.selector("bank"), names.LABEL_SERVING: "true"}  # type: ignore[index,call-overload]
    assert primary["selector"] == {**names.selector("bank"), names.LABEL_ROLE: "primary"}  # type: ignore[index,call-overload]
    assert [port["port"] for port in every["ports"]] == [80, 7401, 443]  # type: ignore[index,call-overload,union-attr]
    assert (headless["clusterIP"], headless["publishNotReadyAddresses"]) == ("None", True)  # type: ignore[index,call-overload]


def test_pods_that_say_nothing_of_callers_stay_in_the_service() -> None:
    every: Any = made().services(labelled=False)[0]["spec"]
    assert every["selector"] == names.selector("bank")


def test_service_that_any_replica_answers_may_be_a_load_balancer() -> None:
    first, *_ = made(ingress={"serviceType": "LoadBalancer", "serviceAnnotations": {"a": "b"}}).services()
    body: Any = first["spec"]
    metadata: Any = first["metadata"]
    assert (body["type"], metadata["annotations"]["a"]) == ("LoadBalancer", "b")


def policy(**spec: Any) -> dict[str, Any]:
    """The NetworkPolicy."""
    found: Any = made(**spec).network_policy(LOCK)["spec"]
    body: dict[str, Any] = found
    return body


def test_pods_reach_only_what_they_need() -> None:
    ports = [port["port"] for rule in policy()["egress"] for port in rule.get("ports", [])]
    assert ports == [53, 53, 2379, 443, 6443]
    assert policy(networkPolicy={"egress": "Open"})["egress"] == [{}]
    peer = {"ipBlock": {"cidr": "10.0.0.0/8"}}
    assert policy(networkPolicy={"allowTo": [peer]})["egress"][-1] == {"to": [peer]}


def test_replica_ports_are_for_replicas() -> None:
    inner, door, health = policy()["ingress"]
    assert [port["port"] for port in inner["ports"]] == [7402, 7403, 7401, 8080]
    assert [port["port"] for port in door["ports"]] == [7401, 8080]
    assert door["from"] == [{"namespaceSelector": {}}]
    assert ("from" in health, health["ports"][0]["port"]) == (False, 8081)


@pytest.mark.parametrize(
    ("ingress", "peers"),
    [({"allowFrom": [{"podSelector": {"matchLabels": {"app": "x"}}}]}, 2), ({"serviceType": "NodePort"}, None)],
)
def test_front_door_is_open_to_whom_the_spec_says(ingress: dict[str, Any], peers: int | None) -> None:
    door = policy(ingress=ingress)["ingress"][1]
    assert (len(door["from"]) if "from" in door else None) == peers


@pytest.mark.parametrize(("endpoint", "port"), [("https://e", 443), ("http://e", 80), ("https://[::1]:9", 9)])
def test_port_of_the_lock_store_is_let_out(endpoint: str, port: int) -> None:
    lock = Lock(endpoints=(endpoint,), prefix="/x/")
    body: Any = made().network_policy(lock)["spec"]
    assert body["egress"][2]["ports"][0]["port"] == port


def test_claim_is_made_where_the_spec_gives_a_size() -> None:
    assert made().claim() is None
    found: Any = made(logStorage={"size": "1Gi"}).claim()
    assert (found["metadata"]["name"], found["spec"]["accessModes"]) == ("bank-log", ["ReadWriteMany"])
    assert "storageClassName" not in found["spec"]


def test_hash_changes_with_a_field_that_is_taken_away() -> None:
    def digest(**spec: Any) -> str:
        metadata: Any = made(**spec).services()[0]["metadata"]
        return str(metadata["annotations"][names.APPLIED_ANNOTATION])

    assert digest() == digest()
    assert digest(ingress={"serviceAnnotations": {"a": "b"}}) != digest()


def test_peers_are_let_out_to() -> None:
    peers = [{"name": "shop", "addresses": ["shop.web.svc:7411", "shop-0.shop-replicas.web.svc:7401"]}]
    assert {"ports": [{"protocol": "TCP", "port": port} for port in (7401, 7411)]} in policy(peers=peers)["egress"]


def test_topics_are_drivers_of_pods_in_the_folder_of_their_shard() -> None:
    found = config(topics=[{"name": "sales", "keepBytes": "1Gi", "keepDays": 2}], shards=2)["drivers"]
    assert [(each["name"], each["kind"], each["batch_messages"]) for each in found] == [("sales", "topic", 4096)]
    assert found[0]["options"] == {
        "directory": "/var/lib/deathless/log/shards/0/topics/sales", "keepBytes": 1 << 30, "keepSeconds": 172_800,
    }  # fmt: skip


def test_drivers_read_their_files_from_the_secret_they_name() -> None:
    drivers = [
        {"name": "ledger", "kind": "postgresql", "secretRef": {"name": "db"}, "options": {"dsnFile": "ledger.dsn"}},
        {"name": "book", "kind": "files", "options": {"path": "/books/book.jsonl"}},
    ]
    found = config(drivers=drivers)["drivers"]
    assert [driver.get("folder", ".") for driver in found] == ["/etc/deathless-drivers/ledger", "."]
    world = World(spec={**SPEC, "drivers": drivers})
    world.operate()
    assert "waiting for Secret db (of driver ledger)" in world.plan().sentence
    assert world.stateful_set() is None
    world.secrets["db"] = SecretFacts(name="db", keys=("ledger.dsn",))
    world.settle()
    pod = world.pods["bank-0"]["spec"]
    assert {"name": "deathless-driver-0", "secret": {"secretName": "db", "defaultMode": 0o440}} in pod["volumes"]
    mount = {"name": "deathless-driver-0", "mountPath": "/etc/deathless-drivers/ledger", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]
    assert len([volume for volume in pod["volumes"] if "driver" in volume["name"]]) == 1


def test_sources_read_their_files_from_the_secret_they_name_unless_pods_can_not_read_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sources = [{"name": "flights", "kind": "files", "input": "in", "secretRef": {"name": "broker"}, "options": {}}]
    (problem,) = World(spec={**SPEC, "sources": sources}).snapshot().resource.problems
    assert "spec.sources[0].kind: can't be read in a cluster: the pods of a service share no folder" in problem
    monkeypatch.setitem(SOURCE_KINDS, "files", dataclasses.replace(SOURCE_KINDS["files"], local=""))
    (found,) = config(sources=sources)["sources"]
    assert found["folder"] == "/etc/deathless-sources/flights"
    world = World(spec={**SPEC, "sources": sources})
    world.operate()
    assert "waiting for Secret broker (of source flights)" in world.plan().sentence
    world.secrets["broker"] = SecretFacts(name="broker", keys=("user",))
    world.settle()
    pod = world.pods["bank-0"]["spec"]
    assert {"name": "deathless-source-0", "secret": {"secretName": "broker", "defaultMode": 0o440}} in pod["volumes"]
    mount = {"name": "deathless-source-0", "mountPath": "/etc/deathless-sources/flights", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]


def test_sinks_read_their_files_from_the_secret_they_name() -> None:
    options = {"store": "postgresql", "dsnFile": "facts.dsn", "table": "facts"}
    sinks = [{"name": "facts", "kind": "columns", "topic": "sales", "secretRef": {"name": "db"}, "options": options}]
    topics = [{"name": "sales", "keepBytes": "1Gi"}]
    (found,) = config(topics=topics, sinks=sinks)["sinks"]
    assert found["folder"] == "/etc/deathless-sinks/facts"
    assert found["topic_directory"] == "/var/lib/deathless/log/topics/sales"
    world = World(spec={**SPEC, "topics": topics, "sinks": sinks, "logStorage": {"size": "40Gi"}})
    world.operate()
    assert "waiting for Secret db (of sink facts)" in world.plan().sentence
    world.secrets["db"] = SecretFacts(name="db", keys=("facts.dsn",))
    world.settle()
    pod = world.pods["bank-0"]["spec"]
    assert {"name": "deathless-sink-0", "secret": {"secretName": "db", "defaultMode": 0o440}} in pod["volumes"]
    mount = {"name": "deathless-sink-0", "mountPath": "/etc/deathless-sinks/facts", "readOnly": True}
    assert mount in pod["containers"][0]["volumeMounts"]


GATE: dict[str, Any] = {
    "name": "lines", "kind": "connector", "input": "lines", "secretRef": {"name": "connector"},
    "options": {"listen": "127.0.0.1:7410", "cookieFile": "cookie"},
}  # fmt: skip


def test_programs_reach_a_gate_through_the_service_of_the_primary_of_the_first_shard() -> None:
    port = {"name": "connector-7410", "port": 7410, "targetPort": 7410, "protocol": "TCP"}
    found: dict[str, Any] = {
        str(each["metadata"]["name"]): each["spec"]["ports"]  # type: ignore[call-overload,index]
        for each in made(sources=[GATE], shards=2).services()
    }
    assert [name for name, ports in found.items() if port in ports] == ["bank-primary"]
    assert not any("connector" in str(each) for each in made().services())


def test_a_gate_is_open_to_whom_the_front_door_is_open() -> None:
    front: Any = made(sources=[GATE]).network_policy(LOCK)["spec"]["ingress"][1]  # type: ignore[call-overload,index]
    assert {"port": 7410, "protocol": "TCP"} in front["ports"]
    assert front["from"] == [{"namespaceSelector": {}}]


def test_a_gate_of_a_pod_listens_on_every_address_and_finds_its_cookie_in_the_secret() -> None:
    (source,) = config(sources=[GATE])["sources"]
    assert (source["listen"], source["folder"]) == ("0.0.0.0:7410", "/etc/deathless-sources/lines")
