"""What Prometheus may ask of the operator; every name stands here once.

    deathless_operator_reconciles_total{kind}          looked at
    deathless_operator_reconcile_errors_total{kind,code}  ended by an error (code: DL..., or Refused, or Bug)
    deathless_operator_reconcile_seconds{kind}         how long it took
    deathless_operator_actions_total{kind,action}      what was done: Apply, DeletePod, ...
    deathless_operator_queue_depth                     due and waiting for a worker
    deathless_operator_leader                          1 while this process leads
    deathless_operator_takeovers_total{namespace,service}   changes of primary that were seen
    deathless_operator_service_condition{namespace,service,condition,status}  1 for the status that holds
    deathless_operator_services                        services there are
    deathless_operator_drills_total{namespace,drill,verdict}   runs of drills that were judged

Guarantees: series of a service go away with it. Does not: serve them (health does).
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
        self.services = Gauge(f"{PREFIX}_services", "Services there are.", registry=registry)
        self.drills = Counter(
            f"{PREFIX}_drills_total", "Runs that were judged.", ["namespace", "drill", "verdict"], registry=registry
        )
        self._conditions: dict[tuple[str, str], dict[str, str]] = {}

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

    def forget(self, namespace: str, service: str) -> None:
        """Take away the series of a service that is gone."""
        for kind, status in self._conditions.pop((namespace, service), {}).items():
            self.condition.remove(namespace, service, kind, status)
        if (namespace, service) in self.takeovers._metrics:  # noqa: SLF001 - the library offers no look
            self.takeovers.remove(namespace, service)
        self.services.set(len(self._conditions))

    def text(self) -> bytes:
        """Return everything in Prometheus' text format."""
        return generate_latest(self.registry)
