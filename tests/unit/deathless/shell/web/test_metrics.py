"""Plain integers become the Prometheus text format at the scrape."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from deathless.shell.web.metrics import Histogram, MetricSet


def samples(metrics: MetricSet) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.expose().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_counters_gauges_and_histograms_are_exposed_with_who_we_are() -> None:
    metrics = MetricSet("app", labels={"replica": "r0"})
    requests = metrics.counter("requests", "Requests.", labels=("status",))
    plain = metrics.counter("starts", "Starts.")
    metrics.gauge("size", "Size.", lambda: 7)
    metrics.gauge("role", "Role.", lambda: {"primary": 1}, labels=("role",))
    metrics.gauge("frames", "Frames.", lambda: 3, counts=True)
    seconds = metrics.histogram("seconds", "Time.", (0.1, 1.0))
    requests["200"] += 2
    requests["404"] += 1
    plain[""] += 1
    seconds.observe(0.1)
    seconds.observe(5.0)
    me = ("replica", "r0")
    assert samples(metrics) == {
        ("app_requests_total", (me, ("status", "200"))): 2,
        ("app_requests_total", (me, ("status", "404"))): 1,
        ("app_starts_total", (me,)): 1,
        ("app_size", (me,)): 7,
        ("app_role", (me, ("role", "primary"))): 1,
        ("app_frames_total", (me,)): 3,
        ("app_seconds_bucket", (("le", "0.1"), me)): 1,
        ("app_seconds_bucket", (("le", "1.0"), me)): 1,
        ("app_seconds_bucket", (("le", "+Inf"), me)): 2,
        ("app_seconds_count", (me,)): 2,
        ("app_seconds_sum", (me,)): 5.1,
    }


def test_values_are_read_at_each_scrape() -> None:
    metrics = MetricSet("app", labels={})
    value = [1.0]
    metrics.gauge("size", "Size.", lambda: value[0])
    assert samples(metrics)["app_size", ()] == 1
    value[0] = 2
    assert samples(metrics)["app_size", ()] == 2


def test_name_is_taken_once_and_bounds_ascend() -> None:
    metrics = MetricSet("app", labels={})
    metrics.counter("a", "A.")
    with pytest.raises(AssertionError, match="two metrics"):
        metrics.counter("a", "A.")
    with pytest.raises(AssertionError):
        Histogram((2.0, 1.0))
