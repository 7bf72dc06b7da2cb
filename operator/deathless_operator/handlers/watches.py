"""kopf's watches, reduced to one thing: something happened to an object, so its service has to be looked at.

kopf lists and watches each kind, begins anew when its version expired (410), when the stream breaks, and when it has
been silent for 70 s (bookmarks come every 60 s), and logs in again when a token expired. Nothing else of kopf is used:
only `on.event` handlers, which keep no state in the objects (no finalizer, no annotation, no event of kopf's), and
no peering: the lease elects. A watch that fails for good ends kopf's task, and with it the process.

Guarantees: an event adds one key to the queue, has what is remembered of its service forgotten, and does no more.
What a watch misses is found by the resync.

Does not: know what a key's worker does, or keep objects: of a node only what matters of it is remembered, so that a
node's heartbeat is no event for anybody.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import kopf

from deathless_operator.cluster.connection import Connection
from deathless_operator.cluster.errors import NoCluster
from deathless_operator.cluster.kinds import (
    CERTIFICATE,
    DRILL,
    LIVE_UPGRADE,
    NODE,
    PIPELINE,
    POD,
    REHEARSAL,
    REPLAY,
    SERVICE,
    STATEFUL_SET,
    Kind,
)
from deathless_operator.cluster.observe import BELONGINGS
from deathless_operator.handlers.work_queue import Key
from deathless_operator.model import names

SILENT_S = 70.0
SETTLE_S = 0.05  # events of one change come in a bunch
SETTLE_OWNED_S = 0.2  # a takeover is a dozen of them, and the processor that looking takes is missing where it happens
REQUEST_TIMEOUT_S = 30.0
READ_ALWAYS = (POD, STATEFUL_SET)  # of what is ours: at every look, so there is nothing to forget
OWNED = (*READ_ALWAYS, *BELONGINGS)
LOG_RUNS = {REPLAY.kind, REHEARSAL.kind}
OURS = f"{names.LABEL_MANAGED_BY}={names.FIELD_MANAGER}"

Enqueue = Callable[[Key, float], None]
Forget = Callable[[str, str], None]

logger = logging.getLogger(__name__)


class Patience:
    """Pauses between attempts of one request, without end: an API server that is away comes back."""

    def __iter__(self) -> Iterator[float]:
        """Give 0.5, 1, 2, 4 and then 5 seconds for ever."""
        return itertools.chain((0.5, 1.0, 2.0, 4.0), itertools.repeat(5.0))


class NodeTable:
    """Which services have pods on which node, and what mattered of each node when it was last seen."""

    def __init__(self) -> None:
        self._keys: dict[Key, frozenset[str]] = {}
        self._marks: dict[str, tuple[object, ...]] = {}

    def place(self, key: Key, nodes: Collection[str]) -> None:
        """Note on which nodes a service's pods are; none forgets the service."""
        if nodes:
            self._keys[key] = frozenset(nodes)
        else:
            self._keys.pop(key, None)

    def changed(self, node: Mapping[str, Any], *, gone: bool = False) -> list[Key]:
        """Return the services that a node's event is about; none while nothing that matters changed."""
        name = str(node["metadata"]["name"])
        before = self._marks.pop(name, None)
        if not gone:
            self._marks[name] = mark = node_mark(node)
            if before is None or before == mark:
                return []
        return [key for key, nodes in self._keys.items() if name in nodes]


def node_mark(node: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what matters of a node: whether it is ready, takes pods, and is leaving."""
    spec, status, meta = node.get("spec") or {}, node.get("status") or {}, node["metadata"]
    ready = [each.get("status") for each in status.get("conditions") or () if each.get("type") == "Ready"]
    taints = sorted((str(each.get("key")), str(each.get("effect"))) for each in spec.get("taints") or ())
    return (
        meta.get("uid"),
        tuple(ready),
        bool(spec.get("unschedulable")),
        tuple(taints),
        meta.get("deletionTimestamp"),
    )


def make_registry(
    enqueue: Enqueue,
    forget: Forget,
    nodes: NodeTable,
    connection: Connection,
    *,
    watch_nodes: bool,
    kinds: Collection[Kind],
    watch_certificates: bool = False,
) -> kopf.OperatorRegistry:
    """Return kopf's handlers.

    Args:
        enqueue: takes a key and in how many seconds it is due.
        forget: takes namespace and name of a service of whose belongings something was told.
        nodes: whom a node's event is about.
        connection: the API server, the same as ours.
        watch_nodes: whether our account may.
        kinds: of our own resources, those that are served.
        watch_certificates: whether those of cert-manager are served; who installs it later is found by the resync.
    """
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    async def login(**_: Any) -> kopf.ConnectionInfo:
        return connection_info(connection)

    async def ours(namespace: str | None, name: str | None, body: kopf.Body, **_: Any) -> None:
        enqueue(Key(str(body["kind"]), str(namespace), str(name)), SETTLE_S)
        for key in keys_of(body):
            if key.kind == PIPELINE.kind:  # whose service this is
                enqueue(key, SETTLE_OWNED_S)

    async def asking(body: kopf.Body, **_: Any) -> None:
        namespace, service = str(body["metadata"]["namespace"]), asked_of(body)
        if service:
            forget(namespace, service)
            enqueue(Key(SERVICE.kind, namespace, service), SETTLE_S)

    async def owned(body: kopf.Body, **_: Any) -> None:
        for key in keys_of(body):
            enqueue(key, SETTLE_OWNED_S)

    async def belonging(body: kopf.Body, **_: Any) -> None:
        for key in keys_of(body):
            forget(key.namespace, key.name)
            enqueue(key, SETTLE_OWNED_S)

    async def node(body: kopf.Body, type: str | None, **_: Any) -> None:  # noqa: A002 - kopf's name
        for key in nodes.changed(body, gone=type == "DELETED"):
            enqueue(key, SETTLE_S)

    for kind in kinds:
        _on(kind, asking if kind is LIVE_UPGRADE else ours, registry)
    for kind in READ_ALWAYS:
        _on(kind, owned, registry)
    for kind in (*BELONGINGS, CERTIFICATE) if watch_certificates else BELONGINGS:
        _on(kind, belonging, registry)
    if watch_nodes:
        _on(NODE, node, registry)
    return registry


def asked_of(live_upgrade: Mapping[str, Any]) -> str:
    """Return the service that a LiveUpgrade is about; empty where that can't be read."""
    spec = live_upgrade.get("spec")
    reference = spec.get("serviceRef") if isinstance(spec, Mapping) else None
    named = reference.get("name") if isinstance(reference, Mapping) else None
    return named if isinstance(named, str) else ""


def keys_of(owned: Mapping[str, Any]) -> list[Key]:
    """Return whom an object that we made is about: its service or pipeline, one that is gone, its drill or run."""
    meta = owned["metadata"]
    found = []
    service = (meta.get("labels") or {}).get(names.LABEL_SERVICE)
    if service:
        found.append(Key(SERVICE.kind, str(meta["namespace"]), str(service)))
    pipeline = (meta.get("labels") or {}).get(names.LABEL_PIPELINE)
    if pipeline:
        found.append(Key(PIPELINE.kind, str(meta["namespace"]), str(pipeline)))
    annotations = meta.get("annotations") or {}
    erased = str(annotations.get(names.ERASE_ANNOTATION) or "").split("/")
    if len(erased) == 2:
        found.append(Key(SERVICE.kind, erased[0], erased[1]))
    run = str(annotations.get(names.LOG_RUN_ANNOTATION) or "").split("/")
    if len(run) == 3 and run[0] in LOG_RUNS:
        found.append(Key(*run))
    drill = str(annotations.get(names.DRILL_ANNOTATION) or "").split("/")
    if len(drill) == 3:
        found.append(Key(DRILL.kind, drill[0], drill[1]))
    return found


def _on(kind: Kind, handler: Callable[..., Any], registry: kopf.OperatorRegistry) -> None:
    group, _, version = kind.api_version.rpartition("/")
    kopf.on.event(group, version, kind.plural, registry=registry, id=f"watch-{kind.plural}")(handler)


def make_settings() -> kopf.OperatorSettings:
    """Return kopf's settings: it watches and does nothing else."""
    settings = kopf.OperatorSettings()
    settings.peering.standalone = True
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.watching.inactivity_timeout = SILENT_S
    settings.watching.chunk_size = 500
    settings.networking.request_timeout = REQUEST_TIMEOUT_S
    settings.networking.connect_timeout = 5.0
    settings.networking.error_backoffs = Patience()
    for kind in (*OWNED, CERTIFICATE):
        group, _, version = kind.api_version.rpartition("/")
        settings.watching.label_selectors[group, version, kind.plural] = OURS
    return settings


def connection_info(connection: Connection) -> kopf.ConnectionInfo:
    """Return our connection in kopf's form; asked again whenever the API server refuses the token."""
    if connection.tls_server_name:
        raise NoCluster(
            f"tls-server-name {connection.tls_server_name!r}: watches can't be told of it; "
            "name the server as its certificate does"
        )
    return kopf.ConnectionInfo(
        server=connection.server,
        proxy_url=connection.proxy_url or None,
        ca_data=connection.ca_pem or None,
        insecure=connection.insecure,
        token=connection.token() or None,
        certificate_data=connection.certificate_pem or None,
        private_key_data=connection.key_pem or None,
        default_namespace=connection.namespace,
    )


async def watch(
    registry: kopf.OperatorRegistry,
    settings: kopf.OperatorSettings,
    *,
    namespaces: Collection[str],
    stop: asyncio.Event,
    spawned: Callable[[], None],
) -> None:
    """Watch until `stop` is set or a watch fails for good.

    Args:
        registry: handlers.
        settings: see `make_settings`.
        namespaces: which; none: all.
        stop: set it to end.
        spawned: called once kopf has taken the process's signals for itself, to take them back.
    """
    before = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(
        registry=registry,
        settings=settings,
        standalone=True,
        clusterwide=not namespaces,
        namespaces=sorted(namespaces),
        stop_flag=stop,
    )
    spawned()
    await kopf.run_tasks(tasks, ignored=before)
