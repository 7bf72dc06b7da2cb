"""Two namespaces under one authority, with running replicas: a certificate of one opens nothing of the other."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

import pytest
from replica_set import ALL, DEADLINE_S, Load, ReplicaSet, check_exactly_once, wait_for
from tests.unit.deathless.shell.named_certificates import new_authority, uri, write_named

from deathless.base.config import TlsConfig
from deathless.base.errors import Forbidden, Unauthorized
from deathless.codec.wire import Admin, Hello, PacketReader, Refused, Type, decode_struct, struct_packet
from deathless.shell.directory.members import read_members
from deathless.shell.net.listening import split_address

PORTS = {"control": ("tool", "supervisor"), "client": ("client", "tool", "peer"), "replication": ("follower",)}


def speak(replicas: ReplicaSet, port: str, kind: str, tls: TlsConfig, *orders: str) -> str:
    """Say HELLO with a certificate and give orders; the code of the refusal, empty when all was answered."""
    address = split_address(getattr(read_members(str(replicas.directory))[replicas.primary()], port))
    context = ssl.create_default_context(cafile=tls.ca)
    context.load_cert_chain(tls.certificate, tls.key)
    with (
        socket.create_connection(address, timeout=DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname="replica.local") as connection,
    ):
        connection.sendall(struct_packet(Type.HELLO, Hello(1, kind, "ledger", "test")))
        connection.sendall(struct_packet(Type.PING, Hello(1, kind, "ledger", "test")))
        for number, order in enumerate(orders):
            connection.sendall(struct_packet(Type.ADMIN, Admin(number, order, b"{}")))
        reader, answers = PacketReader(1 << 20), 0
        while data := connection.recv(65536):
            for found, body in reader.feed(data):
                if found == Type.REFUSED:
                    return decode_struct(Refused, body).code
                answers += found in (Type.PONG, Type.ADMIN_REPLY)
            if answers > len(orders):
                return ""
    raise ConnectionError("closed without a word")


def test_certificate_of_another_namespace_opens_no_port_of_a_running_set(tmp_path: Path) -> None:
    authority = new_authority()
    own = write_named(tmp_path / "own", authority, uri("shop", "ledger", "replica"))
    client = write_named(tmp_path / "client", authority, uri("shop", "ledger", "client"))
    others = [
        write_named(tmp_path / f"other-{role}", authority, uri("other", "ledger", role))
        for role in ("replica", "client", "operator")
    ]
    bare = write_named(tmp_path / "bare", authority)
    with ReplicaSet(tmp_path, tls=own) as replicas:
        replicas.wait_roles(**ALL)
        with Load(replicas) as load:
            load.wait_more()
            for port, kinds in PORTS.items():
                for kind in kinds:
                    for other in others:
                        assert speak(replicas, port, kind, other) == Forbidden.code, (port, kind)
                    assert speak(replicas, port, kind, bare) == Unauthorized.code, (port, kind)
            for order in ("stop", "status", "restart-worker"):
                assert speak(replicas, "control", "tool", client, order) == Forbidden.code
            for order in ("switchover", "status", "parked", "checkpoint"):
                assert speak(replicas, "client", "client", client, order) == Forbidden.code
            assert speak(replicas, "client", "client", client) == ""
            assert speak(replicas, "control", "tool", own, "status") == ""
            replicas.kill_primary()
            load.wait_more()
            replicas.wait_roles(**ALL)
        check_exactly_once(load, replicas)


def test_connection_of_a_removed_authority_ends_while_the_set_runs(tmp_path: Path) -> None:
    old, new = new_authority(), new_authority()
    own = write_named(tmp_path / "own", new, uri("shop", "ledger", "replica"))
    client = write_named(tmp_path / "client", old, uri("shop", "ledger", "client"))
    for tls in (own, client):
        Path(tls.ca).write_bytes(old.bundle + new.bundle)
    with ReplicaSet(tmp_path, tls=own) as replicas:
        replicas.wait_roles(**ALL)
        address = split_address(read_members(str(replicas.directory))[replicas.primary()].client)
        context = ssl.create_default_context(cafile=client.ca)
        context.load_cert_chain(client.certificate, client.key)
        with (
            socket.create_connection(address, timeout=DEADLINE_S) as plain,
            context.wrap_socket(plain, server_hostname="replica.local") as connection,
        ):
            connection.sendall(struct_packet(Type.HELLO, Hello(1, "client", "ledger", "test")))
            assert connection.recv(65536)
            Path(own.ca).write_bytes(new.bundle)
            connection.settimeout(DEADLINE_S)
            with contextlib.suppress(ConnectionError, ssl.SSLError):  # reset, or closed without the end that TLS has
                while connection.recv(65536):
                    pass
        with pytest.raises(OSError):  # noqa: PT011 - which one depends on who hangs up first
            speak(replicas, "client", "client", client)
        wait_for(lambda: speak(replicas, "client", "client", own) == "", "the set to serve", replicas.describe)
        replicas.wait_roles(**ALL)
