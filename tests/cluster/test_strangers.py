"""A service of another namespace is refused by the name in its certificate, at every port, where packets reach it.

The lab's network enforces no NetworkPolicy (tests/cluster/test_policies.py computes what policies say), so nothing but
the name keeps a stranger out here: its pods hold certificates of the same authority.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from lab.cluster.cluster import Pod
from tests.cluster.installed import CALM, Lab, Ledger

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("deathless")]

CLIENT, REPLICATION, CONTROL = 7401, 7402, 7403
ASKED = [
    (CLIENT, "client"), (CLIENT, "peer"), (CLIENT, "tool"), (REPLICATION, "follower"),
    (CONTROL, "supervisor"), (CONTROL, "tool"),
]  # fmt: skip
DIAL = """
import asyncio, ssl, sys
from deathless.base.config import TlsConfig
from deathless.codec.wire import Hello, PacketReader, Refused, Type, decode_struct, packet, struct_packet
from deathless.shell.net.tls import client_context

host, port, name, kind = sys.argv[1:]
folder = "/etc/deathless-tls"
tls = TlsConfig(ca=f"{folder}/ca.crt", certificate=f"{folder}/tls.crt", key=f"{folder}/tls.key", server_name=name)

async def ask():
    reader, writer = await asyncio.open_connection(host, int(port), ssl=client_context(tls))
    writer.write(struct_packet(Type.HELLO, Hello(1, kind, "ledger", "stranger")) + packet(Type.PING, b""))
    packets = PacketReader(1 << 20)
    while data := await reader.read(1 << 16):
        for found, body in packets.take(data):
            return decode_struct(Refused, body).code if found == Type.REFUSED else "let in"
    return "closed"

print(asyncio.run(ask()))
"""
"""Says who it is at a port, with its own pod's certificate; prints what comes of it."""


@pytest.fixture(scope="module")
def stranger(cluster: Lab, deathless: None) -> Iterator[Ledger]:
    """A service of another namespace, whose pods may send packets to everybody."""
    with Ledger(cluster, "stranger", replicas=1, networkPolicy={"egress": "Open"}) as other:
        other.wait_ready()
        yield other


def ask(cluster: Lab, source: Ledger, target: Ledger, to: Pod, port: int, kind: str) -> str:
    """What a pod of the one gets at a port of the other."""
    name = f"{target.name}.{target.namespace}.svc"
    return cluster.exec(source.pods()[0], "python3", "-c", DIAL, to.address, str(port), name, kind).strip()


def test_service_of_another_namespace_is_refused_at_every_port_and_let_in_where_it_is_named(
    cluster: Lab, stranger: Ledger
) -> None:
    with Ledger(cluster, "asked", limits=CALM) as asked:
        asked.wait_ready()
        found = {ask(cluster, stranger, asked, asked.primary(), port, kind) for port, kind in ASKED}
        assert found == {"DL3035"}
        for port, kind in ((CLIENT, "client"), (CLIENT, "tool")):
            assert ask(cluster, asked, asked, asked.primary(), port, kind) == "let in", "its own pods"
        asked.apply(ingress={"allowServices": [{"namespace": stranger.namespace}]})
        asked.wait_ready()
        asked.wait_for(
            lambda: ask(cluster, stranger, asked, asked.primary(), CLIENT, "client") == "let in", "it is named now"
        )
        inner = [(port, kind) for port, kind in ASKED if kind not in ("client", "peer")]
        assert {ask(cluster, stranger, asked, asked.primary(), port, kind) for port, kind in inner} == {"DL3035"}
