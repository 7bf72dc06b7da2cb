"""Rules of the CRDs in CEL: relations between fields, and fields that must not change.

Why: who applies a contradiction is told by `kubectl apply` at once, in words, not by an operator a minute later.

    where      the object that `self` is, as a path of the resource
    rule       CEL; true means in order; `oldSelf` makes it a rule about changes
    message    what is wrong and what to write instead

Guarantees: each relation that `relation_problems`, `cluster_problems`, `drill_problems`, `live_upgrade_problems`,
`replay_problems` and `rehearsal_problems` find has its rule here, and of a pipeline what it alone has; each rule has a
sample that passes and one that fails (tests/samples). Lists, mappings and texts they look at are bounded, so their cost
estimates stay low. Does not: evaluate them; the API server does. Imports base, model.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from deathless.base.foreign.binding import INPUTS, SERVICE_MODULE, SOURCE
from deathless.base.limits import Limits
from deathless.base.lock_stores import CLUSTER_STORE, LOCK_STORES, settings_classes
from deathless.base.manifest_pod import PodTemplate
from deathless.base.pipelines.conf import FIELDS, FIXED, REFUSED
from deathless.base.source_kinds import SOURCE_KINDS
from deathless_operator.model.drill import LASTING
from deathless_operator.model.grace import END_S


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One rule of a CRD."""

    name: str  # of its samples
    where: str  # spec, spec.limits, spec.ingress.allowFrom[]
    rule: str
    message: str


def _set(path: str) -> str:
    """Give CEL for: every step of `path` below self is there, and it is no empty text."""
    steps = path.split(".")
    there = " && ".join(f"has(self.{'.'.join(steps[: index + 1])})" for index in range(len(steps)))
    return f"({there} && self.{path} != '')"


def _or(path: str, default: str, *, of: str = "self") -> str:
    """Give CEL for: the value at `path`, or a default."""
    steps = path.split(".")
    there = " && ".join(f"has({of}.{'.'.join(steps[: index + 1])})" for index in range(len(steps)))
    return f"({there} ? {of}.{path} : {default})"


def _fixed(name: str, path: str, what: str) -> Rule:
    """A text that stays as it was at creation."""
    return Rule(
        name=name,
        where="spec",
        rule=f"{_or(path, _EMPTY)} == {_or(path, _EMPTY, of='oldSelf')}",
        message=f"{path} can't change: {what}",
    )


def _local_sources() -> Iterator[Rule]:
    """Kinds of sources that a cluster can't have."""
    for kind in SOURCE_KINDS.values():
        if kind.local:
            yield Rule(
                name=f"source-{kind.name}-local",
                where="spec.sources[]",
                rule=f"self.kind != '{kind.name}'",
                message=f"kind {kind.name} can't be read in a cluster: {kind.local}",
            )


_EMPTY: Final = "''"
_L = Limits()
_WAIT: Final = _or("limits.handoverWaitS", "0.0")
_GRACE: Final = _or("podTemplate.terminationGracePeriodSeconds", str(PodTemplate().termination_grace_period_seconds))


def _limit(name: str, left: tuple[str, str], sign: str, right: tuple[str, str]) -> Rule:
    """A relation of limits; each side is a factor in CEL and a field of `Limits`."""
    shown = [(factor, _camel(field), getattr(_L, field)) for factor, field in (left, right)]
    terms = [f"{factor}{_or(field, repr(default))}" for factor, field, default in shown]
    slack = " + 0.000000001" if isinstance(shown[0][2], float) else ""
    told = f" {sign} ".join(f"{factor.replace('.0', '')}{field}" for factor, field, _ in shown)
    return Rule(
        name=name,
        where="spec.limits",
        rule=f"{terms[0]} {sign} {terms[1]}{slack}",
        message=f"{told} must hold; what is not given has its default",
    )


def _camel(word: str) -> str:
    first, *rest = word.split("_")
    return first + "".join(step[:1].upper() + step[1:] for step in rest)


def _twice(field: str) -> Rule:
    return Rule(
        name=f"retention-{field.lower()}-once",
        where="spec",
        rule=(f"!(has(self.retention) && has(self.retention.{field}) && has(self.limits) && has(self.limits.{field}))"),
        message=f"{field} is given under retention and under limits: keep the one under retention",
    )


def _rules_of_locks() -> Iterator[Rule]:
    """Give the rules about settings of lock stores: each store's own, and that those of others are left out."""
    for store, settings in settings_classes().items():
        for name, rule, message in settings.rules:
            yield Rule(name=name, where="spec", rule=rule, message=message)
        if store != CLUSTER_STORE:
            yield Rule(
                name=f"lock-without-{store}",
                where="spec",
                rule=f"!(has(self.lock) && has(self.lock.{store}))",
                message=f"lock.{store} is for one machine: a cluster elects through {CLUSTER_STORE}, leave it out",
            )


_PEER: Final = "has(self.ipBlock) || has(self.podSelector) || has(self.namespaceSelector)"

SERVICE_RULES: Final = (
    Rule(name="image-needed", where="spec", rule=_set("image"), message="image is missing: name the image of module"),
    Rule(
        name="module-or-binding",
        where="spec",
        rule=f"has(self.binding) == (self.module == '{SERVICE_MODULE}')",
        message="name the service's code: module, or an application in binding, and not both",
    ),
    Rule(
        name="binding-has-one-shard",
        where="spec",
        rule="!has(self.binding) || self.shards == 1",
        message="an application in binding is one shard: leave shards out",
    ),
    Rule(
        name="binding-has-its-topic",
        where="spec",
        rule=f"!has(self.binding) || !has(self.topics) || self.topics.all(t, t.name != '{INPUTS.name}')",
        message=f"the topic {INPUTS.name} is that of the application in binding: choose another name",
    ),
    Rule(
        name="binding-has-its-source",
        where="spec",
        rule=f"!has(self.binding) || !has(self.sources) || self.sources.all(s, s.name != '{SOURCE}')",
        message=f"the source {SOURCE} is the application in binding: choose another name",
    ),
    Rule(
        name="lock-is-etcd",
        where="spec",
        rule=f"{_or('lock.type', repr(CLUSTER_STORE))} == '{CLUSTER_STORE}'",
        message=(
            f"lock.type {' or '.join(name for name in LOCK_STORES if name != CLUSTER_STORE)} is for one machine: "
            f"a cluster elects through {CLUSTER_STORE}, leave it out"
        ),
    ),
    Rule(
        name="fence-is-etcd",
        where="spec",
        rule=f"{_or('fence', repr('etcd'))} == 'etcd'",
        message="fence seal is for one machine: leave it out, in a cluster the fence is etcd",
    ),
    Rule(
        name="log-claim-or-size",
        where="spec",
        rule=f"{_set('logStorage.claimName')} != {_set('logStorage.size')}",
        message="logStorage needs one of claimName (an existing ReadWriteMany claim) and size (of a new one)",
    ),
    Rule(
        name="log-class-with-size",
        where="spec",
        rule=f"!{_set('logStorage.className')} || {_set('logStorage.size')}",
        message="logStorage.className needs size: an existing claim has its class",
    ),
    _fixed("log-claim-fixed", "logStorage.claimName", "the log lies there; adopt it elsewhere under a new service"),
    _fixed("log-class-fixed", "logStorage.className", "the log lies there; adopt it elsewhere under a new service"),
    _fixed("log-folder-fixed", "logStorage.subPath", "the log lies there; adopt it elsewhere under a new service"),
    Rule(
        name="log-size-grows",
        where="spec",
        rule=(
            f"!{_set('logStorage.size')} || {_or('logStorage.size', _EMPTY, of='oldSelf')} == '' || "
            "quantity(self.logStorage.size).compareTo(quantity(oldSelf.logStorage.size)) >= 0"
        ),
        message="logStorage.size can't shrink",
    ),
    Rule(
        name="shards-fixed",
        where="spec",
        rule="self.shards == oldSelf.shards",
        message="shards can't change: keys are divided by it",
    ),
    *_rules_of_locks(),
    Rule(
        name="tls-issuer-named",
        where="spec",
        rule="!has(self.tls) || (self.tls.issuer == 'CertManager') == has(self.tls.issuerRef)",
        message="tls.issuerRef goes with tls.issuer CertManager, and only with it",
    ),
    Rule(
        name="tls-issuer-kind",
        where="spec",
        rule=(
            "!(has(self.tls) && has(self.tls.issuerRef)) || self.tls.issuerRef.group != 'cert-manager.io' || "
            "self.tls.issuerRef.kind in ['Issuer', 'ClusterIssuer']"
        ),
        message="tls.issuerRef.kind must be Issuer or ClusterIssuer, unless group names another API group",
    ),
    Rule(
        name="tls-certificate-with-key",
        where="spec",
        rule=f"{_set('tls.certificate')} == {_set('tls.key')}",
        message="tls needs certificate and key, or neither: in a cluster neither",
    ),
    Rule(
        name="ingress-ports-fit",
        where="spec",
        rule=f"{_or('ingress.port', '0')} + self.replicas * self.shards <= 65536",
        message="ingress.port: each replica of each shard takes the next port on a laptop; choose a lower port",
    ),
    Rule(
        name="callers-tokens-with-type",
        where="spec.ingress.authentication",
        rule="(self.type == 'Token') == has(self.token)",
        message="token goes with type Token, and only with it",
    ),
    Rule(
        name="callers-tokens-in-secret",
        where="spec.ingress.authentication",
        rule="!has(self.token) || has(self.token.secretRef)",
        message="token.secretRef is missing: in a cluster callers' tokens are in a Secret",
    ),
    Rule(
        name="callers-issuer-with-type",
        where="spec.ingress.authentication",
        rule="(self.type == 'OIDC') == has(self.oidc)",
        message="oidc goes with type OIDC, and only with it",
    ),
    Rule(
        name="callers-named-with-type",
        where="spec.ingress.authentication",
        rule="self.type != 'None' || !has(self.allowedCallers) || self.allowedCallers.size() == 0",
        message="allowedCallers names callers, and type None knows none",
    ),
    Rule(
        name="callers-apart-from-replicas",
        where="spec",
        rule=(
            "!(has(self.ingress) && has(self.ingress.authentication)) || self.ingress.authentication.type == 'None' || "
            "!(has(self.tls) && self.tls.issuer == 'Off') || "
            "(has(self.tokenSecretRef) && self.ingress.authentication.type != 'MTLS')"
        ),
        message="ingress.authentication with tls.issuer Off needs tokenSecretRef, which replicas show, and is not MTLS",
    ),
    *_local_sources(),
    _twice("checkpointsKept"),
    _twice("checkpointEveryMessages"),
    _twice("checkpointEveryBytes"),
    _limit("limits-message-in-frame", ("", "message_bytes_max"), "<=", ("", "frame_bytes_max")),
    _limit("limits-frame-in-segment", ("2 * ", "frame_bytes_max"), "<=", ("", "segment_bytes_max")),
    _limit("limits-frame-in-spare", ("2 * ", "frame_bytes_max"), "<=", ("", "spare_bytes")),
    _limit("limits-frame-in-pending", ("", "frame_bytes_max"), "<=", ("", "pending_bytes_max")),
    _limit("limits-heartbeats", ("3.0 * ", "heartbeat_s"), "<=", ("", "suspect_after_s")),
    _limit("limits-reigns", ("", "reign_min_s"), "<=", ("", "reign_max_s")),
    Rule(
        name="limits-key-size",
        where="spec.limits",
        rule="!has(self.keyBytesMax) || self.keyBytesMax < 65536",
        message="keyBytesMax must be below 65536",
    ),
    Rule(
        name="limits-checkpoints",
        where="spec.limits",
        rule="!has(self.checkpointsKept) || self.checkpointsKept >= 2",
        message="checkpointsKept must be at least 2",
    ),
    Rule(
        name="limits-handover-in-grace",
        where="spec",
        rule=f"{_WAIT} == 0.0 || {_WAIT} + {END_S:.1f} <= double({_GRACE})",
        message=(
            f"limits.handoverWaitS + {END_S:g} <= podTemplate.terminationGracePeriodSeconds must hold; "
            "what is not given has its default"
        ),
    ),
    Rule(
        name="peer-range-alone",
        where="spec.ingress.allowFrom[]",
        rule="!has(self.ipBlock) || !(has(self.podSelector) || has(self.namespaceSelector))",
        message="ipBlock stands alone: write selectors as another entry",
    ),
    Rule(
        name="peer-range-alone-outwards",
        where="spec.networkPolicy.allowTo[]",
        rule="!has(self.ipBlock) || !(has(self.podSelector) || has(self.namespaceSelector))",
        message="ipBlock stands alone: write selectors as another entry",
    ),
    Rule(
        name="peer-names-somebody",
        where="spec.ingress.allowFrom[]",
        rule=_PEER,
        message="it names nobody: write namespaceSelector, podSelector or ipBlock; a selector {} is all of them",
    ),
    Rule(
        name="peer-names-somebody-outwards",
        where="spec.networkPolicy.allowTo[]",
        rule=_PEER,
        message="it names nobody: write namespaceSelector, podSelector or ipBlock; a selector {} is all of them",
    ),
    Rule(
        name="env-of-the-operator",
        where="spec.podTemplate.env[]",
        rule="!self.name.startsWith('DEATHLESS_') && !self.name.startsWith('POD_')",
        message="variables that begin with DEATHLESS_ or POD_ are the operator's: choose another name",
    ),
    Rule(
        name="mounts-of-the-operator",
        where="spec.podTemplate.volumeMounts[]",
        rule="!self.mountPath.startsWith('/etc/deathless') && !self.mountPath.startsWith('/var/lib/deathless')",
        message="/etc/deathless and /var/lib/deathless are the operator's: choose another mountPath",
    ),
)

DRILL_RULES: Final = (
    Rule(
        name="drill-fits-its-deadline",
        where="spec",
        rule=(
            "(has(self.probe) ? self.probe.warmUpSeconds + self.probe.settleSeconds : 15) + "
            f"(self.fault.type in {list(LASTING)} ? self.fault.durationSeconds : 0) "
            "<= self.activeDeadlineSeconds"
        ),
        message="activeDeadlineSeconds must be at least warmUpSeconds + durationSeconds + settleSeconds",
    ),
    Rule(
        name="drill-zone-with-schedule",
        where="spec",
        rule=f"!{_set('timeZone')} || {_set('schedule')}",
        message="timeZone needs a schedule",
    ),
    Rule(
        name="drill-schedule-has-five-fields",
        where="spec",
        rule=f"!{_set('schedule')} || self.schedule.matches('^[^ ]+( [^ ]+){{4}}$')",
        message="schedule has five fields, with one space between: minute hour day month weekday",
    ),
    Rule(
        name="drill-target-fixed",
        where="spec",
        rule="self.serviceRef.name == oldSelf.serviceRef.name",
        message="serviceRef can't change: make another drill",
    ),
    Rule(
        name="drill-of-once-fixed",
        where="spec",
        rule=f"{_set('schedule')} || self.fault == oldSelf.fault",
        message="the fault of a drill without schedule can't change: make another drill",
    ),
)
LIVE_UPGRADE_RULES: Final = (
    Rule(
        name="upgrade-service-fixed",
        where="spec",
        rule="self.serviceRef.name == oldSelf.serviceRef.name",
        message="serviceRef can't change: make another LiveUpgrade",
    ),
    Rule(
        name="upgrade-code-fixed",
        where="spec",
        rule="self.to == oldSelf.to",
        message="to can't change: abort this one (spec.action: Abort), and make another LiveUpgrade",
    ),
    Rule(
        name="upgrade-window-has-five-fields",
        where="spec.window",
        rule="self.schedule.matches('^[^ ]+( [^ ]+){4}$')",
        message="schedule has five fields, with one space between: minute hour day month weekday",
    ),
    Rule(
        name="upgrade-ramp-ascends",
        where="spec",
        rule=(
            "!has(self.ramp) || (self.ramp.map(step, step.shards).isSorted() && "
            "self.ramp.all(step, self.ramp.exists_one(other, other.shards == step.shards)))"
        ),
        message="ramp: shards of each step must be more than those of the step before it",
    ),
    Rule(
        name="upgrade-metric-bounded",
        where="spec.ramp[].metrics[]",
        rule="(has(self.min) || has(self.max)) && (!has(self.min) || !has(self.max) || self.min <= self.max)",
        message="a metric has min, or max, or both, and then min is not above max",
    ),
)


def _as_it_was(name: str, kind: str) -> Rule:
    """The spec of a run: what was asked for is what its status tells of."""
    return Rule(name=name, where="spec", rule="self == oldSelf", message=f"spec can't change: make another {kind}")


REPLAY_RULES: Final = (
    _as_it_was("replay-fixed", "Replay"),
    Rule(
        name="replay-has-a-range",
        where="spec",
        rule="!(has(self.fromLsn) && has(self.toLsn)) || self.toLsn >= self.fromLsn",
        message="toLsn must not be below fromLsn",
    ),
)
REHEARSAL_RULES: Final = (
    _as_it_was("rehearsal-fixed", "Rehearsal"),
    Rule(
        name="rehearsal-ends-or-follows",
        where="spec",
        rule="!(has(self.messages) && has(self.followSeconds))",
        message="messages ends a run that followSeconds goes on with: leave one of them out",
    ),
    Rule(
        name="rehearsal-follows-in-time",
        where="spec",
        rule="!has(self.followSeconds) || self.followSeconds < self.activeDeadlineSeconds",
        message="followSeconds must be less than activeDeadlineSeconds: its pod is ended then",
    ),
)
_NOT_IN_CONF: Final = [*FIELDS, *REFUSED]
_FIXED_CONF: Final = " && ".join(
    f"(!('{name}' in self.conf) || self.conf['{name}'] == '{value}')" for name, value in FIXED.items()
)
PIPELINE_RULES: Final = (
    Rule(
        name="pipeline-image-needed",
        where="spec",
        rule=_set("image"),
        message="image is missing: name the image that holds module, deathless, PySpark and Java",
    ),
    Rule(
        name="pipeline-log-claim-or-size",
        where="spec",
        rule=f"{_set('logStorage.claimName')} != {_set('logStorage.size')}",
        message="logStorage needs claimName, of an existing ReadWriteMany claim, or size, of a new one, and not both",
    ),
    Rule(
        name="pipeline-conf-names",
        where="spec",
        rule=f"!has(self.conf) || self.conf.all(name, name.startsWith('spark.') && !(name in {_NOT_IN_CONF}))",
        message=(
            "conf has a name that can't be set here: names begin with spark., fields say master, memory and cores of "
            "drivers and the application's name, and there is neither Spark Connect nor dynamic allocation"
        ),
    ),
    Rule(
        name="pipeline-conf-fixed",
        where="spec",
        rule=f"!has(self.conf) || ({_FIXED_CONF})",
        message=f"conf sets another value than a pipeline needs: leave out {', '.join(FIXED)}",
    ),
)
