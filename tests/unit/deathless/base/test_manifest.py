"""The manifest's schema: what fits, what contradicts itself, what becomes of it."""

from __future__ import annotations

from dataclasses import fields

import msgspec
import pytest

from deathless.base.config import ActivitiesConfig, DriverConfig, EtcdConfig, PeerConfig, TlsConfig
from deathless.base.limits import Limits
from deathless.base.manifest import (
    Manifest,
    ServiceSpec,
    camel_words,
    fence_of,
    ignored_locally,
    relation_problems,
    replica_configs,
)
from deathless.base.manifest_parts import LimitsSpec, Retention
from deathless.base.schema_check import show_path


def manifest(**spec: object) -> Manifest:
    """A manifest with these fields of spec."""
    document = {
        "apiVersion": "deathless.dev/v1alpha1",
        "kind": "DeathlessService",
        "metadata": {"name": "bank"},
        "spec": {"module": "bank.py:bank", **spec},
    }
    return msgspec.convert(document, Manifest)


def parts_of(kind: type[msgspec.Struct]) -> set[type[msgspec.Struct]]:
    """The struct and every struct below it."""
    found = {kind}
    waiting = [msgspec.inspect.type_info(kind)]
    while waiting:
        info = waiting.pop()
        waiting += [getattr(info, name) for name in ("type", "item_type", "value_type") if hasattr(info, name)]
        waiting += getattr(info, "types", ())
        if isinstance(info, msgspec.inspect.StructType):
            found.add(info.cls)
            waiting += [field.type for field in info.fields]
    return found


def test_limits_of_the_manifest_are_the_limits_of_the_runtime() -> None:
    assert LimitsSpec.__struct_fields__ == tuple(field.name for field in fields(Limits))


def test_retention_speaks_of_limits_alone() -> None:
    assert set(Retention.__struct_fields__) <= set(LimitsSpec.__struct_fields__)


def test_manifest_of_three_lines_gives_three_replicas() -> None:
    configs = replica_configs(
        manifest(), module="/x/bank.py:bank", directory="/x/d", token="t" * 16, operator_token="o" * 16
    )
    assert {config.operator_token for config in configs} == {"o" * 16}
    assert [config.replica for config in configs] == ["r0", "r1", "r2"]
    assert {(config.lock, config.fence, config.ingress_listen, config.token) for config in configs} == {
        ("directory", "seal", "", "t" * 16)
    }


def test_each_replica_takes_the_next_port() -> None:
    configs = replica_configs(manifest(ingress={"port": 9000}), module="m:a", directory="/d", token="")
    assert [config.ingress_listen for config in configs] == ["127.0.0.1:9000", "127.0.0.1:9001", "127.0.0.1:9002"]


def test_port_nought_is_any_port_for_each_replica() -> None:
    configs = replica_configs(manifest(ingress={"port": 0}), module="m:a", directory="/d", token="")
    assert {config.ingress_listen for config in configs} == {"127.0.0.1:0"}


def test_changed_limits_and_retention_reach_the_replica() -> None:
    spec = {"limits": {"turnMaxS": 3, "messageBytesMax": 1000}, "retention": {"checkpointsKept": 5}}
    (config, *_) = replica_configs(manifest(**spec), module="m:a", directory="/d", token="")
    limits = config.make_limits()
    assert (limits.turn_max_s, limits.message_bytes_max, limits.checkpoints_kept) == (3, 1000, 5)


@pytest.mark.parametrize(("lock", "fence"), [("directory", "seal"), ("etcd", "etcd")])
def test_fence_follows_the_lock(lock: str, fence: str) -> None:
    assert fence_of(manifest(lock={"type": lock}).spec) == fence


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"fence": "etcd"}, "spec.fence"),
        ({"lock": {"type": "directory", "etcd": {"endpoints": ["http://h:1"]}}}, "spec.lock.etcd"),
        ({"retention": {"checkpointsKept": 3}, "limits": {"checkpointsKept": 3}}, "spec.limits.checkpointsKept"),
        ({"ingress": {"port": 65535}}, "spec.ingress.port"),
        ({"tls": {"certificate": "a.pem"}}, "spec.tls"),
        ({"limits": {"heartbeatS": 1.0}}, "spec.limits"),
        ({"retention": {"checkpointEveryBytes": 1}, "limits": {"frameBytesMax": 1}}, "spec.limits"),
    ],
)
def test_contradiction_is_found(spec: dict[str, object], path: str) -> None:
    assert [show_path(problem.path) for problem in relation_problems(manifest(**spec))] == [path]


def test_plain_manifest_has_no_contradiction() -> None:
    assert relation_problems(manifest(lock={"type": "etcd"}, ingress={}, retention={"checkpointsKept": 2})) == []


def test_relation_of_limits_is_told_in_the_words_of_the_manifest() -> None:
    (problem,) = relation_problems(manifest(limits={"heartbeatS": 1.0}))
    assert "3 * heartbeatS <= suspectAfterS" in problem.what
    assert camel_words("reply_bytes_max of it") == "replyBytesMax of it"


CLUSTER_ALONE = {
    "image": "x:1",
    "imagePullPolicy": "Always",
    "logStorage": {"claimName": "a", "className": "b", "size": "1Gi", "subPath": "s", "deletionPolicy": "Delete"},
    "lock": {"etcd": {"tlsSecretRef": {"name": "a"}, "userSecretRef": {"name": "b"}}},
    "ingress": {"serviceType": "NodePort", "serviceAnnotations": {"a": "b"}, "allowFrom": [{"podSelector": {}}]},
    "tls": {"issuer": "CertManager", "issuerRef": {"name": "ca"}},
    "tokenSecretRef": {"name": "token"},
    "updateStrategy": {},
    "suspend": True,
    "replaceAfterSeconds": 60,
    "networkPolicy": {"egress": "Open"},
    "resources": {"requests": {"cpu": "500m"}},
    "podTemplate": {"nodeSelector": {"disk": "fast"}},
}


def test_what_has_a_meaning_in_a_cluster_alone_is_named() -> None:
    named = ignored_locally(manifest(**CLUSTER_ALONE))
    assert {path.split(".")[1] for path in named} == set(CLUSTER_ALONE)
    inner = [
        f"spec.{part}.{field}"
        for part in ("logStorage", "ingress", "tls")
        for field in dict(CLUSTER_ALONE[part])  # type: ignore[call-overload]
    ]
    assert set(inner) <= set(named)
    assert ignored_locally(manifest()) == []


def test_what_is_said_for_a_cluster_does_not_change_a_laptop() -> None:
    (plain, *_) = replica_configs(manifest(ingress={}), module="m:a", directory="/d", token="")
    (told, *_) = replica_configs(manifest(**CLUSTER_ALONE), module="m:a", directory="/d", token="")
    assert plain == told


def test_files_of_the_manifest_reach_the_replica() -> None:
    spec: dict[str, object] = {
        "lock": {"type": "etcd", "etcd": {"tls": {"ca": "/a"}, "username": "u", "passwordFile": "/p", "leaseTtlS": 5}},
        "tls": {"ca": "/ca", "certificate": "/c", "key": "/k", "requireClientCertificate": True},
    }
    (config, *_) = replica_configs(manifest(**spec), module="m:a", directory="/d", token="")
    assert config.tls == TlsConfig(ca="/ca", certificate="/c", key="/k", require_client_certificate=True)
    assert config.etcd == EtcdConfig(tls=TlsConfig(ca="/a"), username="u", password_file="/p", lease_ttl_s=5)


def test_every_field_is_explained() -> None:
    for part in parts_of(ServiceSpec):
        for field in msgspec.structs.fields(part):
            info = msgspec.inspect.type_info(field.type)
            assert isinstance(info, msgspec.inspect.Metadata), (part, field.name)
            assert str((info.extra_json_schema or {}).get("explain", "")).endswith("."), (part, field.name)


def test_defaults_of_the_spec_are_those_that_the_documents_name() -> None:
    spec = ServiceSpec(module="m:a")
    assert (spec.replicas, spec.shards, spec.promote_checkpointer, spec.suspend) == (3, 1, "WhenAlone", False)


def test_drivers_reach_every_replica_with_the_folder_their_paths_start_from() -> None:
    drivers = [
        {"name": "book", "kind": "files", "options": {"path": "book.jsonl"}},
        {"name": "own", "kind": "sinks.py:make", "onRefusal": "skip", "batchMessages": 9},
    ]
    for config in replica_configs(manifest(drivers=drivers), module="m:a", directory="/d", token="", folder="/x"):
        assert config.drivers == (
            DriverConfig(name="book", kind="files", options={"path": "book.jsonl"}, folder="/x"),
            DriverConfig(name="own", kind="sinks.py:make", on_refusal="skip", batch_messages=9, folder="/x"),
        )


@pytest.mark.parametrize(
    ("names", "problems"),
    [
        (["bank"], ["spec.drivers[0].name: is also the name of this service itself"]),
        (["stock"], ["spec.drivers[0].name: is also the name of a peer"]),
        (["a", "a"], ["spec.drivers[1].name: is also the name of another driver"]),
        (["a", "b"], []),
    ],
)
def test_names_of_drivers_are_nobody_elses(names: list[str], problems: list[str]) -> None:
    drivers = [{"name": name, "kind": "files"} for name in names]
    found = relation_problems(manifest(drivers=drivers, peers=[{"name": "stock", "path": "x"}]))
    assert [f"{show_path(p.path)}: {p.what}" for p in found] == problems


@pytest.mark.parametrize(
    ("names", "problems"),
    [
        (["bank"], ["spec.topics[0].name: is also the name of this service itself"]),
        (["stock", "mail"], ["spec.topics[0].name: is also the name of a peer",
                             "spec.topics[1].name: is also the name of a driver"]),
        (["a", "b", "a"], ["spec.topics[2].name: is also the name of another topic"]),
        (["a", "b"], []),
    ],
)  # fmt: skip
def test_names_of_topics_are_nobody_elses(names: list[str], problems: list[str]) -> None:
    others = {"drivers": [{"name": "mail", "kind": "files"}], "peers": [{"name": "stock", "path": "x"}]}
    found = relation_problems(manifest(topics=[{"name": name} for name in names], **others))
    assert [f"{show_path(p.path)}: {p.what}" for p in found] == problems


def test_topics_reach_every_replica_with_the_folder_of_its_shard() -> None:
    found = manifest(topics=[{"name": "sales", "keepBytes": "1Gi"}], shards=2, drivers=[{"name": "a", "kind": "files"}])
    for config in replica_configs(found, module="m:a", directory="/d", token="", folder="/x"):
        assert [driver.name for driver in config.drivers] == ["a", "sales"]
        assert config.drivers[1].options == {
            "directory": f"/d/shards/{config.shard}/topics/sales", "keepBytes": 1 << 30, "keepSeconds": 0,
        }  # fmt: skip


def test_topics_that_would_fill_the_volume_are_refused_where_its_size_is_said() -> None:
    topics = [{"name": "sales", "keepBytes": "4Gi"}, {"name": "returns", "keepBytes": "1Gi"}]

    def told(size: str, **more: object) -> list[str]:
        found = relation_problems(manifest(topics=topics, logStorage={"size": size}, **more))
        return [f"{show_path(p.path)}: {p.what}; {p.remedy}" for p in found]

    assert told("6Gi") == told("") == []
    assert told("5Gi") == [
        (
            "spec.topics: may have more rows than there is room for: the log's volume has 5242880Ki, and the least for "
            "3 replicas with these limits, and 5120Mi of topics, is 5216Mi; lower keepBytes, or raise logStorage.size"
        )
    ]
    assert len(told("10Gi", shards=2)) == 1
    assert relation_problems(manifest(logStorage={"size": "1Mi"})) == [], "of the log alone its own check tells"


def test_sinks_are_of_topics_of_the_spec_and_reach_every_replica() -> None:
    options = {"store": "postgresql", "dsnFile": "facts.dsn", "table": "facts", "holdBytesMax": "2Gi"}
    sinks = [{"name": "facts", "kind": "columns", "topic": "sales", "options": options}]
    found = relation_problems(manifest(sinks=sinks))
    assert [f"{show_path(p.path)}: {p.what}" for p in found] == ["spec.sinks[0].topic: is no topic of spec.topics"]
    topics = [{"name": "sales", "keepBytes": "4Gi"}]
    whole = manifest(topics=topics, sinks=sinks, shards=2)
    assert relation_problems(whole) == []
    for config in replica_configs(whole, module="m:a", directory="/d", token="", folder="/x"):
        (sink,) = config.sinks
        assert (sink.topic_directory, sink.folder) == (f"/d/shards/{config.shard}/topics/sales", "/x")
    (problem,) = relation_problems(manifest(topics=topics, sinks=sinks, logStorage={"size": "5Gi"}))
    assert "and 6144Mi of topics" in problem.what
    assert problem.remedy == "lower keepBytes or a sink's holdBytesMax, or raise logStorage.size"


@pytest.mark.parametrize("kind", ["file", "x:", ":x", "a b"])
def test_a_driver_of_no_known_kind_is_refused(kind: str) -> None:
    with pytest.raises(msgspec.ValidationError, match="kind"):
        manifest(drivers=[{"name": "a", "kind": kind}])


def peers_problems(*peers: dict[str, object]) -> list[str]:
    return [f"{show_path(p.path)}: {p.what}" for p in relation_problems(manifest(peers=list(peers)))]


def test_peers_and_workers_of_activities_reach_every_replica() -> None:
    peers = [{"name": "stock", "path": "/x/stock"}, {"name": "mail", "addresses": ["a:1"], "serverName": "m"}]
    found = manifest(peers=peers, activities={"workers": 5})
    for config in replica_configs(
        found, module="/x/bank.py:bank", directory="/x/d", token="", peer_tokens={"mail": "theirs"}
    ):
        assert config.peers == (
            PeerConfig(name="stock", directory="/x/stock"),
            PeerConfig(name="mail", addresses=("a:1",), server_name="m", token="theirs"),
        )
        assert config.activities == ActivitiesConfig(workers=5)


@pytest.mark.parametrize(
    ("peers", "problem"),
    [
        ([{"name": "bank", "path": "x"}], "spec.peers[0].name: is this service itself"),
        ([{"name": "a", "path": "x"}, {"name": "a", "path": "y"}], "spec.peers[1].name: is given twice"),
        ([{"name": "a"}], "spec.peers[0]: needs path or addresses"),
    ],
)
def test_a_peer_that_makes_no_sense_is_refused(peers: list[dict[str, object]], problem: str) -> None:
    assert peers_problems(*peers) == [problem]


@pytest.mark.parametrize(
    "spec",
    [
        {"peers": [{"name": "a", "addresses": ["no port"]}]},
        {"peers": [{"name": "No Label", "path": "x"}]},
        {"activities": {"workers": 0}},
        {"activities": {"workers": 65}},
    ],
)
def test_a_peer_or_a_count_of_workers_out_of_range_is_refused(spec: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        manifest(**spec)


def test_each_shard_has_its_replicas_in_its_folder_and_ports_of_their_own() -> None:
    spec = {"shards": 2, "replicas": 2, "ingress": {"port": 9000}, "peers": [{"name": "stock", "shards": 3}]}
    configs = replica_configs(manifest(**spec), module="m:a", directory="/d", token="")
    assert [(config.shard, config.replica, config.directory, config.ingress_listen[-4:]) for config in configs] == [
        (0, "r0", "/d/shards/0", "9000"),
        (0, "r1", "/d/shards/0", "9001"),
        (1, "r0", "/d/shards/1", "9002"),
        (1, "r1", "/d/shards/1", "9003"),
    ]
    assert {config.shards for config in configs} == {2}
    assert configs[0].sharding.peers == {"stock": 3}
    assert relation_problems(manifest(**spec)) == []
    (problem,) = relation_problems(manifest(shards=64, replicas=7, ingress={"port": 65100}))
    assert (show_path(problem.path), problem.what) == (
        "spec.ingress.port",
        "replica k of shard s takes port + s * replicas + k",
    )
