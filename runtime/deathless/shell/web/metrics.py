"""Metrics: plain integers where the work is done, read by a Collector only when somebody scrapes.

    metrics = MetricSet("deathless_ingress", labels={"service": "bank", "replica": "r0"})
    requests = metrics.counter("requests", "Requests answered.", labels=("status",))
    requests["200"] += 1                                    # a dict of ints
    metrics.gauge("in_flight", "Requests under way.", lambda: len(pending))
    seconds = metrics.histogram("request_seconds", "Time to the answer.", BOUNDS)
    seconds.observe(0.003)

An increment costs an addition, not a lookup of labels; nothing is locked, because each set belongs to one thread.
Guarantees: `expose` gives the Prometheus text format. Does not: serve it, keep history. Imports nothing of ours.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
SECONDS: Final = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
"""Bounds for the time of a request: from a loopback round trip to a long takeover."""


class Histogram:
    """Counts per bucket.

    Args:
        bounds: upper bounds, ascending; what lies above the last goes into +Inf.
    """

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = tuple(bounds)
        assert self.bounds == tuple(sorted(set(self.bounds)))
        self.counts = [0] * (len(self.bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        """Give (upper bound, count at or below it) as the format wants them."""
        buckets: list[tuple[str, float]] = []
        count = 0
        for bound, own in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            count += own
            buckets.append((bound, float(count)))
        return buckets


Read = Callable[[], float | Mapping[str, float]]
"""Reads a gauge at the scrape: one value, or one per value of its label."""


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    help: str
    labels: tuple[str, ...]
    source: object  # dict of ints, Read, or Histogram
    kind: str


class MetricSet(Collector):
    """The metrics of one process.

    Args:
        prefix: first part of every name.
        labels: on every sample: who we are.
    """

    def __init__(self, prefix: str, *, labels: Mapping[str, str]) -> None:
        self._prefix = prefix
        self._names = tuple(labels)
        self._values = tuple(labels.values())
        self._families: list[_Family] = []
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def counter(self, name: str, help_text: str, *, labels: tuple[str, ...] = ()) -> defaultdict[str, int]:
        """Add a counter; with at most one label, whose values are the keys of the dict ("" without a label)."""
        assert len(labels) <= 1
        source: defaultdict[str, int] = defaultdict(int)
        self._add(_Family(name, help_text, labels, source, "counter"))
        return source

    def gauge(
        self, name: str, help_text: str, read: Read, *, labels: tuple[str, ...] = (), counts: bool = False
    ) -> None:
        """Add a value that is read at the scrape.

        Args:
            name: without the prefix.
            help_text: one sentence.
            read: gives the value, or with a label a mapping from its values.
            labels: at most one.
            counts: it only grows: a counter that somebody else keeps.
        """
        assert len(labels) <= 1
        self._add(_Family(name, help_text, labels, read, "counter" if counts else "gauge"))

    def histogram(self, name: str, help_text: str, bounds: Sequence[float] = SECONDS) -> Histogram:
        """Add a histogram."""
        source = Histogram(bounds)
        self._add(_Family(name, help_text, (), source, "histogram"))
        return source

    def _add(self, family: _Family) -> None:
        assert all(family.name != known.name for known in self._families), f"two metrics named {family.name}"
        self._families.append(family)

    def expose(self) -> bytes:
        """Give everything in the text format."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Metric]:
        """See prometheus_client."""
        for family in self._families:
            name = f"{self._prefix}_{family.name}"
            names = (*self._names, *family.labels)
            source = family.source
            if isinstance(source, Histogram):
                histogram = HistogramMetricFamily(name, family.help, labels=names)
                histogram.add_metric(self._values, source.cumulative(), source.total)
                yield histogram
                continue
            of = CounterMetricFamily if family.kind == "counter" else GaugeMetricFamily
            metric = of(name, family.help, labels=names)
            for label, value in _samples(source):
                metric.add_metric((*self._values, label) if family.labels else self._values, value)
            yield metric


def _samples(source: object) -> list[tuple[str, float]]:
    """Give (label value, value) pairs, sorted."""
    found: object = source() if callable(source) else source
    if isinstance(found, Mapping):
        return sorted((str(label), float(value)) for label, value in found.items())
    assert isinstance(found, int | float)
    return [("", float(found))]
