"""Settings of etcd: what replicas on this machine are told, and configs that stand on disks."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.config import ReplicaConfig, TlsConfig
from deathless.base.lock_stores.etcd import LOCAL_ENDPOINT, LOCAL_PREFIX, EtcdConfig
from deathless.base.lock_stores.etcd_settings import EtcdSpec
from deathless.base.manifest_fields import SecretRef, TlsFiles

# As a supervisor wrote it when etcd was a field of its own.
WRITTEN = (
    b'{"service":"bank","module":"m:a","directory":"d","replica":"r0","lock":"etcd","etcd":{"endpoints":["http://a:1"],'
    b'"prefix":"/x/","tls":{"ca":"ca.pem","certificate":"","key":"","requireClientCertificate":false,"serverName":"e"},'
    b'"username":"u","usernameFile":"/u","passwordFile":"/p","leaseTtlS":3},"fence":"etcd","limits":{}}'
)


def test_etcd_is_this_machines_where_none_is_named() -> None:
    here = EtcdSpec().config()
    assert (here.endpoints, here.prefix) == ((LOCAL_ENDPOINT,), LOCAL_PREFIX)
    assert here == EtcdConfig()
    named = EtcdSpec(endpoints=("https://e:2379",), prefix="/x/", tls=TlsFiles(ca="ca.pem")).config()
    assert (named.endpoints, named.prefix) == (("https://e:2379",), "/x/")
    assert named.tls is not None and named.tls.ca == "ca.pem"


def test_config_on_a_disk_is_read_as_ever_and_written_with_the_same_fields() -> None:
    found = msgspec.json.decode(WRITTEN, type=ReplicaConfig)
    assert found.etcd == EtcdConfig(
        endpoints=("http://a:1",),
        prefix="/x/",
        tls=TlsConfig(ca="ca.pem", server_name="e"),
        username="u",
        username_file="/u",
        password_file="/p",
        lease_ttl_s=3,
    )
    assert found.lock_settings(EtcdConfig) == found.etcd
    again = msgspec.json.decode(msgspec.json.encode(found))
    assert {name: again[name] for name in msgspec.json.decode(WRITTEN)} == msgspec.json.decode(WRITTEN)


def test_config_without_settings_has_those_of_default() -> None:
    config = ReplicaConfig(service="bank", module="m:a", directory="d", replica="r0", lock="etcd")
    assert config.lock_settings(EtcdConfig) == EtcdConfig()
    assert config.with_lock("directory", None) == msgspec.structs.replace(config, lock="directory")
    other = EtcdConfig(prefix="/x/")
    assert config.with_lock("etcd", other).lock_settings(EtcdConfig) == other


@pytest.mark.parametrize("wrong", [b'{"endpoint":"http://a:1"}', b'{"leaseTtlS":"3"}'])
def test_settings_that_nobody_knows_are_refused_in_a_config(wrong: bytes) -> None:
    start, _, rest = WRITTEN.partition(b'"etcd":{')
    text = start + b'"etcd":' + wrong + b',"fence"' + rest.partition(b',"fence"')[2]
    with pytest.raises(msgspec.ValidationError, match=r"endpoint|\$\.etcd\.leaseTtlS"):
        msgspec.json.decode(text, type=ReplicaConfig)


def test_files_are_asked_for_by_the_field_that_names_them() -> None:
    asked = []

    def find(at: tuple[str | int, ...], named: str, what: str) -> str:
        asked.append((at, named, what))
        return f"/abs/{named}" if named else ""

    spec = EtcdSpec(tls=TlsFiles(ca="ca.pem"), password_file="pw").with_files(find)
    assert (spec.tls, spec.password_file) == (TlsFiles(ca="/abs/ca.pem"), "/abs/pw")
    assert (("tls", "ca"), "ca.pem", "a PEM file") in asked and (("passwordFile",), "pw", "a file") in asked
    assert EtcdSpec().with_files(find) == EtcdSpec()


def test_secrets_are_for_clusters_and_name_what_they_must_hold() -> None:
    spec = EtcdSpec(tls_secret_ref=SecretRef(name="t"), user_secret_ref=SecretRef(name="u"))
    assert spec.ignored_locally() == ("tlsSecretRef", "userSecretRef")
    assert [(use.field, use.name, use.keys, use.is_read) for use in spec.secrets()] == [
        ("tlsSecretRef", "t", ("ca.crt",), True),
        ("userSecretRef", "u", ("username", "password"), False),
    ]
    assert (EtcdSpec().secrets(), EtcdSpec().ignored_locally()) == ((), ())
    assert [problem.path for problem in spec.cluster_problems()] == [("endpoints",)]
