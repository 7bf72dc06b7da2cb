"""What tests with Kafka need: its Python client on the module path, which `make kafka` puts there, and a broker."""

from collections.abc import Iterator

import pytest
from lab.kafka import Broker

pytest.importorskip("confluent_kafka", reason="Kafka is not there: `make kafka` installs it beside the environment")


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    """A broker that no test stops; each test has topics of its own."""
    with Broker() as one:
        yield one
