"""Options of a source at which clients connect: an address, and who may use it."""

from __future__ import annotations

import pytest

from deathless.base.errors import InvalidConfig
from deathless.base.source_kinds.connector import ConnectorOptions, connector_options, is_loopback, open_to_strangers


def test_replicas_of_a_machine_listen_on_ports_that_follow_each_other() -> None:
    options = connector_options("lines", {"listen": "127.0.0.1:7000"})
    assert [options.at(index) for index in range(3)] == ["127.0.0.1:7000", "127.0.0.1:7001", "127.0.0.1:7002"]
    assert connector_options("lines", {"listen": "[::1]:0"}).at(2) == "[::1]:0", "0 takes any free one"
    assert connector_options("lines", {}).address == ("127.0.0.1", 7405)


@pytest.mark.parametrize("listen", ["", "host", ":1", "h:x", "h:65536", "h:-1", "h:²"])
def test_what_is_no_address_is_refused(listen: str) -> None:
    with pytest.raises(InvalidConfig, match="source lines: options: listen"):
        connector_options("lines", {"listen": listen})


@pytest.mark.parametrize(
    ("options", "certificates", "everywhere", "fine"),
    [
        ({}, False, False, True),
        ({}, False, True, False),
        ({"cookieFile": "c"}, False, True, True),
        ({"tls": True}, False, True, False),
        ({"tls": True}, True, True, True),
        ({}, True, True, False),
        ({"listen": "0.0.0.0:1"}, False, False, False),
        ({"listen": "10.0.0.1:1", "cookieFile": "c"}, False, False, True),
    ],
)
def test_who_listens_on_more_than_loopback_asks_who_connects(
    options: dict[str, object], certificates: bool, everywhere: bool, fine: bool
) -> None:
    found = connector_options("lines", options)
    assert (open_to_strangers(found, certificates=certificates, everywhere=everywhere) == "") is fine


def test_loopback_is_known_by_name_and_by_number() -> None:
    assert all(is_loopback(host) for host in ("localhost", "127.0.0.1", "127.9.9.9", "::1"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "::", "example.org", "10.0.0.1", ""))
    assert ConnectorOptions().max_streams == 1000
