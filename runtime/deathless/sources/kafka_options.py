"""What a manifest says of a source in Kafka, and the settings of librdkafka that follow from it. Pure.

Guarantees: options hold no secret: passwords, keys and certificates are named as files. A password is never sent to a
broker that was not asked for its certificate. Does not: read those files. Imports the port.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from deathless.base.errors import InvalidConfig

QUEUE_KBYTES: Final = 8192
"""What a partition's consumer fetches ahead, in units of 1024 bytes; one record may be more."""
FETCH_WAIT_MS: Final = 100

Text = Annotated[str, msgspec.Meta(min_length=1)]


class Tls(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """TLS to the brokers; files are PEM, relative to the manifest's folder."""

    ca_file: str = ""  # who signed the brokers' certificates; empty: those that the system trusts
    cert_file: str = ""  # our certificate, for brokers that ask for one
    key_file: str = ""  # its key, without a passphrase


class Sasl(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Who we are, by a password."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    username: Text
    password_file: Text  # read at each connection, so a changed one is found


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What the manifest says below `options`."""

    bootstrap_servers: Text  # host:port, several with commas between
    topic: Annotated[str, msgspec.Meta(pattern="^[a-zA-Z0-9._-]{1,249}$")]
    begin: Literal["zero", "oldest"] = "zero"  # where nothing was read yet: at offset 0, or at the first one kept
    group: str = ""  # offsets are committed under this name, for tools that show lag; empty: nowhere
    tls: Tls | None = None
    sasl: Sasl | None = None


def check(source: str, options: Options) -> None:
    """Look whether options fit together. Raises: InvalidConfig."""
    if options.sasl is not None and options.sasl.mechanism == "PLAIN" and options.tls is None:
        raise InvalidConfig(f"source {source}: options: sasl PLAIN sends the password itself, which needs tls")
    if options.tls is not None and bool(options.tls.cert_file) != bool(options.tls.key_file):
        raise InvalidConfig(f"source {source}: options: tls.certFile and tls.keyFile belong together")


def files(options: Options) -> dict[str, str]:
    """Give what the options name as files for librdkafka: its setting -> the path as it stands there."""
    if options.tls is None:
        return {}
    named = {
        "ssl.ca.location": options.tls.ca_file,
        "ssl.certificate.location": options.tls.cert_file,
        "ssl.key.location": options.tls.key_file,
    }
    return {setting: path for setting, path in named.items() if path}


def connection(source: str, options: Options, password: str) -> dict[str, str | int]:
    """Give the settings of any client, without `files`."""
    settings: dict[str, str | int] = {
        "bootstrap.servers": options.bootstrap_servers,
        "client.id": f"deathless-{source}",
        "log_level": 0,  # what goes wrong is told by the errors themselves
        "socket.connection.setup.timeout.ms": 10_000,
        "socket.keepalive.enable": "true",
        "reconnect.backoff.max.ms": 1_000,
    }
    if options.tls is not None and not options.tls.ca_file:
        settings["ssl.ca.location"] = "probe"
    if options.sasl is not None:
        settings["sasl.mechanism"] = options.sasl.mechanism
        settings["sasl.username"] = options.sasl.username
        settings["sasl.password"] = password
    layer = "SSL" if options.tls is not None else "PLAINTEXT"
    settings["security.protocol"] = layer if options.sasl is None else f"SASL_{layer}"
    return settings


def reading(source: str, options: Options) -> dict[str, str | int]:
    """Give what a consumer of one partition has besides; it is in no group."""
    return {
        "group.id": options.group or f"deathless-{source}",  # asked for by the library; nothing joins it
        "enable.auto.commit": "false",
        "enable.auto.offset.store": "false",
        "auto.offset.reset": "error",  # a place that is not there is told, never replaced
        "isolation.level": "read_committed",
        "enable.partition.eof": "true",  # tells how far there is nothing more
        "check.crcs": "true",
        "fetch.wait.max.ms": FETCH_WAIT_MS,
        "queued.max.messages.kbytes": QUEUE_KBYTES,
    }
