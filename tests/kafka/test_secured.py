"""A broker that asks for a password and for certificates: all of them come from files, and a wrong one is an outage."""

import asyncio
from pathlib import Path

import pytest
import trustme
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from lab.kafka import Broker
from tests.kafka.records import WITHIN_S, opened, raised, read_to, values

from deathless.base.errors import SourceUnavailable
from deathless.sources import kafka, kafka_client, kafka_options
from deathless.sources.kafka import reader
from deathless.sources.port import Settings

LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_flights="secret"'


def certificates(folder: Path) -> dict[str, str]:
    """Write what broker and client show each other; give the settings of the broker."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(folder / "ca.pem")
    own = authority.issue_cert("flights")
    own.private_key_pem.write_to_path(folder / "key.pem")
    own.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    issued = authority.issue_cert("127.0.0.1")
    key = load_pem_private_key(issued.private_key_pem.bytes(), None)
    written = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "broker.pem").write_bytes(written + issued.cert_chain_pems[0].bytes())
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.sasl_ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{LOGIN} username="broker" password="b" user_broker="b";',
    }


def test_password_and_certificates_come_from_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (kafka, kafka_client):
        monkeypatch.setattr(module, "REQUEST_S", 5.0)
    tls = {"caFile": "ca.pem", "certFile": "cert.pem", "keyFile": "key.pem"}
    sasl = {"mechanism": "PLAIN", "username": "flights", "passwordFile": "password"}

    async def test(broker: Broker) -> None:
        (tmp_path / "password").write_text("wrong\n")
        given: dict[str, object] = {"bootstrapServers": broker.address, "topic": "secured", "tls": tls, "sasl": sasl}
        settings = Settings("flights", given, str(tmp_path))
        source = reader(settings)
        assert "uthentication" in str(await raised(SourceUnavailable, source.partitions))
        (tmp_path / "password").unlink()
        assert "password" in str(await raised(SourceUnavailable, source.partitions))
        (tmp_path / "password").write_text("secret\n")
        options = settings.typed(kafka_options.Options)
        paths = {name: str(tmp_path / path) for name, path in kafka_options.files(options).items()}
        client = {**kafka_options.connection("other", options, "secret"), **paths}
        admin = AdminClient(client)
        admin.create_topics([NewTopic("secured", 1, 1)])["secured"].result(WITHIN_S)
        producer = Producer(client)
        producer.produce("secured", value=b"first")
        assert producer.flush(WITHIN_S) == 0
        assert values(await read_to(source, await opened(source), 0)) == [(0, b"first")]
        await source.close()

    with Broker(certificates(tmp_path), protocol="SASL_SSL") as broker:
        asyncio.run(test(broker))
