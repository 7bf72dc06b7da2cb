"""TLS with client certificates, and tokens, on every port of a running set; certificates change while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import trustme
from replica_set import ALL, DEADLINE_S, Load, ReplicaSet, check_exactly_once, wait_for

from deathless.base.config import TlsConfig
from deathless.base.errors import Unauthorized
from deathless.codec.wire import Hello, PacketReader, Refused, Type, decode_struct, struct_packet
from deathless.shell.directory.members import Member, read_members
from deathless.shell.net.listening import split_address

TOKEN = "a shared secret"
PORTS = ["control", "client", "replication"]


@dataclass(frozen=True)
class Files:
    """Where one party's PEM files are."""

    ca: Path
    certificate: Path
    key: Path

    def write(self, leaf: trustme.LeafCert, *trusted: trustme.CA) -> None:
        """Replace all three, each whole."""
        parts = {
            self.ca: b"".join(each.cert_pem.bytes() for each in trusted),
            self.certificate: b"".join(blob.bytes() for blob in leaf.cert_chain_pems),
            self.key: leaf.private_key_pem.bytes(),
        }
        for path, data in parts.items():
            new = path.with_suffix(".new")
            new.write_bytes(data)
            new.replace(path)

    def context(self, *, show: bool = True) -> ssl.SSLContext:
        """A client's context past our own code."""
        context = ssl.create_default_context(cafile=str(self.ca))
        if show:
            context.load_cert_chain(self.certificate, self.key)
        return context


def files_in(folder: Path, leaf: trustme.LeafCert, *trusted: trustme.CA) -> Files:
    """Write one party's files below a folder of its own."""
    folder.mkdir()
    files = Files(folder / "ca.pem", folder / "certificate.pem", folder / "key.pem")
    files.write(leaf, *trusted)
    return files


@contextmanager
def tls_set(folder: Path, authority: trustme.CA) -> Iterator[tuple[ReplicaSet, Files]]:
    """Three replicas that demand certificates of `authority` and the token, with all roles taken."""
    files = files_in(folder / "tls", authority.issue_cert("127.0.0.1"), authority)
    tls = TlsConfig(
        ca=str(files.ca), certificate=str(files.certificate), key=str(files.key), require_client_certificate=True
    )
    with ReplicaSet(folder, tls=tls, token=TOKEN) as replicas:
        replicas.wait_roles(**ALL)
        yield replicas, files


def address_of(replicas: ReplicaSet, port: str, name: str = "r0") -> tuple[str, int]:
    """Where a replica's port is."""
    member: Member = read_members(str(replicas.directory))[name]
    return split_address(getattr(member, port))


def say_hello(address: tuple[str, int], context: ssl.SSLContext | None, token: str) -> Refused | None:
    """Connect and say HELLO; gives the refusal, None when the peer goes on.

    Raises: OSError when the connection was not accepted at all.
    """
    with contextlib.ExitStack() as stack:
        connection: socket.socket = stack.enter_context(socket.create_connection(address, timeout=DEADLINE_S))
        if context is not None:
            connection = stack.enter_context(context.wrap_socket(connection, server_hostname=address[0]))
        connection.sendall(struct_packet(Type.HELLO, Hello(1, "client", "ledger", "test", token)))
        connection.sendall(struct_packet(Type.PING, Hello(1, "tool", "ledger", "test")))
        reader = PacketReader(1 << 20)
        while data := connection.recv(65536):
            for kind, body in reader.feed(data):
                return decode_struct(Refused, body) if kind == Type.REFUSED else None
    raise ConnectionError("closed without a word")


def test_set_over_tls_survives_kills(tmp_path: Path) -> None:
    with tls_set(tmp_path, trustme.CA()) as (replicas, _):
        with Load(replicas) as load:
            load.wait_more()
            replicas.kill_primary()
            load.wait_more()
            replicas.wait_roles(**ALL)
        check_exactly_once(load, replicas)
        replicas.wait_same_lsn()


def test_every_port_refuses_who_has_no_certificate_or_the_wrong_token(tmp_path: Path) -> None:
    authority, stranger = trustme.CA(), trustme.CA()
    with tls_set(tmp_path, authority) as (replicas, files):
        strange = files_in(tmp_path / "strange", stranger.issue_cert("127.0.0.1"), authority)
        for port in PORTS:
            address = address_of(replicas, port)
            assert say_hello(address, files.context(), TOKEN) is None, port
            for token in ("", "another"):
                refused = say_hello(address, files.context(), token)
                assert refused is not None, port
                assert refused.code == Unauthorized.code
            for context in (None, files.context(show=False), strange.context()):
                with pytest.raises(OSError):  # noqa: PT011 - which one depends on who hangs up first
                    say_hello(address, context, TOKEN)
        replicas.wait_roles(**ALL)


def shown_by(address: tuple[str, int], files: Files) -> bytes:
    """The certificate that a port shows now."""
    with (
        socket.create_connection(address, timeout=DEADLINE_S) as plain,
        files.context().wrap_socket(plain, server_hostname=address[0]) as connection,
    ):
        return connection.getpeercert(binary_form=True) or b""


def test_certificates_and_authority_change_while_the_set_runs(tmp_path: Path) -> None:
    old, new = trustme.CA(), trustme.CA()
    with tls_set(tmp_path, old) as (replicas, files):
        addresses = [address_of(replicas, port, name) for port in PORTS for name in replicas.names]
        before = {address: shown_by(address, files) for address in addresses}
        with Load(replicas) as load:
            load.wait_more()
            files.write(new.issue_cert("127.0.0.1"), old, new)
            for address in addresses:
                wait_for(renewed(address, files, before[address]), "a renewed certificate", replicas.describe)
            load.wait_more()
            primary = replicas.primary()
            replicas.kill_worker(primary)  # everybody connects anew, with what is new
            replicas.primary(besides=primary)
            load.wait_more()
            replicas.wait_roles(**ALL)
        check_exactly_once(load, replicas)


def renewed(address: tuple[str, int], files: Files, before: bytes) -> Callable[[], bool]:
    """A condition: the port shows another certificate."""
    return lambda: shown_by(address, files) != before


def test_unfit_certificates_at_a_renewal_leave_the_old_ones_in_use(tmp_path: Path) -> None:
    authority = trustme.CA()
    with tls_set(tmp_path, authority) as (replicas, files):
        kept = files_in(tmp_path / "kept", authority.issue_cert("127.0.0.1"), authority)
        address = address_of(replicas, "client", replicas.primary())
        before = shown_by(address, kept)
        files.key.write_bytes(trustme.CA().issue_cert("127.0.0.1").private_key_pem.bytes())
        told = "certificates not renewed"
        logs = [tmp_path / f"{name}.log" for name in replicas.names]
        wait_for(lambda: all(told in log.read_text() for log in logs), "a warning", replicas.describe)
        assert shown_by(address, kept) == before
        for name in replicas.names:
            os.kill(replicas.processes[name].pid, signal.SIGCONT)
        assert asyncio.run(asks(replicas, kept)) == 0


async def asks(replicas: ReplicaSet, files: Files) -> int:
    """Call with certificates of our own."""
    from deathless.shell.client.shard_client import Client  # noqa: PLC0415  not the fixture's client: other files

    tls = TlsConfig(ca=str(files.ca), certificate=str(files.certificate), key=str(files.key))
    async with Client("ledger", [f"dir:{replicas.directory}"], token=TOKEN, tls=tls) as client:
        return len(await client.query("notes", "k0", timeout=DEADLINE_S))
