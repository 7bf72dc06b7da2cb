"""Options of sources in Kafka: what contradicts itself is refused, and no secret stands in them."""

from __future__ import annotations

import pytest

from deathless.base.errors import InvalidConfig
from deathless.sources.kafka_options import Options, check, connection, files, reading
from deathless.sources.port import Settings

LEAST: dict[str, object] = {"bootstrapServers": "a:9092,b:9092", "topic": "flights"}
PLAIN = {"mechanism": "PLAIN", "username": "u", "passwordFile": "p"}


def options(**more: object) -> Options:
    found = Settings("air", LEAST | more).typed(Options)
    check("air", found)
    return found


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"topic": "a b"}, "topic"),
        ({"bootstrapServers": ""}, "bootstrapServers"),
        ({"begin": "newest"}, "begin"),
        ({"sasl": PLAIN | {"password": "x"}}, "password"),
        ({"sasl": PLAIN | {"mechanism": "NONE"}}, "mechanism"),
        ({"sasl": PLAIN}, "needs tls"),
        ({"tls": {"certFile": "c"}}, "belong together"),
        ({"isolationLevel": "read_uncommitted"}, "isolationLevel"),
    ],
)
def test_options_that_contradict_themselves_are_refused(more: dict[str, object], why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        options(**more)


def test_connection_is_as_safe_as_the_options_say() -> None:
    assert connection("air", options(), "")["security.protocol"] == "PLAINTEXT"
    assert connection("air", options(tls={}), "")["security.protocol"] == "SSL"
    assert connection("air", options(tls={}), "")["ssl.ca.location"] == "probe"
    assert "ssl.ca.location" not in connection("air", options(tls={"caFile": "ca.pem"}), "")
    scram = connection("air", options(sasl=PLAIN | {"mechanism": "SCRAM-SHA-512"}), "secret")
    assert (scram["security.protocol"], scram["sasl.password"]) == ("SASL_PLAINTEXT", "secret")
    assert connection("air", options(tls={}, sasl=PLAIN), "s")["security.protocol"] == "SASL_SSL"


def test_files_are_named_as_they_stand() -> None:
    assert files(options()) == {}
    named = {"caFile": "ca.pem", "certFile": "cert.pem", "keyFile": "key.pem"}
    assert sorted(files(options(tls=named)).values()) == ["ca.pem", "cert.pem", "key.pem"]


def test_reading_is_of_committed_records_and_replaces_no_place() -> None:
    found = reading("air", options())
    assert found["isolation.level"] == "read_committed"
    assert found["auto.offset.reset"] == "error"
    assert found["enable.auto.commit"] == "false"
    assert found["group.id"] == "deathless-air"
    assert reading("air", options(group="lag"))["group.id"] == "lag"
