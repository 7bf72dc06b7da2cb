"""What the HTTP port shows and asks for, by the config."""

from __future__ import annotations

import msgspec
import pytest

from deathless.base.config import ReplicaConfig, TlsConfig
from deathless.base.errors import InvalidConfig
from deathless.shell.web.tls import front_tls

MUTUAL = TlsConfig(ca="ca", certificate="c", key="k", require_client_certificate=True)
CONFIG = ReplicaConfig(service="bank", module="m:a", directory="d", replica="r0", tls=MUTUAL)


def test_http_port_obeys_its_own_setting() -> None:
    found = {mode: front_tls(msgspec.structs.replace(CONFIG, ingress_tls=mode)) for mode in ("", "Server", "Off")}
    server = msgspec.structs.replace(MUTUAL, require_client_certificate=False)
    assert found == {"": MUTUAL, "Server": server, "Off": None}


@pytest.mark.parametrize("mode", ["", "Server", "Off"])
def test_without_certificates_there_is_no_tls(mode: str) -> None:
    assert front_tls(msgspec.structs.replace(CONFIG, tls=None, ingress_tls=mode)) is None


def test_unknown_setting_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="ingress_tls"):
        front_tls(msgspec.structs.replace(CONFIG, ingress_tls="Maybe"))
