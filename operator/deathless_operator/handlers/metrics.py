"""What Prometheus may ask of the operator; every name stands here once.

    deathless_operator_reconciles_total{kind}          looked at
    deathless_operator_reconcile_errors_total{kind,code}  ended by an error (code: DL..., or Refused, or Bug)
    deathless_operator_reconcile_seconds{kind}         how long it took
    deathless_operator_actions_total{kind,action}      what was done: Apply, DeletePod, ...
    deathless_operator_queue_depth                     due and waiting for a worker
    deathless_operator_leader                          1 while this process leads
    deathless_operator_takeovers_total{namespace,service}   changes of primary that were seen
    deathless_operator_service_condition{namespace,service,condition,status}  1 for the status that holds
    deathless_operator_service_replicas_wanted{namespace,service,shard}  0 while it is suspended, or goes
    deathless_operator_services                        services there are
    deathless_operator_drills_total{namespace,drill,verdict}   runs of drills that were judged
    deathless_operator_live_upgrades_total{namespace,service,phase}   LiveUpgrades that ended
    deathless_operator_log_runs_total{namespace,service,kind,reason}   Replays and Rehearsals that ended
    deathless_operator_drill_failed_timestamp_seconds{namespace,drill}  when its last run was judged, if that failed

Only services of several shards have the label `shard`: it is empty for the others, which Prometheus takes as none.

Guarantees: series of a service, and those that tell how a drill stands, go away with it. Does not: serve them (health
does).
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

PREFIX = "deathless_operator"
SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The counters of one process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.reconciles = Counter(f"{PREFIX}_reconciles_total", "Objects looked at.", ["kind"], registry=registry)
        self.errors = Counter(
            f"{PREFIX}_reconcile_errors_total", "Looks that ended by an error.", ["kind", "code"], registry=registry
        )
        self.seconds = Histogram(
            f"{PREFIX}_reconcile_seconds", "Seconds a look took.", ["kind"], buckets=SECONDS, registry=registry
        )
        self.actions = Counter(f"{PREFIX}_actions_total", "Actions carried out.", ["kind", "action"], registry=registry)
        self.queue_depth = Gauge(f"{PREFIX}_queue_depth", "Objects due and waiting for a worker.", registry=registry)
        self.leader = Gauge(f"{PREFIX}_leader", "1 while this process leads.", registry=registry)
        self.takeovers = Counter(
            f"{PREFIX}_takeovers_total",
            "Changes of primary that were seen.",
            ["namespace", "service"],
            registry=registry,
        )
        self.condition = Gauge(
            f"{PREFIX}_service_condition",
            "1 for the status that a condition has.",
            ["namespace", "service", "condition", "status"],
            registry=registry,
        )
        self.wanted = Gauge(
            f"{PREFIX}_service_replicas_wanted",
            "Replicas of a shard that shall be; 0 while the service is suspended, or goes.",
            ["namespace", "service", "shard"],
            registry=registry,
        )
        self.services = Gauge(f"{PREFIX}_services", "Services there are.", registry=registry)
        self.drills = Counter(
            f"{PREFIX}_drills_total", "Runs that were judged.", ["namespace", "drill", "verdict"], registry=registry
        )
        self.drill_failed = Gauge(
            f"{PREFIX}_drill_failed_timestamp_seconds",
            "When the last run was judged, where that failed.",
            ["namespace", "drill"],
            registry=registry,
        )
        self.upgrades = Counter(
            f"{PREFIX}_live_upgrades_total",
            "LiveUpgrades that ended, by phase.",
            ["namespace", "service", "phase"],
            registry=registry,
        )
        self.log_runs = Counter(
            f"{PREFIX}_log_runs_total",
            "Runs of logs that ended, by kind and reason.",
            ["namespace", "service", "kind", "reason"],
            registry=registry,
        )
        self._conditions: dict[tuple[str, str], dict[str, str]] = {}
        self._shards: dict[tuple[str, str], int] = {}
        self._failed: set[tuple[str, str]] = set()

    def set_conditions(self, namespace: str, service: str, conditions: Iterable[tuple[str, str]]) -> None:
        """Show the conditions of a service, as (type, status), in place of those before."""
        wanted = dict(conditions)
        before = self._conditions.get((namespace, service), {})
        for kind, status in before.items():
            if wanted.get(kind) != status:
                self.condition.remove(namespace, service, kind, status)
        for kind, status in wanted.items():
            self.condition.labels(namespace, service, kind, status).set(1)
        self._conditions[namespace, service] = wanted
        self.services.set(len(self._conditions))

    def set_wanted(self, namespace: str, service: str, *, shards: int, replicas: int) -> None:
        """Show how many replicas each of the service's shards shall have; their number is fixed at creation."""
        self._shards[namespace, service] = shards
        for shard in _shard_labels(shards):
            self.wanted.labels(namespace, service, shard).set(replicas)

    def set_drill(self, namespace: str, drill: str, failed_at: float | None) -> None:
        """Show when the last run of a drill that was judged failed, in wall seconds; None: it did not fail."""
        if failed_at is not None:
            self._failed.add((namespace, drill))
            self.drill_failed.labels(namespace, drill).set(failed_at)
        elif (namespace, drill) in self._failed:
            self._failed.remove((namespace, drill))
            self.drill_failed.remove(namespace, drill)

    def forget(self, namespace: str, service: str) -> None:
        """Take away the series of a service that is gone."""
        for kind, status in self._conditions.pop((namespace, service), {}).items():
            self.condition.remove(namespace, service, kind, status)
        for shard in _shard_labels(self._shards.pop((namespace, service), 0)):
            self.wanted.remove(namespace, service, shard)
        if (namespace, service) in self.takeovers._metrics:  # noqa: SLF001 - the library offers no look
            self.takeovers.remove(namespace, service)
        self.services.set(len(self._conditions))

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)


def _shard_labels(shards: int) -> list[str]:
    """Give the values of the label `shard`, as the replicas have it."""
    return [str(shard) for shard in range(shards)] if shards > 1 else [""] * shards
