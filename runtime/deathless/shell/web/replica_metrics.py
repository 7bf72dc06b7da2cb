"""The metrics of a replica, asked from its worker and shown by the ingress beside it.

The worker answers the tool's `status` with its counters and positions; that costs it one packet per scrape, and no
port of its own. Guarantees: gives what it got within the time, or `deathless_replica_up 0`; never raises for a worker
that is busy or dead. Does not: keep a connection. Imports shell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import msgspec

from deathless.base.config import ReplicaConfig
from deathless.base.errors import DeathlessError
from deathless.codec.untrusted import read_json
from deathless.codec.versions import say_hello
from deathless.codec.wire import Admin, AdminReply, Type, decode_struct, struct_packet
from deathless.shell.directory.members import read_members
from deathless.shell.net.connections import ClientConnection
from deathless.shell.net.listening import split_address
from deathless.shell.net.proof import Asker
from deathless.shell.net.tls import client_context
from deathless.shell.web.application_metrics import application_metrics
from deathless.shell.web.metrics import MetricSet, Read
from deathless.shell.web.sink_metrics import sink_metrics
from deathless.shell.web.source_metrics import source_metrics

TIMEOUT_S: Final = 0.5
PACKET_BYTES_MAX: Final = 1 << 20
GROWING: Final = frozenset({"calls", "frames", "bytes", "refused", "duplicates", "dropped", "queries", "proofs"})
"""Numbers of the status that only grow: counters."""

MESSAGING: Final = {
    "invocations": "Handlers that have begun and wait.",
    "waiting_messages": "Messages that wait for a key that is held.",
    "invocations_held": "Handlers that wait and are held, because the code does not fit them.",
    "suspended_bytes": "What handlers that wait, and messages that wait for their key, keep.",
    "outbox_bytes": "Messages that were sent and are not confirmed by those they are for.",
    "outbox_full": "1 while calls are refused for want of room for messages to other services.",
    "outbox_memory_bytes": "Those of them in memory; the others stand in files of this replica alone.",
    "outbox_spill_refused": "1 while these files take nothing, so that messages stay in memory.",
    "messages_undelivered": "Messages that drivers gave up, until an operator sends them again or discards them.",
    "outside_held": "1 while messages to the outside and activities of a service made of a copy are held.",
    "outcomes_unknown": "Activities of which nobody knows whether they were done, until an operator settles them.",
    "activities_running": "Activities that run beside the primary.",
    "peer_lag_messages": "Messages that a peer has not confirmed.",
    "peer_held_back": "1 while forks of a peer are held back, because too much is suspended here.",
    "peer_history_differs": "1 while we and a peer do not agree on what was sent, so that nothing is.",
    "peer_connected": "1 while a connection to the primary of a peer stands.",
    "spans_exported": "Spans that the collector took.",
    "spans_lost": "Spans that could not be exported.",
    "driver_connected": "1 while the driver beside this primary takes messages.",
    "driver_idle": "1 while the driver is not connected because nothing is to be done.",
    "driver_effects": "Messages that the driver has brought to the world outside, or passed over, since the beginning.",
    "driver_lag_messages": "Messages that the driver has not confirmed.",
    "driver_errors": "Attempts to reach the driver, or its sink, that failed since this primary leads.",
    "driver_problem": "1 while the driver takes nothing; `deathless peers list` says why.",
}
"""Help texts of what a worker's status says below `messaging`, by its name there; the metric is `deathless_NAME`.

A mapping there has a value for each peer or driver; the label with its name is what stands before the first `_` of
NAME: `peer` or `driver`.
"""
MESSAGING_GROWING: Final = frozenset({"driver_effects", "driver_errors", "spans_exported", "spans_lost"})
"""Names of MESSAGING of which the numbers only grow: counters, each `deathless_NAME_total`."""


async def ask_status(config: ReplicaConfig, address: str | None = None) -> dict[str, object]:
    """Ask the worker of this replica for its status.

    Args:
        config: the replica's.
        address: of its client port, empty where it has none; None: as it is announced in the shared directory.

    Raises: OSError, TimeoutError, DeathlessError.
    """
    if address is None:
        member = read_members(config.directory).get(config.replica)
        address = member.client if member is not None else ""
    if not address:
        raise ConnectionRefusedError("the replica announced no address")
    host, port = split_address(address)
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bytes] = loop.create_future()

    def received(packets: list[tuple[int, bytes]]) -> None:
        for kind, body in packets:
            if kind == Type.ADMIN_REPLY and not answer.done():
                answer.set_result(decode_struct(AdminReply, body).result)

    def lost() -> None:
        if not answer.done():
            answer.set_exception(ConnectionResetError("the replica closed the connection"))

    hello = say_hello("tool", config.shard_name, f"ingress-{config.replica}", config.token)
    connection = ClientConnection(hello, received, lost, PACKET_BYTES_MAX, Asker(config.directory))
    async with asyncio.timeout(TIMEOUT_S):
        await loop.create_connection(lambda: connection, host, port, ssl=client_context(config.tls))
        try:
            connection.send(struct_packet(Type.ADMIN, Admin(1, "status", b"{}")))
            return read_json(await answer, dict[str, object])
        finally:
            connection.close()


def expose_status(status: Mapping[str, object] | None, labels: Mapping[str, str]) -> bytes:
    """Give a status in the text format; None: the worker did not answer."""
    metrics = MetricSet("deathless_replica", labels=labels)
    metrics.gauge("up", "1 when the worker answered.", lambda: 0 if status is None else 1)
    if status is None:
        return metrics.expose()
    _add(metrics, status)
    return metrics.expose() + _messaging(status, labels)


def _messaging(status: Mapping[str, object], labels: Mapping[str, str]) -> bytes:
    """Give what concerns other services, activities and handlers that wait, in the text format."""
    told = status.get("messaging")
    if not isinstance(told, Mapping):
        return b""
    metrics = MetricSet("deathless", labels=labels)
    for name, text in MESSAGING.items():
        value, counts = told.get(name), name in MESSAGING_GROWING
        if isinstance(value, int | float):
            metrics.gauge(name, text, _constant(float(value)), counts=counts)
        elif isinstance(value, Mapping):
            by_peer = {str(k): float(v) for k, v in value.items() if isinstance(v, int | float)}
            label = name.partition("_")[0]  # of a peer, or of a driver
            metrics.gauge(name, text, _constant(by_peer), labels=(label,), counts=counts)
    return metrics.expose()


def _add(metrics: MetricSet, status: Mapping[str, object]) -> None:
    seen: set[str] = {"up"}
    for name, value in (*status.items(), *_nested(status)):
        if name in seen:
            continue
        if isinstance(value, bool | int | float):
            seen.add(name)
            metrics.gauge(name, f"{name} of the status.", _constant(float(value)), counts=name in GROWING)
        elif name == "role" and isinstance(value, str):
            seen.add(name)
            metrics.gauge("role", "1 for the role it has.", _constant({value: 1.0}), labels=("role",))
        elif name == "followers" and isinstance(value, Mapping):
            seen.add("follower_lsn")
            applied = {str(k): float(v) for k, v in value.items() if isinstance(v, int | float)}
            metrics.gauge("follower_lsn", "Last lsn applied.", _constant(applied), labels=("follower",))


def _constant(value: float | Mapping[str, float]) -> Read:
    return lambda: value


def _nested(status: Mapping[str, object]) -> list[tuple[str, object]]:
    counters = status.get("counters")
    return list(counters.items()) if isinstance(counters, Mapping) else []


def labels_of(config: ReplicaConfig) -> dict[str, str]:
    """Give what is on all metrics of a replica, and of the ingress beside it."""
    shard = {"shard": str(config.shard)} if config.shards > 1 else {}
    return {"service": config.service, "replica": config.replica, **shard}


async def replica_metrics(config: ReplicaConfig, address: str | None = None) -> bytes:
    """Give the metrics of the replica, and of what is beside it, in the text format; arguments as for `ask_status`."""
    labels = labels_of(config)
    parts = (
        _own_metrics(config, address, labels),
        sink_metrics(config, labels),
        source_metrics(config, labels),
        application_metrics(config, labels),
    )
    return b"".join(await asyncio.gather(*parts))


async def _own_metrics(config: ReplicaConfig, address: str | None, labels: Mapping[str, str]) -> bytes:
    try:
        return expose_status(await ask_status(config, address), labels)
    except (OSError, TimeoutError, DeathlessError, msgspec.MsgspecError):
        return expose_status(None, labels)
