"""Seeing one service: everything that a plan may know, read from the API server as one immutable snapshot.

By reads, not from watch caches. A cache has to notice that its watch went silent, that its version expired, and
that it lags behind our own writes; a read is what is stored now. Watches (kopf's) only say when to look, so an event
that is missed costs time and never truth. The service, its pods, StatefulSets and nodes, which decide what is done to
pods, and a claim that is not ours, which no watch tells of, are read at every look. What belongs to the service besides
(`Belongings`) is fifteen more requests and changes seldom, while a takeover is a dozen looks: it is remembered for
REMEMBERED_S, or until something was done or told of it (`forget`).

Guarantees: reads are quorum reads (no resourceVersion), at most `Api`'s maximum at a time. A node that may not be
read is shown as fine, never as gone: its absence would have pods deleted. Values of Secrets stay out. Does not:
interpret (plan.reading makes the views), or write.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from deathless.base.manifest import ServiceSpec
from deathless_operator.cluster.api import Api, Object
from deathless_operator.cluster.errors import Forbidden, NotFound, Unacceptable
from deathless_operator.cluster.kinds import (
    BUDGET,
    CERTIFICATE,
    CLAIM,
    CLUSTER_ISSUER,
    CONFIG_MAP,
    CORE_EVENT,
    DRILL,
    ISSUER,
    KUBE_SERVICE,
    LIVE_UPGRADE,
    NETWORK_POLICY,
    NODE,
    POD,
    REHEARSAL,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    STATEFUL_SET,
    Kind,
)
from deathless_operator.cluster.memory import Memory
from deathless_operator.cluster.prometheus import Measure, Prometheus
from deathless_operator.cluster.trust import (
    Trust,
    certificate_facts,
    is_managed,
    is_withdrawn,
    login_of,
    secret_facts,
)
from deathless_operator.model import names
from deathless_operator.model.drill import DrillResource
from deathless_operator.model.live_upgrade import ENDED, LiveUpgradeResource, LiveUpgradeSpec
from deathless_operator.model.rehearsal import RehearsalResource
from deathless_operator.model.settings import OperatorSettings
from deathless_operator.plan.drill.reading import read_drill
from deathless_operator.plan.log_runs.reading import read_rehearsal
from deathless_operator.plan.service import erasure, reading
from deathless_operator.plan.service.access import copies, store_mark, with_users
from deathless_operator.plan.service.pods import ordinal_of
from deathless_operator.plan.service.upgrading.ramp import queries_of
from deathless_operator.plan.snapshot import (
    ChildView,
    Failure,
    IssuerFacts,
    Measured,
    NodeView,
    Remains,
    ResourceView,
    Snapshot,
    Warned,
)

WARNINGS_S = 1800.0
"""Of what age warnings still tell how things stand: a controller that is refused warns again after 1000 s at most."""
SERVED_FRESH_S = 300.0
MISSING_FRESH_S = 10.0  # who has just installed cert-manager does not wait long
# What a service's objects are listed by label of; Secrets are read by name, so that the role need not list them.
LISTED = (
    STATEFUL_SET, KUBE_SERVICE, CONFIG_MAP, SERVICE_ACCOUNT, ROLE, ROLE_BINDING, BUDGET, NETWORK_POLICY, CLAIM,
)  # fmt: skip
BELONGINGS = tuple(kind for kind in LISTED if kind is not STATEFUL_SET)
REMEMBERED_S = 5.0
"""How late a look may see what no watch told of: Secrets, objects without our label, an event that was missed."""
_ISSUERS = {("cert-manager.io", kind.kind): kind for kind in (ISSUER, CLUSTER_ISSUER)}

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A snapshot, and the version at which the service was read: a status is written to that version alone."""

    snapshot: Snapshot
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Belongings:
    """What belongs to a service and says nothing of its pods."""

    children: tuple[Object, ...]  # without StatefulSets
    secrets: tuple[Object, ...]
    sources: tuple[Object, ...]  # Secrets of the installation; of its lock store's users, this service's login
    withdrawn: bool  # users of the lock store are to be mounted no more
    record: ChildView | None
    unread: tuple[Failure, ...]  # kinds that may not be read
    hidden: tuple[Failure, ...]  # single objects that may not be looked at
    live_upgrades: tuple[LiveUpgradeResource, ...]
    drills: tuple[DrillResource, ...]  # those that a ramp of these names
    rehearsals: tuple[RehearsalResource, ...]  # those that one of these names
    measured: dict[str, Measured]  # by the expressions that a ramp of these waits for


class Observer:
    """Reads snapshots.

    Args:
        api: the API server.
        trust: the installation's authority.
        settings: the installation.
        measure: asks for the value of an expression; None: of the Prometheus that the settings name.
        wall: wall seconds.
        monotonic: for what is remembered, seconds.
    """

    def __init__(
        self,
        api: Api,
        trust: Trust,
        settings: OperatorSettings,
        *,
        measure: Measure | None = None,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._trust = trust
        self._settings = settings
        self._measure = measure or Prometheus(settings.prometheus_url).measure
        self._wall = wall
        self._monotonic = monotonic
        self._cert_manager = False
        self._cert_manager_at = float("-inf")
        self._blind = False  # nodes may not be read
        self._memory = Memory[Belongings](REMEMBERED_S, monotonic)

    async def observe(self, namespace: str, name: str, failures: Iterable[Failure] = ()) -> Seen | None:
        """Return what is there, None when the service is gone.

        Args:
            namespace: of the service.
            name: of the service.
            failures: refusals of its last run.

        Raises:
            ApiUnreachable: try again later.
            ApiRefused: the operator's role lacks a rule.
        """
        raw = await self._api.find(SERVICE, namespace, name)
        if raw is None:
            return None
        resource = reading.read_resource(raw)
        cert_manager = await self._has_cert_manager()
        belongings, sets, pods = await asyncio.gather(
            self._belongings(resource, cert_manager=cert_manager),
            self._objects([STATEFUL_SET], namespace, name, shards_of(resource.spec), []),
            self._api.list(POD, namespace, labels=f"{names.LABEL_SERVICE}={name}"),
        )
        pods = [*pods, *await self._unlabelled(resource, pods)]
        children, secrets, record = [*sets, *belongings.children], belongings.secrets, belongings.record
        views = tuple(reading.read_pod(pod) for pod in pods)
        claim_raw = await self._claim(namespace, claim_name(name, resource.spec), children)
        claim = reading.read_claim(claim_raw) if claim_raw is not None else None
        nodes = await self._nodes({view.node for view in views if view.node})
        shards = shards_of(resource.spec)
        wanted = resource.spec.replicas * shards if resource.spec is not None else 0
        troubled = sum(view.ready for view in views) < wanted or (claim is not None and claim.phase != "Bound")
        certificates = {names.tls_secret(name), names.client_tls_secret(name)}
        owned = [_without_values(secret) for secret in secrets if is_managed(secret)]
        snapshot = Snapshot(
            now=self._wall(),
            resource=resource,
            children=tuple(reading.read_child(child) for child in [*children, *owned]),
            pods=views,
            nodes=nodes,
            live_upgrades=belongings.live_upgrades,
            drills=belongings.drills,
            rehearsals=belongings.rehearsals,
            measured=belongings.measured,
            claim=claim,
            certificates=tuple(certificate_facts(each) for each in secrets if _name(each) in certificates),
            authority=self._trust.facts(),
            lock_secrets=tuple(secret_facts(each) for each in secrets if _name(each) not in certificates),
            lock_sources=tuple(secret_facts(each) for each in belongings.sources),
            lock_users_withdrawn=belongings.withdrawn,
            cert_manager=cert_manager,
            issuer=await self._issuer(namespace, resource.spec) if cert_manager else IssuerFacts(),
            record=record,
            remains=await self._remains(record) if _is_formers(record, resource.uid) else None,
            warnings=await self.warnings(namespace, lambda each: is_about(each, name, shards)) if troubled else (),
            failures=tuple(failures),
            unread=belongings.unread,
            hidden=belongings.hidden,
        )
        return Seen(snapshot=snapshot, version=str(raw["metadata"]["resourceVersion"]))

    async def _unlabelled(self, resource: ResourceView, pods: Iterable[Object]) -> list[Object]:
        """Return replicas' pods that lack the label by which pods are listed: somebody took it away."""
        spec, have = resource.spec, {_name(each) for each in pods}
        if spec is None:
            return []
        sets = [names.of_shard(resource.name, shard) for shard in range(spec.shards)]
        wanted = [names.pod(each, ordinal) for each in sets for ordinal in range(spec.replicas)]
        missing = [each for each in wanted if each not in have]
        found = await asyncio.gather(*(self._api.find(POD, resource.namespace, each) for each in missing))
        return [each for each in found if each is not None and _is_made_by_us(each)]

    def forget(self, namespace: str, name: str) -> None:
        """Read everything anew at the next look at a service: something was done or told of what belongs to it."""
        self._memory.forget((namespace, name))

    def now(self) -> float:
        """Return wall seconds, as snapshots have them."""
        return self._wall()

    async def live_upgrades(self, namespace: str, name: str) -> tuple[LiveUpgradeResource, ...]:
        """Return the LiveUpgrades of a service, whether it is there or not, the oldest first.

        Raises: as `observe`.
        """
        try:
            raw = await self._api.list(LIVE_UPGRADE, namespace)
        except NotFound:  # the operator is of a later release than the CRDs that are installed
            return ()
        found = [each for each in map(reading.read_live_upgrade, raw) if each.service == name]
        return tuple(sorted(found, key=lambda each: (each.created_at, each.name)))

    async def _drills(self, namespace: str, upgrades: Iterable[LiveUpgradeResource]) -> tuple[DrillResource, ...]:
        """Return the drills that ramps of upgrades wait for, those that exist."""
        steps = (step for spec in _open(upgrades) for step in spec.ramp)
        return tuple(read_drill(each) for each in await self._named(DRILL, namespace, (step.drill for step in steps)))

    async def _rehearsals(
        self, namespace: str, upgrades: Iterable[LiveUpgradeResource]
    ) -> tuple[RehearsalResource, ...]:
        """Return the rehearsals that upgrades wait for, those that exist."""
        wanted = (spec.rehearsal for spec in _open(upgrades))
        return tuple(read_rehearsal(each) for each in await self._named(REHEARSAL, namespace, wanted))

    async def _measured(self, upgrades: Iterable[LiveUpgradeResource]) -> dict[str, Measured]:
        """Return the numbers that ramps wait for at the step where they stand."""
        asked = sorted({query for each in upgrades if each.status.phase not in ENDED for query in queries_of(each)})
        found = await asyncio.gather(*map(self._measure, asked))
        return dict(zip(asked, found, strict=True))

    async def _named(self, kind: Kind, namespace: str, wanted: Iterable[str]) -> list[Object]:
        """Return those objects of a kind that exist of the names that are not empty."""
        asked = sorted({name for name in wanted if name})
        found = await asyncio.gather(*(self._api.find(kind, namespace, name) for name in asked))
        return [each for each in found if each is not None]

    async def observe_remains(self, namespace: str, name: str) -> Remains | None:
        """Return what is left of a service that is gone; None: nothing that is to be erased.

        Raises: as `observe`.
        """
        record = await self._record(namespace, name)
        return None if record is None else await self._remains(record)

    async def _record(self, namespace: str, name: str) -> ChildView | None:
        raw = await self._api.find(CONFIG_MAP, self._settings.namespace, names.erase_record(namespace, name))
        return reading.read_child(raw) if raw is not None else None

    async def _remains(self, child: ChildView | None) -> Remains | None:
        """Return what is left of the service that a record is about."""
        assert child is not None, "asked for where there is a record"
        record = erasure.read_record(child)
        if record is None:
            return Remains(now=self._wall(), record=child)
        namespace, name = record.namespace, record.service
        sets = [names.of_shard(name, shard) for shard in range(record.shards)]
        stands, claim, eraser, pods = await asyncio.gather(
            asyncio.gather(*(self._api.find(STATEFUL_SET, namespace, each) for each in sets)),
            self._api.find(CLAIM, namespace, record.claim),
            self._api.find(POD, record.place, erasure.pod_name(record)),
            self._api.list(POD, namespace, labels=f"{names.LABEL_SERVICE}={name}"),
        )
        views = [reading.read_pod(pod) for pod in pods]
        return Remains(
            now=self._wall(),
            record=child,
            stateful_sets=tuple(reading.read_child(each) for each in stands if each is not None),
            pods=tuple(view for view in views if any(ordinal_of(view, each) is not None for each in sets)),
            claim=reading.read_claim(claim) if claim is not None else None,
            eraser=reading.read_pod(eraser) if eraser is not None else None,
        )

    async def _belongings(self, resource: ResourceView, *, cert_manager: bool) -> Belongings:
        """Return what belongs to the service, from memory where nothing was told of it since."""
        namespace, name = resource.namespace, resource.name
        key, about = (namespace, name), (resource.uid, resource.generation, cert_manager)
        remembered = self._memory.recall(key, about)
        if remembered is not None:
            return remembered
        mark = self._memory.begin(key)
        kinds = [*BELONGINGS, CERTIFICATE] if cert_manager else BELONGINGS
        ours = {self._settings.lock_tls_secret, self._settings.lock_user_secret}
        unread: list[Failure] = []
        hidden: list[Failure] = []
        if self._settings.lock_users:
            ours |= {names.LOCK_USERS_TLS_SECRET, names.LOCK_USERS_SECRET}
        children, sources, record, live_upgrades = await asyncio.gather(
            self._objects(kinds, namespace, name, shards_of(resource.spec), unread),
            self._sources(ours),
            self._record(namespace, name),
            self.live_upgrades(namespace, name),
        )
        table = next((each for each in sources if _name(each) == names.LOCK_USERS_SECRET), None)
        login = login_of(table, names.lock_user(namespace, name))
        wanted = secret_names(name, resource.spec) | lock_copies(name, self._settings, children)
        secrets = await self._secrets(namespace, wanted, hidden)
        found = Belongings(
            children=children,
            secrets=secrets,
            sources=(*(each for each in sources if each is not table), *([login] if login is not None else [])),
            withdrawn=table is not None and is_withdrawn(table),
            record=record,
            unread=tuple(unread),
            hidden=tuple(hidden),
            live_upgrades=live_upgrades,
            drills=await self._drills(namespace, live_upgrades),
            rehearsals=await self._rehearsals(namespace, live_upgrades),
            measured=await self._measured(live_upgrades),
        )
        self._memory.keep(key, mark, about, found)
        return found

    async def _objects(
        self, kinds: Sequence[Kind], namespace: str, name: str, shards: int, unread: list[Failure]
    ) -> tuple[Object, ...]:
        """Return every object with our label, and those that merely have a name that is to be ours.

        A kind that may not be read goes to `unread`: it must not keep lost pods from being replaced. StatefulSets may.
        """
        label = f"{names.LABEL_SERVICE}={name}"

        async def look(kind: Kind) -> list[Object]:
            try:
                return list(await self._api.list(kind, namespace, labels=label))
            except Forbidden as error:
                if kind is STATEFUL_SET:
                    raise
                unread.append(
                    Failure(kind=kind.kind, name=name, status=error.status, reason="Forbidden", message=error.message)
                )
                return []

        lists = await asyncio.gather(*map(look, kinds))
        kinds = [kind for kind in kinds if kind.kind not in {each.kind for each in unread}]
        found = [each for part in lists for each in part]
        have = {(each["kind"], _name(each)) for each in found}
        expected = expected_names(name, kinds, shards, network_policies=self._settings.network_policies)
        missing = [(kind, wanted) for kind, wanted in expected if (kind.kind, wanted) not in have]
        unlabelled = await asyncio.gather(*(self._api.find(kind, namespace, wanted) for kind, wanted in missing))
        return (*found, *(each for each in unlabelled if each is not None))

    async def _secrets(self, namespace: str, wanted: set[str], hidden: list[Failure]) -> tuple[Object, ...]:
        found = await asyncio.gather(*(self._secret(namespace, each, hidden) for each in sorted(wanted - {""})))
        return tuple(each for each in found if each is not None)

    async def _secret(self, namespace: str, name: str, hidden: list[Failure]) -> Object | None:
        """Return a Secret of a service's namespace; one that may not be looked at without anything but its name.

        A look is a change without effect, so a policy that denies every change denies it too. Such a Secret goes to
        `hidden`, and is neither known nor written: it must not keep lost pods from being replaced.
        """
        try:
            return await self._api.look(SECRET, namespace, name)
        except Unacceptable as error:
            hidden.append(
                Failure(kind=SECRET.kind, name=name, status=error.status, reason="Invalid", message=error.message)
            )
            return None
        except Forbidden:
            metadata: Object = {"namespace": namespace, "name": name, "annotations": {names.HIDDEN_ANNOTATION: "true"}}
            return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}

    async def _sources(self, wanted: set[str]) -> tuple[Object, ...]:
        """Return the installation's own Secrets, which the account may read by name."""
        asked = sorted(wanted - {""})
        found = await asyncio.gather(*(self._api.find(SECRET, self._settings.namespace, each) for each in asked))
        return tuple(each for each in found if each is not None)

    async def _claim(self, namespace: str, wanted: str, children: Iterable[Object]) -> Object | None:
        for each in children:
            if each["kind"] == CLAIM.kind and _name(each) == wanted:
                return each
        return await self._api.find(CLAIM, namespace, wanted)

    async def _issuer(self, namespace: str, spec: ServiceSpec | None) -> IssuerFacts:
        """Return how the issuer stands that the spec names; as ready where nobody can tell.

        It may not be read in every installation, and an issuer of another group has no shape that we know.
        """
        named = spec.tls.issuer_ref if spec is not None and spec.tls is not None else None
        kind = _ISSUERS.get((named.group, named.kind)) if named is not None else None
        if named is None or kind is None:
            return IssuerFacts()
        try:
            raw = await self._api.find(kind, namespace if kind.namespaced else None, named.name)
        except Forbidden:
            return IssuerFacts()
        return reading.read_issuer(raw) if raw is not None else IssuerFacts(found=False)

    async def _nodes(self, wanted: set[str]) -> tuple[NodeView, ...]:
        """Return the nodes that are there; all of them as fine when they may not be read."""
        try:
            found = await asyncio.gather(*(self._api.find(NODE, None, each) for each in sorted(wanted)))
        except Forbidden as error:
            if not self._blind:
                logger.warning("lost nodes are not detected and their pods are not replaced: %s", error)
            self._blind = True
            return tuple(NodeView(name=each) for each in sorted(wanted))
        self._blind = False
        return tuple(reading.read_node(each) for each in found if each is not None)

    async def warnings(self, namespace: str, wanted: Callable[[Warned], bool]) -> tuple[Warned, ...]:
        """Return what Kubernetes itself warned of lately about the objects that are wanted; raises as `observe`."""
        raw = await self._api.list(CORE_EVENT, namespace, fields="type=Warning")
        read = (reading.read_warning(each) for each in raw)
        since = self._wall() - WARNINGS_S
        return tuple(each for each in read if each is not None and each.at >= since and wanted(each))

    async def _has_cert_manager(self) -> bool:
        fresh_s = SERVED_FRESH_S if self._cert_manager else MISSING_FRESH_S
        if self._monotonic() - self._cert_manager_at >= fresh_s:
            self._cert_manager = await self._api.serves(CERTIFICATE)
            self._cert_manager_at = self._monotonic()
        return self._cert_manager


def _is_made_by_us(pod: Object) -> bool:
    """Tell whether a pod was made from a template of ours: its hash is a label that nobody else writes."""
    return names.LABEL_TEMPLATE in (pod["metadata"].get("labels") or {})


def _is_formers(record: ChildView | None, uid: str) -> bool:
    """Tell whether a record is about a former service of the same name."""
    found = erasure.read_record(record)
    return found is not None and found.uid != uid


def shards_of(spec: ServiceSpec | None) -> int:
    """Return how many shards a service has; one where its spec can't be read, since then nothing is applied."""
    return spec.shards if spec is not None else 1


def expected_names(
    name: str, kinds: Iterable[Kind], shards: int = 1, *, network_policies: bool
) -> list[tuple[Kind, str]]:
    """Return the objects of service `name`, by kind and name, among `kinds`; the claim is looked for apart."""
    bases = tuple(names.of_shard(name, shard) for shard in range(shards))
    table: Mapping[Kind, tuple[str, ...]] = {
        STATEFUL_SET: bases,
        KUBE_SERVICE: (name, *map(names.primary_service, bases), *map(names.headless_service, bases)),
        SERVICE_ACCOUNT: (name,),
        ROLE: (name,),
        ROLE_BINDING: (name,),
        BUDGET: bases,
        NETWORK_POLICY: (name,) if network_policies else (),
        CERTIFICATE: (names.tls_secret(name), names.client_tls_secret(name)),
    }
    return [(kind, wanted) for kind in kinds for wanted in table.get(kind, ())]


def secret_names(name: str, spec: ServiceSpec | None) -> set[str]:
    """Return the Secrets in the service's namespace that a plan wants to know of."""
    found = {
        names.tls_secret(name),
        names.client_tls_secret(name),
        names.operator_token_secret(name),
    }
    if spec is None:
        return found
    how = spec.ingress.authentication if spec.ingress is not None else None
    references = (
        spec.token_secret_ref,
        how.token.secret_ref if how is not None and how.token is not None else None,
        how.oidc.ca_secret_ref if how is not None and how.oidc is not None else None,
        *(driver.secret_ref for driver in spec.drivers),
        *(sink.secret_ref for sink in spec.sinks),
        *(source.secret_ref for source in spec.sources),
    )
    found |= {each.name for settings in spec.lock.given().values() for each in settings.secrets()}
    return found | {each.name for each in references if each is not None}


def lock_copies(name: str, settings: OperatorSettings, children: Iterable[Object]) -> set[str]:
    """Return the copies of the lock store's Secrets that service `name` has or is to have.

    Secrets are not listed, so ConfigMaps say which ones the pods of former settings mount.
    """
    found = {copy for _, copy in copies(name, settings, store_mark(settings))}
    if settings.lock_users:
        logging_in = with_users(settings)
        found |= {copy for _, copy in copies(name, logging_in, store_mark(logging_in))}
    maps = [each for each in children if each["kind"] == CONFIG_MAP.kind]
    if any(_name(each) == names.config_map(name) for each in maps):
        found |= {names.lock_tls_secret(name), names.lock_user_secret(name)}  # of a former operator
    noted = ((each["metadata"].get("annotations") or {}).get(names.LOCK_SECRETS_ANNOTATION, "") for each in maps)
    return found | {each for text in noted for each in str(text).split(",")}


def is_about(warned: Warned, name: str, shards: int = 1) -> bool:
    """Tell whether a warning is about an object of service `name`; our own words about the service itself are not."""
    if warned.kind == POD.kind:
        return re.fullmatch(rf"{re.escape(name)}-(\d+|s\d+-\d+|check-.+)", warned.name) is not None
    if warned.kind == CLAIM.kind:
        return warned.name == names.log_claim(name)
    expected = expected_names(name, [*LISTED, CERTIFICATE], shards, network_policies=True)
    return any((kind.kind, wanted) == (warned.kind, warned.name) for kind, wanted in expected)


def claim_name(name: str, spec: ServiceSpec | None) -> str:
    """Return the claim that holds the log."""
    return (spec.log_storage.claim_name if spec is not None else "") or names.log_claim(name)


def _name(found: Object) -> str:
    return str(found["metadata"]["name"])


def _without_values(secret: Object) -> Object:
    return {key: value for key, value in secret.items() if key not in {"data", "stringData"}}


def _open(upgrades: Iterable[LiveUpgradeResource]) -> Iterator[LiveUpgradeSpec]:
    """Yield what the LiveUpgrades that have not ended ask for."""
    for each in upgrades:
        if each.spec is not None and each.status.phase not in ENDED:
            yield each.spec
