"""A replica's config: what it is started with survives JSON, and limits that can't be met are told by name."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.config import EtcdConfig, PeerConfig, ReplicaConfig, TlsConfig
from deathless.base.errors import InvalidConfig
from deathless.base.limits import Limits
from deathless.base.shards import Sharding


def config(**limits: float) -> ReplicaConfig:
    return ReplicaConfig(service="bank", module="m:a", directory="d", replica="r0", limits=limits)


def test_a_config_survives_json() -> None:
    full = msgspec.structs.replace(
        config(sessions_max=5, heartbeat_s=0.1),
        tls=TlsConfig(ca="ca.pem", require_client_certificate=True),
        etcd=EtcdConfig(endpoints=("http://a:1", "http://b:2"), tls=TlsConfig(key="k.pem"), lease_ttl_s=3),
    )
    assert msgspec.json.decode(msgspec.json.encode(full), type=ReplicaConfig) == full


def test_a_field_that_nobody_knows_is_refused() -> None:
    text = msgspec.json.encode(config()).replace(b'"service":', b'"servise":"x","service":')
    with pytest.raises(msgspec.ValidationError, match="servise"):
        msgspec.json.decode(text, type=ReplicaConfig)


def test_without_changes_the_limits_are_the_usual_ones() -> None:
    assert config().make_limits() == Limits()


def test_changed_limits_are_taken_over_and_the_others_stay() -> None:
    limits = config(sessions_max=5).make_limits()
    assert limits.sessions_max == 5
    assert limits.segment_bytes_max == Limits().segment_bytes_max


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ({"sesions_max": 5}, "limits.sesions_max is not known"),
        ({"sessions_max": 1.5}, "sessions_max"),
        ({"sessions_max": 0}, "limits.sessions_max must be above 0"),
        ({"checkpoints_kept": 1}, "checkpoints_kept >= 2"),
    ],
)
def test_a_limit_that_can_not_be_is_refused_by_name(limits: dict[str, int | float], told: str) -> None:
    with pytest.raises(InvalidConfig, match=told):
        config(**limits).make_limits()


def test_a_shard_is_named_and_placed_in_its_service() -> None:
    alone = ReplicaConfig(service="bank", module="m:a", directory="/x/bank", replica="r0")
    assert (alone.shard_name, alone.service_directory, alone.sharding) == ("bank", "/x/bank", Sharding())
    peers = (PeerConfig(name="stock", shards=3), PeerConfig(name="mail"))
    second = msgspec.structs.replace(alone, directory="/x/bank/shards/1", shard=1, shards=2, peers=peers)
    assert (second.shard_name, second.service_directory) == ("bank/1/2", "/x/bank")
    assert second.sharding == Sharding(shard=1, shards=2, peers={"stock": 3, "mail": 1})


def test_files_are_owned_by_a_replica_and_its_instance() -> None:
    alone = ReplicaConfig(service="bank", module="m:a", directory="/x/bank", replica="r0")
    assert (alone.owner, msgspec.structs.replace(alone, instance="u1").owner) == ("r0", "r0.u1")
